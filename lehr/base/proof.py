"""What is known about symbolic integers: relations, proofs, facts, and decisions that become
guards.

`prove_*` answer True (holds for every value of the variables), False (holds for none) or None
(unknown). `decide` answers for the run at hand: proven, or by the decider in force (capture
installs one: it reads the hint of the size and records the relation as a guard), or `Undecided`.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

from lehr.base.bound import nonneg, without_quotients
from lehr.base.poly import ASKER, Expr, Sym, Var, const_of, terms_of
from lehr.base.sym import (
    Mod,
    divisor,
    evaluate,
    free,
    interval,
    minimum,
    parse,
    substitute,
    to_text,
)

_compare: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_negation = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_written: dict[type[ast.cmpop], str] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Relation:
    """``lhs op rhs`` between two expressions, with op one of ``== != < <= > >=``. Its text is a
    Python expression.
    """

    op: str
    lhs: Expr
    rhs: Expr

    def __post_init__(self) -> None:
        if self.op not in _compare:
            raise ValueError(f"unknown relation {self.op!r}: use one of {' '.join(_compare)}")

    def __str__(self) -> str:
        return f"{to_text(self.lhs)} {self.op} {to_text(self.rhs)}"

    @classmethod
    def parse(cls, text: str, variables: Mapping[str, Var]) -> Relation:
        """Reads the text of a relation; `ValueError` where it is none."""
        try:
            node = ast.parse(text.strip(), mode="eval").body
        except SyntaxError as error:
            raise ValueError(f"not a relation: {text!r}: {error.msg}") from None
        if (
            not isinstance(node, ast.Compare)
            or len(node.ops) != 1
            or type(node.ops[0]) not in _written
        ):
            raise ValueError(f"not a relation between two symbolic integers: {text!r}")
        lhs, rhs = (
            parse(ast.unparse(side), variables) for side in (node.left, node.comparators[0])
        )
        return cls(_written[type(node.ops[0])], lhs, rhs)

    def free(self) -> frozenset[Var]:
        return free(self.lhs) | free(self.rhs)

    def holds(self, values: Mapping[Var, int]) -> bool:
        """Whether it holds for these values of its variables."""
        return _compare[self.op](evaluate(self.lhs, values), evaluate(self.rhs, values))

    def negated(self) -> Relation:
        return Relation(_negation[self.op], self.lhs, self.rhs)

    def prove(self) -> bool | None:
        return prove(self.op, self.lhs, self.rhs)


def _at_least_zero(d: Expr) -> bool | None:
    if nonneg(d):
        return True
    return False if nonneg(-1 - d) else None


def _zero(d: Expr) -> bool | None:
    if isinstance(d, int):
        return d == 0
    for e in (d, without_quotients(d)):
        if isinstance(e, int):
            return e == 0
        if e.lo > 0 or e.hi < 0:
            return False
        if const_of(e) % math.gcd(*(c * f.div for f, c in terms_of(e))):
            return False
    return False if nonneg(d - 1) or nonneg(-1 - d) else None


def _opposite(answer: bool | None) -> bool | None:
    return None if answer is None else not answer


# Each relation as a question about the difference lhs - rhs.
_questions: dict[str, Callable[[Expr], bool | None]] = {
    "==": _zero,
    "!=": lambda d: _opposite(_zero(d)),
    ">=": _at_least_zero,
    ">": lambda d: _at_least_zero(d - 1),
    "<=": lambda d: _at_least_zero(-d),
    "<": lambda d: _at_least_zero(-d - 1),
}


def prove(op: str, a: Expr, b: Expr) -> bool | None:
    """True where ``a op b`` holds for every value of the variables, False where for none, None
    where unknown.
    """
    if isinstance(a, int) and isinstance(b, int):
        return _compare[op](a, b)
    return _questions[op](a - b)


def prove_eq(a: Expr, b: Expr) -> bool | None:
    return prove("==", a, b)


def prove_ne(a: Expr, b: Expr) -> bool | None:
    return prove("!=", a, b)


def prove_lt(a: Expr, b: Expr) -> bool | None:
    return prove("<", a, b)


def prove_le(a: Expr, b: Expr) -> bool | None:
    return prove("<=", a, b)


def prove_gt(a: Expr, b: Expr) -> bool | None:
    return prove(">", a, b)


def prove_ge(a: Expr, b: Expr) -> bool | None:
    return prove(">=", a, b)


class Decider(Protocol):
    """Answers what cannot be proven, and records the answer as an assumption."""

    def decide(self, relation: Relation) -> bool: ...


class Undecided(RuntimeError):
    """A program's behaviour depends on a size that nobody knows yet; `relation` says how."""

    def __init__(self, relation: Relation) -> None:
        names = ", ".join(sorted(v.name for v in relation.free()))
        super().__init__(
            f"whether {relation} depends on the symbolic size {names}, and no decider is in force: "
            f"give it a range that settles it, or make the size static"
        )
        self.relation = relation


