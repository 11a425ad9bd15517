"""Lists, tuples, deques and slices as values.

The content is a real list of values, so index arithmetic, clamping and most error messages are
CPython's own: a handler runs the native operation on that list through `Machine.native_op`.
"""
from __future__ import annotations

import collections
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .iterators import ListIterator, NativeIterator, ReversedIterator, ReverseIterator
from .objects import ObjectValue
from .source import Source
from .value import BINDERS, WRITERS, Const, Known, NotConstant, Value, slot

if TYPE_CHECKING:
    from .machine import Machine
    from .rebuild import Rebuilder


class SliceValue(Value):
    """`slice(start, stop, step)`; the parts may be any values."""
    __slots__ = ("ends",)
    type_ = slice

    def __init__(self, ends: list[Value]) -> None:
        self.ends, self.source = ends, None

    def constant(self, m: Machine) -> Any:
        return slice(*[part.constant(m) for part in self.ends])

    def native(self, m: Machine) -> slice:
        """With integers, for native sequences; TypeError text as CPython has it."""
        return slice(*[None if m.is_none(p) else m.slice_index(p) for p in self.ends])

    def rebuild(self, r: Rebuilder) -> Any:
        return slice(*[r(part) for part in self.ends])

    @slot("start")
    def start(self, m: Machine) -> Value:
        return self.ends[0]

    @slot("stop")
    def stop(self, m: Machine) -> Value:
        return self.ends[1]

    @slot("step")
    def step(self, m: Machine) -> Value:
        return self.ends[2]

    @slot("indices")
    def indices(self, m: Machine, length: Value) -> Value:
        return m.fresh(m.native_op(self.native(m).indices, m.index(length)))

    @slot("__eq__")
    def equal(self, m: Machine, other: Value) -> Value:
        other = other.force(m)
        if not isinstance(other, SliceValue):
            return Const(NotImplemented)
        return m.compare("==", m.tuple_value(self.ends), m.tuple_value(other.ends))

    @slot("__repr__")
    def repr(self, m: Machine) -> Value:
        return Const(f"slice({', '.join(m.repr_text(part) for part in self.ends)})")


