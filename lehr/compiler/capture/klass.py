"""Classes that the captured program defines.

Such a class is made for real at once, since type slots, MRO and layout are CPython's business.  Its
functions are hollow twins: they carry code and name, so that lookups find them and give the virtual
function, but their cells stay empty until the class leaves the capture (`settle_class`).  Values
that are neither functions nor constants live in the class's overlay.
"""
from __future__ import annotations

import abc
import enum
import types
from typing import TYPE_CHECKING, Any

from .frame import Frame
from .mapping import DictValue
from .objects import CellValue, ClassValue, FunctionValue, ObjectValue, PropertyValue, WrapperValue
from .rebuild import Rebuilder
from .value import GONE, Const, Known, NotConstant, Value

if TYPE_CHECKING:
    from .machine import Machine

    Base = Any      # the machine that these methods become part of
else:
    Base = object

# Metaclasses whose Python code only concerns the class being made: they run natively.
NATIVE_METAS = (enum.EnumType,)
FUNCTIONS = (FunctionValue, PropertyValue, WrapperValue)
# What user code of an enumeration would run natively while it is made.
ENUM_HOOKS = ("__new__", "__init__", "_generate_next_value_", "__init_subclass__", "__set_name__")
SILENT_METAS = frozenset((type, abc.ABCMeta))


class EnumSpace(DictValue):
    """The body of an enumeration: a name given twice is an error that its own metaclass words."""
    __slots__ = ()

    def put(self, m: Machine, key: Any, value: Value) -> None:
        if key in self.storage and not str(key).startswith("_"):
            m.stop("class-hook", f"the enumeration defines {key} twice")
        super().put(m, key, value)


