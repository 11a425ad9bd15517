"""Facts: what must hold for a captured run to be valid again.  The reference meaning of guards."""
from __future__ import annotations

import operator
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from .source import Source


class Fact(NamedTuple):
    """One guard; kinds are the rows of `FACTS`."""
    source: Source
    kind: str
    detail: Any


OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
    "//": operator.floordiv, "%": operator.mod, "**": operator.pow, "<": operator.lt,
    "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt, ">=": operator.ge}


class Relation(NamedTuple):
    """How a comparison of numbers came out; sides are sources, constants or (symbol, left, right).
    """
    symbol: str
    left: Any
    right: Any
    outcome: bool

    def holds(self, args: Mapping[str, object]) -> bool:
        return evaluate((self.symbol, self.left, self.right), args) is self.outcome

    def text(self, path: Callable[[Source], str], bind: Callable[[Any], str]) -> str:
        whole = written((self.symbol, self.left, self.right), path, bind)
        return whole if self.outcome else f"not {whole}"

    def __str__(self) -> str:
        return self.text(Source.name, repr)


def evaluate(expr: Any, args: Mapping[str, object]) -> Any:
    if isinstance(expr, Source):
        return expr.read(args)
    if type(expr) is tuple:
        return OPERATORS[expr[0]](evaluate(expr[1], args), evaluate(expr[2], args))
    return expr


def written(expr: Any, path: Callable[[Source], str], bind: Callable[[Any], str]) -> str:
    """Python text of an expression of numbers."""
    if isinstance(expr, Source):
        return path(expr)
    if type(expr) is tuple:
        return f"({written(expr[1], path, bind)} {expr[0]} {written(expr[2], path, bind)})"
    return repr(expr) if type(expr) is int and expr >= 0 else bind(expr)


# Guard kind -> (object read from the source, detail, arguments of the call) -> whether it holds.
# This is the reference meaning; fast checks are generated elsewhere.
FACTS: dict[str, Callable[[Any, Any, Mapping[str, object]], bool]] = {
    "type": lambda x, detail, args: type(x) is detail,
    "equals": lambda x, detail, args: type(x) is type(detail) and (x == detail or x != x),
    "is": lambda x, detail, args: x is detail,
    "is not": lambda x, detail, args: x is not detail,
    "alias": lambda x, detail, args: x is detail.read(args),
    "distinct": lambda x, detail, args: all(x is not other.read(args) for other in detail),
    "function": lambda x, detail, args: x.__code__ is detail[0] and x.__globals__ is detail[1],
    # detail: name, the class that holds it, the class behind which the search starts or None
    "class": lambda x, detail, args: owner_of(x, detail[0], detail[2]) is detail[1],
    "len": lambda x, detail, args: len(x) == detail,
    "maxlen": lambda x, detail, args: x.maxlen == detail,
    "truth": lambda x, detail, args: bool(x) is detail,
    "keys": lambda x, detail, args: tuple(x) == detail,
    "absent": lambda x, detail, args: detail not in x,
    "elements": lambda x, detail, args: x == detail,
    "no attribute": lambda x, detail, args: not hasattr(x, detail),
    "small": lambda x, detail, args: abs(x) < 1 << 31,
    "relation": lambda x, detail, args: detail.holds(args),
    "returns": lambda x, detail, args: x() == detail,
    "readable": lambda x, detail, args: True,    # reading the source did not raise
    "empty cell": lambda x, detail, args: not cell_filled(x),
}


def behind(cls: Any, after: Any) -> tuple[Any, ...]:
    """The classes of an MRO that come behind one of them; with None, all."""
    mro: tuple[Any, ...] = cls.__mro__
    return mro if after is None else mro[mro.index(after) + 1:] if after in mro else ()


def owner_of(cls: Any, name: str, after: Any = None) -> Any:
    """The class in the MRO that holds a name, or None."""
    return next((k for k in behind(cls, after) if name in k.__dict__), None)


def cell_filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def apart(*tensors: Any) -> bool:
    """Whether no two tensors share a storage."""
    return len({id(t._storage.origin) for t in tensors}) == len(tensors)


def beside(known: frozenset[int], *tensors: Any) -> bool:
    """Whether no two tensors share a storage, nor any with those whose storages' ids are known."""
    ids = {id(t._storage.origin) for t in tensors}
    return len(ids) == len(tensors) and known.isdisjoint(ids)


def implied(facts: Iterable[Fact]) -> list[Fact]:
    """Drops "readable" where another guard reads the same source anyway, and the type of what is
    known to be a tensor."""
    every = list(facts)
    tensors = {fact.source for fact in every if fact.kind == "tensor"}
    every = [fact for fact in every if fact.kind != "type" or fact.source not in tensors]
    read: set[Source] = set()
    for fact in every:
        source = fact.source.base if fact.kind == "readable" else fact.source
        while source is not None and source not in read:
            read.add(source)
            source = source.base
    return [fact for fact in every if fact.kind != "readable" or fact.source not in read]
