"""User instances, classes, functions, methods, cells and the descriptors Python is built from."""
from __future__ import annotations

import builtins as python
import copyreg
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .source import Source, const
from .value import GONE, Const, NotConstant, Value, slot

if TYPE_CHECKING:
    from .machine import Machine
    from .mapping import DictValue, SpaceValue
    from .rebuild import Rebuilder


READERS = ("__getitem__", "__len__", "__iter__", "__contains__", "__eq__")


class ObjectValue(Value):
    """An instance of any class, with its `__dict__` and its `__slots__`.

    `real` is the object where it existed before the call; then attributes are read from it one by
    one and writes are kept here and logged as effects.  Containers derive from this class, since
    users derive their classes from containers.
    """
    __slots__ = ("attrs", "members", "real", "type_")
    base: type = object     # the C class whose methods the table implements

    def __init__(self, type_: Any, real: Any = None, source: Source | None = None) -> None:
        self.type_, self.real, self.source = type_, real, source
        self.attrs: SpaceValue | None = None
        self.members: dict[Any, Value] | None = None

    def constant(self, m: Machine) -> Any:
        if self.real is not None and self.type_.__module__ == "typing":
            m.guard(self.source, "is", self.real)
            return self.real
        raise NotConstant

    def key(self, m: Machine) -> Any:
        if self.real is not None and m.identity_hash(self.type_):
            return self.real
        return m.key_of(self)

    def origin(self) -> Source:
        """The source, or the object itself where it was reached without one."""
        return self.source or const(self.real, f"a {self.type_.__name__}")

    def inside(self) -> Source | None:
        """The source of a container's content: where its class reads in its own way, without that.
        """
        if self.source is None or self.type_ is self.base or all(
                getattr(self.type_, n, None) is getattr(self.base, n, None) for n in READERS):
            return self.source
        return Source("plain", self.source)

    def get(self, m: Machine, obj: Value | None, owner: Any) -> Value:
        getter = m.lookup(self.type_, "__get__")
        if getter is None:
            return self
        return m.call(getter, [self, obj or Const(None), m.class_value(owner)])

    def is_data(self, m: Machine) -> bool:
        return (m.lookup(self.type_, "__set__") or m.lookup(self.type_, "__delete__")) is not None

    def assign(self, m: Machine, obj: Value, value: Value | None) -> None:
        name = "__set__" if value else "__delete__"
        setter = m.lookup(self.type_, name)
        if setter is None:
            m.error(AttributeError, name)
        else:
            m.call(setter, [self, obj, value] if value else [self, obj])

    def read_member(self, m: Machine, member: Any) -> Value | None:
        """The content of a `__slots__` entry, None when it is unbound."""
        known = self.members = self.members or {}
        if member not in known:
            if self.real is None:
                return None
            try:
                real = member.__get__(self.real)
            except AttributeError:
                m.guard(self.source, "no attribute", member.__name__)
                known[member] = GONE
            else:
                source = self.origin().attr(member.__name__)
                m.guard(source, "readable", None)
                known[member] = m.lazy(real, source)
        found = known[member]
        return None if found is GONE else found

    def write_member(self, m: Machine, member: Any, value: Value | None) -> None:
        self.members = self.members or {}
        if self.real is not None:
            m.effect("setfield" if value else "delfield", self, Const(member.__name__),
                     *([value] if value else []))
        self.members[member] = value or GONE

    def adopt(self, real: Any) -> None:
        """The object has been built and native code has had it: from now on it is read anew."""
        self.real, self.attrs, self.members = real, None, None

    def shell(self) -> Any:
        """A new real object of the same class, without content."""
        return object.__new__(self.type_)

    def fill(self, r: Rebuilder, real: Any) -> None:
        """Gives the shell its content, attributes excepted."""

    def rebuild(self, r: Rebuilder) -> Any:
        real = r.made(self, self.shell())
        self.fill(r, real)
        if self.attrs is not None:
            for name, value in self.attrs.storage.items():
                object.__getattribute__(real, "__dict__")[name] = r(value)
        for member, value in (self.members or {}).items():
            if value is not GONE:
                member.__set__(real, r(value))
        return real

    def __repr__(self) -> str:
        where = f" {self.source.name()}" if self.source else ""
        return f"<{self.type_.__name__}{where}>"


