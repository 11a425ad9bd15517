"""Pins: words of memory that are the same as long as nothing that a guard saw has changed.

A guard that held once holds again while the objects that it read are untouched. CPython tells: a
dictionary has a version that every write renews, so does a class; lists, cells, slots and functions
are what a few words of them point to. `STEPS` says for each kind of step of a path which words
decide what the step leads to, `CHECKS` the same for each kind of fact; both answer None where no
words do. Objects that words point to are kept, so that no other object gets their address.

Where each word lies is known for CPython 3.11 to 3.13 and tried out at the first use (`trusted`);
on another interpreter nothing is pinned, and guards are checked in full.
"""

from __future__ import annotations

import collections
import ctypes
import functools
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

from lehr.compiler.capture.source import Source
from lehr.tensor.storage import Storage
from lehr.tensor.tensor import Meta, Tensor

Words = tuple[int, ...] | None      # addresses; None: no words decide it
HEAPTYPE = 1 << 9

# Offsets in bytes.
TYPE = 8                # of any object
USED = 16               # a dictionary's number of entries, a list's or tuple's length
VERSION, KEYS, VALUES = 24, 32, 40      # a dictionary's
ITEMS = 24              # a list's: where its elements are
CONTENT = 16            # a cell's
CODE, DEFAULTS, KWDEFAULTS = 48, 56, 64     # a function's
FUNCTION = {"__name__": 32, "__qualname__": 40, "__code__": CODE, "__defaults__": DEFAULTS,
            "__kwdefaults__": KWDEFAULTS}
CLASS_VERSION = 384     # a class's
MEMBER = 40             # a slot descriptor's: its PyMemberDef, where the offset is the third word


def word(address: int) -> int:
    """The 64 bits at an address."""
    return ctypes.c_uint64.from_address(address).value


def table(*groups: set[int]) -> Any:
    """The words at these addresses as they are now, as `lehr.compiler.run.word` compares them;
    earlier groups guard later ones."""
    flat: list[int] = []
    for addresses in filter(None, map(sorted, groups)):
        flat.append(len(addresses))
        for a in addresses:
            flat += (a, word(a))
    flat.append(0)
    return (ctypes.c_uint64 * len(flat))(*flat)


