"""Iterators as values.  `advance` gives the next value, or None at the end."""
from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from .value import Const, Value, slot

if TYPE_CHECKING:
    from .machine import Machine
    from .mapping import DictValue
    from .rebuild import Rebuilder
    from .sequence import ListValue


class IteratorValue(Value):
    """Base: an iterator is its own `__iter__`."""
    __slots__ = ()
    type_: Any

    def advance(self, m: Machine) -> Value | None:
        raise NotImplementedError

    @slot("__iter__")
    def iter(self, m: Machine) -> Value:
        return self

    @slot("__next__")
    def next(self, m: Machine) -> Value:
        found = self.advance(m)
        return m.error_with(StopIteration, []) if found is None else found

    @slot("__length_hint__")
    def hint(self, m: Machine) -> Value:
        return Const(NotImplemented)


class NativeIterator(IteratorValue):
    """Runs a real iterator over the parts of a value; `lift` makes values of what it gives."""
    __slots__ = ("count", "lift", "native", "type_", "whole")

    def __init__(self, whole: Value, native: Iterator[Any], lift: Callable[[Any], Value],
                 kind: type) -> None:
        self.whole, self.native, self.lift, self.type_ = whole, native, lift, kind
        self.count, self.source = 0, None

    def advance(self, m: Machine) -> Value | None:
        try:
            found = next(self.native, self)
        except RuntimeError as error:  # the container changed its size
            m.fault(error)
        if found is self:
            return None
        self.count += 1
        return self.lift(found)

    @slot("__length_hint__")
    def hint(self, m: Machine) -> Value:
        return Const(operator.length_hint(self.native))

    def rebuild(self, r: Rebuilder) -> Any:
        return self.advanced(r, iter)

    def advanced(self, r: Rebuilder, start: Callable[[Any], Any]) -> Any:
        """A new iterator where this one stands; a written container is not yet what it iterates."""
        if any(effect.target is self.whole for effect in r.machine.effects):
            r.machine.stop("generator-escape", "an iterator over a container that was written")
        real = start(r(self.whole))
        for _ in range(self.count):
            next(real, None)
        return real


class ListIterator(IteratorValue):
    """Iterates a list that may grow or shrink meanwhile."""
    __slots__ = ("index", "whole")
    type_: Any = type(iter([]))

    def __init__(self, whole: ListValue, index: int = 0) -> None:
        self.whole, self.index, self.source = whole, index, None

    def advance(self, m: Machine) -> Value | None:
        index = self.index
        if index < 0:
            return None
        items = self.whole.parts(m)
        if index >= len(items):
            self.index = -1
            return None
        self.index = index + 1
        return items[index]

    @slot("__length_hint__")
    def hint(self, m: Machine) -> Value:
        return Const(0 if self.index < 0 else max(0, len(self.whole.parts(m)) - self.index))

    def rebuild(self, r: Rebuilder) -> Any:
        if self.index < 0:
            return iter([])
        real = iter(r(self.whole))
        r.after.append(lambda: real.__setstate__(self.index))   # the list may have grown
        return real


class ReverseIterator(IteratorValue):
    """`reversed` of a list."""
    __slots__ = ("index", "whole")
    type_: Any = type(reversed([]))

    def __init__(self, whole: ListValue, size: int) -> None:
        self.whole, self.index, self.source = whole, size - 1, None

    def advance(self, m: Machine) -> Value | None:
        index, items = self.index, self.whole.parts(m)
        if 0 <= index < len(items):
            self.index = index - 1
            return items[index]
        self.index = -1
        return None

    @slot("__length_hint__")
    def hint(self, m: Machine) -> Value:
        return Const(self.index + 1 if self.index < len(self.whole.parts(m)) else 0)

    def rebuild(self, r: Rebuilder) -> Any:
        real = reversed(r(self.whole))
        r.after.append(lambda: real.__setstate__(self.index))
        return real