class SequenceValue(ObjectValue):
    """What lists, tuples and deques share."""
    __slots__ = ("items",)

    def __init__(self, type_: Any, items: Any = None, real: Any = None,
                 source: Source | None = None) -> None:
        super().__init__(type_, real, source)
        self.items = items if items is not None or real is not None else []

    def adopt(self, real: Any) -> None:
        super().adopt(real)
        self.items = None

    def parts(self, m: Machine) -> Any:
        """The items; those of a real sequence are read now, under a guard on its length."""
        items = self.items
        if items is None:
            real, source = self.real, self.inside() or self.origin()
            size = self.base.__len__(real)  # type: ignore[attr-defined]
            m.guard(source, "len", size)
            raw = self.base.__iter__(real)  # type: ignore[attr-defined]
            items = self.items = self.container(
                [m.lazy(x, source.item(i)) for i, x in enumerate(raw)])
        return items

    def container(self, items: list[Value]) -> Any:
        return items

    def constant(self, m: Machine) -> Any:
        if self.type_ is not self.base:
            raise NotConstant
        with m.visiting(self):
            return self.base(part.constant(m) for part in self.parts(m))  # type: ignore[call-arg]

    @slot("__len__")
    def length(self, m: Machine) -> Value:
        return Const(len(self.parts(m)))

    @slot("__getitem__")
    def getitem(self, m: Machine, index: Value) -> Value:
        index = index.force(m)
        items = self.parts(m)
        if isinstance(index, SliceValue):
            return self.like(m, m.native_op(operator.getitem, items, index.native(m)))
        at = self.position(m, index)
        if not -len(items) <= at < len(items):
            m.error(IndexError, f"{self.base.__name__} index out of range")
        return items[at]

    def position(self, m: Machine, index: Value) -> int:
        name, kind = self.base.__name__, m.type_of(index)
        if kind is not int and m.lookup(kind, "__index__") is None:
            m.error(TypeError,
                    f"{name} indices must be integers or slices, not {kind.__name__}")
        return m.index(index)

    def like(self, m: Machine, items: Any) -> Value:
        """A new plain sequence of the same kind."""
        raise NotImplementedError

    @slot("__contains__")
    def contains(self, m: Machine, item: Value) -> Value:
        return Const(any(m.same(part, item) for part in list(self.parts(m))))

    @slot("index")
    def find(self, m: Machine, item: Value, start: Value | None = None,
             stop: Value | None = None) -> Value:
        items = self.parts(m)
        ends: list[Any] = [m.index(end) for end in (start, stop) if end is not None]
        first = ends[0] if ends else 0
        for i in range(len(items))[slice(first, ends[1] if len(ends) > 1 else None)]:
            if i >= len(items):     # an `__eq__` took items away
                break
            if m.same(items[i], item):
                return Const(i)
        return m.error(ValueError, self.absent(m, item))

    def absent(self, m: Machine, item: Value) -> str:
        return f"{m.repr_text(item)} is not in {self.base.__name__}"

    @slot("count")
    def count(self, m: Machine, item: Value) -> Value:
        return Const(sum(m.same(part, item) for part in list(self.parts(m))))

    @slot("__mul__", "__rmul__")
    def repeat(self, m: Machine, times: Value) -> Value:
        m.check_repeat(times)
        return self.like(m, m.native_op(operator.mul, self.parts(m), m.index(times)))

    @slot("__add__")
    def concatenate(self, m: Machine, other: Value) -> Value:
        other = other.force(m)
        if not isinstance(other, SequenceValue) or not issubclass(m.type_of(other), self.base):
            mine, kind = self.base.__name__, m.type_name(other)
            return m.error(TypeError, f'can only concatenate {mine} (not "{kind}") to {mine}')
        return self.like(m, self.parts(m) + other.parts(m))

    def ordered(self, m: Machine, op: str, other: Value) -> Value:
        """Compares item by item, as list and tuple do."""
        other = other.force(m)
        if not isinstance(other, SequenceValue) or other.base is not self.base:
            return Const(NotImplemented)
        mine, theirs = self.parts(m), other.parts(m)
        if op in ("==", "!=") and len(mine) != len(theirs):
            return Const(op == "!=")
        for a, b in zip(list(mine), list(theirs), strict=False):
            if not m.same(a, b):
                if op in ("==", "!="):
                    return Const(op == "!=")
                return m.compare(op, a, b)
        return Const(ORDERS[op](len(mine), len(theirs)))

    @slot("__eq__")
    def equal(self, m: Machine, other: Value) -> Value:
        return self.ordered(m, "==", other)

    @slot("__ne__")
    def unequal(self, m: Machine, other: Value) -> Value:
        return self.ordered(m, "!=", other)

    @slot("__lt__")
    def less(self, m: Machine, other: Value) -> Value:
        return self.ordered(m, "<", other)

    @slot("__le__")
    def at_most(self, m: Machine, other: Value) -> Value:
        return self.ordered(m, "<=", other)

    @slot("__gt__")
    def greater(self, m: Machine, other: Value) -> Value:
        return self.ordered(m, ">", other)

    @slot("__ge__")
    def at_least(self, m: Machine, other: Value) -> Value:
        return self.ordered(m, ">=", other)


ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt,
    ">=": operator.ge}


