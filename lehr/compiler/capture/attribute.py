"""Attribute access, as CPython's object.c and typeobject.c do it, over values."""
from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from .fact import behind
from .fault import FaultValue, Raised
from .mapping import ProxyValue, SpaceValue
from .objects import OBJECT, ClassValue, ModuleValue, ObjectValue
from .source import Source, const
from .value import GONE, NUMBERS, OPAQUE_CONSTANTS, Const, Known, NotConstant, Value

if TYPE_CHECKING:

    Base = Any      # the machine that these methods become part of
else:
    Base = object

HEAPTYPE = 1 << 9
PLAIN_ENTRIES = frozenset((*NUMBERS, bool, str, type(None), tuple, list, dict, set))


class Attributes(Base):
    """The attribute part of the machine."""

    # -- lookup in classes

    def lookup(self, cls: Any, name: str) -> Value | None:
        """What the MRO of a class holds under a name, unbound; None if nothing."""
        try:
            return self.lookups[cls, name]
        except KeyError:
            found = self.lookups[cls, name] = self.lookup_in(cls, name)
            return found

    def lookup_in(self, cls: Any, name: str, after: Any = None) -> Value | None:
        """The same without a memory; `after`: only in the classes behind this one in the MRO."""
        for owner in behind(cls, after):
            written = self.overlays.get(owner)
            if written is not None and name in written:
                if written[name] is GONE:
                    continue
                return written[name]
            entries = owner.__dict__
            if name in entries:
                self.guard_class(cls, name, owner, after)
                return self.class_entry(owner, name, entries[name])
        self.guard_class(cls, name, None, after)
        return None

    def guard_class(self, cls: Any, name: str, owner: Any, after: Any) -> None:
        """Classes written in Python may change between calls; those in C cannot."""
        if cls.__flags__ & HEAPTYPE and cls not in self.fresh_classes:
            self.guard(const(cls, cls.__qualname__), "class", (name, owner, after))

    def class_entry(self, owner: Any, name: str, raw: Any) -> Value:
        if not owner.__flags__ & HEAPTYPE or owner in self.fresh_classes:
            return self.wrap(raw, None)
        source = Source("entry", const(owner, owner.__qualname__), name)
        value = self.lazy(raw, source)
        if type(raw) not in PLAIN_ENTRIES:
            return value.force(self)
        value.type_of(self)     # it is no descriptor; the value itself is not used yet
        return value

    # -- reading

    def attrs_of(self, value: Value) -> SpaceValue | None:
        """The `__dict__` of an object, None when it has none."""
        if not isinstance(value, ObjectValue):
            return self.opaque_attrs(value) if isinstance(value, Known) else None
        attrs = value.attrs
        if attrs is None:
            kind = value.type_
            has = self.has_dict.get(kind)
            if has is None:
                has = self.has_dict[kind] = kind.__dictoffset__ != 0
            if not has:
                return None
            if isinstance(value, ModuleValue):
                attrs = self.space(value.real.__dict__, value.real.__name__)
            elif value.real is None:
                attrs = SpaceValue(value)
            else:
                source = value.source or const(value.real, f"a {kind.__name__}")
                real = object.__getattribute__(value.real, "__dict__")
                plain = kind.__getattribute__ is object.__getattribute__
                attrs = SpaceValue(value, real, Source("dict" if plain else "own", source))
                if self.known.setdefault(id(real), attrs) is not attrs:
                    self.stop("unmodelled", "an object whose __dict__ is in use by itself")
                self.kept.append(real)
            value.attrs = attrs
        return attrs

    def opaque_attrs(self, value: Known) -> SpaceValue | None:
        """The `__dict__` that Python code has given to an object implemented in C."""
        kind = type(value.real)
        if not kind.__dictoffset__ or not kind.__flags__ & HEAPTYPE:
            return None
        found = self.known_attrs.get(id(value))
        if found is None:
            source = value.source or const(value.real, f"a {kind.__name__}")
            try:
                real = object.__getattribute__(value.real, "__dict__")
            except AttributeError:
                return None
            found = self.known_attrs[id(value)] = SpaceValue(value, real, Source("dict", source))
            self.kept.append(value)
        return found

    def getattr(self, value: Value, name: str) -> Value:
        value = value.force(self)
        kind = value.type_
        getter = self.lookup(kind, "__getattribute__")
        if getter is self.object_getattribute:
            found = None
            hook = self.lookup(kind, "__getattr__")
            if hook is None:
                found = self.find_generic(value, name)
            else:
                found = self.catching_attribute(value, name)
            if found is not None:
                return found
            if hook is not None:
                return self.call(hook.get(self, value, kind), [Const(name)])
            return self.no_attribute(value, name)
        assert getter is not None
        return self.getattr_by(getter, value, name)

    def catching_attribute(self, value: Value, name: str) -> Value | None:
        try:
            return self.find_generic(value, name)
        except Raised as raised:
            if issubclass(raised.value.type_, AttributeError):
                return None
            raise

    def getattr_by(self, getter: Value, value: Value, name: str) -> Value:
        """With a `__getattribute__` other than object's."""
        hook = self.lookup(value.type_, "__getattr__")
        try:
            if isinstance(getter, Known) and getter.real.__name__ == "__getattribute__":
                found = self.getattr_native(value, name)
                if found is not None:
                    return found
                if hook is None:
                    return self.no_attribute(value, name)
            else:
                return self.call(getter.get(self, value, value.type_), [Const(name)])
        except Raised as raised:
            if hook is None or not issubclass(raised.value.type_, AttributeError):
                raise
        assert hook is not None
        return self.call(hook.get(self, value, value.type_), [Const(name)])

    def getattr_native(self, value: Value, name: str) -> Value | None:
        if isinstance(value, ClassValue):
            return self.find_in_class(value, name)
        handler = value.table.get("__getattribute__")
        if handler is not None:
            return handler(value, self, Const(name))
        if isinstance(value, Known) and type(value.real) not in OPAQUE_CONSTANTS:
            return self.stop("opaque-attribute", f"{self.type_name(value)}.{name}")
        found = self.find_generic(value, name)
        if found is None and isinstance(value, ModuleValue):
            attrs = self.attrs_of(value)
            assert attrs is not None
            hook = attrs.find(self, "__getattr__")
            if hook is not None:
                return self.call(hook, [Const(name)])
        return found

    def find_generic(self, value: Value, name: str) -> Value | None:
        kind = value.type_
        found = self.lookup(kind, name)
        if found is not None and found.is_data(self):
            return found.get(self, value, kind)
        attrs = self.attrs_of(value)
        if attrs is not None:
            own = attrs.find(self, name)
            if own is not None:
                return own
        return None if found is None else found.get(self, value, kind)

    def generic_getattr(self, value: Value, name: str) -> Value:
        """`object.__getattribute__`."""
        found = self.find_generic(value, name)
        return self.no_attribute(value, name) if found is None else found

    def class_space(self, value: ClassValue) -> ProxyValue:
        """`cls.__dict__`: a snapshot of the names, their values are read when used."""
        real = value.real
        if real.__flags__ & HEAPTYPE and real not in self.fresh_classes:
            source = Source("dict", const(real, real.__qualname__))
            self.guard(source, "keys", tuple(real.__dict__))
        found: dict[str, Value] = {}
        for name, raw in real.__dict__.items():
            if name not in value.written:
                found[name] = self.class_entry(real, name, raw)
        found.update({k: v for k, v in value.written.items() if v is not GONE})
        return ProxyValue(self.dict_value(found))

    def find_in_class(self, value: ClassValue, name: str) -> Value | None:
        """`type.__getattribute__`."""
        meta = type(value.real)
        above = self.lookup(meta, name)
        if above is not None and above.is_data(self):
            return above.get(self, value, meta)
        found = self.lookup(value.real, name)
        if found is not None:
            return found.get(self, None, value.real)
        return None if above is None else above.get(self, value, meta)

    def no_attribute(self, value: Value, name: str) -> Any:
        if isinstance(value, ClassValue):
            text = f"type object {value.real.__name__!r} has no attribute {name!r}"
        elif isinstance(value, ModuleValue):
            text = f"module {value.real.__name__!r} has no attribute {name!r}"
        else:
            text = f"{self.type_name(value)!r} object has no attribute {name!r}"
        fault = FaultValue(AttributeError, [Const(text)])
        fault.named = {"name": Const(name), "obj": value}
        return self.raise_fault(fault)

    def find_attr(self, value: Value, name: str) -> Value | None:
        """`getattr`, None where that raises AttributeError."""
        try:
            return self.getattr(value, name)
        except Raised as raised:
            if issubclass(raised.value.type_, AttributeError):
                return None
            raise

    # -- writing

    def setattr(self, value: Value, name: str, new: Value | None) -> None:
        """Writes an attribute, or deletes it when there is no new value."""
        value = value.force(self)
        method = "__setattr__" if new is not None else "__delattr__"
        setter = self.lookup(value.type_, method)
        assert setter is not None
        if isinstance(setter, Known) and setter.real.__name__ == method:
            if isinstance(value, ClassValue):
                self.set_in_class(value, name, new)
            else:
                self.generic_setattr(value, name, new)
        else:
            bound = setter.get(self, value, value.type_)
            self.call(bound, [Const(name), *([new] if new is not None else [])])

    def generic_setattr(self, value: Value, name: str, new: Value | None) -> Value:
        kind = value.type_
        found = self.lookup(kind, name)
        if found is not None and found.is_data(self):
            found.assign(self, value, new)
            return Const(None)
        attrs = self.attrs_of(value)
        if attrs is None:
            self.refuse_write(value, name, new)
        elif new is not None:
            attrs.put(self, name, new)
        elif attrs.drop(self, name) is None:
            self.no_attribute(value, name)
        return Const(None)

    def refuse_write(self, value: Value, name: str, new: Value | None) -> None:
        """An object without `__dict__`: CPython's own words, from an empty object of the class."""
        kind = value.type_
        if isinstance(value, Known) and not isinstance(value.real, types.BuiltinFunctionType):
            self.stop("opaque-write", f"{kind.__name__}.{name}")
        blank = value.shell() if isinstance(value, ObjectValue) else self.constant_or_none(value)
        if blank is None:
            self.stop("opaque-write", f"{kind.__name__}.{name}")
        if new is None:
            self.native_op(object.__delattr__, blank, name)
        self.native_op(object.__setattr__, blank, name, None)
        self.stop("opaque-write", f"{kind.__name__}.{name}")

    def constant_or_none(self, value: Value) -> Any:
        try:
            return value.constant(self)
        except NotConstant:
            return None

    def set_in_class(self, value: ClassValue, name: str, new: Value | None) -> Value:
        """`type.__setattr__`: an overlay over the real class."""
        cls = value.real
        above = self.lookup(type(cls), name)
        if above is not None and above.is_data(self):
            self.stop("class-write", f"{cls.__qualname__}.{name}")
        if not cls.__flags__ & HEAPTYPE:
            self.native_op(type.__setattr__, cls, name, None)
        if name.startswith("__") and name.endswith("__"):
            self.set_slot(value, name, new)
            return Const(None)
        if new is None and (name not in cls.__dict__ and name not in value.written
                            or value.written.get(name) is GONE):
            self.no_attribute(value, name)
        kind = "setfield" if new is not None else "delfield"
        self.effect(kind, value, Const(name), *([new] if new is not None else []))
        value.written[name] = new if new is not None else GONE
        self.overlays[cls] = value.written
        self.forget_lookups(name)
        return Const(None)

    def set_slot(self, value: ClassValue, name: str, new: Value | None) -> None:
        """A special method: C looks at the real class; only the program's own can take one."""
        cls = value.real
        twin = None if new is None else self.twin(new.force(self))
        if isinstance(new, Const):
            twin = new.value
        if cls not in self.fresh_classes or twin is None:
            self.stop("class-write", f"{cls.__qualname__}.{name}")
        type.__setattr__(cls, name, twin)
        self.forget_lookups(name)

    def forget_lookups(self, name: str) -> None:
        for key in [k for k in self.lookups if k[1] == name]:
            del self.lookups[key]

    # -- fields that C code keeps

    def read_field(self, descriptor: Any, obj: Value) -> Value:
        obj = obj.force(self)
        name, owner = descriptor.__name__, descriptor.__objclass__
        if owner is object:
            return OBJECT[name](obj, self)
        if self.is_slot(descriptor, obj):
            found: Value | None = obj.read_member(self, descriptor)  # type: ignore
            if found is None:
                self.native_op(descriptor.__get__, object.__new__(owner))
            assert found is not None
            return found
        if name == "__dict__":
            attrs = self.attrs_of(obj)
            if attrs is not None:
                return attrs
        handler = obj.table.get(name)
        if handler is not None:
            return handler(obj, self)
        try:
            real = obj.constant(self)
        except NotConstant:
            return self.read_opaque(descriptor, obj)
        return self.fresh(self.native_op(descriptor.__get__, real))

    def is_slot(self, descriptor: Any, obj: Any) -> bool:
        """Whether it is an entry of some `__slots__`."""
        return type(descriptor) is types.MemberDescriptorType and isinstance(obj, ObjectValue) and (
            self.is_python(descriptor.__objclass__))

    def read_opaque(self, descriptor: Any, obj: Value) -> Value:
        """Seam: a field of an object implemented in C that has no model."""
        return self.stop("opaque-attribute", f"{self.type_name(obj)}.{descriptor.__name__}")

    def write_field(self, descriptor: Any, obj: Value, value: Value | None) -> None:
        obj = obj.force(self)
        name, owner = descriptor.__name__, descriptor.__objclass__
        if self.is_slot(descriptor, obj):
            if value is None and obj.read_member(self, descriptor) is None:  # type: ignore
                self.native_op(descriptor.__delete__, object.__new__(owner))
            obj.write_member(self, descriptor, value)  # type: ignore
            return
        if name == "__dict__" and value is not None and value.force(self) is self.attrs_of(obj):
            return      # what `obj.__dict__ |= other` ends with
        handler = obj.table.get(name + "=")
        if handler is not None:
            if value is None and isinstance(obj, FaultValue):
                self.native_op(descriptor.__delete__, BaseException())
            handler(obj, self, value)
            return
        if isinstance(obj, Const):
            write = setattr if value else delattr
            self.native_op(write, obj.value, name, *([None] if value else []))
        self.stop("opaque-write", f"{self.type_name(obj)}.{name}")

    def property_name(self, prop: Value, obj: Value) -> str:
        """The name under which a class holds a property."""
        for owner in self.type_of(obj).__mro__:
            for name in owner.__dict__:
                if self.lookups.get((self.type_of(obj), name)) is prop:
                    return name
        return "?"