class Pins:
    """Collects words and what must be kept for them.

    second  addresses outside the objects, valid while the words that come with them are the same
    kept    objects that words lie in or point to
    weak    ids of objects that are not kept: whoever collects is told of their end
    """

    def __init__(self, weak: frozenset[int] = frozenset()) -> None:
        self.second: set[int] = set()
        self.kept: dict[int, Any] = {}
        self.weak = weak
        self.known: dict[int, Words] = {}       # id of a dictionary or class -> its words

    def keep(self, *objects: Any) -> None:
        for obj in objects:
            if id(obj) not in self.weak:
                self.kept[id(obj)] = obj

    # -- each method answers the words for one thing, and keeps what they need

    def mapping(self, d: Any) -> Words:
        """The entries of a dictionary."""
        found = self.known.get(id(d))
        if found is None:
            if not isinstance(d, dict):
                return None
            self.keep(d)
            found = (id(d) + VERSION,)
            if inlined(d):
                held = values(word(id(d) + VALUES))
                found = (id(d) + KEYS, id(d) + VALUES, *held)
                self.second.update(held)
            self.known[id(d)] = found
        return found

    def cls(self, cls: type) -> Words:
        """The attributes of a class and of its bases."""
        if not cls.__flags__ & HEAPTYPE:
            return ()
        found = self.known.get(id(cls))
        if found is None:
            self.keep(cls)
            address = id(cls) + CLASS_VERSION
            if not word(address) & 0xFFFFFFFF:
                type.__getattribute__(cls, "__init_subclass__")     # a look-up gives it a version
                if not word(address) & 0xFFFFFFFF:
                    return None
            found = self.known[id(cls)] = (address,)
        return found

    def type_of(self, obj: Any) -> Words:
        self.keep(obj, type(obj))
        return (id(obj) + TYPE,)

    def space(self, obj: Any) -> Words:
        """Which dictionary an object's attributes are in."""
        if isinstance(obj, types.ModuleType):
            return self.type_of(obj)
        d = getattr(obj, "__dict__", None)
        if type(d) is not dict:
            return None
        offset = place_of(obj, d)
        self.keep(obj, type(obj), d)
        return None if offset is None else (id(obj) + TYPE, id(obj) + offset)

    def slot(self, obj: Any, descriptor: Any) -> Words:
        """What a slot holds."""
        self.keep(obj, type(obj), descriptor.__get__(obj))
        return id(obj) + TYPE, id(obj) + offset_of(descriptor)

    def size(self, obj: Any) -> Words:
        """How many elements a container has."""
        kind = type(obj)
        if kind in FROZEN:
            return ()
        counted = isinstance(obj, dict) and kind.__len__ is dict.__len__ and not inlined(obj)
        if kind is list or counted:
            self.keep(obj)
            return (id(obj) + USED,)
        return self.mapping(obj) if kind is dict else None

    def tensor(self, t: Tensor) -> Words:
        """Type, dtype, layout, storage and whether gradients are recorded; None for views, whose
        base decides that."""
        if t._view is not None:
            return None
        meta, start = t._meta, id(t)
        self.keep(t, type(t), t.dtype, t._shape, t._strides, t._offset, t._storage, meta)
        found = (start + TYPE, *[start + offset_of(d) for d in TENSOR_SLOTS])
        if meta is None:
            return found
        self.keep(meta.grad_fn)
        return (*found, *[id(meta) + offset_of(d) for d in META_SLOTS])

    def hooks(self, t: Tensor, which: str) -> Words:
        """That a tensor has no hooks."""
        meta = t._meta
        if meta is None:
            return (id(t) + offset_of(Tensor.__dict__["_meta"]),)
        table = getattr(meta, which)
        self.keep(meta, table)
        found = (id(t) + offset_of(Tensor.__dict__["_meta"]),
                 id(meta) + offset_of(Meta.__dict__[which]))
        return found if table is None else joined(found, self.mapping(table))

    def address(self, t: Tensor) -> Words:
        """Where the memory of a tensor begins (the words of `tensor` come on top)."""
        storage = t._storage
        self.keep(storage, storage.ptr, storage._ptr)
        return (id(storage) + offset_of(POINTER),)


POINTER: Any = Storage.__dict__["_ptr"]
TENSOR_SLOTS: tuple[Any, ...] = tuple(Tensor.__dict__[name] for name in (
    "_meta", "_offset", "_shape", "_storage", "_strides", "_view", "dtype"))
META_SLOTS: tuple[Any, ...] = tuple(Meta.__dict__[name] for name in ("grad_fn", "requires_grad"))
# Whose parts cannot be replaced.
CONSTANT = frozenset((int, float, bool, complex, str, bytes, type(None)))
FROZEN = CONSTANT | {tuple, frozenset, range, slice, property, staticmethod, classmethod,
                     types.MethodType, types.BuiltinMethodType}


@functools.cache
def offset_of(descriptor: Any) -> int:
    """Where in its objects a slot lies."""
    return word(word(id(descriptor) + MEMBER) + 16)


def place_of(obj: Any, d: Any) -> int | None:
    """Where in an object its dictionary is named."""
    kind = type(obj)
    found = PLACES.get(kind)
    if found is None or word(id(obj) + found) != id(d):
        places = (-24, *range(16, kind.__basicsize__, 8))
        found = next((n for n in places if word(id(obj) + n) == id(d)), None)
        if found is not None:
            PLACES[kind] = found
    return found


PLACES: weakref.WeakKeyDictionary[type, int] = weakref.WeakKeyDictionary()


def inlined(d: Any) -> bool:
    return inline() and word(id(d) + VALUES) != 0


def values(address: int) -> range:
    """The words of values that lie in their object: sizes, values, order of insertion."""
    capacity = word(address) & 0xFF
    return range(address, address + 8 + 8 * capacity + capacity, 8)


