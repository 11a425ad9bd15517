"""Dicts and their kin as values.

The content is a real dict from keys to values.  A key is the constant itself, or for anything else
an object whose hash and equality ask the machine (`Value.key`); so order, equality of 1 and True,
and errors on mutation during iteration are CPython's own.

A dict that existed before the call starts `sparse`: entries are read one by one, each with its own
guard, and writes are kept in `log`, until something needs the whole.
"""
from __future__ import annotations

import collections
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .objects import ObjectValue
from .source import Source, const
from .value import GONE, Const, Value, slot

if TYPE_CHECKING:
    from .machine import Machine
    from .rebuild import Rebuilder


class DictValue(ObjectValue):
    """`dict` and its subclasses."""
    __slots__ = ("log", "sparse", "storage")
    base: type = dict
    kind = "dict"       # of the effects

    def __init__(self, type_: Any = dict, real: Any = None, source: Source | None = None,
                 storage: dict[Any, Value] | None = None) -> None:
        super().__init__(type_, real, source)
        self.storage: dict[Any, Value] = {} if storage is None else storage
        self.sparse = real is not None
        self.log: list[tuple[Any, Value]] = []

    def adopt(self, real: Any) -> None:
        super().adopt(real)
        self.storage, self.sparse, self.log = {}, True, []

    # -- reading

    def child(self, m: Machine, key: Any) -> Source:
        """The source of one entry."""
        kind = "held" if hasattr(self.type_, "__missing__") else "item"
        if type(key) not in (str, int, bool, float, bytes, type(None), tuple):
            key = m.lift(key).source or const(key, "key")
        return Source(kind, self.inside() or self.origin(), key)

    def find(self, m: Machine, key: Any) -> Value | None:
        """The value under a key (see `Value.key`), or None."""
        found = self.storage.get(key)
        if found is not None:
            return None if found is GONE else found
        if not self.sparse:
            return None
        if m.is_wrapped(key):
            return self.full(m).storage.get(key)
        if not dict.__contains__(self.real, key):
            m.guard(self.inside(), "absent", key)
            self.storage[key] = GONE
            return None
        source = self.child(m, key) if self.source is not None else None
        m.guard(source, "readable", None)
        found = self.storage[key] = m.lazy(dict.__getitem__(self.real, key), source)
        return found

    def full(self, m: Machine) -> DictValue:
        """Loads all entries, in order, with the writes so far applied."""
        if not self.sparse:
            return self
        real = self.real
        order = list(self.base.__iter__(real))  # type: ignore[attr-defined]
        m.guard(self.inside(), "keys", tuple(order))
        known, storage = self.storage, dict[Any, Value]()
        written = {key for key, _ in self.log}
        self.sparse = False
        for i, raw in enumerate(order):
            key = m.raw_key(raw, Source("key", self.inside() or self.origin(), i))
            found = known.get(key)
            if found is None or found is GONE or key in written:
                found = m.lazy(dict.__getitem__(real, raw), self.child(m, key))
            storage[key] = found
        for key, value in self.log:
            if value is GONE:
                storage.pop(key, None)
            else:
                storage[key] = value
        self.storage, self.log = storage, []
        return self

    def values_of(self, m: Machine) -> dict[Any, Value]:
        return self.full(m).storage

    # -- writing: the entry, then the effect

    def put(self, m: Machine, key: Any, value: Value) -> None:
        if self.real is not None:
            if m.is_wrapped(key):
                self.full(m)
            self.log_put(m, key, value)
            if self.sparse:
                self.log.append((key, value))
        self.storage[key] = value

    def drop(self, m: Machine, key: Any) -> Value | None:
        """Removes and returns an entry; None when there is none."""
        found = self.find(m, key)
        if found is None:
            return None
        if self.real is not None:
            self.log_drop(m, key)
            if self.sparse:
                self.log.append((key, GONE))
                self.storage[key] = GONE
                return found
        del self.storage[key]
        return found

    def log_put(self, m: Machine, key: Any, value: Value) -> None:
        m.effect(f"{self.kind}.setitem", self, m.lift(key), value)

    def log_drop(self, m: Machine, key: Any) -> None:
        m.effect(f"{self.kind}.delitem", self, m.lift(key))

    # -- for the machine

    def constant(self, m: Machine) -> Any:
        if self.type_ not in (dict, collections.OrderedDict):
            return super().constant(m)
        with m.visiting(self):
            return self.type_((m.lift(k).constant(m), v.constant(m))
                              for k, v in self.values_of(m).items())

    def shell(self) -> Any:
        return self.type_.__new__(self.type_)

    def fill(self, r: Rebuilder, real: Any) -> None:
        for key, value in self.storage.items():
            self.base.__setitem__(real, r.key(key), r(value))  # type: ignore

    def items_of(self, m: Machine, other: Value) -> Iterator[tuple[Any, Value]]:
        """(key, value) of a mapping or of an iterable of pairs, as `dict.update` reads it."""
        other = other.force(m)
        plain = isinstance(other, DictValue) and m.lookup(other.type_, "__iter__") is m.known_value(
            dict.__iter__)
        if plain:
            yield from list(other.values_of(m).items())  # type: ignore[attr-defined]
        elif m.find_attr(other, "keys") is not None:
            for name in m.iterate(m.call_method(other, "keys", [])):
                yield name.key(m), m.getitem(other, name)
        else:
            for i, pair in enumerate(m.iterate(other)):
                parts = m.pair(pair, i)
                yield parts[0].key(m), parts[1]

    @slot("__init__")
    def init(self, m: Machine, /, *args: Value, **kwargs: Value) -> Value:
        return self.merge(m, "dict", args, kwargs)

    @slot("update")
    def update(self, m: Machine, /, *args: Value, **kwargs: Value) -> Value:
        return self.merge(m, "update", args, kwargs)

    def merge(self, m: Machine, method: str, args: tuple[Value, ...],
              kwargs: dict[str, Value]) -> Value:
        if len(args) > 1:
            m.error(TypeError, f"{method} expected at most 1 argument, got {len(args)}")
        for arg in args:
            for key, value in self.items_of(m, arg):
                self.put(m, key, value)
        for name, value in kwargs.items():
            self.put(m, name, value)
        return Const(None)

    @slot("__getitem__")
    def getitem(self, m: Machine, key: Value) -> Value:
        found = self.find(m, key.key(m))
        if found is not None:
            return found
        if self.type_ is not dict:
            missing = m.lookup(self.type_, "__missing__")
            if missing is not None:
                return m.call(missing, [self, key])
        return m.error_with(KeyError, [key])

    @slot("__setitem__")
    def setitem(self, m: Machine, key: Value, value: Value) -> Value:
        self.put(m, key.key(m), value)
        return Const(None)

    @slot("__delitem__")
    def delitem(self, m: Machine, key: Value) -> Value:
        if self.drop(m, key.key(m)) is None:
            m.error_with(KeyError, [key])
        return Const(None)

    @slot("__contains__")
    def contains(self, m: Machine, key: Value) -> Value:
        return Const(self.find(m, key.key(m)) is not None)

    @slot("__len__")
    def length(self, m: Machine) -> Value:
        if self.sparse and not self.log:
            m.guard(self.inside(), "len", dict.__len__(self.real))
            return Const(len(self.real))
        return Const(len(self.values_of(m)))

    @slot("__iter__")
    def iter(self, m: Machine) -> Value:
        return m.view(self, "keys").iter(m)

    @slot("__reversed__")
    def reversed(self, m: Machine) -> Value:
        return m.view(self, "keys").reversed(m)

    @slot("get")
    def get_or(self, m: Machine, key: Value, default: Value | None = None) -> Value:
        return self.find(m, key.key(m)) or default or Const(None)

    @slot("setdefault")
    def setdefault(self, m: Machine, key: Value, default: Value | None = None) -> Value:
        raw = key.key(m)
        found = self.find(m, raw)
        if found is None:
            found = default or Const(None)
            self.put(m, raw, found)
        return found

    @slot("pop")
    def pop(self, m: Machine, key: Value, default: Value | None = None) -> Value:
        found = self.drop(m, key.key(m)) or default
        return m.error_with(KeyError, [key]) if found is None else found

    @slot("popitem")
    def popitem(self, m: Machine) -> Value:
        keys = list(self.values_of(m))
        if not keys:
            m.error_with(KeyError, [Const("popitem(): dictionary is empty")])
        value = self.drop(m, keys[-1])
        assert value is not None
        return m.tuple_value([m.lift(keys[-1]), value])

    @slot("clear")
    def clear(self, m: Machine) -> Value:
        for key in list(self.values_of(m)):
            self.drop(m, key)
        return Const(None)

    @slot("copy", "__copy__")
    def copy(self, m: Machine) -> Value:
        return DictValue(storage=dict(self.values_of(m)))

    @slot("keys")
    def keys(self, m: Machine) -> Value:
        return m.view(self, "keys")

    @slot("values")
    def values(self, m: Machine) -> Value:
        return m.view(self, "values")

    @slot("items")
    def items(self, m: Machine) -> Value:
        return m.view(self, "items")

    @slot("__eq__")
    def equal(self, m: Machine, other: Value) -> Value:
        other = other.force(m)
        if not isinstance(other, DictValue):
            return Const(NotImplemented)
        mine, theirs = self.values_of(m), other.values_of(m)
        if len(mine) != len(theirs):
            return Const(False)
        for key, value in list(mine.items()):
            if key not in theirs or not m.same(value, theirs[key]):
                return Const(False)
        return Const(True)

    @slot("__ne__")
    def unequal(self, m: Machine, other: Value) -> Value:
        found = self.table["__eq__"](self, m, other)
        return found if found.value is NotImplemented else Const(not found.value)

    def merged(self, m: Machine, first: Value, second: Value) -> Value:
        if not isinstance(first, DictValue) or not isinstance(second, DictValue):
            return Const(NotImplemented)
        made = first.table["copy"](first, m)
        made.update(m, second)
        return made

    @slot("__or__")
    def union(self, m: Machine, other: Value) -> Value:
        return self.merged(m, self, other.force(m))

    @slot("__ror__")
    def reflected_union(self, m: Machine, other: Value) -> Value:
        return self.merged(m, other.force(m), self)

    @slot("__ior__")
    def update_in_place(self, m: Machine, other: Value) -> Value:
        self.update(m, other)
        return self

    @slot("__repr__")
    def repr(self, m: Machine) -> Value:
        pairs = m.guarded_repr(self, lambda: [
            f"{m.repr_text(m.lift(k))}: {m.repr_text(v)}" for k, v in self.values_of(m).items()])
        return Const("{...}" if pairs is None else "{" + ", ".join(pairs) + "}")