_decider: ContextVar[Decider | None] = ContextVar("lehr_decider", default=None)


@contextmanager
def deciding(decider: Decider | None) -> Iterator[None]:
    """Installs the decider that `decide` asks within the block, in this thread or task."""
    token = _decider.set(decider)
    try:
        yield
    finally:
        _decider.reset(token)


def decide(a: Expr, op: str, b: Expr) -> bool:
    """``a op b`` as a bool: compared, proven, or asked from the decider in force; otherwise raises
    `Undecided`.
    """
    if isinstance(a, int) and isinstance(b, int):
        return _compare[op](a, b)
    with asking(None):
        answer = prove(op, a, b)
        if answer is not None:
            return answer
        relation = Relation(op, a, b)
        decider = _decider.get()
        if decider is None:
            raise Undecided(relation)
        holds = decider.decide(relation)
        notes = _notes.get()
        if notes is not None:
            notes.append(str(relation if holds else relation.negated()))
        return holds


_notes: ContextVar[list[str] | None] = ContextVar("lehr_notes", default=None)


@contextmanager
def noting() -> Iterator[list[str]]:
    """The texts of the relations that are decided (not proven) within the block, as they hold."""
    made: list[str] = []
    token = _notes.set(made)
    try:
        yield made
    finally:
        _notes.reset(token)


class Asked(Protocol):
    """What numbers that a program compares or converts ask: see `asking`."""

    def ask(self, op: str, a: Expr, b: Expr) -> bool: ...

    def settle(self, e: Expr) -> int: ...


@contextmanager
def asking(asked: Asked | None) -> Iterator[None]:
    """Within the block, in this thread, ``a == b``, ``a < b``, ``bool(a)`` and ``int(a)`` of
    symbolic integers are asked from `asked`; None: they are structural, or raise, as ever."""
    held, ASKER.decider = ASKER.decider, asked
    try:
        yield
    finally:
        ASKER.decider = held


class Contradiction(ValueError):
    """A fact that no value satisfies together with the facts before it."""


def _as_lower_bound(op: str, d: Expr) -> Expr:
    """The expression that ``d op 0`` says is not negative."""
    return {">=": d, ">": d - 1, "<=": -d, "<": -1 - d}[op]


