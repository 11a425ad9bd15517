"""From real objects to values, and back to constants.

`FACTORIES` says how an object that existed before the call becomes a value: an exact type, else the
first base in its MRO.  A subclass of the machine extends its own copy (`Machine.factories`).
"""
from __future__ import annotations

import collections
import functools
import gc
import re
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import polyfill
from .fault import FaultValue
from .mapping import DefaultValue, DictValue, OrderedValue, ProxyValue, SpaceValue
from .objects import (
    CellValue,
    ClassValue,
    FunctionValue,
    MethodValue,
    ModuleValue,
    NamespaceValue,
    ObjectValue,
    PropertyValue,
    ScalarValue,
    WrapperValue,
)
from .operation import Key
from .sequence import DequeValue, ListValue, SliceValue, TupleValue
from .sets import SetValue
from .source import Source, const
from .value import CONSTANT_SET, NUMBERS, PURE_TYPES, Const, Known, Lazy, Value

if TYPE_CHECKING:
    from .iterators import ViewValue
    from .machine import Machine

    Base = Any      # the machine that these methods become part of
else:
    Base = object

Factory = Callable[["Machine", Any, "Source | None"], Value]
HEAPTYPE = 1 << 9


def make_function(m: Machine, real: Any, source: Source | None) -> Value:
    space = m.space(real.__globals__, real.__globals__.get("__name__", "globals"))
    return FunctionValue(real.__code__, space, real, source).load(m)


def make_method(m: Machine, real: Any, source: Source | None) -> Value:
    owner = m.part(real.__self__, source, "__self__")
    made = MethodValue(m.part(real.__func__, source, "__func__").force(m), owner, real)
    made.source = source
    return made


def make_builtin(m: Machine, real: Any, source: Source | None) -> Value:
    """A C function; bound to an object it is the method descriptor of that object's class."""
    owner = real.__self__
    if owner is None or issubclass(type(owner), (types.ModuleType, type)):
        return Known(real, source)
    descriptor = getattr(type(owner), real.__name__, None)
    if descriptor is None:
        return Known(real, source)
    return m.wrap(descriptor, None).get(m, m.part(owner, source, "__self__").force(m), type(owner))


def make_property(m: Machine, real: Any, source: Source | None) -> Value:
    parts: list[Value | None] = []
    for name in ("fget", "fset", "fdel"):
        found = getattr(real, name)
        if found is None and source is not None:
            m.guard(source.attr(name), "is", None)
        parts.append(None if found is None else m.part(found, source, name))
    return PropertyValue(parts, Const(real.__doc__), real, source, type(real))


def make_wrapper(m: Machine, real: Any, source: Source | None) -> Value:
    return WrapperValue(type(real), m.part(real.__func__, source, "__func__"), real, source)


def make_scalar(m: Machine, real: Any, source: Source | None) -> Value:
    base = next(k for k in type(real).__mro__ if k in CONSTANT_SET)
    m.guard(source, "equals", real)
    payload = base.__new__(base, real) if base is not str else str.__str__(real)
    return ScalarValue(type(real), payload, real, source)


def make_fault(m: Machine, real: Any, source: Source | None) -> Value:
    args = [m.part(a, source, "args", i) for i, a in enumerate(real.args)]
    if source is not None:
        m.guard(source.attr("args"), "len", len(args))
    made = FaultValue(type(real), args, real, source)
    made.suppress = real.__suppress_context__
    for name in ("context", "cause"):
        linked = getattr(real, f"__{name}__")
        if linked is not None:
            setattr(made, name, m.part(linked, source, f"__{name}__").force(m))
    return made


def make_partial(m: Machine, real: Any, source: Source | None) -> Value:
    made = m.new_partial(type(real), m.part(real.func, source, "func"),
                         [m.part(a, source, "args", i) for i, a in enumerate(real.args)],
                         {k: m.part(v, source, "keywords", k) for k, v in real.keywords.items()})
    made.real, made.source = real, source
    if source is not None:
        m.guard(source.attr("args"), "len", len(real.args))
        m.guard(source.attr("keywords"), "keys", tuple(real.keywords))
    return made


def make_proxy(m: Machine, real: Any, source: Source | None) -> Value:
    shown = gc.get_referents(real)
    if [type(x) for x in shown] != [dict]:
        return Known(real, source)
    path = None if source is None else Source("proxied", source)
    whole = m.wrap(shown[0], path)
    assert isinstance(whole, DictValue)
    return ProxyValue(whole, real, source)


def simple(cls: Any) -> Factory:
    """Values that take (type, real, source) and read their content later."""
    return lambda m, real, source: cls(type(real), real=real, source=source)


def known(m: Machine, real: Any, source: Source | None) -> Value:
    return Known(real, source)


