"""The state that a call can see and change: walked, saved, put back, compared.

What counts: everything reachable from the arguments, from the function's closure, defaults and the
globals that its code names; the attributes of objects and of the program's own classes; tensors,
their gradients, and what of the tape lies behind them; generators of random numbers; the modes of
the thread. What does not: files, sockets and other things of the operating system, and the inside
of libraries.
"""

from __future__ import annotations

import collections
import functools
import random
import sys
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from lehr.base.device import Device
from lehr.base.dtype import DType
from lehr.compiler.compile import CompiledFunction
from lehr.tensor import node
from lehr.tensor.random import Generator, default_generator
from lehr.tensor.state import STATE
from lehr.tensor.tensor import Meta, Tensor

CONSTANTS = (int, float, complex, bool, str, bytes, type(None), type(...), type(NotImplemented),
             range, slice, DType, Device, np.generic, np.dtype, types.CodeType)
FOREIGN = frozenset(sys.stdlib_module_names) | {"lehr", "numpy", "builtins", "ml_dtypes"}
# The framework's own code; its objects hold no state of the program.
INSIDE = ("lehr.compiler", "lehr.base", "lehr.ops")
MODES = ("grad", "inference", "autocast", "anomaly", "check_nan", "unbroken", "device")
EMPTY = type("Empty", (), {"__repr__": lambda self: "<empty cell>"})()

SLOTS: weakref.WeakKeyDictionary[Any, tuple[str, ...]] = weakref.WeakKeyDictionary()

Children = Iterable[tuple[str, Any]]


class Unreadable(TypeError):
    """Something whose state can be neither read nor put back."""


class Kind(NamedTuple):
    """How objects of a type are treated.

    children  the parts, each with what it adds to the path
    shown     what of the object itself is compared
    save      its state; load: (object, state) puts it back. None: it cannot change
    """

    children: Callable[[Any], Children]
    shown: Callable[[Any], Any]
    save: Callable[[Any], Any] | None = None
    load: Callable[[Any, Any], None] | None = None


def items(x: Iterable[Any]) -> Children:
    return [(f"[{i}]", v) for i, v in enumerate(x)]