class SequenceIterator(IteratorValue):
    """The old protocol: `__getitem__` with 0, 1, 2, ... until IndexError; or backwards."""
    __slots__ = ("index", "step", "whole")

    def __init__(self, whole: Value, index: int = 0, step: int = 1) -> None:
        self.whole, self.index, self.step, self.source = whole, index, step, None

    @property
    def type_(self) -> Any:
        return reversed if self.step < 0 else type(iter(range(0)))

    def advance(self, m: Machine) -> Value | None:
        if self.index < 0:
            return None
        found = m.catching((IndexError, StopIteration),
                           lambda: m.getitem(self.whole, Const(self.index)))
        self.index = -1 if found is None else self.index + self.step
        return found

    def rebuild(self, r: Rebuilder) -> Any:
        real: Any = reversed(r(self.whole)) if self.step < 0 else iter(r(self.whole))
        real.__setstate__(self.index)
        return real


class CallIterator(IteratorValue):
    """`iter(callable, sentinel)`."""
    __slots__ = ("function", "sentinel")
    type_ = type(iter(int, 1))

    def __init__(self, function: Value, sentinel: Value) -> None:
        self.function: Value | None = function
        self.sentinel, self.source = sentinel, None

    def advance(self, m: Machine) -> Value | None:
        if self.function is None:
            return None
        function = self.function
        found = m.catching((StopIteration,), lambda: m.call(function, []))
        if found is None or m.equal(self.sentinel, found):
            self.function = None
            return None
        return found

    def rebuild(self, r: Rebuilder) -> Any:
        if self.function is None:
            return iter(lambda: None, None)
        return iter(r(self.function), r(self.sentinel))


class EnumerateIterator(IteratorValue):
    __slots__ = ("inner", "number")
    type_ = enumerate

    def __init__(self, inner: Value, number: int) -> None:
        self.inner, self.number, self.source = inner, number, None

    def advance(self, m: Machine) -> Value | None:
        found = m.next(self.inner)
        if found is None:
            return None
        self.number += 1
        return m.tuple_value([Const(self.number - 1), found])

    def rebuild(self, r: Rebuilder) -> Any:
        return enumerate(r(self.inner), self.number)


class ZipIterator(IteratorValue):
    __slots__ = ("inner", "strict")
    type_ = zip

    def __init__(self, inner: list[Value], strict: bool) -> None:
        self.inner, self.strict, self.source = inner, strict, None

    def advance(self, m: Machine) -> Value | None:
        parts: list[Value] = []
        if not self.inner:
            return None
        for i, inner in enumerate(self.inner):
            found = m.next(inner)
            if found is None:
                if self.strict:
                    self.ended(m, i)
                return None
            parts.append(found)
        return m.tuple_value(parts)

    def ended(self, m: Machine, i: int) -> None:
        """With `strict`, all must end together."""
        plural = "s 1-" if i > 1 else " "
        if i:
            m.error(ValueError, f"zip() argument {i + 1} is shorter than argument{plural}{i}")
        for j, inner in enumerate(self.inner[1:], 1):
            if m.next(inner) is not None:
                plural = "s 1-" if j > 1 else " "
                m.error(ValueError, f"zip() argument {j + 1} is longer than argument{plural}{j}")

    def rebuild(self, r: Rebuilder) -> Any:
        return zip(*[r(v) for v in self.inner], strict=self.strict)


class MapIterator(IteratorValue):
    __slots__ = ("function", "inner")
    type_: Any = map

    def __init__(self, function: Value, inner: list[Value]) -> None:
        self.function, self.inner, self.source = function, inner, None

    def advance(self, m: Machine) -> Value | None:
        parts: list[Value] = []
        for inner in self.inner:
            found = m.next(inner)
            if found is None:
                return None
            parts.append(found)
        return m.call(self.function, parts)

    def rebuild(self, r: Rebuilder) -> Any:
        return map(r(self.function), *[r(v) for v in self.inner])


class StarmapIterator(MapIterator):
    __slots__ = ()
    type_ = itertools.starmap

    def advance(self, m: Machine) -> Value | None:
        found = m.next(self.inner[0])
        return None if found is None else m.call(self.function, list(m.iterate(found)))

    def rebuild(self, r: Rebuilder) -> Any:
        return itertools.starmap(r(self.function), r(self.inner[0]))