class SpaceValue(DictValue):
    """A namespace: a module's globals, or the `__dict__` of `owner`."""
    __slots__ = ("owner",)

    def __init__(self, owner: Value | None, real: Any = None, source: Source | None = None) -> None:
        super().__init__(dict, real, source)
        self.owner = owner

    def child(self, m: Machine, key: Any) -> Source:
        if type(key) is not str:
            return super().child(m, key)
        if self.owner is None:
            return Source("global", self.origin(), key)
        if self.owner.source is None or self.origin().kind == "own":
            return self.origin().item(key)
        return self.owner.source.attr(key)

    def log_put(self, m: Machine, key: Any, value: Value) -> None:
        if self.owner is None:
            m.effect("setglobal", self, m.lift(key), value)
        else:
            m.effect("setattr", self.owner, m.lift(key), value)

    def log_drop(self, m: Machine, key: Any) -> None:
        if self.owner is None:
            m.effect("delglobal", self, m.lift(key))
        else:
            m.effect("delattr", self.owner, m.lift(key))

    def rebuild(self, r: Rebuilder) -> Any:
        if self.owner is None or self.real is not None:
            return super().rebuild(r)
        return r(self.owner).__dict__


class OrderedValue(DictValue):
    """`collections.OrderedDict`."""
    __slots__ = ()
    base = collections.OrderedDict
    kind = "ordered"

    def shown(self, m: Machine) -> Value:
        plain = m.dict_value(self.values_of(m))
        return m.list_value(list(m.iterate(m.view(plain, "items")))) if AS_PAIRS else plain

    @slot("move_to_end")
    def move_to_end(self, m: Machine, key: Value, last: Value | None = None) -> Value:
        raw, to_end = key.key(m), last is None or m.truth(last)
        storage = self.values_of(m)
        if raw not in storage:
            m.error_with(KeyError, [key])
        if self.real is not None:
            m.effect("ordered.move", self, key, Const(to_end))
        value = storage.pop(raw)
        if to_end:
            storage[raw] = value
        else:
            rest = list(storage.items())
            storage.clear()
            storage[raw] = value
            storage.update(rest)
        return Const(None)

    @slot("popitem")
    def popitem(self, m: Machine, last: Value | None = None) -> Value:
        keys = list(self.values_of(m))
        if not keys:
            m.error_with(KeyError, [Const("dictionary is empty")])
        key = keys[-1 if last is None or m.truth(last) else 0]
        value = self.drop(m, key)
        assert value is not None
        return m.tuple_value([m.lift(key), value])

    @slot("copy", "__copy__")
    def copy(self, m: Machine) -> Value:
        return OrderedValue(self.type_, storage=dict(self.values_of(m)))

    @slot("__eq__")
    def equal(self, m: Machine, other: Value) -> Value:
        other = other.force(m)
        found = super().equal(m, other)
        if isinstance(other, OrderedValue) and found.value is True:  # type: ignore[attr-defined]
            return Const(list(self.values_of(m)) == list(other.values_of(m)))
        return found

    @slot("__repr__")
    def repr(self, m: Machine) -> Value:
        inner = m.guarded_repr(self, lambda: [m.repr_text(self.shown(m))])
        name = self.type_.__name__
        if inner is None:
            return Const("...")
        return Const(f"{name}({inner[0]})" if self.storage else f"{name}()")