class ScalarValue(ObjectValue):
    """An instance of a user class derived from int, float, str or bytes."""
    __slots__ = ("payload",)

    def __init__(self, type_: Any, payload: Any, real: Any = None,
                 source: Source | None = None) -> None:
        super().__init__(type_, real, source)
        self.payload = payload

    def constant(self, m: Machine) -> Any:
        return self.payload if self.real is None else self.real

    def key(self, m: Machine) -> Any:
        plain = all(getattr(self.type_, n) is getattr(type(self.payload), n)
                    for n in ("__eq__", "__hash__"))
        return self.real if plain and self.real is not None else super().key(m)

    def shell(self) -> Any:
        base = type(self.payload)
        return base.__new__(self.type_, self.payload)


class CellValue(Value):
    """A closure cell.  `content` is GONE while the cell is empty, None while it is unread."""
    __slots__ = ("content", "real")
    type_ = types.CellType

    def __init__(self, content: Value | None, real: Any = None,
                 source: Source | None = None) -> None:
        self.content, self.real, self.source = content, real, source

    def read(self, m: Machine) -> Value | None:
        content = self.content
        if content is None:
            try:
                real = self.real.cell_contents
            except ValueError:
                m.guard(self.source, "empty cell", None)
                content = GONE
            else:
                held = self.source
                held = held or const(self.real, "cell")
                source = Source("cell", held.base, held.key) if held.kind == "closure" else (
                    held.attr("cell_contents"))
                content = m.lazy(real, source)
            self.content = content
        return None if content is GONE else content

    def write(self, m: Machine, value: Value | None) -> None:
        if self.real is not None:
            m.effect("cell", self, *([value] if value else []))
        self.content = value or GONE

    def rebuild(self, r: Rebuilder) -> Any:
        real = r.made(self, r.cell(self))
        if id(self.content) in r.open:
            r.waiting.setdefault(id(self.content), []).append(real)
        elif self.content is not GONE:
            real.cell_contents = r(self.content)
        return real

    @slot("cell_contents")
    def get_contents(self, m: Machine) -> Value:
        return self.read(m) or m.error(ValueError, "Cell is empty")

    @slot("cell_contents=")
    def set_contents(self, m: Machine, value: Value | None) -> None:
        self.write(m, value)


