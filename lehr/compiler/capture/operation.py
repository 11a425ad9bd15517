"""Operators, comparison, truth, hashing, items, iteration and text, over values."""
from __future__ import annotations

import contextlib
import enum
import operator
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from .fault import FaultValue, Raised
from .iterators import IteratorValue, NativeIterator, ReversedIterator, SequenceIterator
from .mapping import DictValue
from .objects import ClassValue
from .sequence import ListValue, SequenceValue, SliceValue, TupleValue
from .source import Source
from .value import METHOD_DESCRIPTORS, Const, Known, Lazy, NotConstant, Value

if TYPE_CHECKING:
    from .machine import Machine

    Base = Any      # the machine that these methods become part of
else:
    Base = object


def names(stem: str) -> tuple[str, str, str]:
    return f"__{stem}__", f"__r{stem}__", f"__i{stem}__"


# symbol -> (function on constants, method, reflected method, in-place method)
BINARY: dict[str, tuple[Callable[[Any, Any], Any], str, str, str]] = {
    "+": (operator.add, *names("add")), "-": (operator.sub, *names("sub")),
    "*": (operator.mul, *names("mul")), "/": (operator.truediv, *names("truediv")),
    "//": (operator.floordiv, *names("floordiv")), "%": (operator.mod, *names("mod")),
    "**": (operator.pow, *names("pow")), "@": (operator.matmul, *names("matmul")),
    "<<": (operator.lshift, *names("lshift")), ">>": (operator.rshift, *names("rshift")),
    "&": (operator.and_, *names("and")), "|": (operator.or_, *names("or")),
    "^": (operator.xor, *names("xor")), "divmod()": (divmod, *names("divmod")),
}
INPLACE: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.iadd, "-": operator.isub, "*": operator.imul, "/": operator.itruediv,
    "//": operator.ifloordiv, "%": operator.imod, "**": operator.ipow, "@": operator.imatmul,
    "<<": operator.ilshift, ">>": operator.irshift, "&": operator.iand, "|": operator.ior,
    "^": operator.ixor,
}
# symbol -> (function on constants, method, reflected method)
COMPARE: dict[str, tuple[Callable[[Any, Any], Any], str, str]] = {
    "<": (operator.lt, "__lt__", "__gt__"), "<=": (operator.le, "__le__", "__ge__"),
    "==": (operator.eq, "__eq__", "__eq__"), "!=": (operator.ne, "__ne__", "__ne__"),
    ">": (operator.gt, "__gt__", "__lt__"), ">=": (operator.ge, "__ge__", "__le__"),
}
UNARY: dict[str, tuple[Callable[[Any], Any], str]] = {
    "-": (operator.neg, "__neg__"), "+": (operator.pos, "__pos__"),
    "~": (operator.inv, "__invert__"),
}
# C implementations that CPython tries after the numeric ones of both sides.
SEQUENCE_SLOTS = frozenset(method for kind in (list, tuple, str, bytes)
                           for method in (kind.__add__, kind.__mul__))
REPETITIONS = frozenset(method for kind in (list, tuple, str, bytes)
                        for method in (kind.__mul__, kind.__rmul__))
NATIVE_GENERICS = ("typing", None)     # where `__class_getitem__` makes a generic alias
HEAPTYPE = 1 << 9
SINGLETONS = (type(None), type(...), type(NotImplemented), bool)


class Key:
    """Stands for a value without constant form in a real dict or set."""
    __slots__ = ("hash", "machine", "value")

    def __init__(self, machine: Machine, value: Value, hashed: int) -> None:
        self.machine, self.value, self.hash = machine, value, hashed

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other: object) -> bool:
        m = self.machine
        mine, theirs = self.value, m.lift(other)
        return mine is theirs or m.identical(mine, theirs) or m.equal(mine, theirs)