AS_PAIRS = "[" in repr(collections.OrderedDict(a=1))     # up to 3.11


class DefaultValue(DictValue):
    """`collections.defaultdict`."""
    __slots__ = ("factory",)
    base = collections.defaultdict

    def __init__(self, type_: Any = collections.defaultdict, real: Any = None,
                 source: Source | None = None, storage: dict[Any, Value] | None = None) -> None:
        super().__init__(type_, real, source, storage)
        self.factory: Value | None = None

    @slot("default_factory")
    def get_factory(self, m: Machine) -> Value:
        if self.factory is None:
            if self.real is None:
                return Const(None)
            source = self.origin().attr("default_factory")
            self.factory = m.lazy(self.real.default_factory, source)
        return self.factory

    @slot("default_factory=")
    def set_factory(self, m: Machine, value: Value | None) -> None:
        if self.real is not None:
            m.effect("setfield", self, Const("default_factory"), value or Const(None))
        self.factory = value

    @slot("__init__")
    def init(self, m: Machine, /, *args: Value, **kwargs: Value) -> Value:
        if args:
            factory = args[0].force(m)
            if not m.is_none(factory) and not m.callable(factory):
                m.error(TypeError, "first argument must be callable or None")
            self.set_factory(m, factory)
        return self.update(m, *args[1:], **kwargs)

    @slot("__missing__")
    def missing(self, m: Machine, key: Value) -> Value:
        factory = self.get_factory(m)
        if m.is_none(factory):
            m.error_with(KeyError, [key])
        made = m.call(factory, [])
        m.setitem(self, key, made)
        return made

    @slot("copy", "__copy__")
    def copy(self, m: Machine) -> Value:
        made = DefaultValue(self.type_, storage=dict(self.values_of(m)))
        made.factory = self.get_factory(m)
        return made

    def fill(self, r: Rebuilder, real: Any) -> None:
        super().fill(r, real)
        if self.factory is not None:
            real.default_factory = r(self.factory)

    @slot("__repr__")
    def repr(self, m: Machine) -> Value:
        inner = m.guarded_repr(self, lambda: [m.repr_text(self.get_factory(m)),
                                              m.repr_text(m.dict_value(self.values_of(m)))])
        parts = ["..."] if inner is None else inner
        return Const(f"{self.type_.__name__}({', '.join(parts)})")


class ProxyValue(DictValue):
    """`types.MappingProxyType`: a dict that refuses writes; it shares the storage it shows."""
    __slots__ = ("shown",)
    base = types.MappingProxyType

    def __init__(self, shown: DictValue, real: Any = None, source: Source | None = None) -> None:
        super().__init__(types.MappingProxyType, None, source)
        self.shown, self.real = shown, real

    def find(self, m: Machine, key: Any) -> Value | None:
        return self.shown.find(m, key)

    def values_of(self, m: Machine) -> dict[Any, Value]:
        return self.shown.values_of(m)

    def rebuild(self, r: Rebuilder) -> Any:
        return types.MappingProxyType(r(self.shown))
