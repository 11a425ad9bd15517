"""Sizes that differ from call to call: symbols in the place of the sizes of a captured call.

A size of a tensor from outside becomes a symbol (a `Var` of at least 2) where the policy says so:
it was seen to change, it is marked, or all are asked for. Sizes that were equal in every capture
share a symbol. What the program, or a stage of the compiler, decides about symbols comes out as
for the sizes at hand, and becomes a guard on the relation. Where the value itself is needed, the
call is captured anew with that size a constant (`Resize`).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from lehr.base import proof, sym
from lehr.base.poly import const_of, factors_of, terms_of
from lehr.base.proof import Facts
from lehr.base.proof import Relation as SizeRelation
from lehr.base.spell import TEXT
from lehr.base.sym import FloorDiv, Mod, Product, Sum, Sym, Var
from lehr.compiler.capture.arithmetic import Arithmetic, NumberValue, source_of
from lehr.compiler.capture.fact import FACTS, Fact
from lehr.compiler.capture.operation import COMPARE
from lehr.compiler.capture.source import KINDS, Source, step
from lehr.compiler.capture.value import Const, Value
from lehr.tensor.tensor import Tensor

if TYPE_CHECKING:
    from lehr.compiler.capture.calling import Args

    Base = Any      # the machine that these methods become part of
else:
    Base = object

KINDS["size"] = step("{B}._shape[{K}]", "{B}.shape[{K}]", lambda base, key: base._shape[key])
KINDS["stride"] = step("{B}._strides[{K}]", "{B}.stride({K})",
                       lambda base, key: base._strides[key])

Place = Any     # (source of a tensor, its rank, dimension), or the source of a number
MOST_FACTS = 60     # relations that later ones are proven from


class SizeFact(NamedTuple):
    """A relation between sizes, and where they are read."""

    relation: SizeRelation
    sources: tuple[tuple[Var, Source], ...]

    def holds(self, args: Mapping[str, object]) -> bool:
        return self.relation.holds({v: s.read(args) for v, s in self.sources})

    def text(self, path: Callable[[Source], str], bind: Any = None) -> str:
        names = {v: path(s) for v, s in self.sources}
        left, right = (str(e) if isinstance(e, int) else sym.render(e, TEXT, names)
                       for e in (self.relation.lhs, self.relation.rhs))
        return f"{left} {self.relation.op} {right}"

    def __str__(self) -> str:
        return self.text(Source.name)


FACTS["size"] = lambda x, detail, args: detail.holds(args)


class Policy(NamedTuple):
    """Which sizes become symbols.

    dynamic  True: those of arguments; None: those that were seen to change; False: none
    seen     the sizes of earlier captures at a place
    static   places that have to stay constants
    alike    places whose symbols have to be the same -> what stands for them
    """

    dynamic: bool | None = None
    seen: Mapping[Place, tuple[int, ...]] = {}
    static: frozenset[Place] = frozenset()
    alike: tuple[frozenset[Place], ...] = ()
    off: bool = False

    def but(self, other: Resize) -> Policy:
        """The policy after a capture that could not go on."""
        if other.everything:
            return self._replace(off=True)
        return self._replace(static=self.static | other.static,
                             alike=(*self.alike, *([other.alike] if other.alike else ())))


class Resize(Exception):
    """A capture has to begin anew: sizes at some places are constants, or equal to each other."""

    def __init__(self, static: frozenset[Place] = frozenset(),
                 alike: frozenset[Place] = frozenset(), everything: bool = False) -> None:
        self.static, self.alike, self.everything = static, alike, everything


MARKS = "_lehr_sizes"   # attribute of a tensor: dimension -> whether its size changes


def marks_of(t: Tensor) -> Mapping[int, bool]:
    return t.__dict__.get(MARKS, {})


class Sizes:
    """The symbols of one capture, what they are at hand, and what was assumed about them."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.hints: dict[Var, int] = {}
        self.sources: dict[Var, Source] = {}
        self.places: dict[Var, list[Place]] = {}
        self.shared: dict[Any, Var] = {}
        self.relations: dict[Any, SizeRelation] = {}
        self.known = Facts()
        self.equal: list[SizeFact] = []

    # -- which sizes are symbols

    def layout(self, t: Tensor, source: Source) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Shape and strides of a tensor from outside, with symbols."""
        shape, strides = t._shape, t._strides
        policy = self.policy
        if policy.off or policy.dynamic is False and not marks_of(t):
            return shape, strides
        marks, all_ = marks_of(t), policy.dynamic is True and is_argument(t, source)
        if not marks and not all_ and not policy.seen:
            return shape, strides
        made = tuple([self.size(n, (source, len(shape), d), source, marks.get(d), all_)
                      for d, n in enumerate(shape)])
        if all(type(n) is int for n in made):
            return shape, strides
        return made, self.strides(made, shape, strides, source)

    def size(self, n: int, place: Place, source: Source, mark: bool | None, every: bool) -> Any:
        """A size as a symbol, if it is to be one."""
        policy = self.policy
        if n < 2 or mark is False or place in policy.static:
            return n
        seen = policy.seen.get(place, ())
        if not (mark or every or policy.dynamic is not False and any(m != n for m in seen)):
            return n
        return self.symbol(n, place, (n, seen), Source("size", source, place[2]))

    def symbol(self, n: int, place: Place, token: Any, source: Source, least: int | None = 2
               ) -> Var:
        """The symbol of a place; places of the same token share it."""
        for group in self.policy.alike:
            if place in group:
                token = group
        token = token, n
        found = self.shared.get(token)
        if found is None:
            found = self.shared[token] = Var(f"s{len(self.hints)}", least)
            self.hints[found], self.sources[found] = n, source
            self.places[found] = []
        elif place not in self.places[found]:
            self.equate(source, found)
        self.places[found].append(place)
        return found

    def equate(self, source: Source, value: Sym) -> None:
        """A guard that what is read is the value of an expression."""
        here = Var("here", None)
        self.equal.append(SizeFact(SizeRelation("==", here, value),
                                   ((here, source), *self.read_by(value))))

    def read_by(self, *expressions: Any) -> tuple[tuple[Var, Source], ...]:
        free = frozenset().union(*(sym.free(e) for e in expressions))
        return tuple([(v, s) for v, s in self.sources.items() if v in free])

    def strides(self, made: Sequence[Any], shape: Sequence[int], strides: Sequence[int],
                source: Source) -> tuple[Any, ...]:
        """Strides as products of sizes, where a dense layout has them so."""
        out: list[Any] = list(strides)
        end: Any = 1
        for d in sorted(range(len(shape)), key=lambda d: (strides[d], shape[d] != 1, -d)):
            if isinstance(end, Sym) and sym.evaluate(end, self.hints) == strides[d]:
                out[d] = end
                self.equate(Source("stride", source, d), end)
            if shape[d] > 1:
                end = made[d] * out[d]
        return tuple(out)

    # -- what is decided about them

    @contextmanager
    def deciding(self, program: bool = False) -> Iterator[None]:
        """Decides what is asked about symbols within the block; program: also comparisons."""
        with proof.deciding(self), proof.asking(self if program else None):
            yield

    def ask(self, op: str, a: Any, b: Any) -> bool:
        return proof.decide(a, op, b)

    def decide(self, relation: SizeRelation) -> bool:
        """How it comes out for the sizes at hand, from now on an assumption."""
        known = self.known.prove(relation.op, relation.lhs, relation.rhs)
        if known is not None:
            return known
        holds = relation.holds(self.hints)
        self.assume(relation if holds else relation.negated())
        return holds

    def assume(self, relation: SizeRelation) -> None:
        equal = variables(relation.lhs - relation.rhs) if relation.op == "==" else ()
        if equal:
            places = frozenset([p for v in equal for p in self.places[v]])
            raise Resize(places) if len(equal) == 1 else Resize(alike=places)
        self.relations.setdefault(str(relation), relation)
        if len(self.relations) < MOST_FACTS:
            self.known = self.known.assume(relation)

    def settle(self, e: Any) -> int:
        """The program needs the value."""
        raise Resize(frozenset([p for v in sym.free(e) for p in self.places[v]]))

    def told(self, given: Any) -> None:
        """Native code made a text of what it was given: sizes in it have to be known."""
        if isinstance(given, Sym):
            self.settle(given)
        elif isinstance(given, list | tuple):
            for part in given:
                self.told(part)

    def value(self, e: Any) -> int:
        return e if isinstance(e, int) else sym.evaluate(e, self.hints)

    def facts(self) -> list[Fact]:
        """The guards: ranges, equal sizes, dense strides, decisions."""
        found = [Fact(s, "size", SizeFact(SizeRelation(">=", v, v.lo), ((v, s),)))
                 for v, s in self.sources.items() if v.lo != -math.inf]
        found += [Fact(f.sources[0][1], "size", f) for f in self.equal]
        for relation in self.relations.values():
            read = self.read_by(relation.lhs, relation.rhs)
            found.append(Fact(read[0][1], "size", SizeFact(relation, read)))
        return found

    def spelled(self, e: Any) -> Any:
        """An expression of sizes as one of numbers: (symbol, left, right) over sources; None where
        there is none."""
        if isinstance(e, int):
            return e
        if isinstance(e, Var):
            return self.sources[e]
        if isinstance(e, Sum):
            made: Any = None
            for f, c in e.terms:
                part = self.spelled(f)
                part = part if c == 1 else ("*", part, c)
                made = part if made is None else ("+", made, part)
            return made if e.const == 0 else ("+", made, e.const)
        if isinstance(e, Product):
            first, *rest = factors_of(e)
            made = self.spelled(first)
            for f in rest:
                made = ("*", made, self.spelled(f))
            return made
        if isinstance(e, FloorDiv | Mod):
            symbol = "//" if isinstance(e, FloorDiv) else "%"
            return symbol, self.spelled(e.num), self.spelled(e.den)
        return self.settle(e)


def variables(difference: Any) -> tuple[Var, ...]:
    """The variable that an equation says the value of, or the two that it says are equal."""
    terms = terms_of(difference)
    found = tuple([f for f, _ in terms if isinstance(f, Var)])
    if len(found) != len(terms) or len(terms) == 2 and (
            const_of(difference) or sum(c for _, c in terms)):
        return ()
    return found if len(found) <= 2 else ()


def is_argument(t: Tensor, source: Source) -> bool:
    """Whether a tensor came as (part of) an argument, not as an object's attribute."""
    step_: Source | None = source
    while step_ is not None:
        if step_.kind in ("attr", "entry", "global", "const", "cell", "dict") and (
                step_.key != "grad"):
            return False
        step_ = step_.base
    return type(t) is Tensor


