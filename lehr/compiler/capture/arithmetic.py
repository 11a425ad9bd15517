"""Python numbers that are known only at run time.

A number from outside that is seen to change, or that stands in an optimizer's `param_groups`, is an
input of the graph. What the program computes from it with `+ - * /` are nodes of the graph; what
only Python can compute (`math.cos`, `%` by a changing number, `round`) is computed by Python before
the graph runs: such a number is an input, too, and its source is an expression over other sources.
A comparison becomes a guard on how it came out.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lehr.compiler.capture.builtins import MODELS
from lehr.compiler.capture.fact import FACTS, Relation
from lehr.compiler.capture.mapping import DictValue
from lehr.compiler.capture.operation import BINARY, COMPARE
from lehr.compiler.capture.sets import SetValue
from lehr.compiler.capture.source import KINDS, Kind, Source, based, shown, text
from lehr.compiler.capture.tracer import SMALL, SymNumber
from lehr.compiler.capture.value import Const, Value

if TYPE_CHECKING:
    from lehr.compiler.capture.calling import Args, Kwargs

    Base = Any      # the machine that these methods become part of
else:
    Base = object

# Operators that a graph computes as Python does; with divisions, as long as nothing is divided by
# zero, with powers, where they can be nothing but real and no larger than a float.
ARITHMETIC = frozenset(("+", "-", "*", "/", "//", "%", "**"))
DIVISIONS = frozenset(("/", "//", "%", "**"))
# Pure functions of numbers that Python computes before the graph runs.
UNARY: tuple[Callable[..., Any], ...] = (
    abs, round, int, float, operator.neg, operator.invert, math.sqrt, math.exp, math.expm1,
    math.log, math.log2, math.log10, math.log1p, math.sin, math.cos, math.tan, math.asin, math.acos,
    math.atan, math.sinh, math.cosh, math.tanh, math.floor, math.ceil, math.trunc, math.fabs,
    math.erf, math.erfc, math.gamma, math.lgamma, math.degrees, math.radians)
PAIRS: dict[str, Callable[..., Any]] = {
    **{symbol: BINARY[symbol][0] for symbol in ("+", "-", "*", "/", "//", "%", "**", "<<", ">>",
                                                "&", "|", "^")},
    "pow": math.pow, "fmod": math.fmod, "atan2": math.atan2, "hypot": math.hypot,
    "copysign": math.copysign, "log": math.log, "round": round}
NAMES = {function: name for name, function in PAIRS.items()}
FOLDED = frozenset((*UNARY, *PAIRS.values()))


def call_row(function: Callable[..., Any]) -> Kind:
    name = function.__name__
    return Kind(lambda s, bind: f"{bind(function, name)}({based(s).expr(bind)})",
                lambda args, base, key: function(base), lambda s: f"{name}({based(s).name()})")


def pair_row(name: str, flip: bool) -> Kind:
    """A function of the base and the key; `flip`: of the key and the base."""
    function = PAIRS[name]

    def expr(s: Source, bind: Any) -> str:
        sides = [based(s).expr(bind), text(s.key, bind)]
        return f"{bind(function, 'pair')}({', '.join(reversed(sides) if flip else sides)})"

    def read(args: Any, base: Any, key: Any) -> Any:
        return function(key, base) if flip else function(base, key)

    def told(s: Source) -> str:
        sides = [based(s).name(), shown(s.key)]
        first, second = reversed(sides) if flip else sides
        return f"{name}({first}, {second})" if name.isalnum() else f"({first} {name} {second})"
    return Kind(expr, read, told)


for _function in UNARY:
    KINDS[f"number {_function.__name__}"] = call_row(_function)
for _name in PAIRS:
    KINDS[f"numbers {_name}"] = pair_row(_name, False)
    KINDS[f"numbers {_name} flipped"] = pair_row(_name, True)
FACTS["member"] = lambda x, detail, args: (x in detail[0]) is detail[1]


class NumberValue(Value):
    """A Python number known only at run time."""

    __slots__ = ("number",)
    TYPES = (bool, int, float, complex)

    def __init__(self, number: SymNumber, source: Source | None = None) -> None:
        self.number, self.source = number, source

    @property
    def type_(self) -> Any:
        return self.TYPES[self.number.scalar_category]

    def type_of(self, m: Any) -> Any:
        return self.type_

    def constant(self, m: Any) -> Any:
        """C code needs the number itself: it becomes a constant under guards."""
        return self.number.settle()

    def key(self, m: Any) -> Any:
        return self.number.settle()

    def rebuild(self, r: Any) -> Any:
        return r.number(self)

    def __repr__(self) -> str:
        return f"NumberValue({self.number})"


def is_input(source: Source) -> bool:
    """Numbers in an optimizer's `param_groups` are inputs of the graph."""
    step: Source | None = source
    while step is not None:
        if step.kind in ("attr", "item", "entry") and step.key == "param_groups":
            return True
        step = step.base
    return False