# -- steps of paths: (pins, object before, key, object behind) -> words


def step_attr(pins: Pins, base: Any, name: str, found: Any) -> Words:
    kind = type(base)
    if kind in FROZEN:
        return ()
    if isinstance(base, Tensor) and name == "grad" and kind.grad is Tensor.grad:
        return grad(pins, base)
    if kind is types.ModuleType:
        return pins.mapping(base.__dict__) if name in base.__dict__ else None
    if kind is types.FunctionType and name in FUNCTION:
        pins.keep(base, found)
        return (id(base) + FUNCTION[name],)
    if kind.__getattribute__ is not object.__getattribute__:
        return None
    held = next((k.__dict__[name] for k in kind.__mro__ if name in k.__dict__), pins)
    above = pins.cls(kind)
    if above is None:
        return None
    if type(held) is types.MemberDescriptorType:
        plain = kind.__flags__ & HEAPTYPE or kind is types.FunctionType     # not a number in C
        return joined(above, pins.slot(base, held)) if plain else None
    if held is not pins and (hasattr(type(held), "__set__") or hasattr(type(held), "__delete__")):
        return None
    return joined(above, pins.space(base), entry_of(pins, base, name))


def entry_of(pins: Pins, base: Any, name: str) -> Words:
    d = getattr(base, "__dict__", None)
    return pins.mapping(d) if type(d) is dict and name in d else None


def grad(pins: Pins, t: Tensor) -> Words:
    """A leaf's gradient."""
    meta = t._meta
    if meta is None:
        pins.keep(t)
        return (id(t) + offset_of(TENSOR_SLOTS[0]),)
    pins.keep(t, meta, meta.grad)
    return id(t) + offset_of(TENSOR_SLOTS[0]), id(meta) + offset_of(Meta.__dict__["grad"])


def step_item(pins: Pins, base: Any, key: Any, found: Any) -> Words:
    kind = type(base)
    if kind is tuple:
        return ()
    if kind is list and type(key) is int:
        at = word(id(base) + ITEMS) + 8 * (key if key >= 0 else key + len(base))
        pins.keep(base, found)
        pins.second.add(at)
        return id(base) + USED, id(base) + ITEMS, at
    if isinstance(base, dict) and kind.__getitem__ in DICT_GETITEM and (
            type(key) in CONSTANT or type(key).__hash__ in IDENTITY):
        return pins.mapping(base)
    return None


def step_held(pins: Pins, base: Any, key: Any, found: Any) -> Words:
    constant = type(key) in CONSTANT or type(key).__hash__ in IDENTITY
    return pins.mapping(base) if constant else None


DICT_GETITEM = (dict.__getitem__,)
IDENTITY = (object.__hash__, Tensor.__hash__)       # of keys that are equal to themselves alone


def step_entry(pins: Pins, base: Any, key: Any, found: Any) -> Words:
    if isinstance(base, type):
        return pins.cls(base)
    return joined(pins.space(base), entry_of(pins, base, key))


def step_dict(pins: Pins, base: Any, key: Any, found: Any) -> Words:
    return None if isinstance(base, type) else pins.space(base)


def step_cell(pins: Pins, base: Any, key: Any, found: Any) -> Words:
    pins.keep(base, found)
    return (id(base.__closure__[key[0]]) + CONTENT,)


def step_default(pins: Pins, base: Any, key: Any, found: Any) -> Words:
    pins.keep(base, base.__defaults__)
    return (id(base) + DEFAULTS,)


def step_kwdefault(pins: Pins, base: Any, key: Any, found: Any) -> Words:
    pins.keep(base)
    return joined((id(base) + KWDEFAULTS,), pins.mapping(base.__kwdefaults__))


Step = Callable[[Pins, Any, Any, Any], Words]
STEPS: dict[str, Step] = {
    "attr": step_attr, "item": step_item, "held": step_held, "entry": step_entry, "dict": step_dict,
    "global": lambda pins, base, key, found: pins.mapping(base),
    "type": lambda pins, base, key, found: pins.type_of(base),
    "closure": lambda pins, base, key, found: (),       # a function's cells are its own for good
    "proxied": lambda pins, base, key, found: (),
    "cell": step_cell, "default": step_default, "kwdefault": step_kwdefault,
}