class Quiet:
    """First base of a class in the making, so that `__init_subclass__` does not run natively."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        pass


class Settler(Rebuilder):
    """Makes real objects that stay the twins of their values."""

    def made(self, value: Value, real: Any) -> Any:
        if not isinstance(value, (Const, ClassValue)):
            self.machine.known[id(real)] = value
            self.machine.kept += [real, value]
        return super().made(value, real)


class Classes(Base):
    """The class-making part of the machine."""

    def build_class(self, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """`__build_class__`: runs the body, then calls the metaclass."""
        body, name, *bases = [a.force(self) for a in args]
        assert isinstance(body, FunctionValue)
        real_bases, resolved = self.resolve_bases(bases)
        wanted = kwargs.pop("metaclass", None)
        meta = self.find_meta(real_bases, wanted)
        if issubclass(meta, NATIVE_METAS) and meta not in NATIVE_METAS:
            self.stop("class-hook", f"{meta.__name__}, a metaclass of enumerations")
        space = EnumSpace() if meta in NATIVE_METAS else self.dict_value({})
        prepare = getattr(meta, "__prepare__", None)
        if isinstance(prepare, types.MethodType) and not issubclass(meta, NATIVE_METAS):
            self.stop("class-hook", f"{meta.__name__}.__prepare__")
        cell = self.run_body(body, space)
        if resolved:
            space.put(self, "__orig_bases__", self.tuple_value(bases))
        given = [name, self.tuple_value([self.class_value(b) for b in real_bases]), space]
        if meta in NATIVE_METAS or meta in SILENT_METAS:
            made = self.make_class(self.class_value(meta), given[0], given[1], given[2], kwargs)
        else:
            made = self.call(self.class_value(meta), given, kwargs)
        if isinstance(cell, CellValue) and cell.content is GONE:
            cell.content = made
        return made

    def resolve_bases(self, bases: list[Value]) -> tuple[tuple[Any, ...], bool]:
        reals = []
        for base in bases:
            if isinstance(base, ClassValue):
                reals.append(base.real)
            elif base.real is not None:
                reals.append(base.real)     # a generic alias of typing
            else:
                self.stop("class-hook", "a base that is no class")
        resolved = self.native_op(types.resolve_bases, tuple(reals))
        return tuple(resolved), tuple(resolved) != tuple(reals)

    def find_meta(self, bases: tuple[Any, ...], wanted: Value | None) -> Any:
        if wanted is None:
            meta = type(bases[0]) if bases else type
        else:
            meta = wanted.force(self).real
            if not isinstance(meta, type):
                self.stop("class-hook", "a metaclass that is no class")
        for base in bases:
            kind = type(base)
            if issubclass(meta, kind):
                continue
            if not issubclass(kind, meta):
                self.error(TypeError, "metaclass conflict: the metaclass of a derived class must be"
                                      " a (non-strict) subclass of the metaclasses of all its"
                                      " bases")
            meta = kind
        return meta

    def run_body(self, body: FunctionValue, space: Any) -> Value | None:
        found, steps = self.prepare(body.code)
        slots: list[Value | None] = [None] * len(found.slots)
        outer: Frame | None = self.frame  # type: ignore[has-type]
        frame = Frame(found, steps, body, slots, outer)
        frame.names = space
        try:
            return self.execute(frame)
        finally:
            self.frame = outer

    # -- making

    def make_class(self, meta: Value, name: Value, bases: Value, space: Value,
                   kwargs: dict[str, Value]) -> Value:
        """`type.__new__(meta, name, bases, space, **kwargs)`."""
        kind, title = meta.force(self).real, self.text(name)
        parents = tuple(self.class_of(b) for b in self.iterate(bases))
        whole: Any = space.force(self)
        content: dict[str, Value] = dict(whole.values_of(self))
        if issubclass(kind, NATIVE_METAS):
            if kind not in NATIVE_METAS:
                self.stop("class-hook", f"{kind.__name__}, a metaclass of enumerations")
            return self.make_native(kind, title, parents, content, kwargs)
        if isinstance(self.lookup(kind, "mro"), FunctionValue):
            self.stop("class-hook", f"{kind.__name__}.mro")
        cell = content.pop("__classcell__", None)
        real_space, rest = self.split(content)
        if "__module__" not in content and self.frame is not None:
            module = self.frame.globals.find(self, "__name__")
            if module is not None:
                real_space["__module__"] = module.constant(self)
        if issubclass(kind, abc.ABCMeta):
            self.check_abstract(title, rest)
        real_cell = types.CellType()
        if cell is not None:
            real_space["__classcell__"] = real_cell
        hooks = self.hooks(parents)
        shown = (Quiet, *parents) if hooks else parents
        real = self.native_op(self.type_new, kind, title, shown, real_space)
        try:
            hash(real)
        except TypeError:
            self.stop("class-hook", f"{kind.__name__} has no hash")
        if hooks:
            try:
                real.__bases__ = parents
            except TypeError:   # another layout, as with `__slots__`
                self.stop("class-hook", f"{title}.__init_subclass__")
        value = ClassValue(real)
        self.known[id(real)] = value
        self.kept.append(real)
        self.fresh_classes[real] = value
        self.born(value)
        if rest:
            value.written.update(rest)
            self.overlays[real] = value.written
        if isinstance(cell, CellValue):
            cell.content = value
        self.name_members(value, content)
        self.init_subclass(value, kwargs)
        return value

    def check_abstract(self, title: str, rest: dict[str, Value]) -> None:
        """C code counts abstract members of the real class; the overlay must not hold any."""
        for name, value in rest.items():
            found = self.find_attr(value, "__isabstractmethod__")
            if found is not None and self.truth(found):
                self.stop("class-hook", f"{title}.{name} is abstract")

    @staticmethod
    def type_new(kind: Any, title: str, parents: tuple[Any, ...], space: dict[str, Any]) -> Any:
        if issubclass(kind, abc.ABCMeta):
            return abc.ABCMeta.__new__(kind, title, parents, space)
        return type.__new__(kind, title, parents, space)

    def make_native(self, kind: Any, title: str, parents: tuple[Any, ...],
                    content: dict[str, Value], kwargs: dict[str, Value]) -> Value:
        """An enumeration: made by its own metaclass, from real values."""
        rebuilder = Rebuilder(self)
        cell = content.pop("__classcell__", None)
        for name in ENUM_HOOKS:
            inherited = (p for p in parents for k in p.__mro__ if name in k.__dict__
                         and k.__module__ != "enum" and self.is_python(k))
            if name in content or next(inherited, None) is not None:
                self.stop("class-hook", f"{title}.{name}")
        named = {k: v.constant(self) for k, v in kwargs.items()}
        space = self.native_op(kind.__prepare__, title, parents, **named)
        for key, value in content.items():
            real = self.twin(value.force(self))
            self.native_op(space.__setitem__, key, rebuilder(value) if real is None else real)
        real = self.native_op(kind, title, parents, space, **named)
        value = ClassValue(real)
        if isinstance(cell, CellValue):
            cell.content = value
        self.known[id(real)] = value
        self.kept.append(real)
        self.fresh_classes[real] = value
        self.born(value)
        return value

    def split(self, content: dict[str, Value]) -> tuple[dict[str, Any], dict[str, Value]]:
        """What goes into the real class at once, and what stays virtual."""
        real: dict[str, Any] = {}
        rest: dict[str, Value] = {}
        for name, value in content.items():
            value = value.force(self)
            twin = self.twin(value)
            if twin is not None:
                real[name] = twin
                continue
            if isinstance(value, (Const, ClassValue)) or name.startswith("__"):
                try:
                    real[name] = value.constant(self)
                except NotConstant:
                    rest[name] = value
            elif isinstance(value, Known):
                real[name] = value.real
            else:
                rest[name] = value
        return real, rest

    def twin(self, value: Value) -> Any:
        """The hollow real object of a virtual function or descriptor, None for other values."""
        if isinstance(value, FUNCTIONS) and value.real is not None:
            return value.real
        found = self.twins.get(id(value))
        if found is not None:
            return found
        if isinstance(value, FunctionValue):
            cells = tuple(self.twin_cell(cell) for cell in value.closure)
            space, name = value.globals.real, value.code.co_name
            found = types.FunctionType(value.code, space, name, None, cells)
            if value.attrs is not None and "__isabstractmethod__" in value.attrs.storage:
                found.__isabstractmethod__ = True  # type: ignore[attr-defined]
        elif isinstance(value, PropertyValue) and value.type_ is property:
            parts = [None if p is None else self.twin(p.force(self)) for p in value.parts]
            found = property(*parts)
        elif isinstance(value, WrapperValue):
            inner = self.twin(value.function.force(self))
            found = None if inner is None else value.type_(inner)
        if found is not None:
            self.twins[id(value)] = found
            self.known[id(found)] = value
            self.kept += [found, value]
        return found

    def twin_cell(self, cell: CellValue) -> Any:
        if cell.real is not None:
            return cell.real
        found = self.twins.get(id(cell))
        if found is None:
            found = self.twins[id(cell)] = types.CellType()
            self.kept.append(cell)
        return found

    def hooks(self, parents: tuple[Any, ...]) -> bool:
        """Whether a Python `__init_subclass__` would run."""
        for parent in parents:
            for owner in parent.__mro__:
                if "__init_subclass__" in owner.__dict__:
                    if owner is not object and isinstance(
                            owner.__dict__["__init_subclass__"], classmethod):
                        return True
                    break
        return False

    def name_members(self, cls: ClassValue, content: dict[str, Value]) -> None:
        """`__set_name__` of each entry, in order."""
        for name, value in content.items():
            value = value.force(self)
            hook = self.lookup(value.type_, "__set_name__")
            if hook is not None and not isinstance(hook, Known):
                self.call(hook, [value, cls, Const(name)])

    def init_subclass(self, cls: ClassValue, kwargs: dict[str, Value]) -> None:
        hook = self.lookup_in(cls.real, "__init_subclass__", cls.real)
        if isinstance(hook, WrapperValue):
            self.call(hook.function, [cls], kwargs)
        elif kwargs:
            self.error(TypeError, f"{cls.real.__name__}.__init_subclass__() takes no keyword"
                                  " arguments")

    # -- leaving the capture

    def settle_class(self, value: ClassValue, r: Rebuilder) -> None:
        """Makes a class of the program complete, for real use."""
        real = value.real
        if real not in self.fresh_classes or real in self.settled:
            return
        self.settled.add(real)
        r.made(value, real)
        for base in real.__mro__[1:]:
            if base in self.fresh_classes:
                r(self.fresh_classes[base])
        for name, raw in list(real.__dict__.items()):
            known = self.known.get(id(raw))
            if known is not None:
                self.settle_member(known, r)
            elif isinstance(raw, (classmethod, staticmethod)):
                inner = self.known.get(id(raw.__func__))
                if inner is not None:
                    self.settle_member(inner, r)
            if name in value.written and value.written[name] is GONE:
                type.__delattr__(real, name)
        for name, entry in value.written.items():
            if entry is not GONE:
                type.__setattr__(real, name, r(entry))

    def settle_member(self, value: Value, r: Rebuilder) -> None:
        if isinstance(value, FunctionValue):
            self.settle_function(value, self.twins.get(id(value)), r)
        elif isinstance(value, PropertyValue):
            for part in value.parts:
                if part is not None:
                    self.settle_member(part.force(self), r)
        elif isinstance(value, WrapperValue):
            self.settle_member(value.function.force(self), r)

    def settle_function(self, value: FunctionValue, twin: Any, r: Rebuilder) -> None:
        """Fills a twin: cells, defaults, attributes."""
        if twin is None or id(value) in r.memo:
            return
        r.made(value, twin)
        for cell in value.closure:
            r(cell)
        value.fill_fields(r, twin)

    def native_on_class(self, function: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """Runs a class decorator of the standard library on a class of the program."""
        cls = args[0].force(self)
        if not isinstance(cls, ClassValue) or cls.real not in self.fresh_classes:
            return self.stop("class-write", f"{function.__qualname__} of an existing class")
        settler = Settler(self)
        self.settle_class(cls, settler)
        named = {k: v.constant(self) for k, v in kwargs.items()}
        made = self.native_op(function, cls.real, *[a.constant(self) for a in args[1:]], **named)
        for value in settler.kept:
            if isinstance(value, ObjectValue) and not isinstance(value, FUNCTIONS):
                value.adopt(settler.memo[id(value)])
        cls.written.clear()
        self.settled.discard(cls.real)
        for key in [k for k in self.lookups if issubclass(k[0], cls.real)]:
            del self.lookups[key]
        return self.class_value(made)

    # -- isinstance

    def claimed_class(self, value: Value) -> Any:
        """What the object says its class is: a proxy may overwrite `__class__`."""
        kind = self.type_of(value)
        found = self.lookup(kind, "__class__")
        if found is None or isinstance(found, Known):
            return kind
        claimed = self.find_attr(value, "__class__")
        return kind if claimed is None else self.class_of(claimed) or kind

    def check_hooks(self, cls: Any) -> None:
        """`__subclasshook__` would be called natively: not the program's own, which is hollow."""
        for owner in cls.__mro__:
            if "__subclasshook__" in owner.__dict__ and owner in self.fresh_classes:
                self.stop("class-hook", f"{owner.__qualname__}.__subclasshook__")

    def is_instance(self, value: Value, cls: ClassValue) -> bool:
        """`isinstance` for one class."""
        kind = self.type_of(value)
        if kind is cls.real:
            return True
        self.check_hooks(cls.real)
        check = self.lookup(type(cls.real), "__instancecheck__")
        if isinstance(check, FunctionValue) and not issubclass(type(cls.real), abc.ABCMeta):
            return self.truth(self.call(check, [cls, value]))
        return self.is_plain_instance(value, cls)

    def is_plain_instance(self, value: Value, cls: ClassValue) -> bool:
        """What `type.__instancecheck__` says."""
        return bool(self.native_op(issubclass, self.type_of(value), cls.real)
                    or self.native_op(issubclass, self.claimed_class(value), cls.real))

    def is_subclass(self, kind: Any, cls: ClassValue) -> bool:
        self.check_hooks(cls.real)
        check = self.lookup(type(cls.real), "__subclasscheck__")
        if isinstance(check, FunctionValue) and not issubclass(type(cls.real), abc.ABCMeta):
            return self.truth(self.call(check, [cls, self.class_value(kind)]))
        return bool(self.native_op(issubclass, kind, cls.real))