class TupleValue(SequenceValue):
    """`tuple` and its subclasses, named tuples among them."""
    __slots__ = ()
    base: type = tuple

    def like(self, m: Machine, items: Any) -> Value:
        whole = self.type_ is tuple and len(items) == len(self.items) and all(
            map(operator.is_, items, self.items))
        return self if whole else m.tuple_value(items)

    def constant(self, m: Machine) -> Any:
        if self.type_ is tuple:
            with m.visiting(self):
                return tuple([part.constant(m) for part in self.parts(m)])
        raise NotConstant

    def key(self, m: Machine) -> Any:
        if self.type_ is not tuple and m.lookup(self.type_, "__hash__") is not m.known_value(
                tuple.__hash__):
            return super().key(m)
        keys = tuple([part.key(m) for part in self.parts(m)])
        return m.wrapped(self, hash(keys)) if any(m.is_wrapped(k) for k in keys) else keys

    def absent(self, m: Machine, item: Value) -> str:
        return "tuple.index(x): x not in tuple"

    def shell(self) -> Any:
        return tuple.__new__(self.type_, ())

    def rebuild(self, r: Rebuilder) -> Any:
        with r.inside(self):
            items = [r(part) for part in self.items]
        real = tuple.__new__(self.type_, items)
        if self.attrs is not None:
            real.__dict__.update({k: r(v) for k, v in self.attrs.storage.items()})
        return real

    @slot("__init__")
    def init(self, m: Machine, /, *args: Value) -> Value:
        return Const(None)

    @slot("__hash__")
    def hash(self, m: Machine) -> Value:
        return Const(hash(tuple([m.hashed(part) for part in self.parts(m)])))

    @slot("__iter__")
    def iter(self, m: Machine) -> Value:
        return NativeIterator(self, iter(self.parts(m)), lambda v: v, type(iter(())))

    @slot("__repr__")
    def repr(self, m: Machine) -> Value:
        parts = m.guarded_repr(self, lambda: [m.repr_text(v) for v in self.parts(m)])
        if parts is None:
            return Const("(...)")
        return Const(f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})")

    @slot("__getnewargs__")
    def new_args(self, m: Machine) -> Value:
        return m.tuple_value([m.tuple_value(self.parts(m))])


TUPLE_FIELD = type(collections.namedtuple("Sample", "field").field)  # type: ignore[attr-defined]


def read_tuple_field(m: Machine, found: Known, obj: Value | None, owner: Any) -> Value:
    """A field of a named tuple."""
    if not isinstance(obj, TupleValue):
        return found
    index, _ = found.real.__reduce__()[1]
    return m.getitem(obj, Const(index))


def write_tuple_field(m: Machine, found: Known, obj: Value, value: Value | None) -> None:
    m.native_op(found.real.__set__, None, None)


BINDERS[TUPLE_FIELD] = read_tuple_field
WRITERS[TUPLE_FIELD] = write_tuple_field


