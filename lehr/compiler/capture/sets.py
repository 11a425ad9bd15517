"""Sets as values: a real set of keys (`Value.key`), so order and algebra are CPython's own."""
from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .iterators import NativeIterator
from .mapping import DictValue
from .objects import ObjectValue
from .source import Source
from .value import Const, NotConstant, Value, slot

if TYPE_CHECKING:
    from .machine import Machine
    from .rebuild import Rebuilder


class SetValue(ObjectValue):
    """`set`, `frozenset` and their subclasses."""
    __slots__ = ("storage",)

    def __init__(self, type_: Any = set, storage: set[Any] | None = None, real: Any = None,
                 source: Source | None = None) -> None:
        super().__init__(type_, real, source)
        self.storage: Any = storage if storage is not None or real is not None else set()

    @property
    def base(self) -> type:  # type: ignore[override]
        return frozenset if issubclass(self.type_, frozenset) else set

    def adopt(self, real: Any) -> None:
        super().adopt(real)
        self.storage = None

    def content(self, m: Machine) -> set[Any]:
        if self.storage is None:
            content = set(self.base.__iter__(self.real))    # type: ignore[attr-defined]
            m.guard(self.inside(), "elements", frozenset(content))
            keys = [m.raw_key(raw, None) for raw in content]
            plain = all(key is raw for key, raw in zip(keys, content, strict=True))
            self.storage = content if plain else set(keys)
        return self.storage

    def ordered(self, m: Machine) -> set[Any]:
        """The content, where its order matters: equal sets may be ordered differently."""
        if self.real is not None:
            order = tuple(self.base.__iter__(self.real))    # type: ignore[attr-defined]
            m.guard(self.inside(), "keys", order)
        return self.content(m)

    def constant(self, m: Machine) -> Any:
        if self.type_ is not self.base:
            raise NotConstant
        return self.base(m.lift(k).constant(m) for k in self.content(m))  # type: ignore[call-arg]

    def key(self, m: Machine) -> Any:
        content = self.content(m)
        if self.type_ is frozenset and not any(m.is_wrapped(k) for k in content):
            return frozenset(content)
        return super().key(m)

    def shell(self) -> Any:
        return self.type_.__new__(self.type_)

    def fill(self, r: Rebuilder, real: Any) -> None:
        assert self.storage is not None
        for key in self.storage:
            set.add(real, r.key(key))

    def rebuild(self, r: Rebuilder) -> Any:
        if self.base is set:
            return super().rebuild(r)
        assert self.storage is not None
        return frozenset.__new__(self.type_, [r.key(key) for key in self.storage])

    def others(self, m: Machine, args: tuple[Value, ...]) -> list[Any]:
        """The arguments of a method as native sets, or lists in their order."""
        made: list[Any] = []
        for arg in args:
            arg = arg.force(m)
            if isinstance(arg, SetValue):
                made.append(arg.content(m))
            elif isinstance(arg, DictValue) and m.lookup(arg.type_, "__iter__") is (
                    m.known_value(dict.__iter__)):
                made.append(list(arg.values_of(m)))     # keys that are hashed already
            else:
                made.append([item.key(m) for item in m.iterate(arg)])
        return made

    def replace(self, m: Machine, storage: set[Any]) -> None:
        """Makes the content equal to `storage`, and logs it where the set existed before."""
        if self.real is not None:
            m.effect("set.replace", self, m.list_value([m.lift(k) for k in storage]))
        self.storage = storage

    @slot("__init__")
    def init(self, m: Machine, iterable: Value | None = None) -> Value:
        if self.base is set:
            self.replace(m, set())
            if iterable is not None:
                self.update(m, iterable)
        return Const(None)

    @slot("update")
    def update(self, m: Machine, *args: Value) -> Value:
        content = self.content(m)
        for other in self.others(m, args):
            for key in other:
                if key not in content:
                    self.add_key(m, key)
        return Const(None)

    def add_key(self, m: Machine, key: Any) -> None:
        if self.real is not None:
            m.effect("set.add", self, m.lift(key))
        self.content(m).add(key)

    def drop_key(self, m: Machine, key: Any) -> None:
        if self.real is not None:
            m.effect("set.discard", self, m.lift(key))
        self.content(m).discard(key)

    @slot("add")
    def add(self, m: Machine, item: Value) -> Value:
        key = item.key(m)
        if key not in self.content(m):
            self.add_key(m, key)
        return Const(None)

    def searched(self, m: Machine, item: Value) -> Any:
        """The key to look for: a set stands for the frozenset of its elements."""
        item = item.force(m)
        hasher = m.lookup(item.type_, "__hash__")
        if isinstance(item, SetValue) and hasher is not None and m.is_none(hasher):
            return frozenset(item.content(m))
        return item.key(m)

    @slot("discard")
    def discard(self, m: Machine, item: Value) -> Value:
        key = self.searched(m, item)
        if key in self.content(m):
            self.drop_key(m, key)
        return Const(None)

    @slot("remove")
    def remove(self, m: Machine, item: Value) -> Value:
        key = self.searched(m, item)
        if key not in self.content(m):
            m.error_with(KeyError, [item])
        self.drop_key(m, key)
        return Const(None)

    @slot("pop")
    def pop(self, m: Machine) -> Value:
        content = self.ordered(m)
        if not content:
            m.error_with(KeyError, [Const("pop from an empty set")])
        key = content.pop()
        content.add(key)
        self.drop_key(m, key)
        return m.lift(key)

    @slot("clear")
    def clear(self, m: Machine) -> Value:
        self.replace(m, set())
        return Const(None)

    @slot("copy", "__copy__")
    def copy(self, m: Machine) -> Value:
        if self.type_ is frozenset:
            return self
        return SetValue(self.base, set(self.content(m)))

    @slot("__len__")
    def length(self, m: Machine) -> Value:
        return Const(len(self.content(m)))

    @slot("__contains__")
    def contains(self, m: Machine, item: Value) -> Value:
        return Const(self.searched(m, item) in self.content(m))

    @slot("__iter__")
    def iter(self, m: Machine) -> Value:
        return NativeIterator(self, iter(self.ordered(m)), m.lift, type(iter(set())))

    @slot("__hash__")
    def hash(self, m: Machine) -> Value:
        return Const(hash(frozenset(self.content(m))))

    @slot("__repr__")
    def repr(self, m: Machine) -> Value:
        name = self.type_.__name__
        parts = m.guarded_repr(self, lambda: [m.repr_text(m.lift(k)) for k in self.ordered(m)])
        if parts is None:
            return Const(f"{name}(...)")
        inner = "{" + ", ".join(parts) + "}"
        if not parts:
            return Const(f"{name}()")
        return Const(inner if self.type_ is set else f"{name}({inner})")