class FilterIterator(IteratorValue):
    __slots__ = ("function", "inner", "keep", "type_")

    def __init__(self, function: Value, inner: Value, keep: bool, kind: type) -> None:
        self.function, self.inner, self.keep, self.type_ = function, inner, keep, kind
        self.source = None

    def advance(self, m: Machine) -> Value | None:
        plain = m.is_none(self.function)
        while (found := m.next(self.inner)) is not None:
            if m.truth(found if plain else m.call(self.function, [found])) is self.keep:
                return found
        return None

    def rebuild(self, r: Rebuilder) -> Any:
        return self.type_(r(self.function), r(self.inner))


class CountIterator(IteratorValue):
    """`itertools.count`."""
    __slots__ = ("current", "step")
    type_ = itertools.count

    def __init__(self, start: Value, step: Value) -> None:
        self.current, self.step, self.source = start, step, None

    def advance(self, m: Machine) -> Value | None:
        found = self.current
        self.current = m.binary("+", found, self.step)
        return found

    def rebuild(self, r: Rebuilder) -> Any:
        return itertools.count(r(self.current), r(self.step))


class RepeatIterator(IteratorValue):
    """`itertools.repeat`; `left` is None for ever."""
    __slots__ = ("item", "left")
    type_ = itertools.repeat

    def __init__(self, item: Value, left: int | None) -> None:
        self.item, self.left, self.source = item, left, None

    def advance(self, m: Machine) -> Value | None:
        if self.left is not None:
            if self.left <= 0:
                return None
            self.left -= 1
        return self.item

    def rebuild(self, r: Rebuilder) -> Any:
        left = () if self.left is None else (self.left,)
        return itertools.repeat(r(self.item), *left)


class ChainIterator(IteratorValue):
    """`itertools.chain`, also `chain.from_iterable`."""
    __slots__ = ("current", "outer")
    type_ = itertools.chain

    def __init__(self, outer: Value) -> None:
        self.outer: Value | None = outer
        self.current: Value | None = None
        self.source = None

    def advance(self, m: Machine) -> Value | None:
        while True:
            if self.current is not None:
                found = m.next(self.current)
                if found is not None:
                    return found
                self.current = None
            if self.outer is None:
                return None
            following = m.next(self.outer)
            if following is None:
                self.outer = None
                return None
            self.current = m.iter(following)

    def rebuild(self, r: Rebuilder) -> Any:
        rest = itertools.chain.from_iterable(r(self.outer) if self.outer else ())
        return rest if self.current is None else itertools.chain(r(self.current), rest)


SETS: tuple[type, ...] = (set, frozenset, type({}.keys()), type({}.items()))
RELATIONS = {"==": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt,
             ">=": operator.ge}