class ListValue(SequenceValue):
    """`list` and its subclasses.  `tail` is what was appended before anyone looked at the items."""
    __slots__ = ("tail",)
    base: type = list

    def like(self, m: Machine, items: Any) -> Value:
        return m.list_value(items)

    def change(self, m: Machine, method: str, *args: Value) -> list[Value]:
        """Logs a write where the list existed before, and gives the items to be changed."""
        items = self.parts(m)
        if self.real is not None:
            m.effect(f"list.{method}", self, *args)
        return items

    def shell(self) -> Any:
        return self.type_.__new__(self.type_)

    def fill(self, r: Rebuilder, real: Any) -> None:
        list.extend(real, [r(part) for part in self.items])

    @slot("__init__")
    def init(self, m: Machine, iterable: Value | None = None) -> Value:
        self.change(m, "clear").clear()
        if iterable is not None:
            self.extend(m, iterable)
        return Const(None)

    def container(self, items: list[Value]) -> Any:
        return items + getattr(self, "tail", [])

    @slot("append")
    def append(self, m: Machine, item: Value) -> Value:
        if self.items is None:  # the length stays open
            self.tail = [*getattr(self, "tail", ()), item]
            m.effect("list.append", self, item)
        else:
            self.change(m, "append", item).append(item)
        return Const(None)

    @slot("extend")
    def extend(self, m: Machine, iterable: Value) -> Value:
        inner = iterable.force(m)
        if isinstance(inner, SequenceValue):
            added = list(inner.parts(m))
        else:
            added = []
            self.parts(m)
            for item in m.iterate(inner):  # an error midway leaves what came before, as in CPython
                self.append(m, item)
        if added:
            self.change(m, "extend", m.list_value(list(added))).extend(added)
        return Const(None)

    @slot("__iadd__")
    def add_in_place(self, m: Machine, iterable: Value) -> Value:
        self.extend(m, iterable)
        return self

    @slot("__imul__")
    def repeat_in_place(self, m: Machine, times: Value) -> Value:
        m.check_repeat(times)
        number = m.index(times)
        m.native_op(operator.mul, self.parts(m), number)
        items = self.change(m, "repeat", Const(number))
        items *= number
        return self

    @slot("insert")
    def insert(self, m: Machine, index: Value, item: Value) -> Value:
        at = m.index(index)
        self.change(m, "insert", Const(at), item).insert(at, item)
        return Const(None)

    @slot("pop")
    def pop(self, m: Machine, index: Value | None = None) -> Value:
        at = -1 if index is None else m.index(index)
        items = self.parts(m)
        found = m.native_op(items.pop, at)
        if self.real is not None:
            m.effect("list.pop", self, Const(at))
        return found

    @slot("remove")
    def remove(self, m: Machine, item: Value) -> Value:
        items = self.parts(m)
        for i, part in enumerate(items):
            if m.same(part, item):
                self.change(m, "pop", Const(i)).pop(i)
                return Const(None)
        return m.error(ValueError, "list.remove(x): x not in list")

    @slot("clear")
    def clear(self, m: Machine) -> Value:
        self.change(m, "clear").clear()
        return Const(None)

    @slot("reverse")
    def reverse(self, m: Machine) -> Value:
        self.change(m, "reverse").reverse()
        return Const(None)

    @slot("copy", "__copy__")
    def copy(self, m: Machine) -> Value:
        return m.list_value(list(self.parts(m)))

    @slot("sort")
    def sort(self, m: Machine, *, key: Value | None = None, reverse: Value | None = None) -> Value:
        items = self.parts(m)
        made = m.sorted(list(items), key, reverse)
        self.change(m, "replace", m.list_value(list(made)))[:] = made
        return Const(None)

    @slot("__setitem__")
    def setitem(self, m: Machine, index: Value, value: Value) -> Value:
        index = index.force(m)
        items = self.parts(m)
        if isinstance(index, SliceValue):
            cut = index.native(m)
            if m.iterable(value):
                new = list(m.iterate(value))
            else:
                m.native_op(operator.setitem, list(items), cut, None)
            m.native_op(operator.setitem, list(items), cut, new)
            if self.real is not None:
                m.effect("list.setitem", self, m.constant_value(cut), m.list_value(list(new)))
            items[cut] = new
        else:
            at = self.position_to_set(m, index)
            self.change(m, "setitem", Const(at), value)[at] = value
        return Const(None)

    def position_to_set(self, m: Machine, index: Value) -> int:
        at = self.position(m, index)
        if not -len(self.items) <= at < len(self.items):
            m.error(IndexError, "list assignment index out of range")
        return at

    @slot("__delitem__")
    def delitem(self, m: Machine, index: Value) -> Value:
        index = index.force(m)
        self.parts(m)
        if isinstance(index, SliceValue):
            cut: Any = index.native(m)
        else:
            cut = self.position_to_set(m, index)
        del self.change(m, "delitem", m.constant_value(cut))[cut]
        return Const(None)

    @slot("__iter__")
    def iter(self, m: Machine) -> Value:
        return ListIterator(self)

    @slot("__reversed__")
    def reversed(self, m: Machine) -> Value:
        return ReverseIterator(self, len(self.parts(m)))

    @slot("__repr__")
    def repr(self, m: Machine) -> Value:
        parts = m.guarded_repr(self, lambda: [m.repr_text(v) for v in self.parts(m)])
        return Const("[...]" if parts is None else f"[{', '.join(parts)}]")