def algebra(name: str) -> Callable[..., Value]:
    """`union` and so on: any iterables, a new set."""
    def handler(self: SetValue, m: Machine, *args: Value) -> Value:
        found = getattr(set(self.content(m)), name)(*self.others(m, args))
        return SetValue(self.base, found)
    return handler


def algebra_in_place(name: str) -> Callable[..., Value]:
    def handler(self: SetValue, m: Machine, *args: Value) -> Value:
        content = set(self.content(m))
        getattr(content, name)(*self.others(m, args))
        self.replace(m, content)
        return Const(None)
    return handler


def relation(name: str) -> Callable[..., Value]:
    def handler(self: SetValue, m: Machine, other: Value) -> Value:
        return Const(getattr(self.content(m), name)(*self.others(m, (other,))))
    return handler


def operation(function: Callable[[Any, Any], Any], reflected: bool = False) -> Callable[..., Value]:
    """An operator: both sides must be sets."""
    def handler(self: SetValue, m: Machine, other: Value) -> Value:
        other = other.force(m)
        if not isinstance(other, SetValue):
            return Const(NotImplemented)
        left, right = (other, self) if reflected else (self, other)
        found = function(set(left.content(m)), right.content(m))
        return Const(found) if isinstance(found, bool) else SetValue(left.base, found)
    return handler


def operation_in_place(function: Callable[[Any, Any], Any]) -> Callable[..., Value]:
    def handler(self: SetValue, m: Machine, other: Value) -> Value:
        other = other.force(m)
        if not isinstance(other, SetValue):
            return Const(NotImplemented)
        self.replace(m, function(set(self.content(m)), other.content(m)))
        return self
    return handler


OPERATORS = {"and": operator.and_, "or": operator.or_, "sub": operator.sub, "xor": operator.xor}
RELATIONS = {"eq": operator.eq, "ne": operator.ne, "le": operator.le, "lt": operator.lt,
             "ge": operator.ge, "gt": operator.gt}

for _name in ("union", "intersection", "difference", "symmetric_difference"):
    SetValue.table[_name] = algebra(_name)
for _name in ("intersection_update", "difference_update", "symmetric_difference_update"):
    SetValue.table[_name] = algebra_in_place(_name)
for _name in ("issubset", "issuperset", "isdisjoint"):
    SetValue.table[_name] = relation(_name)
for _name, _function in OPERATORS.items():
    SetValue.table[f"__{_name}__"] = operation(_function)
    SetValue.table[f"__r{_name}__"] = operation(_function, reflected=True)
    SetValue.table[f"__i{_name}__"] = operation_in_place(_function)
for _name, _relation in RELATIONS.items():
    SetValue.table[f"__{_name}__"] = operation(_relation)