def pairs(x: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    for i, (k, v) in enumerate(x.items()):
        plain = isinstance(k, CONSTANTS)
        if not plain:
            yield f"<key {i}>", k
        yield (f"[{k!r}]" if plain else f"<value {i}>"), v


def attributes(x: Any) -> Iterator[tuple[str, Any]]:
    for name, value in list(getattr(x, "__dict__", {}).items()):
        yield f".{name}", value
    for name in slots(type(x)):
        if hasattr(x, name):
            yield f".{name}", getattr(x, name)
    if is_own(type(x).__module__):
        yield "<class>", type(x)


def slots(cls: Any) -> tuple[str, ...]:
    if cls in SLOTS:
        return SLOTS[cls]
    found: list[str] = []
    for base in cls.__mro__:
        names = base.__dict__.get("__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            if name not in ("__dict__", "__weakref__"):
                plain = name.startswith("__") and not name.endswith("__")
                found.append(f"_{base.__name__.lstrip('_')}{name}" if plain else name)
    SLOTS[cls] = tuple(found)
    return SLOTS[cls]


def fill_list(x: Any, state: Any) -> None:
    if len(x) != len(state) or any(a is not b for a, b in zip(x, state, strict=True)):
        x.clear()
        x.extend(state)


def fill_dict(x: Any, state: Any) -> None:
    now = list(x.items())
    if len(now) != len(state) or any(
            a is not c or b is not d for (a, b), (c, d) in zip(now, state, strict=True)):
        x.clear()
        x.update(state)


def fill_set(x: Any, state: Any) -> None:
    if x != state:
        x.clear()
        x.update(state)


def save_slots(x: Any) -> dict[str, Any]:
    return {name: getattr(x, name) for name in slots(type(x)) if hasattr(x, name)}


def load_slots(x: Any, state: dict[str, Any]) -> None:
    for name in slots(type(x)):
        if name in state:
            if getattr(x, name, EMPTY) is not state[name]:
                object.__setattr__(x, name, state[name])
        elif hasattr(x, name):
            object.__delattr__(x, name)


def save_object(x: Any) -> Any:
    return list(getattr(x, "__dict__", {}).items()), save_slots(x)


def load_object(x: Any, state: Any) -> None:
    if hasattr(x, "__dict__"):
        fill_dict(x.__dict__, state[0])
    load_slots(x, state[1])


def content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return EMPTY


def fill_cell(cell: Any, state: Any) -> None:
    if state is EMPTY:
        del cell.cell_contents
    else:
        cell.cell_contents = state


def names_of(code: types.CodeType) -> set[str]:
    found = set(code.co_names)
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            found |= names_of(const)
    return found


def parts_of(f: Any) -> Iterator[tuple[str, Any]]:
    """What a function can see; of a library's, its closure alone."""
    for name, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=True):
        yield f"<{name}>", cell
    if not is_own(f.__globals__.get("__name__", "")):
        return
    for i, value in enumerate(f.__defaults__ or ()):
        yield f"<default {i}>", value
    for name, value in (f.__kwdefaults__ or {}).items():
        yield f"<default {name}>", value
    yield from ((f".{name}", value) for name, value in list(f.__dict__.items()))
    for name in sorted(names_of(f.__code__)):
        if name in f.__globals__:
            yield f"<global {name}>", f.__globals__[name]


def save_function(f: Any) -> Any:
    space = f.__globals__
    known = names_of(f.__code__) if is_own(space.get("__name__", "")) else ()
    return dict(f.__dict__), {name: space.get(name, EMPTY) for name in known}


def load_function(f: Any, state: Any) -> None:
    fill_dict(f.__dict__, list(state[0].items()))
    for name, value in state[1].items():
        if f.__globals__.get(name, EMPTY) is not value:
            if value is EMPTY:
                del f.__globals__[name]
            else:
                f.__globals__[name] = value


def is_own(module: Any) -> bool:
    """Whether a module is the program's, not a library's."""
    return isinstance(module, str) and module.split(".")[0] not in FOREIGN


def members(cls: Any) -> Iterator[tuple[str, Any]]:
    if is_own(cls.__module__):
        for name, value in list(vars(cls).items()):
            if isinstance(value, types.FunctionType) or not is_special(name):
                yield f".{name}", getattr(value, "__func__", value)
        yield from ((f"<base {b.__name__}>", b) for b in cls.__bases__ if is_own(b.__module__))


def is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def save_class(cls: Any) -> Any:
    return dict(vars(cls)) if is_own(cls.__module__) else None


def load_class(cls: Any, state: Any) -> None:
    now = dict(vars(cls))
    for name in {**state, **now} if state is not None else ():
        if is_special(name):
            continue
        if name not in state:
            delattr(cls, name)
        elif now.get(name, EMPTY) is not state[name]:
            setattr(cls, name, state[name])


class Memory(NamedTuple):
    """A tensor's state. `storage`: its slots; `data`: a copy of its bytes; `tape`: nodes."""

    fields: dict[str, Any]
    attributes: dict[str, Any]
    meta: dict[str, Any] | None
    hooks: tuple[Any, ...]
    storage: dict[str, Any]
    data: Any
    tape: tuple[tuple[Any, dict[str, Any]], ...]


def save_tensor(t: Any) -> Memory:
    meta, storage = t._meta, t._storage
    hooks = () if meta is None else tuple(
        (d, list(d.items())) for d in (meta.hooks, meta.post_hooks) if isinstance(d, dict))
    # Before the slots: asking for the bytes fills some of them.
    data = None if storage.owner is None else storage.flat.copy()
    return Memory(save_slots(t), dict(t.__dict__), None if meta is None else save_slots(meta),
                  hooks, save_slots(storage), data, tuple(behind(meta)))


def behind(meta: Meta | None) -> Iterator[tuple[Any, dict[str, Any]]]:
    """The nodes of the tape behind a tensor, with their state."""
    stack, seen = [None if meta is None else meta.grad_fn], set()
    while stack:
        fn = stack.pop()
        if isinstance(fn, node.Node) and id(fn) not in seen:
            seen.add(id(fn))
            yield fn, save_slots(fn)
            stack.extend(edge[0] for edge in fn.edges or () if edge is not None)


def load_tensor(t: Any, state: Memory) -> None:
    load_slots(t, state.fields)
    fill_dict(t.__dict__, list(state.attributes.items()))
    if state.meta is not None:
        load_slots(t._meta, state.meta)
    for kept, entries in state.hooks:
        fill_dict(kept, entries)
    writes = t._storage.writes      # a count of writes never goes back
    load_slots(t._storage, state.storage)
    t._storage.writes = writes
    if state.data is not None:
        np.copyto(t._storage.flat, state.data)
    t._storage.origin.writes += 1
    for fn, fields in state.tape:
        load_slots(fn, fields)


class Shown(NamedTuple):
    """What of a tensor is compared."""

    type: type
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    requires_grad: bool
    is_leaf: bool
    array: Any


def show_tensor(t: Any) -> Shown:
    return Shown(type(t), t.dtype, tuple(t._shape), tuple(t._strides), t.requires_grad,
                 t.is_leaf, t._array.copy() if t._storage.owner is not None else None)


def in_tensor(t: Any) -> Iterator[tuple[str, Any]]:
    if t._meta is not None and t._meta.grad is not None:
        yield ".grad", t._meta.grad
    for name, value in list(t.__dict__.items()):
        yield f".{name}", value


def typed(x: Any) -> Any:
    return type(x)


def nothing(x: Any) -> Children:
    return ()


def elements(x: Any) -> Any:
    return type(x), sorted(map(repr, x)) if all(isinstance(v, CONSTANTS) for v in x) else len(x)


SEQUENCE = Kind(items, lambda x: (type(x), len(x)))
KINDS: dict[type, Kind] = {
    Tensor: Kind(in_tensor, show_tensor, save_tensor, load_tensor),
    list: Kind(items, lambda x: (type(x), len(x)), list, fill_list),
    collections.deque: Kind(items, lambda x: (type(x), len(x)), list, fill_list),
    dict: Kind(pairs, lambda x: (type(x), [repr(k) if isinstance(k, CONSTANTS) else type(k)
                                           for k in x]), lambda x: list(x.items()), fill_dict),
    set: Kind(items, elements, set, fill_set),
    tuple: SEQUENCE, frozenset: Kind(nothing, elements),
    bytearray: Kind(nothing, bytes, bytes, lambda x, state: x.__setitem__(slice(None), state)),
    np.ndarray: Kind(nothing, lambda x: (type(x), x.dtype, x.shape, x.copy()), np.copy,
                     lambda x, state: np.copyto(x, state) if x.flags.writeable else None),
    Generator: Kind(nothing, lambda x: x.state.tolist(), lambda x: x.state.copy(),
                    lambda x, state: np.copyto(x.state, state)),
    CompiledFunction: Kind(lambda x: [*items(x.bound), ("", x.function)], typed),
    types.ModuleType: Kind(nothing, typed),
    random.Random: Kind(nothing, lambda x: x.getstate(), lambda x: x.getstate(),
                        lambda x, state: x.setstate(state)),
    np.random.RandomState: Kind(
        nothing, lambda x: repr(x.get_state()), lambda x: x.get_state(),
        lambda x, state: x.set_state(state)),
    np.random.Generator: Kind(
        nothing, lambda x: repr(x.bit_generator.state), lambda x: x.bit_generator.state,
        lambda x, state: setattr(x.bit_generator, "state", state)),
    types.CellType: Kind(lambda x: [("", content(x))], typed, content, fill_cell),
    types.FunctionType: Kind(parts_of, lambda x: (type(x), x.__qualname__), save_function,
                             load_function),
    types.MethodType: Kind(lambda x: [(".__self__", x.__self__), ("", x.__func__)], typed),
    functools.partial: Kind(lambda x: [(".func", x.func), (".args", x.args),
                                       (".keywords", x.keywords)], typed),
    property: Kind(lambda x: [(".fget", x.fget), (".fset", x.fset)], typed),
    type: Kind(members, lambda x: (type(x), x.__qualname__), save_class, load_class),
    BaseException: Kind(lambda x: [(".args", x.args)], typed, save_object, load_object),
}
OBJECT = Kind(attributes, typed, save_object, load_object)
OPAQUE = Kind(nothing, typed)


def kind_of(cls: Any) -> Kind:
    """The kind of a class. A subclass of a container that has attributes is both."""
    found = next((KINDS[base] for base in cls.__mro__ if base in KINDS), None)
    module = cls.__module__
    if found is None:
        inside = module.startswith(INSIDE) or module.split(".")[0] not in ("lehr", "types") and (
            not is_own(module))
        return OPAQUE if inside and cls is not types.SimpleNamespace else OBJECT
    if cls in KINDS or not is_own(module) or found.save is None or issubclass(cls, type | Tensor):
        return found
    save, load = found.save, found.load
    assert load is not None

    def load_both(x: Any, state: Any) -> None:
        load(x, state[0])
        load_object(x, state[1])
    return Kind(lambda x: [*found.children(x), *attributes(x)], found.shown,
                lambda x: (save(x), save_object(x)), load_both)


class Item(NamedTuple):
    """One thing of a picture: where it is, and what is compared. `first`: the path of the same
    object seen before."""

    path: str
    shown: Any
    first: str = ""


class World:
    """Roots by name, and what can be reached from them."""

    def __init__(self, roots: Mapping[str, Any]) -> None:
        self.roots = {**roots, "the default generator": default_generator,
                      "the state of random": random._inst,  # type: ignore[attr-defined]
                      "the state of numpy.random": np.random.mtrand._rand}

    def walk(self, more: Mapping[str, Any] | None = None) -> Iterator[tuple[str, Any, str]]:
        """(path, object, path where it was met before), each object's parts once.

        Unreadable for iterators.
        """
        seen: dict[int, str] = {}
        kept = []       # their ids stay theirs
        stack = [(name, x) for name, x in {**self.roots, **(more or {})}.items()][::-1]
        while stack:
            path, x = stack.pop()
            if isinstance(x, CONSTANTS) or x is EMPTY:
                yield path, x, ""
                continue
            first = seen.get(id(x), "")
            yield path, x, first
            if not first:
                seen[id(x)] = path
                kept.append(x)
                cls = type(x)
                if hasattr(cls, "__next__") and not is_own(cls.__module__):
                    raise Unreadable(f"{path} is a {cls.__name__}")
                stack += [(path + label, v) for label, v in kind_of(cls).children(x)][::-1]

    def save(self, more: Mapping[str, Any] | None = None) -> Saved:
        return Saved([(x, kind_of(type(x))) for _, x, first in self.walk(more)
                      if not first and not isinstance(x, CONSTANTS) and x is not EMPTY])

    def picture(self, more: Mapping[str, Any] | None = None) -> Iterator[Item]:
        """What can be compared, in a fixed order: constants, tensors, the shapes of containers,
        which of them are the same or share memory, the thread's modes.
        """
        storages: dict[int, str] = {}
        kept = []
        for path, x, first in self.walk(more):
            if first:
                yield Item(path, None, first)
            elif isinstance(x, CONSTANTS) or x is EMPTY:
                yield Item(path, x)
            else:
                yield Item(path, kind_of(type(x)).shown(x))
                if isinstance(x, Tensor):
                    owner = x._storage.origin
                    yield Item(f"the memory of {path}", None,
                               storages.setdefault(id(owner), path))
                    kept.append(owner)
        for name in MODES:
            yield Item(f"the thread's mode {name!r}", getattr(STATE, name))


class Saved:
    """The state of a world, to be put back."""

    def __init__(self, found: list[tuple[Any, Kind]]) -> None:
        self.states = [(x, kind, kind.save(x)) for x, kind in found if kind.save is not None]
        self.modes = {name: getattr(STATE, name) for name in MODES}

    def load(self) -> None:
        for x, kind, state in self.states:
            assert kind.load is not None
            kind.load(x, state)
        for name, value in self.modes.items():
            setattr(STATE, name, value)


def tensors(found: Iterable[tuple[str, Any, str]]) -> list[tuple[str, Tensor]]:
    """The tensors of a walk, with their paths."""
    return [(path, x) for path, x, first in found if not first and isinstance(x, Tensor)]