# -- facts: (pins, object, detail, source -> object where that is pinned) -> words

Find = Callable[[Source], Any]
Check = Callable[[Pins, Any, Any, Find], Words]


def check_type(pins: Pins, x: Any, detail: Any, find: Find) -> Words:
    return () if type(x) in CONSTANT else pins.type_of(x)


def check_truth(pins: Pins, x: Any, detail: Any, find: Find) -> Words:
    return () if type(x) in CONSTANT else pins.size(x) if type(x) in SIZED else None


def check_constant(pins: Pins, x: Any, detail: Any, find: Find) -> Words:
    return () if type(x) in CONSTANT else None


def check_function(pins: Pins, x: Any, detail: Any, find: Find) -> Words:
    pins.keep(x, x.__code__)
    return (id(x) + CODE,) if type(x) is types.FunctionType else None


def check_others(pins: Pins, x: Any, detail: Any, find: Find) -> Words:
    """Facts on which objects there are: they hold while all are the same."""
    for source in detail if type(detail) is tuple else (detail,):
        find(source)
    return ()


def check_storages(pins: Pins, x: Any, detail: Any, find: Find) -> Words:
    sources: tuple[Source, ...] = detail if type(detail) is tuple else (detail,)
    every = [x, *[find(s) for s in sources]]
    pins.keep(*every, *[t._storage for t in every])
    at = offset_of(Tensor.__dict__["_storage"])
    return tuple([id(t) + at for t in every])


def check_cell(pins: Pins, x: Any, detail: Any, find: Find) -> Words:
    pins.keep(x)
    return (id(x) + CONTENT,)


SIZED = (dict, list, tuple, collections.OrderedDict, collections.defaultdict)
CHECKS: dict[str, Check] = {
    "type": check_type, "equals": check_constant, "truth": check_truth, "function": check_function,
    "is": lambda pins, x, detail, find: (), "is not": lambda pins, x, detail, find: (),
    "readable": lambda pins, x, detail, find: (),
    "alias": check_others, "distinct": check_others, "relation": check_others,
    "storage": check_storages, "apart": check_storages,
    "len": lambda pins, x, detail, find: pins.size(x),
    # An OrderedDict can change its order alone, without a new version.
    "keys": lambda pins, x, detail, find: pins.mapping(x) if type(x) is dict else None,
    "absent": lambda pins, x, detail, find: pins.mapping(x) if (
        isinstance(x, dict) and type(x).__contains__ is dict.__contains__) else None,
    "class": lambda pins, x, detail, find: pins.cls(x),
    "tensor": lambda pins, x, detail, find: pins.tensor(x),
    "offset": lambda pins, x, detail, find: pins.tensor(x),
    "view": lambda pins, x, detail, find: pins.tensor(x),
    **dict.fromkeys(("no hooks", "no post_hooks"),
                    lambda pins, x, detail, find: pins.hooks(x, detail)),
    "empty cell": check_cell,
}


def joined(*several: Words) -> Words:
    """The words of all; None where one of them has none."""
    found: list[int] = []
    for words in several:
        if words is None:
            return None
        found.extend(words)
    return tuple(found)


# -- whether the interpreter is as it is described here


class _Probe:
    one: Any = 1

    def __init__(self) -> None:
        self.a: Any = None


class _Slots:
    __slots__ = ("a", "b")

    a: int
    b: int


@functools.cache
def inline() -> bool:
    """Whether values in an object change without a new version of its dictionary (3.13)."""
    probe = _Probe()
    before = word(id(probe.__dict__) + VERSION)
    probe.a = probe
    changed: bool = word(id(probe.__dict__) + VERSION) != before
    probe.a = None
    return not changed


def _told(pins: Pins, words: Words, change: Callable[[], Any]) -> bool:
    """Whether a change shows in the words."""
    if words is None:
        return False
    before = [word(a) for a in words]
    calm = before == [word(a) for a in words]
    change()
    return calm and before != [word(a) for a in words]


