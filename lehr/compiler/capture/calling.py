"""Calls: Python functions are interpreted, C functions are modelled, folded or refused."""
from __future__ import annotations

import collections
import functools
import os
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .fault import FaultValue, Raised
from .mapping import DefaultValue, DictValue, OrderedValue
from .objects import (
    OBJECT,
    ClassValue,
    NamespaceValue,
    ObjectValue,
    PropertyValue,
    ScalarValue,
    WrapperValue,
)
from .operation import BINARY, COMPARE, Proxy
from .sequence import DequeValue, ListValue, TupleValue
from .sets import SetValue
from .source import HANDLED
from .value import (
    METHOD_DESCRIPTORS,
    PURE_TYPES,
    SCALARS,
    UNLIMITED,
    Arity,
    Const,
    Known,
    NotConstant,
    Signal,
    Value,
    slot,
)

if TYPE_CHECKING:
    from .machine import Machine
    from .rebuild import Rebuilder

    Base = Any      # the machine that these methods become part of
else:
    Base = object

Args = list[Value]
Kwargs = dict[str, Value]
Model = Callable[["Machine", Args, Kwargs], Value]

# Modules whose C functions neither change nor keep their arguments.
PURE_MODULES = frozenset((
    "math", "cmath", "binascii", "zlib", "_struct", "unicodedata"))
PURE_FUNCTIONS: frozenset[Any] = frozenset((
    os.fspath, abs, ascii, bin, chr, divmod, hex, oct, ord, pow, round,
    bytes.maketrans, str.maketrans))
PURE_METHODS = frozenset((type.__or__, type.__ror__, type.__repr__, type.mro))
OPERATORS = frozenset(name for row in (*BINARY.values(), *COMPARE.values())
                      for name in row[1:]) | {"__contains__", "__getitem__"}
ORDERINGS = frozenset(("__lt__", "__le__", "__gt__", "__ge__"))
ABSTRACT = 1 << 20


class PartialValue(ObjectValue):
    """`functools.partial`."""
    __slots__ = ("args", "function", "kwargs")

    def __init__(self, type_: Any, function: Value, args: Args, kwargs: Kwargs) -> None:
        super().__init__(type_)
        self.function, self.args, self.kwargs = function, args, kwargs

    def shell(self) -> Any:
        raise NotImplementedError

    def rebuild(self, r: Rebuilder) -> Any:
        return self.type_(r(self.function), *[r(a) for a in self.args],
                          **{k: r(v) for k, v in self.kwargs.items()})

    @slot("__call__")
    def call(self, m: Machine, /, *args: Value, **kwargs: Value) -> Value:
        return m.call(self.function, [*self.args, *args], {**self.kwargs, **kwargs})

    @slot("func")
    def get_function(self, m: Machine) -> Value:
        return self.function

    @slot("args")
    def get_args(self, m: Machine) -> Value:
        return m.tuple_value(self.args)

    @slot("keywords")
    def get_keywords(self, m: Machine) -> Value:
        return m.dict_value(dict(self.kwargs))


def new_tuple(m: Machine, cls: Any, args: Args, kwargs: Kwargs) -> Value:
    if len(args) > 1 or kwargs and isinstance(m.lookup(cls, "__init__"), Known):
        m.native_op(tuple, *([None] * len(args)), **dict.fromkeys(kwargs))
    given = args[0].force(m) if args else None
    if cls is tuple and isinstance(given, TupleValue) and given.type_ is tuple:
        return given
    return TupleValue(cls, [] if given is None else list(m.iterate(given)))


def new_frozenset(m: Machine, cls: Any, args: Args, kwargs: Kwargs) -> Value:
    if len(args) > 1 or kwargs and isinstance(m.lookup(cls, "__init__"), Known):
        m.native_op(frozenset, *([None] * len(args)), **dict.fromkeys(kwargs))
    given = args[0].force(m) if args else None
    if cls is frozenset and isinstance(given, SetValue) and given.type_ is frozenset:
        return given
    made = SetValue(frozenset, set())
    content = set() if given is None else set(made.others(m, (given,))[0])
    return SetValue(cls, content)


def new_scalar(base: type) -> Callable[[Machine, Any, Args, Kwargs], Value]:
    def make(m: Machine, cls: Any, args: Args, kwargs: Kwargs) -> Value:
        found = m.call(m.class_value(base), args, kwargs).force(m)
        return found if cls is base else ScalarValue(cls, found.constant(m))
    return make


def new_number(m: Machine, cls: Any, args: Args, kwargs: Kwargs) -> Value:
    """A numpy number, of one whose value is known."""
    if cls not in SCALARS or not all(isinstance(a.force(m), Const) for a in args) or kwargs:
        return m.stop("native-new", f"{cls.__module__}.{cls.__qualname__}")
    return m.fresh(m.native_op(cls, *[m.stand_in(a) for a in args]))