class DequeValue(SequenceValue):
    """`collections.deque`; the items are in a real deque, which knows `maxlen`."""
    __slots__ = ("maxlen",)
    base: type = collections.deque

    def __init__(self, type_: Any = collections.deque, items: Any = None, real: Any = None,
                 source: Source | None = None, maxlen: int | None = None) -> None:
        super().__init__(type_, items, real, source)
        self.maxlen = maxlen if real is None else real.maxlen
        if self.items is not None:
            self.items = self.container(list(self.items))

    def parts(self, m: Machine) -> Any:
        if self.items is None:
            m.guard(self.source, "maxlen", self.maxlen)
        return super().parts(m)

    def container(self, items: list[Value]) -> Any:
        return collections.deque(items, self.maxlen)

    def like(self, m: Machine, items: Any) -> Value:
        return DequeValue(self.type_, items, maxlen=self.maxlen)

    def shell(self) -> Any:
        real = self.type_.__new__(self.type_)
        collections.deque.__init__(real, (), self.maxlen)
        return real

    def fill(self, r: Rebuilder, real: Any) -> None:
        collections.deque.extend(real, [r(part) for part in self.items])

    def change(self, m: Machine, method: str, *args: Value) -> Any:
        items = self.parts(m)
        if self.real is not None:
            m.effect(f"deque.{method}", self, *args)
        return items

    @slot("__init__")
    def init(self, m: Machine, iterable: Value | None = None,
             maxlen: Value | None = None) -> Value:
        if self.real is not None:
            m.stop("unmodelled", "deque.__init__ called again")
        self.maxlen = None if maxlen is None or m.is_none(maxlen) else m.index(maxlen)
        m.native_op(collections.deque, (), self.maxlen)     # refuses negative widths
        added = list(m.iterate(iterable)) if iterable is not None else []
        self.items = self.container(added)
        return Const(None)

    @slot("maxlen")
    def get_maxlen(self, m: Machine) -> Value:
        if self.real is not None:
            m.guard(self.source, "maxlen", self.maxlen)
        return Const(self.maxlen)

    @slot("append")
    def append(self, m: Machine, item: Value) -> Value:
        self.change(m, "append", item).append(item)
        return Const(None)

    @slot("appendleft")
    def appendleft(self, m: Machine, item: Value) -> Value:
        self.change(m, "appendleft", item).appendleft(item)
        return Const(None)

    @slot("extend")
    def extend(self, m: Machine, iterable: Value) -> Value:
        for item in list(m.iterate(iterable)):
            self.append(m, item)
        return Const(None)

    @slot("__iadd__")
    def add_in_place(self, m: Machine, iterable: Value) -> Value:
        self.extend(m, iterable)
        return self

    @slot("extendleft")
    def extendleft(self, m: Machine, iterable: Value) -> Value:
        for item in list(m.iterate(iterable)):
            self.appendleft(m, item)
        return Const(None)

    @slot("pop")
    def pop(self, m: Machine) -> Value:
        found = m.native_op(self.parts(m).pop)
        if self.real is not None:
            m.effect("deque.pop", self)
        return found

    @slot("popleft")
    def popleft(self, m: Machine) -> Value:
        found = m.native_op(self.parts(m).popleft)
        if self.real is not None:
            m.effect("deque.popleft", self)
        return found

    @slot("clear")
    def clear(self, m: Machine) -> Value:
        self.change(m, "clear").clear()
        return Const(None)

    @slot("rotate")
    def rotate(self, m: Machine, steps: Value | None = None) -> Value:
        number = 1 if steps is None else m.index(steps)
        self.change(m, "rotate", Const(number)).rotate(number)
        return Const(None)

    @slot("copy", "__copy__")
    def copy(self, m: Machine) -> Value:
        return self.like(m, list(self.parts(m)))

    @slot("__setitem__")
    def setitem(self, m: Machine, index: Value, value: Value) -> Value:
        at = m.index(index)
        m.native_op(operator.setitem, self.parts(m).copy(), at, value)
        self.change(m, "setitem", Const(at), value)[at] = value
        return Const(None)

    @slot("__iter__")
    def iter(self, m: Machine) -> Value:
        return NativeIterator(self, iter(self.parts(m)), lambda v: v,
                              type(iter(collections.deque())))

    @slot("__reversed__")
    def reversed(self, m: Machine) -> Value:
        native = reversed(self.parts(m))
        return ReversedIterator(self, native, lambda v: v, type(native))

    @slot("__repr__")
    def repr(self, m: Machine) -> Value:
        parts = m.guarded_repr(self, lambda: [m.repr_text(v) for v in self.parts(m)])
        tail = "" if self.maxlen is None else f", maxlen={self.maxlen}"
        inner = "[...]" if parts is None else f"[{', '.join(parts)}]{tail}"
        return Const(f"{self.type_.__name__}({inner})" if parts is not None else "[...]")
