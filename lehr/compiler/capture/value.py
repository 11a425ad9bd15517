"""What the machine computes with: the base class of values, and the values without parts.

A value stands for one Python object.  It says its `type_`, and implements the behaviour that
CPython implements in C: `table` maps a method, slot or field name to a handler.  Behaviour written
in Python (user classes) is never here: the machine finds it through the type's MRO and interprets
it; only when that search ends at a C implementation is the table asked.  Handlers take
`(self, machine, *arguments)`; the name `x=` is the setter of field `x`.

A `Lazy` value is an object that existed before the call and has not been used yet.  Using it
(`force`) asks for the guards that make the use valid.  Code that forgets to force a value finds no
handler and breaks the capture: the mistake is loud, never a missing guard.
"""
from __future__ import annotations

import inspect
import re
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from .source import Source

if TYPE_CHECKING:
    from .machine import Machine
    from .rebuild import Rebuilder

Handler = Callable[..., Any]

# numpy's numbers, and the abstract classes that own their methods.
SCALARS = frozenset(np.dtype(code).type for code in "?bBhHiIlLqQefdFD")
SCALAR_BASES = frozenset(k for s in SCALARS for k in s.__mro__ if issubclass(k, np.generic))
# Types whose objects are plain constants: immutable, compared by value, built from literals.
CONSTANTS = (int, float, bool, str, bytes, complex, type(None), type(...), type(NotImplemented),
             range, types.CodeType, *SCALARS)
CONSTANT_SET = frozenset(CONSTANTS)
NUMBERS = frozenset((int, float))
# Types whose C methods and functions neither change nor keep anything: calls on constants fold.
PURE_TYPES = frozenset((*CONSTANTS, slice, frozenset, re.Pattern, re.Match, types.GenericAlias,
                        types.UnionType, tuple, *SCALAR_BASES))


class Signal(Exception):
    """Base of what the machine throws for itself; never an error of the captured program."""


class NotConstant(Signal):
    """The value has no constant form."""


def slot(*names: str) -> Callable[[Handler], Handler]:
    """Puts the method into its class's table under these names."""
    def mark(handler: Handler) -> Handler:
        handler.slots = names  # type: ignore[attr-defined]
        return handler
    return mark


class Arity(NamedTuple):
    """What a handler takes: `most` is -1 for `*args`, `names` is None for `**kwargs`."""
    least: int
    most: int
    names: frozenset[str] | None

    def accepts(self, given: int, kwargs: dict[str, Any]) -> bool:
        if 0 <= self.most < given or given < self.least and not kwargs:
            return False
        return not kwargs or self.names is None or self.names.issuperset(kwargs)


UNLIMITED = Arity(0, -1, None)


def arity(handler: Handler, skip: int = 2) -> Arity:
    """Of the arguments behind the first `skip`, which are self and the machine."""
    assert isinstance(handler, types.FunctionType), handler
    code, defaults = handler.__code__, len(handler.__defaults__ or ())
    count, only = code.co_argcount, code.co_kwonlyargcount
    most = -1 if code.co_flags & inspect.CO_VARARGS else count - skip
    least = max(0, count - max(skip, 0) - defaults)
    names = None
    if not code.co_flags & inspect.CO_VARKEYWORDS:
        names = frozenset(code.co_varnames[skip:count + only])
    return Arity(least, most, names)