class SizeValue(Value):
    """A size of a tensor, or what is computed from sizes: a Python int known at run time only."""

    __slots__ = ("size", "sizes")
    type_ = int

    def __init__(self, size: Sym, sizes: Sizes) -> None:
        self.size, self.sizes, self.source = size, sizes, None

    def type_of(self, m: Any) -> Any:
        return int

    def constant(self, m: Any) -> Any:
        return self.sizes.settle(self.size)

    def key(self, m: Any) -> Any:
        return self.sizes.settle(self.size)

    def rebuild(self, r: Any) -> Any:
        return r.size(self)

    def __repr__(self) -> str:
        return f"SizeValue({self.size})"


EXACT: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv,
    "%": operator.mod}
SAME = frozenset((int, round, operator.index, math.floor, math.ceil, math.trunc))


def length_of(plain: Any) -> Any:
    """The model of `len`, which is the first size of a tensor."""
    def run(m: Any, args: Args, kwargs: Any) -> Any:
        twin = getattr(args[0].force(m), "twin", None) if len(args) == 1 else None
        if twin is not None and twin._shape and isinstance(twin._shape[0], Sym) and (
                type(twin).__len__ is Tensor.__len__):
            return SizeValue(twin._shape[0], m.sizes)
        return plain(m, args, kwargs)
    return run