class ViewValue(Value):
    """`dict.keys()`, `.values()`, `.items()`: live."""
    __slots__ = ("kind", "whole")
    kinds: ClassVar[dict[str, type]] = {
        "keys": type({}.keys()), "values": type({}.values()), "items": type({}.items())}

    def __init__(self, whole: DictValue, kind: str) -> None:
        self.whole, self.kind, self.source = whole, kind, None

    @property
    def type_(self) -> Any:
        return self.kinds[self.kind]

    def type_of(self, m: Machine) -> Any:
        return self.type_

    def lifted(self, m: Machine) -> Callable[[Any], Value]:
        if self.kind == "keys":
            return m.lift
        if self.kind == "values":
            return lambda value: value
        return lambda pair: m.tuple_value([m.lift(pair[0]), pair[1]])

    def content(self, m: Machine) -> Any:
        return getattr(self.whole.values_of(m), self.kind)()

    @slot("__iter__")
    def iter(self, m: Machine) -> Value:
        native = iter(self.content(m))
        return NativeIterator(self, native, self.lifted(m), type(native))

    @slot("__reversed__")
    def reversed(self, m: Machine) -> Value:
        native = reversed(self.content(m))
        return ReversedIterator(self, native, self.lifted(m), type(native))

    @slot("__len__")
    def length(self, m: Machine) -> Value:
        return self.whole.length(m)

    @slot("__contains__")
    def contains(self, m: Machine, item: Value) -> Value:
        if self.kind == "keys":
            return self.whole.contains(m, item)
        if self.kind == "items":
            return Const(self.holds_pair(m, item.force(m)))
        return Const(any(m.same(part, item) for part in m.iterate(self)))

    def holds_pair(self, m: Machine, item: Value) -> bool:
        if not issubclass(item.type_of(m), tuple) or m.length(item) != 2:
            return False
        key, value = m.iterate(item)
        found = self.whole.find(m, key.key(m))
        return found is not None and m.same(found, value)

    def as_set(self, m: Machine) -> Value:
        return m.set_value(m.iterate(self))

    @slot("__eq__")
    def equal(self, m: Machine, other: Value) -> Value:
        if self.kind == "values":
            return Const(True if m.identical(self, other) else NotImplemented)
        return self.ordered(m, "==", other)

    @slot("__ne__")
    def unequal(self, m: Machine, other: Value) -> Value:
        found = self.equal(m, other)
        unknown = isinstance(found, Const) and found.value is NotImplemented
        return found if unknown else Const(not m.truth(found))

    def operate(self, m: Machine, op: str, other: Value) -> Value:
        if self.kind == "values":
            return Const(NotImplemented)
        return m.binary(op, self.as_set(m), m.set_value(m.iterate(other)))

    @slot("__and__", "__rand__")
    def intersect(self, m: Machine, other: Value) -> Value:
        return self.operate(m, "&", other)

    @slot("__or__", "__ror__")
    def unite(self, m: Machine, other: Value) -> Value:
        return self.operate(m, "|", other)

    @slot("__sub__")
    def subtract(self, m: Machine, other: Value) -> Value:
        return self.operate(m, "-", other)

    @slot("__xor__", "__rxor__")
    def differ(self, m: Machine, other: Value) -> Value:
        return self.operate(m, "^", other)

    def ordered(self, m: Machine, op: str, other: Value) -> Value:
        """By numbers first, then by whether one holds what is in the other: items, whose values may
        have no hash, are looked up by their keys."""
        other = other.force(m)
        if self.kind == "values" or not issubclass(other.type_of(m), SETS):
            return Const(NotImplemented)
        if not RELATIONS[op](m.length(self), m.length(other)):
            return Const(False)
        small, large = (other, self) if op in (">", ">=") else (self, other)
        return Const(all(m.contains(large, x) for x in [*m.iterate(small)]))

    @slot("__le__")
    def subset(self, m: Machine, other: Value) -> Value:
        return self.ordered(m, "<=", other)

    @slot("__lt__")
    def proper_subset(self, m: Machine, other: Value) -> Value:
        return self.ordered(m, "<", other)

    @slot("__ge__")
    def superset(self, m: Machine, other: Value) -> Value:
        return self.ordered(m, ">=", other)

    @slot("__gt__")
    def proper_superset(self, m: Machine, other: Value) -> Value:
        return self.ordered(m, ">", other)

    @slot("isdisjoint")
    def isdisjoint(self, m: Machine, other: Value) -> Value:
        return m.call_method(self.as_set(m), "isdisjoint", [other])

    @slot("mapping")
    def mapping(self, m: Machine) -> Value:
        return m.proxy(self.whole)

    @slot("__repr__")
    def repr(self, m: Machine) -> Value:
        parts = m.guarded_repr(self, lambda: [m.repr_text(v) for v in m.iterate(self)])
        name = self.type_.__name__
        return Const("..." if parts is None else f"{name}([{', '.join(parts)}])")

    def rebuild(self, r: Rebuilder) -> Any:
        return getattr(self.whole.base, self.kind)(r(self.whole))


class ReversedIterator(NativeIterator):
    __slots__ = ()

    def rebuild(self, r: Rebuilder) -> Any:
        return self.advanced(r, reversed)