class Facts:
    """Assumptions about variables: an immutable set that `assume` extends.

    Ranges and divisors refine variables, equations replace them; any other inequality is kept and
    proves what differs from it by something known. Results are ordinary expressions over the
    original variables: interning stays sound.
    """

    __slots__ = ("_back", "_equal", "_into", "_known", "_ranges", "_unequal", "relations")

    def __init__(self, *relations: Relation) -> None:
        self.relations: tuple[Relation, ...] = ()
        self._ranges: dict[Var, tuple[Any, Any, int]] = {}
        self._equal: dict[Var, Expr] = {}
        self._known: list[Expr] = []  # not negative
        self._unequal: set[Expr] = set()  # not zero
        self._into: dict[Var, Expr] = {}  # a cache: variable -> what stands for it in a question
        self._back: dict[Var, Expr] = {}
        for relation in relations:
            self._add(relation)

    def __repr__(self) -> str:
        return f"Facts({', '.join(map(str, self.relations))})"

    def assume(self, relation: Relation) -> Facts:
        """These facts and one more; `Contradiction` where that is proven impossible."""
        return Facts(*self.relations, relation)

    def simplify(self, e: Expr) -> Expr:
        """An expression over the original variables that equals `e` where the facts hold."""
        refined = self._refine(e)
        return substitute(refined, self._back)

    def interval(self, e: Expr) -> tuple[int | None, int | None]:
        return interval(self._refine(e))

    def divisor(self, e: Expr) -> int:
        return divisor(self._refine(e))

    def prove(self, op: str, a: Expr, b: Expr) -> bool | None:
        """`prove` under these facts."""
        d = self._refine(a - b)
        answer = _questions[op](d)
        if answer is not None:
            return answer
        if op in ("==", "!="):
            unequal = {self._refine(e) for e in self._unequal}
            if not unequal.isdisjoint((d, -d)) or self._follows(d - 1) or self._follows(-1 - d):
                return op == "!="
            return op == "==" if self._follows(d) and self._follows(-d) else None
        d = _as_lower_bound(op, d)
        return True if self._follows(d) else False if self._follows(-1 - d) else None

    def _follows(self, d: Expr) -> bool:
        return nonneg(d) or any(nonneg(d - self._refine(known)) for known in self._known)

    def _refine(self, e: Expr) -> Expr:
        for v in free(e):
            if v not in self._into:
                self._into[v] = self._stand_in(v)
        return substitute(e, self._into)

    def _stand_in(self, v: Var) -> Expr:
        if v in self._equal:
            return self._refine(self._equal[v])
        lo, hi, div = self._ranges.get(v, (v.lo, v.hi, v.div))
        top: Any = None if hi == math.inf else hi
        if v.bound is not None:
            top = self._refine(v.bound)
            if hi < v.hi:
                top = minimum(top, hi)
        if isinstance(top, int) and top < lo:
            raise Contradiction(f"no value is left for {v}: {self!r}")
        new = Var(v.name, None if lo == -math.inf else lo, top, div)
        if new.lo == new.hi:
            return int(new.lo)
        self._back[new] = v
        return new

    def _add(self, relation: Relation) -> None:
        answer = self.prove(relation.op, relation.lhs, relation.rhs)
        if answer is False:
            raise Contradiction(f"{relation} contradicts what is known: {self!r}")
        d = substitute(relation.lhs - relation.rhs, self._equal)
        self.relations += (relation,)
        if answer is None and isinstance(d, Sym):
            if relation.op == "==":
                self._equate(d)
            elif relation.op == "!=":
                self._exclude(d)
            else:
                self._bound(_as_lower_bound(relation.op, d))
        self._into, self._back = {}, {}

    def _narrow(self, v: Var, lo: Any = -math.inf, hi: Any = math.inf, div: int = 1) -> None:
        now = self._ranges.get(v, (v.lo, v.hi, v.div))
        lo, hi, div = max(lo, now[0]), min(hi, now[1]), math.lcm(div, now[2])
        low = lo if lo == -math.inf else -(-lo // div) * div
        top = hi if hi == math.inf else hi // div * div
        if top < low:
            raise Contradiction(f"no value is left for {v}: {self!r}")
        self._ranges[v] = low, top, div

    def _equate(self, d: Sym) -> None:
        """``d == 0``: a divisibility, the value of a variable, or two inequalities."""
        terms = terms_of(d)
        first = terms[0][0]
        if len(terms) == 1 and const_of(d) == 0 and isinstance(first, Mod):
            if isinstance(first.num, Var) and isinstance(first.den, int):
                return self._narrow(first.num, div=first.den)
        for v, c in sorted(terms, key=lambda term: to_text(term[0]), reverse=True):
            value = v - d * c
            if isinstance(v, Var) and c in (1, -1) and v not in self._reach(value):
                return self._replace(v, value)
        self._known += [d, -d]

    def _reach(self, e: Expr) -> set[Var]:
        """The variables that what stands for `e` is made from, their symbolic ends included."""
        found: set[Var] = set()
        stack = list(free(e))
        while stack:
            v = stack.pop()
            if v not in found:
                found.add(v)
                stack.extend(free(self._equal.get(v, 0)))
                stack.extend(free(v.bound) if v.bound is not None else ())
        return found

    def _replace(self, v: Var, value: Expr) -> None:
        lo, hi, div = self._ranges.pop(v, (v.lo, v.hi, v.div))
        self._equal = {key: substitute(e, {v: value}) for key, e in self._equal.items()}
        self._equal[v] = value
        if lo != -math.inf:
            self._bound(value - lo)
        if hi != math.inf:
            self._bound(hi - value)
        if v.bound is not None:
            self._bound(substitute(v.bound, self._equal) - value)
        rest = value % div
        if isinstance(rest, Sym):
            self._equate(rest)

    def _exclude(self, d: Sym) -> None:
        self._unequal.add(d)
        v, c = terms_of(d)[0]
        if len(terms_of(d)) == 1 and isinstance(v, Var) and const_of(d) % c == 0:
            value = -const_of(d) // c
            lo, hi, div = self._ranges.get(v, (v.lo, v.hi, v.div))
            if value == lo:
                self._narrow(v, lo=lo + div)
            elif value == hi:
                self._narrow(v, hi=hi - div)

    def _bound(self, d: Expr) -> None:
        """``d >= 0``."""
        if isinstance(d, int) or d.lo >= 0:
            return
        self._known.append(d)
        v, c = terms_of(d)[0]
        if len(terms_of(d)) == 1 and isinstance(v, Var):
            if c > 0:
                self._narrow(v, lo=-(const_of(d) // c))
            else:
                self._narrow(v, hi=const_of(d) // -c)