FACTORIES: dict[type, Factory] = {
    types.FunctionType: make_function, types.MethodType: make_method,
    types.BuiltinFunctionType: make_builtin, types.MethodWrapperType: make_builtin,
    type: lambda m, real, source: ClassValue(real, source),
    types.ModuleType: simple(ModuleValue), types.CellType: lambda m, real, source: CellValue(
        None, real, source),
    tuple: simple(TupleValue), list: simple(ListValue), dict: simple(DictValue),
    collections.OrderedDict: simple(OrderedValue), collections.defaultdict: simple(DefaultValue),
    collections.deque: simple(DequeValue), set: simple(SetValue), frozenset: simple(SetValue),
    types.SimpleNamespace: simple(NamespaceValue),
    types.MappingProxyType: make_proxy, functools.partial: make_partial,
    property: make_property, classmethod: make_wrapper, staticmethod: make_wrapper,
    int: make_scalar, float: make_scalar, str: make_scalar, bytes: make_scalar,
    BaseException: make_fault,
    slice: lambda m, real, source: SliceValue(
        [m.part(getattr(real, n), source, n) for n in ("start", "stop", "step")]),
    object: lambda m, real, source: m.wrap_object(real, source),
}
# Wrapped anew each time when bound to an object: a temporary, its id means nothing.
TEMPORARY = frozenset((types.MethodType, types.BuiltinFunctionType, types.MethodWrapperType))
NATIVE_METHODS = (types.MethodDescriptorType, types.WrapperDescriptorType,
                  types.ClassMethodDescriptorType)
# The guard that stands for the whole object.
BY_IDENTITY = (type, types.ModuleType, types.BuiltinFunctionType, types.WrapperDescriptorType,
               types.MethodDescriptorType, types.ClassMethodDescriptorType,
               types.GetSetDescriptorType, types.MemberDescriptorType, re.Pattern, re.Match,
               types.GenericAlias, types.UnionType)