class FunctionValue(ObjectValue):
    """A Python function: a real one, read field by field, or one the captured code made."""
    __slots__ = ("closure", "code", "defaults", "fields", "globals", "kwdefaults")

    def __init__(self, code: types.CodeType, space: SpaceValue, real: Any = None,
                 source: Source | None = None) -> None:
        super().__init__(types.FunctionType, real, source)
        self.code, self.globals = code, space
        self.fields: dict[str, Value] = {}
        self.defaults: tuple[Value, ...] = ()
        self.kwdefaults: dict[str, Value] = {}
        self.closure: tuple[CellValue, ...] = ()

    def load(self, m: Machine) -> FunctionValue:
        """Reads defaults and closure of a real function."""
        real, source = self.real, self.origin()
        self.defaults = tuple(m.lazy(x, Source("default", source, i))
                              for i, x in enumerate(real.__defaults__ or ()))
        self.kwdefaults = {k: m.lazy(x, Source("kwdefault", source, k))
                           for k, x in (real.__kwdefaults__ or {}).items()}
        names = real.__code__.co_freevars
        self.closure = tuple(m.cell_value(cell, Source("closure", source, (i, names[i])))
                             for i, cell in enumerate(real.__closure__ or ()))
        return self

    def invoke(self, m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return m.inline(self, args, kwargs)

    def get(self, m: Machine, obj: Value | None, owner: Any) -> Value:
        return self if obj is None else MethodValue(self, obj)

    def is_data(self, m: Machine) -> bool:
        return False

    def key(self, m: Machine) -> Any:
        return self if self.real is None else self.real

    @property
    def name(self) -> str:
        return self.real.__qualname__ if self.real is not None else self.code.co_qualname

    def field(self, m: Machine, name: str) -> Value:
        found = self.fields.get(name)
        if found is None:
            if self.real is None:
                return FUNCTION_FIELDS[name](self, m)
            source = self.origin()
            found = self.fields[name] = m.lazy(getattr(self.real, name), source.attr(name))
        return found

    def set_field(self, m: Machine, name: str, value: Value | None) -> None:
        if self.real is not None:
            m.effect("setfield", self, Const(name), value or Const(None))
        self.fields[name] = value or Const(None)

    def rebuild(self, r: Rebuilder) -> Any:
        space = r(self.globals)
        closure = tuple(r(cell) for cell in self.closure) if self.code.co_freevars else None
        name = r(self.fields["__name__"]) if "__name__" in self.fields else self.code.co_name
        twin = r.machine.twins.get(id(self))
        if twin is not None and not r.repeats:
            r.machine.settle_function(self, twin, r)
            return twin
        real = r.made(self, types.FunctionType(self.code, space, name, None, closure))
        self.fill_fields(r, real)
        return real

    def fill_fields(self, r: Rebuilder, real: Any) -> None:
        if self.defaults:
            real.__defaults__ = tuple(r(v) for v in self.defaults)
        if self.kwdefaults:
            real.__kwdefaults__ = {k: r(v) for k, v in self.kwdefaults.items()}
        for field, value in self.fields.items():
            setattr(real, field, r(value))
        if self.attrs is not None:
            real.__dict__.update({k: r(v) for k, v in self.attrs.storage.items()})

    def __repr__(self) -> str:
        return f"<function {self.name}>"

    @slot("__closure__")
    def get_closure(self, m: Machine) -> Value:
        return m.tuple_value(list(self.closure)) if self.closure else Const(None)

    @slot("__globals__")
    def get_globals(self, m: Machine) -> Value:
        return self.globals

    @slot("__code__")
    def get_code(self, m: Machine) -> Value:
        return Const(self.code)

    @slot("__defaults__")
    def get_defaults(self, m: Machine) -> Value:
        return m.tuple_value(list(self.defaults)) if self.defaults else Const(None)

    @slot("__kwdefaults__")
    def get_kwdefaults(self, m: Machine) -> Value:
        return m.dict_value(dict(self.kwdefaults)) if self.kwdefaults else Const(None)

    @slot("__call__")
    def call(self, m: Machine, /, *args: Value, **kwargs: Value) -> Value:
        return m.inline(self, list(args), kwargs)

    @slot("__get__")
    def bind(self, m: Machine, obj: Value, owner: Value | None = None) -> Value:
        return self if m.is_none(obj) else MethodValue(self, obj)


def module_name(self: FunctionValue, m: Machine) -> Value:
    return m.force(self.globals.find(m, "__name__") or Const(None))


def empty_annotations(self: FunctionValue, m: Machine) -> Value:
    made = self.fields["__annotations__"] = m.dict_value({})
    return made


def docstring(self: FunctionValue, m: Machine) -> Value:
    consts = self.code.co_consts
    text = consts[0] if consts and isinstance(consts[0], str) else None
    return Const(text if self.code.co_flags & 0x2 else None)


# Fields of a function made by the captured code, until the program writes them.
FUNCTION_FIELDS: dict[str, Callable[[FunctionValue, Machine], Value]] = {
    "__name__": lambda self, m: Const(self.code.co_name),
    "__qualname__": lambda self, m: Const(self.code.co_qualname),
    "__doc__": docstring, "__module__": module_name, "__annotations__": empty_annotations,
    "__type_params__": lambda self, m: m.tuple_value([]),
    "__builtins__": lambda self, m: m.wrap(python, None),
}


def field_reader(name: str) -> Callable[[FunctionValue, Machine], Value]:
    return lambda self, m: self.field(m, name)


def field_writer(name: str) -> Callable[[FunctionValue, Machine, Value | None], None]:
    return lambda self, m, value: self.set_field(m, name, value)


for _name in FUNCTION_FIELDS:
    FunctionValue.table[_name] = field_reader(_name)
    FunctionValue.table[_name + "="] = field_writer(_name)


class MethodValue(Value):
    """A Python function, or any callable, bound to an object."""
    __slots__ = ("function", "owner", "real")
    type_ = types.MethodType

    def __init__(self, function: Value, owner: Value, real: Any = None) -> None:
        self.function, self.owner, self.real, self.source = function, owner, real, None

    def invoke(self, m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return self.function.invoke(m, [self.owner, *args], kwargs)

    def rebuild(self, r: Rebuilder) -> Any:
        return types.MethodType(r(self.function), r(self.owner))

    @slot("__self__")
    def get_self(self, m: Machine) -> Value:
        return self.owner

    @slot("__func__")
    def get_function(self, m: Machine) -> Value:
        return self.function

    @slot("__getattribute__")
    def getattr(self, m: Machine, name: Value) -> Value:
        if m.lookup(types.MethodType, m.text(name)) is not None:
            return m.generic_getattr(self, m.text(name))
        return m.getattr(self.function, m.text(name))

    @slot("__eq__")
    def equal(self, m: Machine, other: Value) -> Value:
        if not isinstance(other, MethodValue):
            return Const(NotImplemented)
        return Const(m.identical(self.owner, other.owner)
                     and m.truth(m.compare("==", self.function, other.function)))

    @slot("__hash__")
    def hash(self, m: Machine) -> Value:
        return Const(m.hash(self.function) ^ id(self.owner.force(m)))

    @slot("__call__")
    def call(self, m: Machine, /, *args: Value, **kwargs: Value) -> Value:
        return self.invoke(m, list(args), kwargs)


class ClassValue(Value):
    """A class.  It is always a real class; what the captured code writes to it is an overlay."""
    __slots__ = ("real", "written")

    def __init__(self, real: Any, source: Source | None = None) -> None:
        self.real, self.source = real, source
        self.written: dict[str, Value] = {}

    @property
    def type_(self) -> Any:
        return type(self.real)

    def constant(self, m: Machine) -> Any:
        return self.real

    def key(self, m: Machine) -> Any:
        return self.real if m.identity_hash(type(self.real)) else m.key_of(self)

    def invoke(self, m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return m.call_class(self, args, kwargs)

    def rebuild(self, r: Rebuilder) -> Any:
        return r.class_(self)

    @slot("__init__")
    def init(self, m: Machine, /, *args: Value, **kwargs: Value) -> Value:
        return Const(None)

    @slot("__dict__")
    def get_dict(self, m: Machine) -> Value:
        return m.class_space(self)

    @slot("__instancecheck__")
    def check_instance(self, m: Machine, value: Value) -> Value:
        return Const(m.is_plain_instance(value, self))

    @slot("__subclasscheck__")
    def check_subclass(self, m: Machine, cls: Value) -> Value:
        kind = m.class_of(cls)
        return Const(m.native_op(type.__subclasscheck__, self.real, kind))

    @slot("__subclasses__")
    def subclasses(self, m: Machine) -> Value:
        ask = type.__subclasses__.__get__(self.real)
        found = ask()
        if not m.fresh_classes.keys().isdisjoint(found):
            m.stop("fresh-class", f"{self.real.__qualname__}.__subclasses__")
        m.guard(const(ask, f"{self.real.__qualname__}.__subclasses__"), "returns", found)
        return m.list_value([m.wrap(k, None) for k in found])

    @slot("__annotations__")
    def get_annotations(self, m: Machine) -> Value:
        found = m.class_space(self).shown.find(m, "__annotations__")
        return m.dict_value({}) if found is None else found

    def __repr__(self) -> str:
        return f"<class {self.real.__qualname__}>"


class ModuleValue(ObjectValue):
    """A module; its attributes are its globals."""
    __slots__ = ()

    def constant(self, m: Machine) -> Any:
        return self.real

    def key(self, m: Machine) -> Any:
        return self.real


class NamespaceValue(ObjectValue):
    """`types.SimpleNamespace`."""
    __slots__ = ()
    base = types.SimpleNamespace

    def shell(self) -> Any:
        return self.type_.__new__(self.type_)

    @slot("__init__")
    def init(self, m: Machine, /, *args: Value, **kwargs: Value) -> Value:
        for arg in args:
            for key, value in m.dict_value({}).items_of(m, arg):
                m.attrs_of(self).put(m, key, value)  # type: ignore[union-attr]
        for name, value in kwargs.items():
            m.attrs_of(self).put(m, name, value)  # type: ignore[union-attr]
        return Const(None)

    @slot("__eq__")
    def equal(self, m: Machine, other: Value) -> Value:
        other = other.force(m)
        if not isinstance(other, NamespaceValue):
            return Const(NotImplemented)
        return m.compare("==", m.attrs_of(self), m.attrs_of(other))  # type: ignore[arg-type]

    @slot("__repr__")
    def repr(self, m: Machine) -> Value:
        content = m.attrs_of(self).values_of(m)  # type: ignore[union-attr]
        parts = m.guarded_repr(self, lambda: [f"{k}={m.repr_text(v)}" for k, v in content.items()])
        name = "namespace" if self.type_ is types.SimpleNamespace else self.type_.__name__
        return Const(f"{name}({'...' if parts is None else ', '.join(parts)})")


class SuperValue(Value):
    """`super()`: lookups start behind `cls` in the MRO of `owner`."""
    __slots__ = ("cls", "obj", "owner")
    type_ = super

    def __init__(self, cls: Any, obj: Value | None, owner: Any) -> None:
        self.cls, self.obj, self.owner, self.source = cls, obj, owner, None

    def get(self, m: Machine, obj: Value | None, owner: Any) -> Value:
        if obj is None or self.obj is not None:
            return self
        return m.make_super(m.class_value(self.cls), obj)

    @slot("__getattribute__")
    def getattr(self, m: Machine, name: Value) -> Value:
        return self.find(m, m.text(name)) or m.generic_getattr(self, m.text(name))

    def find(self, m: Machine, name: str) -> Value | None:
        if self.obj is None or name == "__class__":
            return None
        found = m.lookup_in(self.owner, name, self.cls)
        if found is None:
            return None
        obj = self.obj.force(m)
        whole = isinstance(obj, ClassValue) and obj.real is self.owner
        return found.get(m, None if whole else obj, self.owner)

    def rebuild(self, r: Rebuilder) -> Any:
        return super(self.cls, r(self.obj))


class PropertyValue(ObjectValue):
    """`property`."""
    __slots__ = ("doc", "parts")
    base = property

    def __init__(self, parts: list[Value | None], doc: Value | None = None, real: Any = None,
                 source: Source | None = None, type_: Any = property) -> None:
        super().__init__(type_, real, source)
        self.parts, self.doc = parts, doc

    def get(self, m: Machine, obj: Value | None, owner: Any) -> Value:
        if self.type_ is not property and isinstance(m.lookup(self.type_, "__get__"),
                                                     FunctionValue):
            return super().get(m, obj, owner)
        if obj is None:
            return self
        getter = self.parts[0] or self.refuse(m, obj, "getter")
        return m.call(getter, [obj])

    def is_data(self, m: Machine) -> bool:
        return True

    def assign(self, m: Machine, obj: Value, value: Value | None) -> None:
        name = "__set__" if value else "__delete__"
        if self.type_ is not property and isinstance(m.lookup(self.type_, name), FunctionValue):
            super().assign(m, obj, value)
            return
        part = self.parts[1 if value else 2] or self.refuse(
            m, obj, "setter" if value else "deleter")
        m.call(part, [obj, value] if value else [obj])

    def refuse(self, m: Machine, obj: Value, what: str) -> Any:
        kind, where = m.type_of(obj).__qualname__, f"{m.property_name(self, obj)!r} of "
        return m.error(AttributeError, f"property {where}{kind!r} object has no {what}")

    def shell(self) -> Any:
        return self.type_.__new__(self.type_)

    def fill(self, r: Rebuilder, real: Any) -> None:
        parts = [None if p is None else r(p) for p in self.parts]
        property.__init__(real, *parts, *([r(self.doc)] if self.doc else []))

    def replaced(self, index: int, function: Value) -> Value:
        parts = list(self.parts)
        parts[index] = function
        return PropertyValue(parts, self.doc, type_=self.type_)

    @slot("__init__")
    def init(self, m: Machine, fget: Value | None = None, fset: Value | None = None,
             fdel: Value | None = None, doc: Value | None = None) -> Value:
        self.parts = [None if p is None or m.is_none(p) else p for p in (fget, fset, fdel)]
        self.doc = doc
        return Const(None)

    @slot("getter")
    def getter(self, m: Machine, function: Value) -> Value:
        return self.replaced(0, function)

    @slot("setter")
    def setter(self, m: Machine, function: Value) -> Value:
        return self.replaced(1, function)

    @slot("deleter")
    def deleter(self, m: Machine, function: Value) -> Value:
        return self.replaced(2, function)

    @slot("fget")
    def fget(self, m: Machine) -> Value:
        return self.parts[0] or Const(None)

    @slot("fset")
    def fset(self, m: Machine) -> Value:
        return self.parts[1] or Const(None)

    @slot("fdel")
    def fdel(self, m: Machine) -> Value:
        return self.parts[2] or Const(None)

    @slot("__doc__")
    def get_doc(self, m: Machine) -> Value:
        if self.doc is not None:
            return self.doc
        return m.getattr(self.parts[0], "__doc__") if self.parts[0] else Const(None)

    @slot("__get__")
    def call_get(self, m: Machine, obj: Value, owner: Value | None = None) -> Value:
        return self.get(m, None if m.is_none(obj) else obj, None)

    @slot("__set__")
    def call_set(self, m: Machine, obj: Value, value: Value) -> Value:
        self.assign(m, obj, value)
        return Const(None)

    @slot("__delete__")
    def call_delete(self, m: Machine, obj: Value) -> Value:
        self.assign(m, obj, None)
        return Const(None)


class WrapperValue(ObjectValue):
    """`classmethod` and `staticmethod`."""
    __slots__ = ("function",)

    def __init__(self, type_: Any, function: Value, real: Any = None,
                 source: Source | None = None) -> None:
        super().__init__(type_, real, source)
        self.function = function

    def get(self, m: Machine, obj: Value | None, owner: Any) -> Value:
        if issubclass(self.type_, staticmethod):
            return self.function
        return MethodValue(self.function, m.class_value(owner))

    def is_data(self, m: Machine) -> bool:
        return False

    def shell(self) -> Any:
        return self.type_.__new__(self.type_)

    def fill(self, r: Rebuilder, real: Any) -> None:
        real.__init__(r(self.function))

    @slot("__func__", "__wrapped__")
    def get_function(self, m: Machine) -> Value:
        return self.function

    @slot("__get__")
    def call_get(self, m: Machine, obj: Value, owner: Value | None = None) -> Value:
        return self.get(m, obj, m.type_of(obj) if owner is None else m.class_of(owner))

    @slot("__call__")
    def call(self, m: Machine, /, *args: Value, **kwargs: Value) -> Value:
        return m.call(self.function, list(args), kwargs)

    @slot("__isabstractmethod__")
    def abstract(self, m: Machine) -> Value:
        found = m.find_attr(self.function, "__isabstractmethod__")
        return Const(found is not None and m.truth(found))


def class_field(self: Value, m: Machine) -> Value:
    return m.class_value(m.type_of(self))


def dict_field(self: Value, m: Machine) -> Value:
    found: DictValue | None = m.attrs_of(self)
    if found is None:
        raise NotConstant
    return found


def init_object(self: Value, m: Machine, /, *args: Value, **kwargs: Value) -> Value:
    """`object.__init__`: arguments are an error unless the class overrides `__new__` alone."""
    kind = m.type_of(self)
    if args or kwargs:
        if kind.__init__ is not object.__init__:
            m.error(TypeError, "object.__init__() takes exactly one argument (the instance to"
                               " initialize)")
        if kind.__new__ is object.__new__:
            m.error(TypeError, f"{kind.__name__}.__init__() takes exactly one argument (the"
                               " instance to initialize)")
    return Const(None)


def equal_object(self: Value, m: Machine, other: Value) -> Value:
    return Const(True if m.identical(self, other) else NotImplemented)


def unequal_object(self: Value, m: Machine, other: Value) -> Value:
    found = m.call_method(self, "__eq__", [other]).force(m)
    if isinstance(found, Const) and found.value is NotImplemented:
        return found
    return Const(not m.truth(found))


def unordered(self: Value, m: Machine, other: Value) -> Value:
    return Const(NotImplemented)


def repr_object(self: Value, m: Machine) -> Value:
    """The default text holds an address, which only a real object has."""
    if self.real is None:
        m.stop("unmodelled", f"the address in repr() of a new {m.type_name(self)}")
    return Const(object.__repr__(self.real))


def format_object(self: Value, m: Machine, spec: Value) -> Value:
    if m.text(spec):
        name = m.type_name(self)
        m.error(TypeError, f"unsupported format string passed to {name}.__format__")
    return m.str_of(self)


def reduce_object(self: Value, m: Machine, protocol: Value | None = None) -> Value:
    """`object.__reduce_ex__` of a plain instance, as module `copy` reads it."""
    kind = m.type_of(self)
    own = m.lookup(kind, "__reduce__")
    if own is not m.known_value(object.__reduce__):
        return m.call_method(self, "__reduce__", [])
    if not isinstance(self, ObjectValue) or self.base is not object or self.members:
        return m.stop("native-method", f"{kind.__name__}.__reduce_ex__")
    getter = m.lookup(kind, "__getstate__")
    if getter is not None and getter is not m.known_value(object.__getstate__):
        state: Value = m.call(getter, [self])
    else:
        attrs = m.attrs_of(self)
        full = {} if attrs is None else attrs.values_of(m)
        state = m.dict_value(dict(full)) if full else Const(None)
    new = m.wrap(copyreg.__newobj__, None)  # type: ignore[attr-defined]
    return m.tuple_value([new, m.tuple_value([m.class_value(kind)]), state])


# What C class `object` implements: name -> handler, as in a value's table.
OBJECT: dict[str, Callable[..., Any]] = {
    "__class__": class_field, "__dict__": dict_field, "__init__": init_object,
    "__getattribute__": lambda self, m, name: m.generic_getattr(self, m.text(name)),
    "__setattr__": lambda self, m, name, value: m.generic_setattr(self, m.text(name), value),
    "__delattr__": lambda self, m, name: m.generic_setattr(self, m.text(name), None),
    "__eq__": equal_object, "__ne__": unequal_object, "__lt__": unordered, "__le__": unordered,
    "__gt__": unordered, "__ge__": unordered,
    "__hash__": lambda self, m: Const(m.identity(self)),
    "__repr__": repr_object, "__str__": lambda self, m: m.repr(self), "__format__": format_object,
    "__init_subclass__": lambda self, m: Const(None),
    "__reduce_ex__": reduce_object,
    "__subclasshook__": lambda self, m, other: Const(NotImplemented),
}