class Proxy:
    """Stands for a value in a native call that formats, orders or indexes."""
    def __init__(self, machine: Machine, value: Value) -> None:
        self.__dict__["_pair"] = machine, value

    def __repr__(self) -> str:
        m, value = self.__dict__["_pair"]
        return m.repr_text(value)

    def __str__(self) -> str:
        m, value = self.__dict__["_pair"]
        return m.text(m.str_of(value))

    def __format__(self, spec: str) -> str:
        m, value = self.__dict__["_pair"]
        return m.text(m.format(value, Const(spec)))

    def __getattr__(self, name: str) -> Any:
        m, value = self.__dict__["_pair"]
        return m.shadow(m.getattr(value, name))

    def __lt__(self, other: Any) -> bool:
        m, value = self.__dict__["_pair"]
        return m.truth(m.compare("<", value, self.lifted(other)))

    def __eq__(self, other: Any) -> bool:
        m, value = self.__dict__["_pair"]
        return m.equal(value, self.lifted(other))

    def __hash__(self) -> int:
        m, value = self.__dict__["_pair"]
        return m.hash(value)

    def __bool__(self) -> bool:
        m, value = self.__dict__["_pair"]
        return m.truth(value)

    def lifted(self, other: Any) -> Value:
        """The value that another operand stands for."""
        m, _ = self.__dict__["_pair"]
        return other.__dict__["_pair"][1] if isinstance(other, Proxy) else m.fresh(other)


# What a proxy can do beyond that, where the value's class can.
PROXY_SLOTS: dict[str, Callable[..., Any]] = {
    "__index__": lambda m, value: m.index(value),
    "__float__": lambda m, value: m.special(value, "__float__", []).constant(m),
    "__len__": lambda m, value: m.length(value),
    "__call__": lambda m, value, *args: m.shadow(m.call(value, [m.fresh(a) for a in args])),
    "__iter__": lambda m, value: iter([m.shadow(part) for part in m.iterate(value)]),
    "__getitem__": lambda m, value, key: m.shadow(m.getitem(value, m.fresh(key))),
}


