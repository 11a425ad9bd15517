"""Where a value came from: how to read it again, and what to call it in front of the user.

A source is a path that starts at an argument of the captured function (`local`) or at an object
that the guard function can hold for good (`const`), and goes on through attributes and items.
`KINDS` is an open table: one row per kind, with the expression, the reader and the user's name.
"""
from __future__ import annotations

import collections
import gc
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

Bind = Callable[[object, str], str]     # (object, proposed name) -> identifier


class Held:
    """An object as part of a source: compared by identity, shown by its label."""
    __slots__ = ("label", "obj")

    def __init__(self, obj: object, label: str) -> None:
        self.obj, self.label = obj, label

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Held) and other.obj is self.obj

    def __hash__(self) -> int:
        return id(self.obj)

    def __repr__(self) -> str:
        return f"<{self.label}>"


class Source(NamedTuple):
    """One step of a path.

    kind: a row of `KINDS`; base: the source it starts from, None for roots; key: what the row
    needs, a name, an index, a constant dict key or, for a key that is an object, that object's own
    source.
    """
    kind: str
    base: Source | None
    key: Any = None

    def expr(self, bind: Bind) -> str:
        """Python text that reads the value; arguments appear under their own names."""
        return KINDS[self.kind].expr(self, bind)

    def read(self, arguments: Mapping[str, object]) -> Any:
        """The value now; what reading it raises (KeyError, AttributeError, ...) passes."""
        kind = KINDS[self.kind]
        base = None if self.base is None else self.base.read(arguments)
        key = self.key.read(arguments) if isinstance(self.key, Source) else self.key
        return kind.read(arguments, base, key)

    def name(self) -> str:
        """How the user would write it: `self.layers[0].weight`."""
        return KINDS[self.kind].name(self)

    def root(self) -> Source:
        found = self
        while found.base is not None:
            found = found.base
        return found

    def attr(self, name: str) -> Source:
        return Source("attr", self, name)

    def item(self, key: Any) -> Source:
        return Source("item", self, key)


class Kind(NamedTuple):
    expr: Callable[[Source, Bind], str]
    read: Callable[[Mapping[str, object], Any, Any], Any]
    name: Callable[[Source], str]


def text(key: Any, bind: Bind) -> str:
    """Text of a key inside an expression; only literals are written out, objects are bound."""
    if isinstance(key, Source):
        return key.expr(bind)
    if type(key) in (int, str, bool, bytes, type(None)):
        return repr(key)
    if type(key) is tuple:
        return "(" + "".join(f"{text(part, bind)}, " for part in key) + ")"
    return bind(key, "key")


def shown(key: Any) -> str:
    return key.name() if isinstance(key, Source) else repr(key)


def path(expr: str, name: str) -> tuple[Callable[[Source, Bind], str], Callable[[Source], str]]:
    """Formatters of a step; in the templates B is the base and K the key."""
    def to_expr(source: Source, bind: Bind) -> str:
        assert source.base is not None
        return expr.format(B=source.base.expr(bind), K=text(source.key, bind), N=source.key)

    def to_name(source: Source) -> str:
        assert source.base is not None
        return name.format(B=source.base.name(), K=shown(source.key), N=source.key)
    return to_expr, to_name


def step(expr: str, name: str, read: Callable[[Any, Any], Any]) -> Kind:
    to_expr, to_name = path(expr, name)
    return Kind(to_expr, lambda arguments, base, key: read(base, key), to_name)


def cell(base: Any, key: Any) -> Any:
    return base.__closure__[key[0]]


def cell_expr(tail: str) -> Callable[[Source, Bind], str]:
    def to_expr(source: Source, bind: Bind) -> str:
        assert source.base is not None
        return f"{source.base.expr(bind)}.__closure__[{source.key[0]}]{tail}"
    return to_expr


def based(source: Source) -> Source:
    assert source.base is not None
    return source.base


def own_dict(base: Any) -> Any:
    return object.__getattribute__(base, "__dict__")


