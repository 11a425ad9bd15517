"""Iterators that existed before the call, as the one of a loop is after a graph break in it.

What such an iterator will give is looked at and not taken; it moves on when the effects are
replayed. A capture guards the items that it took and, where it came there, that no more follow: one
capture serves all rounds of a loop.
"""
from __future__ import annotations

import gc
from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING, Any

from .iterators import (
    EnumerateIterator,
    FilterIterator,
    IteratorValue,
    MapIterator,
    ViewValue,
    ZipIterator,
)
from .rebuild import REPLAY
from .source import KINDS, Kind, Source, based
from .value import Const, Known, Value
from .wrapping import FACTORIES

if TYPE_CHECKING:
    from .machine import Machine


def at_index(it: Any, n: int) -> Any:
    _, whole, *index = it.__reduce__()
    return whole[0][index[0] + n] if index else whole[0][n]


def copied(it: Any, n: int) -> Any:
    return tuple(copy(it))[n]


# Kind of iterator -> what reads the n-th item that it is going to give.
AHEAD: dict[type, Callable[[Any, int], Any]] = {
    type(iter([])): at_index, type(iter(())): at_index,
    **dict.fromkeys((type(iter(range(0))), type(iter(range(1 << 70))), type(iter("")),
                     type(iter("\u00e9")), type(iter(b"")), type(iter({})), type(iter({}.values())),
                     type(iter({}.items())), type(reversed({})), type(reversed({}.values())),
                     type(reversed({}.items())), type(iter(set())), type(reversed([])), reversed),
                    copied)}


def readable(it: Any) -> bool:
    """Whether what an iterator walks over is known here."""
    if type(it) is not reversed:
        return type(it) in AHEAD
    # Of an object with its own __getitem__, it is not.
    return all(type(x) in (tuple, str, bytes, range) for x in gc.get_referents(it))


def item(it: Any, n: int) -> Any:
    """The n-th item that an iterator is going to give; IndexError where there are fewer."""
    return AHEAD[type(it)](it, n)


def more(it: Any, n: int) -> bool:
    """Whether it gives an n-th item."""
    try:
        item(it, n)
    except IndexError:
        return False
    return True


class UpcomingIterator(IteratorValue):
    """`taken`: how many items the program took; None: it came to the end."""

    __slots__ = ("real", "source", "taken", "type_")

    def __init__(self, real: Any, source: Source | None) -> None:
        self.type_, self.real, self.source = type(real), real, source
        self.taken: int | None = 0

    def advance(self, m: Machine) -> Value | None:
        ended = self.taken is None
        found = self.take(m)
        if not ended:
            m.effect("iterator.next", self)
        return found

    def take(self, m: Machine) -> Value | None:
        """The next item; the iterator itself is moved on by somebody else."""
        n, source = self.taken, self.source
        if n is None:
            return None
        over = {id(x) for x in gc.get_referents(self.real)}
        try:
            if any(id(e.target.real) in over for e in m.effects):
                raise RuntimeError
            there = more(self.real, n)
        except RuntimeError:    # a dictionary or a set has changed its size
            m.stop("native-method", f"{self.type_.__name__}.__next__, over what was written")
        m.guard(None if source is None else Source("more", source, n), "is", there)
        self.taken = n + 1 if there else None
        if not there:
            return None
        return m.lazy(item(self.real, n), None if source is None else Source("ahead", source, n))


class UpcomingEnumerate(EnumerateIterator):
    """It counts, so it is moved on itself, and takes what it walks over along. `start`: its number
    at the call."""

    __slots__ = ("real", "start")
    start: Value

    def advance(self, m: Machine) -> Value | None:
        inner: Any = self.inner
        ended = inner.taken is None
        found = inner.take(m)
        if not ended:
            m.effect("iterator.next", self)
        if found is None:
            return None
        self.number += 1
        return m.tuple_value([m.binary("+", self.start, Const(self.number - 1)), found])


class UpcomingZip(ZipIterator):
    """`zip` keeps nothing but what it walks over."""

    __slots__ = ("real",)


class UpcomingMap(MapIterator):
    """`map` keeps nothing but its function and what it walks over."""

    __slots__ = ("real",)


class UpcomingFilter(FilterIterator):
    """So does `filter`."""

    __slots__ = ("real",)


def asked(function: Callable[[Any, int], Any], label: str, name: str) -> Kind:
    """A step of a path that asks an iterator."""
    return Kind(lambda s, bind: f"{bind(function, label)}({based(s).expr(bind)}, {s.key})",
                lambda arguments, base, key: function(base, key),
                lambda s: name.format(based(s).name(), s.key))


KINDS["ahead"] = asked(item, "ahead", "item {1} of {0}")
KINDS["more"] = asked(more, "more", "whether {0} has an item {1}")
REPLAY["iterator.next"] = lambda it: next(it, None)


def make(m: Machine, real: Any, source: Source | None) -> Value:
    return UpcomingIterator(real, source) if readable(real) else Known(real, source)


def make_joined(m: Machine, real: Any, source: Source | None) -> Value:
    """`map`, `filter`, `zip` and `enumerate`."""
    state, kind = real.__reduce__(), type(real)
    path = None if source is None else Source("call", source.attr("__reduce__")).item(1)
    parts = [m.part(x, path, None, n).force(m) for n, x in enumerate(state[1])] if (
        len(state) == 2) else []    # else a strict one
    made: Any = None
    if kind is zip:
        made = UpcomingZip(parts, False) if len(state) == 2 else None
    elif kind is enumerate:
        if isinstance(parts[0], UpcomingIterator):
            made = UpcomingEnumerate(parts[0], 0)
            made.start = parts[1]
    elif parts:
        made = UpcomingMap(parts[0], parts[1:]) if kind is map else (
            UpcomingFilter(parts[0], parts[1], True, filter))
    if not made:
        return Known(real, source)
    made.real, made.source = real, source
    return made  # type: ignore[no-any-return]


def make_view(m: Machine, real: Any, source: Source | None) -> Value:
    whole = m.wrap(gc.get_referents(real)[0], None if source is None else Source("proxied", source))
    name = next(k for k, kind in ViewValue.kinds.items() if isinstance(real, kind))
    return m.call_method(whole, name, [])


FACTORIES.update(dict.fromkeys(AHEAD, make))
FACTORIES.update(dict.fromkeys((map, filter, zip, enumerate), make_joined))
FACTORIES.update(dict.fromkeys(ViewValue.kinds.values(), make_view))