class Sizing(Base):
    """The part of the machine that computes with sizes."""

    models = {**Arithmetic.models, len: length_of(Arithmetic.models[len])}

    def exact(self, left: Value, right: Value) -> list[Any] | None:
        """Both sides as sizes and ints; None where one is none."""
        if not (isinstance(left, SizeValue) or isinstance(right, SizeValue)):
            return None
        sides: list[Any] = []
        for v in (left, right):
            if isinstance(v, SizeValue):
                sides.append(v.size)
            elif isinstance(v, Const) and type(v.value) in (int, bool):
                sides.append(int(v.value))
            elif isinstance(v, NumberValue) and v.type_ is int:
                sides.append(self.tracer.size_of(v.number))
            else:
                return None
        return sides

    def numbered(self, value: Value) -> Value:
        """A size as a number that the graph computes with."""
        value = value.force(self)
        if not isinstance(value, SizeValue):
            return value
        source = source_of(value.sizes.spelled(value.size))
        self.guard(source, "small", None)
        return self.input(  # type: ignore[no-any-return]
            value.sizes.value(value.size), source)

    def binary(self, symbol: str, left: Value, right: Value, shown: str = "") -> Value:
        left, right = left.force(self), right.force(self)
        sides = self.exact(left, right)
        if sides is not None and symbol in EXACT and (
                symbol not in ("//", "%") or proof.decide(sides[1], ">", 0)):
            return self.lifted(EXACT[symbol](*sides))  # type: ignore[no-any-return]
        if self.mixed(left, right):
            left, right = self.numbered(left), self.numbered(right)
        return super().binary(symbol, left, right, shown)  # type: ignore[no-any-return]

    def mixed(self, left: Value, right: Value) -> bool:
        """Whether sizes stand among numbers (and not, say, beside a list)."""
        both = (left, right)
        return any(isinstance(v, SizeValue) for v in both) and all(
            isinstance(v, SizeValue | NumberValue) or isinstance(v, Const) and type(v.value) in (
                int, float, bool) for v in both)

    def compare(self, symbol: str, left: Value, right: Value) -> Value:
        left, right = left.force(self), right.force(self)
        sides = self.exact(left, right)
        if sides is not None and symbol in COMPARE:
            if not any(isinstance(s, Sym) for s in sides):
                return Const(COMPARE[symbol][0](*sides))
            return Const(proof.decide(sides[0], symbol, sides[1]))
        if self.mixed(left, right):
            left, right = self.numbered(left), self.numbered(right)
        return super().compare(symbol, left, right)  # type: ignore[no-any-return]

    def unary(self, symbol: str, value: Value) -> Value:
        value = value.force(self)
        if isinstance(value, SizeValue):
            if symbol in ("-", "+"):
                return self.lifted(  # type: ignore[no-any-return]
                    -value.size if symbol == "-" else value.size)
            value = self.numbered(value)
        return super().unary(symbol, value)  # type: ignore[no-any-return]

    def derived(self, function: Callable[..., Any], args: Args) -> Any:
        if any(isinstance(a.force(self), SizeValue) for a in args):
            if len(args) == 1 and function in SAME:
                return args[0].force(self)
            args = [self.numbered(a) for a in args]
        return super().derived(function, args)

    def truth(self, value: Value) -> bool:
        value = value.force(self)
        if isinstance(value, SizeValue):
            return proof.decide(value.size, "!=", 0)
        return super().truth(value)  # type: ignore[no-any-return]
