"""Pytrees: nested containers as a flat list of leaves and a hashable description of the nesting.

Containers are list, tuple, named tuples, dict (in insertion order), OrderedDict, defaultdict, deque
and what `register` adds; everything else is a leaf, None and subclasses of containers included, as
in ``torch.utils._pytree``.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

Flatten = Callable[[Any], tuple[Iterable[Any], Any]]
Unflatten = Callable[[Iterable[Any], Any], Any]
Test = Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class Kind:
    """How one container type comes apart and together again.

    `flatten` gives the children and a hashable context; `unflatten` takes them back; `labels`
    spells how each child is reached, given the context and the number of children.
    """

    flatten: Flatten
    unflatten: Unflatten
    labels: Callable[[Any, int], list[str]]


def _positions(context: Any, count: int) -> list[str]:
    return [f"[{i}]" for i in range(count)]


def _fields(context: Any, count: int) -> list[str]:
    return [f".{name}" for name in context._fields]


def _keys(context: Any, count: int) -> list[str]:
    return [f"[{key!r}]" for key in context]


def _default_keys(context: Any, count: int) -> list[str]:
    return _keys(context[1], count)


def _flatten_dict(tree: dict[Any, Any]) -> tuple[Iterable[Any], Hashable]:
    return tree.values(), tuple(tree)


def _unflatten_default(children: Iterable[Any], context: Any) -> defaultdict[Any, Any]:
    factory, keys = context
    return defaultdict(factory, zip(keys, children, strict=True))


_kinds: dict[type, Kind] = {
    list: Kind(lambda t: (t, None), lambda c, _: list(c), _positions),
    tuple: Kind(lambda t: (t, None), lambda c, _: tuple(c), _positions),
    dict: Kind(_flatten_dict, lambda c, keys: dict(zip(keys, c, strict=True)), _keys),
    OrderedDict: Kind(_flatten_dict, lambda c, keys: OrderedDict(zip(keys, c, strict=True)), _keys),
    defaultdict: Kind(
        lambda t: (t.values(), (t.default_factory, tuple(t))), _unflatten_default, _default_keys
    ),
    deque: Kind(lambda t: (t, t.maxlen), lambda c, maxlen: deque(c, maxlen), _positions),
}


def _flatten_named(tree: Any) -> tuple[Iterable[Any], Any]:
    return tree, type(tree)


# Every named tuple type is a container: its context is the type.
_named = Kind(_flatten_named, lambda c, cls: cls._make(c), _fields)
# Where trees are compared, dicts of these types match each other, by key.
_mappings = frozenset((dict, OrderedDict, defaultdict))


def _is_named(cls: type) -> bool:
    return issubclass(cls, tuple) and isinstance(getattr(cls, "_fields", None), tuple)


def _kind(tree: Any) -> Kind | None:
    cls = type(tree)
    kind = _kinds.get(cls)
    if kind is None and issubclass(cls, tuple) and _is_named(cls):
        return _named
    return kind


def register(
    cls: type,
    flatten: Flatten,
    unflatten: Unflatten,
    labels: Callable[[Any, int], list[str]] | None = None,
) -> None:
    """Makes a type a container.

    ``flatten(tree)`` returns (children, context) with a hashable context; ``unflatten(children,
    context)`` rebuilds. ``labels(context, count)`` spells how to reach each child in messages,
    such as ``[".weight", ".bias"]``. `ValueError` where the type is a container already.
    """
    if cls in _kinds or _is_named(cls):
        raise ValueError(f"{cls.__qualname__} is already a container of trees")
    _kinds[cls] = Kind(flatten, unflatten, labels or _positions)


def register_dataclass(cls: type, drop: Iterable[str] = ()) -> type:
    """Makes a dataclass a container of its init fields; usable as a decorator.

    Fields named in `drop` are kept by value in the structure: they must be hashable.
    """
    if not dataclasses.is_dataclass(cls):
        raise TypeError(f"{cls.__qualname__} is no dataclass: use register")
    kept = tuple(drop)
    names = tuple(f.name for f in dataclasses.fields(cls) if f.init)
    unknown = set(kept) - set(names)
    if unknown:
        raise ValueError(f"{cls.__qualname__} has no init field {sorted(unknown)[0]!r} to drop")
    names = tuple(name for name in names if name not in kept)

    def flatten(tree: Any) -> tuple[Iterable[Any], Hashable]:
        return [getattr(tree, n) for n in names], tuple((n, getattr(tree, n)) for n in kept)

    def unflatten(children: Iterable[Any], context: Any) -> Any:
        return cls(**dict(zip(names, children, strict=True)), **dict(context))

    register(cls, flatten, unflatten, lambda context, count: [f".{name}" for name in names])
    return cls


class TreeSpec:
    """The nesting of a tree without its leaves: immutable, comparable, hashable, printable.

    ``count`` is the number of leaves, ``str(spec)`` the tree with ``*`` for every leaf.
    """

    __slots__ = ("_hash", "children", "context", "count", "type")

    def __init__(
        self, cls: type | None, context: Hashable = None, children: Sequence[TreeSpec] = ()
    ) -> None:
        self.type = cls
        self.context = context
        self.children = tuple(children)
        self.count: int = 1 if cls is None else sum(child.count for child in self.children)
        self._hash: int | None = None

    @property
    def is_leaf(self) -> bool:
        return self.type is None

    def __eq__(self, other: Any) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, TreeSpec)
            and self.type is other.type
            and self.count == other.count
            and self.context == other.context
            and self.children == other.children
        )

    def __hash__(self) -> int:
        if self._hash is None:
            try:
                context = hash(self.context)
            except TypeError as error:
                name = getattr(self.type, "__qualname__", self.type)
                raise TypeError(
                    f"the context of {name} in a tree must be hashable: {error}"
                ) from None
            self._hash = hash((self.type, context, self.children))
        return self._hash

    def __reduce__(self) -> Any:
        return TreeSpec, (self.type, self.context, self.children)

    def __repr__(self) -> str:
        return f"TreeSpec({self})"

    def __str__(self) -> str:
        if self.type is None:
            return "*"
        parts = [str(child) for child in self.children]
        if self.type is list:
            return f"[{', '.join(parts)}]"
        if self.type is tuple:
            return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
        pairs = ", ".join(f"{k}{v}" for k, v in zip(self.labels(), parts, strict=True))
        if self.type is dict:
            keys: Any = self.context
            return f"{{{', '.join(f'{k!r}: {v}' for k, v in zip(keys, parts, strict=True))}}}"
        return f"{self.type.__qualname__}({pairs})"

    def labels(self) -> list[str]:
        """How each child is reached: ``[0]``, ``['key']`` or ``.field``."""
        if self.type is None:
            return []
        return _of(self).labels(self.context, len(self.children))


LEAF = TreeSpec(None)


def _of(spec: TreeSpec) -> Kind:
    assert spec.type is not None
    kind = _kinds.get(spec.type, _named if _is_named(spec.type) else None)
    if kind is None:
        raise TypeError(f"{spec.type.__qualname__} is not registered as a container of trees")
    return kind


def flatten(tree: Any, is_leaf: Test | None = None) -> tuple[list[Any], TreeSpec]:
    """The leaves in order and the structure. `is_leaf` stops the descent where it is true."""
    found: list[Any] = []
    return found, _collect(tree, is_leaf, found)


def _collect(tree: Any, is_leaf: Test | None, found: list[Any]) -> TreeSpec:
    kind = _kind(tree)
    if kind is None or (is_leaf is not None and is_leaf(tree)):
        found.append(tree)
        return LEAF
    children, context = kind.flatten(tree)
    return TreeSpec(type(tree), context, [_collect(child, is_leaf, found) for child in children])


def unflatten(leaves: Iterable[Any], spec: TreeSpec) -> Any:
    """The tree of a structure and its leaves. `ValueError` where their number does not fit."""
    values = list(leaves)
    if len(values) != spec.count:
        raise ValueError(f"{len(values)} leaves do not fit {spec}, which has {spec.count}")
    return _rebuild(iter(values), spec)


def _rebuild(values: Iterator[Any], spec: TreeSpec) -> Any:
    if spec.type is None:
        return next(values)
    return _of(spec).unflatten([_rebuild(values, child) for child in spec.children], spec.context)


def leaves(tree: Any, is_leaf: Test | None = None) -> list[Any]:
    """The leaves in order."""
    return flatten(tree, is_leaf)[0]


def structure(tree: Any, is_leaf: Test | None = None) -> TreeSpec:
    """The nesting of a tree."""
    return flatten(tree, is_leaf)[1]


def paths(tree: Any, is_leaf: Test | None = None) -> list[tuple[str, Any]]:
    """Every leaf with how it is reached, such as ``["params"][0].weight``; "" for a lone leaf."""
    found, spec = flatten(tree, is_leaf)
    return list(zip(_spell(spec, ""), found, strict=True))


def _spell(spec: TreeSpec, path: str) -> list[str]:
    if spec.type is None:
        return [path]
    result: list[str] = []
    for label, child in zip(spec.labels(), spec.children, strict=True):
        result.extend(_spell(child, path + label))
    return result


def flatten_like(spec: TreeSpec, tree: Any) -> list[Any]:
    """The subtrees of `tree` at the leaves of `spec`, a prefix of its structure.

    `ValueError` names the place where the two differ. Dicts match by key.
    """
    found: list[Any] = []
    _match(spec, tree, "", found)
    return found


def _match(spec: TreeSpec, tree: Any, path: str, found: list[Any]) -> None:
    if spec.type is None:
        found.append(tree)
        return
    place = f"at {path}" if path else "at the root"
    cls = type(tree)
    kind = _kind(tree)
    both = spec.type in _mappings and cls in _mappings
    if kind is None or (cls is not spec.type and not both):
        raise ValueError(
            f"trees differ {place}: expected {spec.type.__qualname__}, got {cls.__qualname__}"
        )
    if both:
        keys: Any = spec.context[1] if spec.type is defaultdict else spec.context  # type: ignore
        missing = [key for key in keys if key not in tree]
        extra = [key for key in tree if key not in set(keys)]
        if missing or extra:
            what = f"missing key {missing[0]!r}" if missing else f"unexpected key {extra[0]!r}"
            raise ValueError(f"trees differ {place}: {what}")
        children = [tree[key] for key in keys]
    else:
        parts, context = kind.flatten(tree)
        children = list(parts)
        if len(children) != len(spec.children):
            raise ValueError(
                f"trees differ {place}: expected {len(spec.children)} children, got {len(children)}"
            )
        if context != spec.context:
            raise ValueError(
                f"trees differ {place}: expected context {spec.context!r}, got {context!r}"
            )
    for label, child, subtree in zip(spec.labels(), spec.children, children, strict=True):
        _match(child, subtree, path + label, found)


def map(fn: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Test | None = None) -> Any:
    """``fn`` of the leaves of `tree`, with the subtrees of `rests` at the same places.

    `ValueError` names the place where a further tree does not have the structure of the first.
    """
    first, spec = flatten(tree, is_leaf)
    others = [flatten_like(spec, rest) for rest in rests]
    return unflatten([fn(*row) for row in zip(first, *others, strict=True)], spec)


def map_only(
    types: type | tuple[type, ...], fn: Callable[[Any], Any], tree: Any, is_leaf: Test | None = None
) -> Any:
    """`map` over the leaves of some types; the others stay."""
    return map(lambda leaf: fn(leaf) if isinstance(leaf, types) else leaf, tree, is_leaf=is_leaf)