@functools.cache
def trusted() -> bool:
    """Whether this interpreter keeps its objects as this module says."""
    if sys.implementation.name != "cpython" or ctypes.sizeof(ctypes.c_void_p) != 8 or (
            not getattr(sys, "_is_gil_enabled", lambda: True)()):
        return False
    return all(_told(*trial()) for trial in TRIALS)


def _dictionary(change: str) -> Callable[[], tuple[Pins, Words, Callable[[], Any]]]:
    def trial() -> tuple[Pins, Words, Callable[[], Any]]:
        pins, d = Pins(), {"a": [], "b": 1}
        return pins, pins.mapping(d), lambda: exec(change, {"d": d})
    return trial


def _instance(change: str) -> Callable[[], tuple[Pins, Words, Callable[[], Any]]]:
    def trial() -> tuple[Pins, Words, Callable[[], Any]]:
        pins, obj = Pins(), _Probe()
        words = step_attr(pins, obj, "a", None)
        return pins, words, lambda: exec(change, {"obj": obj})
    return trial


def _other(make: Callable[[Pins], tuple[Words, Callable[[], Any]]]
           ) -> Callable[[], tuple[Pins, Words, Callable[[], Any]]]:
    def trial() -> tuple[Pins, Words, Callable[[], Any]]:
        pins = Pins()
        return pins, *make(pins)
    return trial


def _class(pins: Pins) -> tuple[Words, Callable[[], Any]]:
    below = type("Below", (_Probe,), {})
    return pins.cls(below), lambda: setattr(_Probe, "one", _Probe.one + 1)


def _slots(pins: Pins) -> tuple[Words, Callable[[], Any]]:
    obj = _Slots()
    obj.a, obj.b = 1, 2
    words = step_attr(pins, obj, "b", 2)
    return words, lambda: setattr(obj, "b", 3)


def _list(pins: Pins) -> tuple[Words, Callable[[], Any]]:
    items = [object(), object()]
    words = step_item(pins, items, 1, items[1])
    return words, lambda: items.__setitem__(1, object())


def _length(pins: Pins) -> tuple[Words, Callable[[], Any]]:
    items = [object()]
    return pins.size(items), lambda: items.append(1)


def _cell(pins: Pins) -> tuple[Words, Callable[[], Any]]:
    content: Any = 1

    def inner() -> Any:
        return content
    words = step_cell(pins, inner, (0, "content"), 1)

    def change() -> None:
        nonlocal content
        content = 2
    return words, change


def _attribute(name: str, pins: Pins, base: Any, key: Any, found: Any) -> Words:
    return step_attr(pins, base, name, found)


def _function(field: str, value: Any, step: Step) -> Callable[[Pins], Any]:
    def make(pins: Pins) -> tuple[Words, Callable[[], Any]]:
        def function(a: int = 1, *, b: int = 2) -> None:
            """Probe."""
        return step(pins, function, 0, None), lambda: setattr(function, field, value)
    return make


TRIALS = (
    *map(_dictionary, ("d['a'] = 2", "d['c'] = 3", "del d['b']", "d.pop('b')", "d.clear()",
                       "d.update(b=2)", "d.setdefault('c')", "d.popitem()", "d |= {'b': 3}")),
    *map(_instance, ("obj.a = 1", "obj.b = 1", "del obj.a", "obj.__dict__['a'] = 1",
                     "obj.__dict__ = {'a': None}", "object.__setattr__(obj, 'a', 1)",
                     "obj.__dict__.clear()", "obj.__class__ = type('Other', (type(obj),), {})")),
    *map(_other, (_class, _slots, _list, _length, _cell,
                  _function("__code__", _class.__code__, functools.partial(_attribute, "__code__")),
                  *[_function(name, "other", functools.partial(_attribute, name))
                    for name in ("__name__", "__qualname__", "__module__")],
                  _function("__defaults__", (3,), step_default),
                  _function("__kwdefaults__", {"b": 4}, step_kwdefault))),
)