def source_of(expr: Any) -> Any:
    """An expression of numbers, (symbol, left, right) over sources and constants, as a source."""
    if type(expr) is not tuple or isinstance(expr, Source):
        return expr
    symbol, left, right = expr[0], source_of(expr[1]), source_of(expr[2])
    if isinstance(left, Source):
        return Source(f"numbers {symbol}", left, right)
    return Source(f"numbers {symbol} flipped", right, left)


def rests_on(source: Source, loose: frozenset[Source]) -> bool:
    """Whether a number, or one that it is computed from, is among these."""
    return source in loose or source.kind.startswith("number") and any(
        isinstance(s, Source) and rests_on(s, loose) for s in (source.base, source.key))


def numeric(function: Callable[..., Any], plain: Any) -> Any:
    """The model of a function of numbers: as it was, but for numbers known only at run time."""
    def run(m: Any, args: Args, kwargs: Kwargs) -> Value:
        made = m.derived(function, args) if not kwargs else None
        if made is not None:
            return made  # type: ignore[no-any-return]
        return plain(m, args, kwargs)  # type: ignore[no-any-return]
    return run


class Arithmetic(Base):
    """The part of the machine that computes with such numbers."""

    models = {**MODELS, **{f: numeric(f, MODELS[f]) for f in FOLDED if f in MODELS}}

    def number(self, real: Any, source: Source) -> Value:
        if is_input(source) or source in self.loose:
            self.guard(source, "type", type(real))
            if type(real) is int:
                if real.bit_length() > SMALL:
                    return super().number(real, source)  # type: ignore[no-any-return]
                self.guard(source, "small", None)
            return self.input(real, source)
        return super().number(real, source)  # type: ignore[no-any-return]

    def input(self, real: Any, source: Source) -> NumberValue:
        """A number as an input of the graph."""
        category = 2 if type(real) is float else 1
        return NumberValue(self.tracer.number(source, source.name(), category, real), source)

    def fold(self, function: Any, args: Args, kwargs: Kwargs) -> Value | None:
        if function in FOLDED and not kwargs:
            made = self.derived(function, args)
            if made is not None:
                return made
        return super().fold(function, args, kwargs)  # type: ignore[no-any-return]

    def derived(self, function: Callable[..., Any], args: Args) -> NumberValue | None:
        """A pure function of numbers as a number that Python computes at each call; None where that
        cannot be said."""
        found = [a.force(self) for a in args]
        if not any(isinstance(v, NumberValue) for v in found):
            return None
        sides, hints = [], []
        for v in found:
            if isinstance(v, NumberValue) and v.number.hint is not None and (
                    v.number.expr is not None):
                sides.append(source_of(v.number.expr))
                hints.append(v.number.hint)
            elif isinstance(v, Const) and type(v.value) in (int, float):
                sides.append(v.value)
                hints.append(v.value)
            else:
                return None
        try:
            real = function(*hints)
        except (ArithmeticError, ValueError, TypeError):
            return None
        if type(real) is not float and (type(real) is not int or real.bit_length() > SMALL):
            return None
        if len(sides) == 1:
            source = Source(f"number {function.__name__}", sides[0], None)
        elif len(sides) == 2 and function in NAMES:
            source = source_of((NAMES[function], *sides))
        else:
            return None
        self.guard(source, "type", type(real))
        if type(real) is int:
            self.guard(source, "small", None)
        return self.input(real, source)

    def binary(self, symbol: str, left: Value, right: Value, shown: str = "") -> Value:
        left, right = left.force(self), right.force(self)
        if isinstance(left, NumberValue) or isinstance(right, NumberValue):
            made = self.number_op(symbol, left, right)
            if made is not None:
                return made
        return super().binary(symbol, left, right, shown)  # type: ignore[no-any-return]

    def compare(self, symbol: str, left: Value, right: Value) -> Value:
        left, right = left.force(self), right.force(self)
        if isinstance(left, NumberValue) or isinstance(right, NumberValue):
            made = self.number_op(symbol, left, right)
            if made is not None:
                return made
        return super().compare(symbol, left, right)  # type: ignore[no-any-return]

    def unary(self, symbol: str, value: Value) -> Value:
        value = value.force(self)
        if isinstance(value, NumberValue) and symbol in ("-", "+"):
            negated: Any = -value.number  # type: ignore[operator]
            return NumberValue(negated) if symbol == "-" else value
        return super().unary(symbol, value)  # type: ignore[no-any-return]

    def number_op(self, symbol: str, left: Value, right: Value) -> Value | None:
        """Arithmetic and comparison where both sides are numbers."""
        sides = []
        for v in (left, right):
            if isinstance(v, NumberValue):
                sides.append(v.number)
            elif isinstance(v, Const) and type(v.value) in (int, float, bool):
                sides.append(v.value)
            else:
                return None
        if symbol not in COMPARE and not self.in_graph(symbol, *sides):
            made = self.derived(PAIRS[symbol], [left, right]) if symbol in PAIRS else None
            if made is not None:
                return made
            sides = [s.settle() if isinstance(s, SymNumber) else s for s in sides]
        if symbol in COMPARE:
            return Const(self.related(symbol, *sides))
        return self.lifted(  # type: ignore[no-any-return]
            self.native_op(BINARY[symbol][0], *sides))

    def in_graph(self, symbol: str, left: Any, right: Any) -> bool:
        """Whether a graph computes as Python does, for all numbers that the guards let in."""
        if symbol not in DIVISIONS:
            return symbol in ARITHMETIC
        if symbol == "**":
            return (type(left) is float and 0 < left <= 1 and not self.is_loose(right)
                    and self.related(">=", right, 0))
        if not isinstance(right, SymNumber):
            return bool(right)
        return not self.is_loose(right) and self.related("!=", right, 0)

    def related(self, symbol: str, left: Any, right: Any) -> bool:
        """Compares numbers, with a guard on how that comes out."""
        exprs = [s.expr if isinstance(s, SymNumber) else s for s in (left, right)]
        function = COMPARE[symbol][0]
        if None in exprs:
            return function(*[  # type: ignore[no-any-return]
                s.settle() if isinstance(s, SymNumber) else s for s in (left, right)])
        outcome = function(*[s.hint if isinstance(s, SymNumber) else s for s in (left, right)])
        leaf = next(iter((left if isinstance(left, SymNumber) else right).leaves))
        self.guard(leaf, "relation",
                   Relation(symbol, *exprs, outcome))  # type: ignore[call-arg]
        return outcome  # type: ignore[no-any-return]

    def is_loose(self, side: Any) -> bool:
        """Whether a number comes from one whose other values may be anything, zero for instance."""
        return isinstance(side, SymNumber) and any(rests_on(s, self.loose) for s in side.leaves)

    def contains(self, whole: Value, item: Value) -> bool:
        """`in`: a number among the constant keys of a dict or a set."""
        whole, item = whole.force(self), item.force(self)
        if isinstance(item, NumberValue) and item.number.expr is not None and isinstance(
                whole, DictValue | SetValue) and whole.type_.__contains__ in PLAIN_CONTAINS:
            keys = tuple(whole.values_of(self) if isinstance(whole, DictValue) else
                         whole.content(self))
            if all(type(k) in (int, float, str, bool, type(None)) for k in keys):
                outcome = item.number.hint in keys
                self.guard(source_of(item.number.expr), "member", (keys, outcome))
                return outcome
        return super().contains(whole, item)  # type: ignore[no-any-return]

    def truth(self, value: Value) -> bool:
        value = value.force(self)
        if isinstance(value, NumberValue):
            return self.related("!=", value.number, 0)
        return super().truth(value)  # type: ignore[no-any-return]


PLAIN_CONTAINS = (dict.__contains__, set.__contains__, frozenset.__contains__)