def new_object(m: Machine, cls: Any, args: Args, kwargs: Kwargs) -> Value:
    if cls.__flags__ & ABSTRACT:
        m.native_op(object.__new__, cls)
    if args or kwargs:
        init = m.lookup(cls, "__init__")
        if m.lookup(cls, "__new__") is not m.known_value(object.__new__):
            m.error(TypeError, "object.__new__() takes exactly one argument (the type to"
                               " instantiate)")
        if isinstance(init, Known):
            m.error(TypeError, f"{cls.__name__}() takes no arguments")
    return ObjectValue(cls)


def new_fault(m: Machine, cls: Any, args: Args, kwargs: Kwargs) -> Value:
    if issubclass(cls, BaseExceptionGroup):
        return m.stop("native-new", f"{cls.__name__} (exception groups)")
    if cls is OSError:
        made = m.fold(OSError, args, kwargs)
        if made is not None:
            return made
    return FaultValue(cls, list(args))


def new_wrapper(m: Machine, cls: Any, args: Args, kwargs: Kwargs) -> Value:
    return WrapperValue(cls, args[0])


def new_partial(m: Machine, cls: Any, args: Args, kwargs: Kwargs) -> Value:
    if not args:
        m.native_op(functools.partial)
    function = args[0].force(m)
    if not m.callable(function):
        m.error(TypeError, "the first argument must be callable")
    if isinstance(function, PartialValue) and function.type_ is cls:
        args = [function, *function.args, *args[1:]]
        return PartialValue(cls, function.function, args[1:], {**function.kwargs, **kwargs})
    return PartialValue(cls, function, args[1:], kwargs)


def new_property(m: Machine, cls: Any, args: Args, kwargs: Kwargs) -> Value:
    if cls is not property:
        return m.stop("native-new", f"{cls.__name__}, a subclass of property")
    return PropertyValue([None, None, None])


# The C `__new__` in force (by the class that owns it) -> how the value is made.
NEW: dict[type, Callable[[Any, Any, Args, Kwargs], Value]] = {
    object: new_object, tuple: new_tuple, frozenset: new_frozenset,
    list: lambda m, cls, args, kwargs: ListValue(cls),
    dict: lambda m, cls, args, kwargs: DictValue(cls),
    collections.OrderedDict: lambda m, cls, args, kwargs: OrderedValue(cls),
    collections.defaultdict: lambda m, cls, args, kwargs: DefaultValue(cls),
    collections.deque: lambda m, cls, args, kwargs: DequeValue(cls, []),
    types.SimpleNamespace: lambda m, cls, args, kwargs: NamespaceValue(cls),
    set: lambda m, cls, args, kwargs: SetValue(cls),
    property: new_property,
    classmethod: new_wrapper, staticmethod: new_wrapper, functools.partial: new_partial,
    **{base: new_scalar(base) for base in (int, float, str, bytes, complex)},
    **dict.fromkeys(SCALARS, new_number),
}