class Value:
    """Base of all values."""
    __slots__ = ("source",)
    table: ClassVar[dict[str, Handler]] = {}
    arities: ClassVar[dict[str, Arity]] = {}
    source: Source | None
    type_: Any
    real: Any = None    # the object itself where it existed before the call

    def __init_subclass__(cls) -> None:
        table: dict[str, Handler] = {}
        arities: dict[str, Arity] = {}
        for base in reversed(cls.__mro__[1:]):
            table.update(getattr(base, "table", {}))
            arities.update(getattr(base, "arities", {}))
        for handler in vars(cls).values():
            for name in getattr(handler, "slots", ()):
                table[name], arities[name] = handler, arity(handler)
        cls.table, cls.arities = table, arities

    def force(self, m: Machine) -> Value:
        """The value, ready to be looked at."""
        return self

    def type_of(self, m: Machine) -> Any:
        """The Python type, with the guard that needs."""
        return self.type_

    def constant(self, m: Machine) -> Any:
        """A real object equal to this one, for a pure C function; raises NotConstant."""
        raise NotConstant

    def key(self, m: Machine) -> Any:
        """What stands for the value in a real dict or set; its hash and equality are right."""
        return m.key_of(self)

    def invoke(self, m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return m.call_slot(self, "__call__", args, kwargs)

    def get(self, m: Machine, obj: Value | None, owner: Any) -> Value:
        """The descriptor protocol's `__get__`."""
        return self

    def is_data(self, m: Machine) -> bool:
        """Whether it is a data descriptor."""
        return False

    def assign(self, m: Machine, obj: Value, value: Value | None) -> None:
        """The descriptor protocol's `__set__`, or `__delete__` when there is no value."""
        raise NotImplementedError(type(self).__name__)

    def rebuild(self, r: Rebuilder) -> Any:
        """The real object; called once per value, see rebuild.py."""
        raise NotImplementedError(type(self).__name__)


class Marker(Value):
    """A stack entry that is no object."""
    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.source, self.name = None, name

    def __repr__(self) -> str:
        return self.name


class Handled(Value):
    """The slot PUSH_EXC_INFO made: the exception that was being handled before, or None."""
    __slots__ = ("previous",)

    def __init__(self, previous: Value | None) -> None:
        self.source, self.previous = None, previous


class Lasti(Value):
    """The byte offset kept below a handled exception; RERAISE reads it."""
    __slots__ = ("offset",)

    def __init__(self, offset: int) -> None:
        self.source, self.offset = None, offset


NULL = Marker("NULL")
GONE = Marker("GONE")       # a deleted entry of a sparse mapping


class Lazy(Value):
    """An object that existed before the call, not looked at yet."""
    __slots__ = ("made", "real")

    def __init__(self, real: object, source: Source) -> None:
        self.real, self.source = real, source
        self.made: Value | None = None

    @property
    def type_(self) -> Any:
        raise AssertionError("a lazy value was used without being forced")

    def force(self, m: Machine) -> Value:
        made = self.made
        if made is None:
            made = self.made = m.wrap(self.real, self.source)
        return made

    def type_of(self, m: Machine) -> Any:
        if self.made is None:
            m.guard(self.source, "type", type(self.real))
            return type(self.real)
        return self.made.type_of(m)

    def constant(self, m: Machine) -> Any:
        return self.force(m).constant(m)

    def key(self, m: Machine) -> Any:
        return self.force(m).key(m)

    def invoke(self, m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return self.force(m).invoke(m, args, kwargs)

    def get(self, m: Machine, obj: Value | None, owner: Any) -> Value:
        return self.force(m).get(m, obj, owner)

    def is_data(self, m: Machine) -> bool:
        return self.force(m).is_data(m)

    def rebuild(self, r: Rebuilder) -> Any:
        return r.read(self) if self.made is None else r(self.made)

    def __repr__(self) -> str:
        assert self.source is not None
        return f"Lazy({self.source.name()})"


class Const(Value):
    """A constant: its type is in CONSTANTS."""
    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value, self.source = value, None

    @property
    def type_(self) -> Any:
        return type(self.value)

    def type_of(self, m: Machine) -> Any:
        return type(self.value)

    def constant(self, m: Machine) -> Any:
        return self.value

    def key(self, m: Machine) -> Any:
        return self.value

    @slot("__mod__")
    def modulo(self, m: Machine, other: Value) -> Value:
        """`%`: formatting for text."""
        text = type(self.value) in (str, bytes)
        shadow = m.format_arguments(other) if text else m.stand_in(other)
        return m.fresh(m.native_op(type(self.value).__mod__, self.value, shadow))

    @slot("__iter__")
    def iter(self, m: Machine) -> Value:
        return m.native_iter(self, iter(self.value))

    @slot("__reversed__")
    def reversed(self, m: Machine) -> Value:
        return m.native_iter(self, reversed(self.value), backwards=True)

    def rebuild(self, r: Rebuilder) -> Any:
        return self.value

    def __repr__(self) -> str:
        return f"Const({self.value!r})"


class Known(Value):
    """A real object taken as a whole: a C function, a descriptor, an opaque object."""
    __slots__ = ("real",)

    def __init__(self, real: object, source: Source | None = None) -> None:
        self.real, self.source = real, source

    @property
    def type_(self) -> Any:
        return type(self.real)

    def type_of(self, m: Machine) -> Any:
        return type(self.real)

    def constant(self, m: Machine) -> Any:
        kind = type(self.real)
        if kind in OPAQUE_CONSTANTS:
            return self.real
        if kind.__module__ == "typing":     # type variables and aliases compare by identity
            m.guard(self.source, "is", self.real)
            return self.real
        raise NotConstant

    def key(self, m: Machine) -> Any:
        kind = type(self.real)
        by_real = kind in OPAQUE_CONSTANTS or m.identity_hash(kind)
        return self.real if by_real else m.key_of(self)

    def invoke(self, m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return m.call_real(self, args, kwargs)

    def get(self, m: Machine, obj: Value | None, owner: Any) -> Value:
        binder = BINDERS.get(type(self.real))
        return self if binder is None else binder(m, self, obj, owner)

    def is_data(self, m: Machine) -> bool:
        return type(self.real) in WRITERS

    def assign(self, m: Machine, obj: Value, value: Value | None) -> None:
        WRITERS[type(self.real)](m, self, obj, value)

    def rebuild(self, r: Rebuilder) -> Any:
        return self.real

    def __repr__(self) -> str:
        return f"Known({self.real!r})"


METHOD_DESCRIPTORS = frozenset((types.MethodDescriptorType, types.WrapperDescriptorType))
OPAQUE_CONSTANTS = frozenset((
    re.Pattern, re.Match, types.GenericAlias, types.UnionType, types.BuiltinFunctionType,
    types.MethodDescriptorType, types.WrapperDescriptorType, types.GetSetDescriptorType,
    types.MemberDescriptorType, types.ClassMethodDescriptorType, types.ModuleType))
# Descriptor type -> function (machine, descriptor value, object or None, owner class).
BINDERS: dict[type, Callable[[Machine, Known, Value | None, Any], Value]] = {}
# Data descriptor type -> function (machine, descriptor value, object, new value or None).
WRITERS: dict[type, Callable[[Machine, Known, Value, Value | None], None]] = {}


class Binding(Value):
    """A C descriptor bound to an object, `[].append`."""
    __slots__ = ("function", "owner")

    def __init__(self, function: Known, owner: Value) -> None:
        self.function, self.owner, self.source = function, owner, None

    @property
    def type_(self) -> Any:
        slotted = type(self.function.real) is types.WrapperDescriptorType
        return types.MethodWrapperType if slotted else types.BuiltinMethodType

    def type_of(self, m: Machine) -> Any:
        return self.type_

    def invoke(self, m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return m.call_real(self.function, [self.owner, *args], kwargs)

    @slot("__name__")
    def get_name(self, m: Machine) -> Value:
        return Const(self.function.real.__name__)

    @slot("__qualname__")
    def get_qualname(self, m: Machine) -> Value:
        return Const(self.function.real.__qualname__)

    @slot("__module__")
    def get_module(self, m: Machine) -> Value:
        return Const(None)

    @slot("__self__")
    def get_self(self, m: Machine) -> Value:
        return self.owner

    def rebuild(self, r: Rebuilder) -> Any:
        function, owner = r(self.function), r(self.owner)
        if type(function) is types.ClassMethodDescriptorType:
            return function.__get__(None, owner)
        return function.__get__(owner)


def bind_method(m: Machine, found: Known, obj: Value | None, owner: Any) -> Value:
    return found if obj is None else Binding(found, obj)


def read_field(m: Machine, found: Known, obj: Value | None, owner: Any) -> Value:
    return found if obj is None else m.read_field(found.real, obj)


def write_field(m: Machine, found: Known, obj: Value, value: Value | None) -> None:
    m.write_field(found.real, obj, value)


def bind_class(m: Machine, found: Known, obj: Value | None, owner: Any) -> Value:
    return Binding(found, m.class_value(owner))


BINDERS.update({
    types.MethodDescriptorType: bind_method, types.WrapperDescriptorType: bind_method,
    types.GetSetDescriptorType: read_field, types.MemberDescriptorType: read_field,
    types.ClassMethodDescriptorType: bind_class,
})
WRITERS.update({
    types.GetSetDescriptorType: write_field, types.MemberDescriptorType: write_field,
})