class Wraps(Base):
    """The part of the machine that turns objects into values."""

    def lazy(self, real: Any, source: Source | None) -> Value:
        """A value for an object that existed before the call; no guard yet."""
        if source is None or type(real) is types.CellType:
            return self.wrap(real, source)
        return Lazy(real, source)

    def part(self, real: Any, source: Source | None, name: str | None, *keys: Any) -> Value:
        """A lazy value for an attribute of a wrapped object, or for an item of that attribute."""
        if source is not None:
            source = source if name is None else source.attr(name)
            for key in keys:
                source = source.item(key)
        return self.lazy(real, source)

    def wrap(self, real: Any, source: Source | None) -> Value:
        """The value of an object that is about to be used, with its guards."""
        kind = type(real)
        if kind in CONSTANT_SET:
            if source is not None and kind in NUMBERS and real == real:
                return self.number(real, source)
            self.guard(source, "equals" if real == real else "is", real)    # NaN is itself only
            return Const(real)
        passing = kind in TEMPORARY and not issubclass(
            type(real.__self__), (type, types.ModuleType))
        found = self.known.get(id(real))
        if found is not None and not passing:
            self.guard_again(found, real, source)
            return found
        self.guard_first(kind, real, source)
        found = self.factory(kind)(self, real, source)
        if not passing:
            self.known[id(real)] = found
            self.kept.append(real)
        return found

    def number(self, real: Any, source: Source) -> Value:
        """Seam: an int or a float from outside.  Here it is a constant under a guard."""
        self.guard(source, "equals", real)
        return Const(real)

    def guard_first(self, kind: type, real: Any, source: Source | None) -> None:
        if source is None:
            return
        if kind is types.FunctionType:
            self.guard(source, "function", (real.__code__, real.__globals__))
        elif issubclass(kind, BY_IDENTITY) and kind not in TEMPORARY:
            self.guard(source, "is", real)
        else:
            self.guard(source, "type", kind)

    def guard_again(self, found: Value, real: Any, source: Source | None) -> None:
        """The same object through another path."""
        if source is None or found.source == source:
            return
        if found.source is None or issubclass(type(real), BY_IDENTITY):
            self.guard(source, "is", real)
        else:
            self.guard(source, "alias", found.source)

    def factory(self, kind: type) -> Factory:
        found = self.factories.get(kind)
        if found is None:
            bases = (k for k in kind.__mro__ if k in self.factories)
            found = self.factories[kind] = self.factories[next(bases)]
        return found

    def wrap_object(self, real: Any, source: Source | None) -> Value:
        """An object of any other class: followed if its class is Python's, else taken whole."""
        kind = type(real)
        solid = next(k for k in kind.__mro__ if not k.__flags__ & HEAPTYPE)
        if kind.__flags__ & HEAPTYPE and solid is object and kind.__module__ != "builtins" and (
                self.is_python_class(kind)):
            return ObjectValue(kind, real, source)
        return Known(real, source)

    def is_python_class(self, kind: type) -> bool:
        """Heap types of C modules look like Python classes, but their state is hidden."""
        return all(self.is_python(owner) for owner in kind.__mro__[:-1])

    def is_python(self, owner: Any) -> bool:
        """Whether one class was made by a class statement: it holds no methods in C."""
        found = self.python_classes.get(owner)
        if found is None:
            found = bool(owner.__flags__ & HEAPTYPE) and not any(
                isinstance(entry, NATIVE_METHODS) and getattr(entry, "__objclass__", owner) is owner
                for entry in owner.__dict__.values())
            self.python_classes[owner] = found
        return found

    # -- special kinds

    def space(self, real: dict[str, Any], label: str) -> SpaceValue:
        """The namespace value of a module's globals."""
        found = self.known.get(id(real))
        if not isinstance(found, SpaceValue):
            source = None if real is vars(polyfill) else const(real, label)
            found = SpaceValue(None, real, source)
            self.known[id(real)] = found
            self.kept.append(real)
        return found

    def cell_value(self, real: Any, source: Source) -> CellValue:
        found = self.known.get(id(real))
        if found is None:
            found = self.known[id(real)] = CellValue(None, real, source)
            self.kept.append(real)
        elif found.source is not None and found.source != source:
            self.guard(source, "alias", found.source)
        return found  # type: ignore[return-value]

    def known_value(self, real: Any) -> Value:
        """The value of a C function or descriptor."""
        return self.wrap(real, None)

    def class_value(self, real: Any) -> Value:
        return self.wrap(real, None)

    def class_of(self, value: Value) -> Any:
        value = value.force(self)
        return value.real if isinstance(value, ClassValue) else None

    def constant_value(self, real: Any) -> Value:
        return self.fresh(real)

    def tuple_value(self, items: Any) -> TupleValue:
        return TupleValue(tuple, items)

    def list_value(self, items: list[Value]) -> ListValue:
        return ListValue(list, items)

    def dict_value(self, storage: dict[Any, Value]) -> DictValue:
        return DictValue(storage=storage)

    def set_value(self, items: Any) -> SetValue:
        return SetValue(set, {item.key(self) for item in items})

    def view(self, whole: DictValue, kind: str) -> ViewValue:
        return self.views(whole, kind)

    def proxy(self, whole: DictValue) -> Value:
        return ProxyValue(whole)

    def is_none(self, value: Value) -> bool:
        if isinstance(value, Lazy) and value.made is None:
            none = value.real is None
            self.guard(value.source, "is" if none else "is not", None)
            return none
        value = value.force(self)
        return isinstance(value, Const) and value.value is None

    # -- what native code gave back

    def fresh(self, real: Any) -> Value:
        """The value of an object that C code has just made from constants."""
        kind = type(real)
        if kind in CONSTANT_SET:
            return Const(real)
        maker = FRESH.get(kind)
        if maker is not None:
            return maker(self, real)
        found = self.known.get(id(real))
        if found is not None:
            return found
        if issubclass(kind, (type, types.ModuleType, types.FunctionType, *BY_IDENTITY)):
            return self.wrap(real, None)
        if kind.__module__ == "typing":
            return self.wrap(real, None)
        if kind in PURE_TYPES:
            found = self.known[id(real)] = Known(real)
            self.kept.append(real)
            return found
        if issubclass(kind, BaseException):
            return self.native_fault(real)
        return self.stop("native-result", f"{kind.__module__}.{kind.__qualname__}")

    def native_fault(self, real: BaseException) -> FaultValue:
        args = [self.fresh(a) if self.can_be_fresh(a) else Known(a) for a in real.args]
        return FaultValue(type(real), args, native=real.with_traceback(None))

    def can_be_fresh(self, real: Any) -> bool:
        kind = type(real)
        return kind in CONSTANT_SET or kind in FRESH or kind in PURE_TYPES

    # -- keys back to values

    def lift(self, key: Any) -> Value:
        """The value that a key of a real dict or set stands for."""
        kind = type(key)
        if kind is Key:
            return key.value
        if kind in CONSTANT_SET:
            return Const(key)
        if kind is tuple:
            return TupleValue(tuple, [self.lift(part) for part in key])
        if kind is frozenset:
            return SetValue(frozenset, set(key))
        return key if isinstance(key, Value) else self.wrap(key, None)


def fresh_dict(m: Machine, real: Any) -> Value:
    return DictValue(type(real), storage={m.raw_key(k, None): m.fresh(v) for k, v in real.items()})


FRESH: dict[type, Callable[[Any, Any], Value]] = {
    tuple: lambda m, real: TupleValue(tuple, [m.fresh(x) for x in real]),
    list: lambda m, real: ListValue(list, [m.fresh(x) for x in real]),
    dict: fresh_dict,
    set: lambda m, real: SetValue(set, {m.raw_key(x, None) for x in real}),
    frozenset: lambda m, real: SetValue(frozenset, {m.raw_key(x, None) for x in real}),
    type(iter(int, 1)): lambda m, real: m.iter(m.list_value([m.fresh(x) for x in real])),
    slice: lambda m, real: SliceValue([m.fresh(x) for x in (real.start, real.stop, real.step)]),
}