KINDS: dict[str, Kind] = {
    "local": Kind(lambda s, bind: s.key, lambda args, base, key: args[key], lambda s: s.key),
    "const": Kind(lambda s, bind: bind(s.key.obj, s.key.label), lambda args, base, key: key.obj,
                  lambda s: s.key.label),
    "global": Kind(path("{B}[{K}]", "")[0], lambda args, base, key: base[key], lambda s: s.key),
    "attr": step("{B}.{N}", "{B}.{N}", getattr),
    "item": step("{B}[{K}]", "{B}[{K}]", lambda base, key: base[key]),
    "entry": step("{B}.__dict__[{K}]", "{B}.{N}", lambda base, key: base.__dict__[key]),
    "dict": step("{B}.__dict__", "{B}.__dict__", lambda base, key: base.__dict__),
    "own": Kind(    # where the class reads attributes in its own way
        lambda s, bind: f"{bind(own_dict, 'own_dict')}({based(s).expr(bind)})",
        lambda arguments, base, key: own_dict(base), lambda s: f"{based(s).name()}.__dict__"),
    "type": step("type({B})", "type({B})", lambda base, key: type(base)),
    "call": step("{B}()", "{B}()", lambda base, key: base()),
    "len": step("len({B})", "len({B})", lambda base, key: len(base)),
    "key": step("list({B})[{K}]", "list({B})[{K}]", lambda base, key: list(base)[key]),
    "default": step("{B}.__defaults__[{K}]", "{B}.__defaults__[{K}]",
                    lambda base, key: base.__defaults__[key]),
    "kwdefault": step("{B}.__kwdefaults__[{K}]", "{B}.__kwdefaults__[{K}]",
                      lambda base, key: base.__kwdefaults__[key]),
    # key: (index, variable)
    "closure": Kind(cell_expr(""), lambda args, base, key: cell(base, key), lambda s: s.key[1]),
    "cell": Kind(cell_expr(".cell_contents"),
                 lambda args, base, key: cell(base, key).cell_contents, lambda s: s.key[1]),
}


# Base class -> the content of an object without what its own class does about it.
PLAIN: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (collections.OrderedDict, lambda x: dict(collections.OrderedDict.items(x))),
    (dict, dict.copy), (list, list.copy), (tuple, lambda x: tuple.__getitem__(x, slice(None))),
    (collections.deque, lambda x: list(collections.deque.__iter__(x))),
    (set, lambda x: set(set.__iter__(x))), (frozenset, lambda x: set(frozenset.__iter__(x))))


def plain(x: Any) -> Any:
    """The content of a container, whatever methods its class has written over."""
    kind = type(x)
    return next(copy(x) for base, copy in PLAIN if issubclass(kind, base))


KINDS["plain"] = Kind(
    lambda s, bind: f"{bind(plain, 'plain')}({based(s).expr(bind)})",
    lambda arguments, base, key: plain(base), lambda s: based(s).name())


def held(base: Any, key: Any) -> Any:
    """An entry of a dictionary that would make one that it misses, as a look must not."""
    found = dict.get(base, key, held)
    if found is held:
        raise KeyError(key)
    return found


KINDS["held"] = Kind(
    lambda s, bind: f"{bind(held, 'held')}({based(s).expr(bind)}, {text(s.key, bind)})",
    lambda arguments, base, key: held(base, key), KINDS["item"].name)


def proxied(base: Any) -> Any:
    """The dict that a `types.MappingProxyType` shows."""
    return gc.get_referents(base)[0]


KINDS["proxied"] = Kind(
    lambda s, bind: f"{bind(proxied, 'proxied')}({based(s).expr(bind)})",
    lambda arguments, base, key: proxied(base), lambda s: based(s).name())


# The exception that the caller of the captured function is handling.
HANDLED = Source("handled", None)
KINDS["handled"] = Kind(
    lambda s, bind: f"{bind(sys.exc_info, 'exc_info')}()[1]",
    lambda arguments, base, key: sys.exc_info()[1], lambda s: "sys.exc_info()[1]")


def local(name: str) -> Source:
    return Source("local", None, name)


def const(obj: object, label: str) -> Source:
    return Source("const", None, Held(obj, label))