class Calls(Base):
    """The calling part of the machine."""

    def call(self, function: Value, args: Args, kwargs: Kwargs | None = None) -> Value:
        return function.invoke(self, args, kwargs or {})

    def call_method(self, owner: Value, name: str, args: Args) -> Value:
        """Calls a method looked up on the type."""
        found = self.special(owner, name, args)
        return self.no_attribute(owner.force(self), name) if found is None else found

    def call_slot(self, value: Value, name: str, args: Args, kwargs: Kwargs) -> Value:
        value = value.force(self)
        found = self.lookup(value.type_, name)
        if found is None:
            return self.error(TypeError, f"{self.type_name(value)!r} object is not callable")
        return found.get(self, value, value.type_).invoke(self, args, kwargs)

    def callable(self, value: Value) -> bool:
        return self.lookup(self.type_of(value), "__call__") is not None

    def new_partial(self, cls: Any, function: Value, args: Args, kwargs: Kwargs) -> PartialValue:
        return PartialValue(cls, function, args, kwargs)

    # -- C functions

    def call_real(self, function: Known, args: Args, kwargs: Kwargs) -> Value:
        real = function.real
        try:
            model = self.models.get(real)
        except TypeError:
            model = None
        if model is not None:
            return model(self, args, kwargs)
        kind = type(real)
        special = self.callables.get(kind)
        if special is not None:
            return special(self, function, args, kwargs)
        if kind in METHOD_DESCRIPTORS:
            return self.call_descriptor(function, args, kwargs)
        if kind is types.BuiltinFunctionType:
            if real.__name__ == "__new__" and isinstance(real.__self__, type):
                return self.new(real.__self__, args, kwargs)
            if real in PURE_FUNCTIONS or real.__module__ in PURE_MODULES:
                made = self.fold(real, args, kwargs)
                if made is not None:
                    return made
        elif kind is types.ClassMethodDescriptorType and real.__objclass__ is object:
            return OBJECT[real.__name__](args[0], self, *args[1:], **kwargs)
        elif kind is types.ClassMethodDescriptorType and real.__objclass__ in PURE_TYPES:
            made = self.fold(getattr(args[0].force(self).real, real.__name__), args[1:], kwargs)
            if made is not None:
                return made
        elif kind.__call__ is not object and "__call__" in kind.__dict__ and (
                type(kind.__dict__["__call__"]) is types.FunctionType):
            return self.call_slot(function, "__call__", args, kwargs)
        return self.native(function, args, kwargs)

    def call_descriptor(self, function: Known, args: Args, kwargs: Kwargs) -> Value:
        """A method of a class implemented in C, the object is the first argument."""
        real = function.real
        name, owner = real.__name__, real.__objclass__
        if not args:
            self.native_op(real)
        obj = args[0].force(self)
        if not issubclass(obj.type_of(self), owner):
            self.error(TypeError, f"descriptor {name!r} for {owner.__name__!r} objects doesn't"
                                  f" apply to a {self.type_name(obj)!r} object")
        if owner is object:
            handler = OBJECT.get(name)
            if handler is not None:
                return self.run_handler(handler, name, UNLIMITED, obj, args, kwargs)
        else:
            handler = obj.table.get(name)
            if handler is not None:
                limits = obj.arities.get(name, UNLIMITED)
                return self.run_handler(handler, name, limits, obj, args, kwargs)
            if name in ORDERINGS and owner not in PURE_TYPES and not isinstance(obj, Known):
                return Const(NotImplemented)
            if owner in PURE_TYPES or real in PURE_METHODS or issubclass(owner, BaseException):
                made = self.fold(real, [obj, *args[1:]], kwargs)
                if made is not None:
                    return made
        return self.native_method(function, obj, args, kwargs)

    def run_handler(self, handler: Callable[..., Any], name: str, limits: Arity, obj: Value,
                    args: Args, kwargs: Kwargs) -> Value:
        if not limits.accepts(len(args) - 1, kwargs):
            self.wrong_arity(obj, name, len(args) - 1, kwargs)
        return handler(obj, self, *args[1:], **kwargs)

    def wrong_arity(self, obj: Value, name: str, given: int, kwargs: Kwargs) -> None:
        """The text of CPython's error, from the method of an empty object of the base class."""
        base = getattr(obj, "base", obj.type_)
        blank, named = base.__new__(base), dict.fromkeys(kwargs)
        self.native_op(getattr(base, name), blank, *([None] * given), **named)
        self.stop("unmodelled", f"{base.__name__}.{name} with these arguments")

    def fold(self, function: Any, args: Args, kwargs: Kwargs) -> Value | None:
        """Calls a pure C function with real arguments; None when they have no real form.

        An object gets a proxy.  What C code refuses about a proxy it might accept from the object,
        so such an error is believed of operators only.
        """
        try:
            reals = [self.stand_in(a) for a in args]
            named = {k: self.stand_in(v) for k, v in kwargs.items()}
        except NotConstant:
            return None
        proxies = any(isinstance(x, Proxy) for x in (*reals, *named.values()))
        name = getattr(function, "__name__", "")
        if not proxies or name in OPERATORS:
            return self.fresh(self.native_op(function, *reals, **named))
        try:
            found = function(*reals, **named)
        except (TypeError, AttributeError):
            return self.stop("unmodelled", f"{name} with an object of the program")
        except (Signal, RecursionError):
            raise
        except Exception as error:  # noqa: BLE001  (any error of the program, whatever it is)
            return self.fault(error)
        return self.fresh(found)

    def stand_in(self, value: Value) -> Any:
        value = value.force(self)
        if isinstance(value, Const):
            return value.value
        try:
            return value.constant(self)
        except NotConstant:
            if isinstance(value, Known):
                raise
            return self.shadow(value)

    def native(self, function: Known, args: Args, kwargs: Kwargs) -> Value:
        """Seam: a C function without a model."""
        real = function.real
        if real is print:
            self.stop("print", "")
        module = getattr(real, "__module__", None)
        name = getattr(real, "__qualname__", None) or repr(real)
        return self.stop("native-call", f"{module}.{name}" if module else name)

    def native_method(self, function: Known, obj: Value, args: Args, kwargs: Kwargs) -> Value:
        """Seam: a method of a C class without a model."""
        return self.stop("native-method", f"{self.type_name(obj)}.{function.real.__name__}")

    # -- classes

    def call_class(self, cls: ClassValue, args: Args, kwargs: Kwargs) -> Value:
        real = cls.real
        model = self.models.get(real)
        if model is not None:
            return model(self, args, kwargs)
        meta = type(real)
        if meta is not type:
            caller = self.lookup(meta, "__call__")
            if caller is not None and caller is not self.known_value(type.__call__):
                return caller.get(self, cls, meta).invoke(self, args, kwargs)
        return self.construct(cls, args, kwargs)

    def construct(self, cls: ClassValue, args: Args, kwargs: Kwargs) -> Value:
        """`type.__call__`: `__new__`, then `__init__`."""
        real = cls.real
        maker = self.lookup(real, "__new__")
        assert maker is not None
        made = maker.get(self, None, real).invoke(self, [cls, *args], kwargs).force(self)
        kind = made.type_of(self)
        if not issubclass(kind, real):
            return made
        init = self.lookup(kind, "__init__")
        if init is self.object_init:
            return made
        if init is None or isinstance(made, (Const, ScalarValue)) and isinstance(init, Known):
            return made
        if isinstance(init, Known) and "__init__" not in made.table:
            return made     # the C `__new__` has done it all
        if isinstance(init, Known) and not isinstance(maker, Known) and isinstance(
                made, (ListValue, SetValue)):
            kwargs = {}     # they are the business of the class's own `__new__`
        result = init.get(self, made, kind).invoke(self, args, kwargs)
        if not self.is_none(result):
            self.error(TypeError, "__init__() should return None, not"
                                  f" {self.type_name(result)!r}")
        return made

    def new(self, base: Any, args: Args, kwargs: Kwargs) -> Value:
        """A C `__new__`: `base` owns it, the class to make is the first argument."""
        if not args:
            self.error(TypeError, f"{base.__name__}.__new__(): not enough arguments")
        cls = self.class_of(args[0])
        if cls is None:
            self.error(TypeError, f"{base.__name__}.__new__(X): X is not a type object"
                                  f" ({self.type_name(args[0])})")
        if not issubclass(cls, base):
            self.error(TypeError, f"{base.__name__}.__new__({cls.__name__}): {cls.__name__} is not"
                                  f" a subtype of {base.__name__}")
        solid = next(k for k in cls.__mro__ if not self.is_python(k))
        if solid.__new__ != base.__new__:
            self.error(TypeError, f"{base.__name__}.__new__({cls.__name__}) is not safe, use"
                                  f" {solid.__name__}.__new__()")
        if issubclass(base, type):
            return self.new_class(args, kwargs)
        if issubclass(base, BaseException):
            return new_fault(self, cls, args[1:], kwargs)
        maker = next((NEW[k] for k in cls.__mro__ if k in NEW and issubclass(k, base)), None)
        if maker is None:
            return self.stop("native-new", f"{base.__module__}.{base.__qualname__}")
        return maker(self, cls, args[1:], kwargs)

    def new_class(self, args: Args, kwargs: Kwargs) -> Value:
        """`type.__new__`: a real class; see klass.py."""
        if len(args) != 4:
            self.error(TypeError, f"type.__new__() takes exactly 3 arguments ({len(args) - 1}"
                                  " given)")
        return self.make_class(args[0], args[1], args[2], args[3], kwargs)

    # -- errors of the program

    def native_op(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Runs a native operation; what it raises is an error of the captured program."""
        try:
            return function(*args, **kwargs)
        except (Signal, RecursionError):
            raise
        except Exception as error:  # noqa: BLE001  (any error of the program, whatever it is)
            self.fault(error)

    def fault(self, error: BaseException) -> Any:
        """Raises a native exception inside the captured program."""
        value = self.native_fault(error)
        self.set_context(value)
        raise Raised(value) from None

    def error(self, kind: type[BaseException], text: str) -> Any:
        """Raises an exception of the captured program."""
        return self.error_with(kind, [Const(text)])

    def error_with(self, kind: type[BaseException], args: Args) -> Any:
        return self.raise_fault(FaultValue(kind, args))

    def raise_fault(self, fault: FaultValue) -> Any:
        self.set_context(fault)
        raise Raised(fault)

    def handled(self) -> FaultValue | None:
        """The exception being handled: `sys.exc_info()[1]`."""
        for found in reversed(self.handling):
            if found is not None:
                return found
        if self.around is None:
            self.guard(HANDLED, "is", None)
            return None
        return self.wrap(self.around, HANDLED)  # type: ignore[return-value]

    def set_context(self, value: FaultValue) -> None:
        """What CPython does whenever an exception is set; cycles are cut."""
        current = self.handled()
        if current is None or current is value:
            return
        link: Any = current
        while link.context is not None:
            if link.context is value:
                link.set_link(self, "context", None)
                break
            link = link.context
        value.set_link(self, "context", current)