def proxy_slot(action: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, *args: action(*self.__dict__["_pair"], *args)


class Operations(Base):
    """The operator part of the machine."""

    def special(self, value: Value, name: str, args: list[Value]) -> Value | None:
        """Calls a special method, looked up on the type; None when there is none."""
        value = value.force(self)
        found = self.lookup(value.type_, name)
        if found is None:
            return None
        return found.get(self, value, value.type_).invoke(self, args, {})

    def type_name(self, value: Value) -> str:
        return self.name_of(self.type_of(value))

    def name_of(self, kind: Any) -> str:
        """A type's name in error messages: C types carry their module."""
        if kind.__module__ == "builtins" or self.is_python(kind):
            return kind.__name__
        return f"{kind.__module__}.{kind.__name__}"

    # -- binary operators

    def binary(self, symbol: str, left: Value, right: Value, shown: str = "") -> Value:
        left, right = left.force(self), right.force(self)
        function, name, reflected, _ = BINARY[symbol]
        if isinstance(left, Const) and isinstance(right, Const):
            return self.fresh(self.native_op(function, left.value, right.value))
        first, second = left.type_, right.type_
        if first is second and isinstance(left, Const) and reflected in right.table:
            return right.table[reflected](right, self, left)    # a number known only later
        mine = self.lookup(first, name)
        theirs = None
        if first is not second:
            theirs = self.lookup(second, reflected)
            if theirs is not None and self.goes_first(first, second, mine, reflected, theirs):
                found = self.try_operator(theirs, right, left)
                if found is not None:
                    return found
                theirs = None
        if shown == "*=" and isinstance(theirs, Known) and theirs.real in REPETITIONS and (
                first.__flags__ & HEAPTYPE or self.lookup(first, "__contains__")):
            theirs = None   # in place, the right side is repeated for plain numbers only
        if mine is not None:
            found = self.try_operator(mine, left, right)
            if found is not None:
                return found
        if theirs is not None:
            found = self.try_operator(theirs, right, left)
            if found is not None:
                return found
        shown = shown or ("** or pow()" if symbol == "**" else symbol)
        return self.error(TypeError, f"unsupported operand type(s) for {shown}:"
                                     f" {self.name_of(first)!r} and {self.name_of(second)!r}")

    def goes_first(self, first: Any, second: Any, mine: Value | None, reflected: str,
                   theirs: Value) -> bool:
        """Whether the right operand's reflected method is tried first."""
        if isinstance(mine, Known) and mine.real in SEQUENCE_SLOTS:
            return not (isinstance(theirs, Known) and theirs.real in REPETITIONS)
        return issubclass(second, first) and theirs is not self.lookup(first, reflected)

    def try_operator(self, found: Value, owner: Value, other: Value) -> Value | None:
        """Calls the method; None for NotImplemented."""
        if isinstance(found, Known) and found.real in REPETITIONS:
            self.check_repeat(other)
        made = found.get(self, owner, owner.type_).invoke(self, [other], {}).force(self)
        if made.__class__ is Const and made.value is NotImplemented:  # type: ignore[attr-defined]
            return None
        return made

    def check_repeat(self, times: Value) -> None:
        kind = self.type_of(times)
        if self.lookup(kind, "__index__") is None:
            name = self.name_of(kind)
            self.error(TypeError, f"can't multiply sequence by non-int of type {name!r}")

    def inplace(self, symbol: str, left: Value, right: Value) -> Value:
        left = left.force(self)
        if isinstance(left, Const):
            right = right.force(self)
            if isinstance(right, Const):
                return self.fresh(self.native_op(INPLACE[symbol], left.value, right.value))
        else:
            found = self.lookup(left.type_, BINARY[symbol][3])
            if found is not None:
                made = self.try_operator(found, left, right)
                if made is not None:
                    return made
        return self.binary(symbol, left, right, symbol + "=")

    def unary(self, symbol: str, value: Value) -> Value:
        value = value.force(self)
        if symbol == "not":
            return Const(not self.truth(value))
        function, name = UNARY[symbol]
        if value.__class__ is Const:
            return Const(self.native_op(function, value.value))  # type: ignore[attr-defined]
        found = self.special(value, name, [])
        if found is None:
            self.error(TypeError, f"bad operand type for unary {symbol}: {self.type_name(value)!r}")
        assert found is not None
        return found

    # -- comparison

    def compare(self, symbol: str, left: Value, right: Value) -> Value:
        left, right = left.force(self), right.force(self)
        function, name, reflected = COMPARE[symbol]
        if isinstance(left, Const) and isinstance(right, Const):
            return Const(self.native_op(function, left.value, right.value))
        first, second = left.type_, right.type_
        if first is second and isinstance(left, Const) and reflected in right.table:
            return right.table[reflected](right, self, left)
        swapped = first is not second and issubclass(second, first)
        if swapped:
            found = self.special_operator(right, reflected, left)
            if found is not None:
                return found
        found = self.special_operator(left, name, right)
        if found is not None:
            return found
        if not swapped:
            found = self.special_operator(right, reflected, left)
            if found is not None:
                return found
        if symbol in ("==", "!="):
            return Const(self.identical(left, right) is (symbol == "=="))
        return self.error(TypeError, f"{symbol!r} not supported between instances of"
                                     f" {self.name_of(first)!r} and {self.name_of(second)!r}")

    def special_operator(self, owner: Value, name: str, other: Value) -> Value | None:
        found = self.lookup(owner.type_, name)
        return None if found is None else self.try_operator(found, owner, other)

    def equal(self, left: Value, right: Value) -> bool:
        return self.truth(self.compare("==", left, right))

    def same(self, left: Value, right: Value) -> bool:
        """Identical or equal, as containers compare their items."""
        return left is right or self.identical(left, right) or self.equal(left, right)

    def identical(self, left: Value, right: Value) -> bool:
        """`left is right`."""
        if left is right:
            return True
        for one, other in ((left, right), (right, left)):
            if isinstance(one, Lazy) and one.made is None and isinstance(other, Const) and (
                    type(other.value) in SINGLETONS):
                same = one.real is other.value
                self.guard(one.source, "is" if same else "is not", other.value)
                return same
        left, right = left.force(self), right.force(self)
        if left is right:
            return True
        if isinstance(left, Const) and isinstance(right, Const):
            return self.identical_constants(left.value, right.value)
        if left.type_of(self) is not right.type_of(self):
            return False
        if left.real is None or right.real is None:
            return left.type_ is tuple and not self.length(left) and not self.length(right)
        same = left.real is right.real
        if left.source is not None and right.source is not None:
            self.guard(left.source, *(("alias", right.source) if same else (
                "distinct", (right.source,))))
        return same

    @staticmethod
    def identical_constants(left: Any, right: Any) -> bool:
        """Constants made during capture are not the objects of a native run: small ones match."""
        if type(left) is not type(right):
            return False
        return left is right or (not isinstance(left, float) and left == right)

    # -- truth and hash

    def truth(self, value: Value) -> bool:
        if value.__class__ is Const:
            return bool(value.value)  # type: ignore[attr-defined]
        if isinstance(value, Lazy) and value.made is None and type(value.real) in self.plain_truth:
            self.guard(value.source, "truth", bool(value.real))
            return bool(value.real)
        value = value.force(self)
        if value.__class__ is Const:
            return bool(value.value)  # type: ignore[attr-defined]
        found = self.special(value, "__bool__", [])
        if found is not None:
            if self.type_of(found) is not bool:
                self.error(TypeError, "__bool__ should return bool, returned"
                                      f" {self.type_name(found)}")
            return self.truth(found)
        found = self.special(value, "__len__", [])
        return True if found is None else self.checked_length(found) != 0

    def checked_length(self, found: Value) -> int:
        number = self.index(found)
        if number < 0:
            self.error(ValueError, "__len__() should return >= 0")
        if number > sys.maxsize:
            self.error(OverflowError, "cannot fit 'int' into an index-sized integer")
        return number

    def length(self, value: Value) -> int:
        found = self.special(value, "__len__", [])
        if found is None:
            self.error(TypeError, f"object of type {self.type_name(value)!r} has no len()")
        assert found is not None
        return self.checked_length(found)

    def hash(self, value: Value) -> int:
        value = value.force(self)
        found = self.lookup(value.type_, "__hash__")
        if found is None or self.is_none(found):
            self.error(TypeError, f"unhashable type: {self.type_name(value)!r}")
        assert found is not None
        made = found.get(self, value, value.type_).invoke(self, [], {}).force(self)
        if not issubclass(made.type_of(self), int):
            self.error(TypeError, "__hash__ method should return an integer")
        found = int(made.constant(self))
        if not -sys.maxsize - 1 <= found <= sys.maxsize:
            return hash(found)
        return -2 if found == -1 else found

    def identity(self, value: Value) -> int:
        """`object.__hash__`."""
        return id(value) if value.real is None else object.__hash__(value.real)

    def identity_hash(self, kind: Any) -> bool:
        """Whether objects of a class are hashed and compared by identity."""
        found = self.by_identity.get(kind)
        if found is None:
            plain = kind.__eq__ is object.__eq__ and kind.__hash__ is object.__hash__
            member = issubclass(kind, enum.Enum) and kind.__hash__ is enum.Enum.__hash__ and (
                kind.__eq__ is object.__eq__)
            found = self.by_identity[kind] = plain or member
        return found

    def key_of(self, value: Value) -> Any:
        return Key(self, value, self.hash(value))

    def wrapped(self, value: Value, hashed: int) -> Key:
        return Key(self, value, hashed)

    def hashed(self, value: Value) -> Any:
        """Something real with the value's hash."""
        key = value.force(self).key(self)
        return Key(self, value, hash(key)) if isinstance(key, Value) else key

    @staticmethod
    def is_wrapped(key: Any) -> bool:
        return key.__class__ is Key

    def raw_key(self, raw: Any, source: Source | None) -> Any:
        """The key of a real dict or set entry."""
        if type(raw) in self.raw_types:
            return raw
        value = self.fresh(raw) if source is None else self.lazy(raw, source).force(self)
        return value.key(self)

    def known_key(self, raw: Any) -> Value | None:
        """The value whose key is an object itself."""
        return self.known.get(id(raw))

    # -- items

    def getitem(self, whole: Value, index: Value) -> Value:
        whole = whole.force(self)
        kind = whole.type_
        found = self.lookup(kind, "__getitem__")
        if found is not None:
            return found.get(self, whole, kind).invoke(self, [index], {})
        if isinstance(whole, ClassValue):
            return self.class_getitem(whole, index)
        return self.error(TypeError, f"{self.name_of(kind)!r} object is not subscriptable")

    def class_getitem(self, whole: ClassValue, index: Value) -> Value:
        hook = getattr(whole.real, "__class_getitem__", None)
        if getattr(hook, "__module__", None) in NATIVE_GENERICS or whole.real is type:
            made = self.fold(operator.getitem, [whole, index], {})
            return self.stop("unmodelled", f"{whole.real.__name__}[...]") if made is None else made
        found = self.find_in_class(whole, "__class_getitem__")
        if found is None:
            self.error(TypeError, f"type {whole.real.__name__!r} is not subscriptable")
        assert found is not None
        return found.invoke(self, [index], {})

    def setitem(self, whole: Value, index: Value, value: Value) -> None:
        found = self.special(whole, "__setitem__", [index, value])
        if found is None:
            name = self.type_name(whole)
            self.error(TypeError, f"{name!r} object does not support item assignment")

    def delitem(self, whole: Value, index: Value) -> None:
        found = self.special(whole, "__delitem__", [index])
        if found is None:
            name = self.type_name(whole)
            self.error(TypeError, f"{name!r} object doesn't support item deletion")

    def contains(self, whole: Value, item: Value) -> bool:
        whole = whole.force(self)
        found = self.lookup(whole.type_, "__contains__")
        if found is not None and not self.is_none(found):
            made = found.get(self, whole, whole.type_).invoke(self, [item], {})
            return self.truth(made)
        if found is not None or not self.iterable(whole):
            self.error(TypeError, f"argument of type {self.type_name(whole)!r} is not iterable")
        return any(self.same(part, item) for part in self.iterate(whole))

    def index(self, value: Value) -> int:
        """`operator.index`."""
        value = value.force(self)
        if isinstance(value, Const) and type(value.value) in (int, bool):
            return int(value.value)
        found = self.special(value, "__index__", [])
        if found is None:
            self.error(TypeError, f"{self.type_name(value)!r} object cannot be interpreted as an"
                                  " integer")
        assert found is not None
        made = found.constant(self)
        if not isinstance(made, int):
            self.error(TypeError, f"__index__ returned non-int (type {type(made).__name__})")
        return int(made)

    def slice_index(self, value: Value) -> int:
        kind = self.type_of(value)
        if kind is not int and self.lookup(kind, "__index__") is None:
            self.error(TypeError, "slice indices must be integers or None or have an __index__"
                                  " method")
        return self.index(value)

    def make_slice(self, ends: list[Value]) -> Value:
        return SliceValue([*ends, *[Const(None)] * (3 - len(ends))])

    # -- iteration

    def iterable(self, value: Value) -> bool:
        kind = self.type_of(value)
        found = self.lookup(kind, "__iter__")
        if found is None:
            return self.lookup(kind, "__getitem__") is not None
        return not self.is_none(found)

    def iter(self, value: Value) -> Value:
        value = value.force(self)
        if isinstance(value, IteratorValue):
            return value
        kind = value.type_
        found = self.lookup(kind, "__iter__")
        if found is None and self.lookup(kind, "__getitem__") is not None and not (
                isinstance(value, ClassValue)):
            return SequenceIterator(value)
        if found is None or self.is_none(found):
            return self.error(TypeError, f"{self.name_of(kind)!r} object is not iterable")
        made = found.get(self, value, kind).invoke(self, [], {}).force(self)
        if not isinstance(made, IteratorValue) and self.lookup(made.type_, "__next__") is None:
            self.error(TypeError, f"iter() returned non-iterator of type {self.type_name(made)!r}")
        return made

    def native_iter(self, whole: Value, native: Iterator[Any], backwards: bool = False) -> Value:
        """An iterator over a constant."""
        kind = ReversedIterator if backwards else NativeIterator
        return kind(whole, native, Const, type(native))

    def next(self, iterator: Value) -> Value | None:
        """The next value, None at the end."""
        iterator = iterator.force(self)
        if isinstance(iterator, IteratorValue):
            return iterator.advance(self)
        found = self.lookup(iterator.type_, "__next__")
        if found is None:
            self.error(TypeError, f"{self.type_name(iterator)!r} object is not an iterator")
        assert found is not None
        try:
            return found.get(self, iterator, iterator.type_).invoke(self, [], {})
        except Raised as raised:
            if issubclass(raised.value.type_, StopIteration):
                return None
            raise

    def iterate(self, value: Value) -> Iterator[Value]:
        """The values an iterable gives, as a Python iterator for handlers."""
        value = value.force(self)
        if value.__class__ is TupleValue or value.__class__ is ListValue:
            if value.type_ in (tuple, list):
                at = 0
                while at < len(items := value.parts(self)):  # type: ignore[attr-defined]
                    yield items[at]
                    at += 1
                return
        iterator = self.iter(value)
        while (found := self.next(iterator)) is not None:
            yield found

    def pair(self, value: Value, number: int) -> list[Value]:
        """One element of a sequence of pairs, as `dict` reads it."""
        if not self.iterable(value):
            self.error(TypeError, "cannot convert dictionary update sequence element"
                                  f" #{number} to a sequence")
        parts = list(self.iterate(value))
        if len(parts) != 2:
            self.error(ValueError, f"dictionary update sequence element #{number} has length"
                                   f" {len(parts)}; 2 is required")
        return parts

    def catching(self, kinds: tuple[type, ...], action: Callable[[], Value]) -> Value | None:
        """Runs an action; None where the program raises one of these."""
        try:
            return action()
        except Raised as raised:
            if issubclass(raised.value.type_, kinds):
                return None
            raise

    def sorted(self, items: list[Value], key: Value | None, reverse: Value | None) -> list[Value]:
        """`sorted`: CPython's own sort over stand-ins that compare through the machine."""
        backwards = reverse is not None and self.truth(reverse)
        plain = key is None or self.is_none(key)
        keys = list(items) if plain else [self.call(key, [item]) for item in items]
        keys = [k.force(self) for k in keys]
        kinds = {type(k.value) if isinstance(k, Const) else None for k in keys}
        if len(kinds) == 1 and kinds <= {int, float, str, bytes}:
            marks: list[Any] = [k.value for k in keys]  # type: ignore
        else:
            marks = [Proxy(self, k) for k in keys]
        order = sorted(range(len(items)), key=marks.__getitem__, reverse=backwards)
        return [items[i] for i in order]

    # -- text

    def text(self, value: Value) -> str:
        """The content of a str value."""
        value = value.force(self)
        found = value.constant(self) if not isinstance(value, Const) else value.value
        if not isinstance(found, str):
            raise NotConstant
        return found

    def str_of(self, value: Value) -> Value:
        value = value.force(self)
        if isinstance(value, Const):
            return Const(self.native_op(str, value.value))
        return self.text_method(value, "__str__")

    def repr(self, value: Value) -> Value:
        value = value.force(self)
        if isinstance(value, Const):
            return Const(self.native_op(repr, value.value))
        return self.text_method(value, "__repr__")

    def text_method(self, value: Value, name: str) -> Value:
        found = self.special(value, name, [])
        assert found is not None
        if not issubclass(self.type_of(found), str):
            self.error(TypeError, f"{name} returned non-string (type"
                                  f" {self.type_name(found)})")
        return found

    def repr_text(self, value: Value) -> str:
        return self.text(self.repr(value))

    def guarded_repr(self, value: Value, action: Callable[[], list[str]]) -> list[str] | None:
        """Runs the action unless the repr of this very value is being made."""
        if id(value) in self.shown:
            return None
        self.shown.add(id(value))
        try:
            return action()
        finally:
            self.shown.discard(id(value))

    def format(self, value: Value, spec: Value) -> Value:
        value = value.force(self)
        if isinstance(value, Const):
            return Const(self.native_op(format, value.value, self.text(spec)))
        found = self.special(value, "__format__", [spec])
        assert found is not None
        if not issubclass(self.type_of(found), str):
            self.error(TypeError, "__format__ must return a str, not"
                                  f" {self.type_name(found)}")
        return found

    @contextlib.contextmanager
    def visiting(self, value: Value) -> Iterator[None]:
        """A container that holds itself has no constant form."""
        if id(value) in self.visited:
            raise NotConstant
        self.visited.add(id(value))
        try:
            yield
        finally:
            self.visited.discard(id(value))

    def shadow(self, value: Value) -> Any:
        """Something real that formats like the value."""
        value = value.force(self)
        if isinstance(value, Const):
            return value.value
        if isinstance(value, TupleValue) and value.type_ is tuple:
            return tuple([self.shadow(part) for part in value.parts(self)])
        try:
            return value.constant(self)
        except NotConstant:
            pass
        kind = value.type_
        made = self.proxies.get(kind)
        if made is None:
            able = {name: proxy_slot(action) for name, action in PROXY_SLOTS.items()
                    if self.lookup(kind, name) is not None}
            made = self.proxies[kind] = type(kind.__name__, (Proxy,), able)
        return made(self, value)

    def format_arguments(self, value: Value) -> Any:
        """The right side of `text % value`."""
        value = value.force(self)
        if isinstance(value, TupleValue):
            return tuple([self.shadow(part) for part in value.parts(self)])
        if isinstance(value, DictValue) and self.lookup(value.type_, "__getitem__") is (
                self.known_value(dict.__getitem__)):
            return {k: self.shadow(v) for k, v in value.values_of(self).items()}
        return self.shadow(value)

    def matches(self, fault: Value, kinds: Value) -> bool:
        """`except kinds`."""
        kinds = kinds.force(self)
        parts = kinds.parts(self) if isinstance(kinds, SequenceValue) and issubclass(
            kinds.type_, tuple) else [kinds]
        assert isinstance(fault, FaultValue)
        for part in parts:
            part = part.force(self)
            if not isinstance(part, ClassValue) or not issubclass(part.real, BaseException):
                self.error(TypeError, "catching classes that do not inherit from BaseException is"
                                      " not allowed")
        return any(issubclass(fault.type_, part.force(self).real) for part in parts)

    def classes(self, value: Value) -> Iterable[Any]:
        """The second argument of isinstance, flattened; unions included."""
        value = value.force(self)
        if isinstance(value, TupleValue):
            for part in value.parts(self):
                yield from self.classes(part)
        elif isinstance(value, ClassValue):
            yield value.real
        elif isinstance(value, Known) and isinstance(value.real, types.UnionType):
            for part in value.real.__args__:
                yield from self.classes(self.fresh(part))
        elif self.is_none(value):
            yield type(None)
        else:
            yield value

    def is_method_descriptor(self, value: Value | None) -> bool:
        return isinstance(value, Known) and type(value.real) in METHOD_DESCRIPTORS
