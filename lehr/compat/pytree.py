"""`torch.utils._pytree`: nested containers as leaves and a structure (`lehr.base.tree`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lehr.base import tree

PyTree = Any
Context = Any
TreeSpec = tree.TreeSpec
Test = Callable[[Any], bool] | None


def tree_flatten(tree_: Any, is_leaf: Test = None) -> tuple[list[Any], TreeSpec]:
    """(leaves, structure)."""
    return tree.flatten(tree_, is_leaf)


def tree_unflatten(leaves: Any, treespec: TreeSpec) -> Any:
    """The tree of leaves and a structure. ValueError where their number does not fit."""
    return tree.unflatten(leaves, treespec)


def tree_leaves(tree_: Any, is_leaf: Test = None) -> list[Any]:
    """The leaves in order."""
    return tree.leaves(tree_, is_leaf)


def tree_structure(tree_: Any, is_leaf: Test = None) -> TreeSpec:
    """The structure."""
    return tree.structure(tree_, is_leaf)


def tree_map(func: Callable[..., Any], tree_: Any, *rests: Any, is_leaf: Test = None) -> Any:
    """A tree of `func` of each leaf (and of what stands there in the other trees)."""
    return tree.map(func, tree_, *rests, is_leaf=is_leaf)


def tree_map_(func: Callable[..., Any], tree_: Any, *rests: Any, is_leaf: Test = None) -> Any:
    """Calls `func` for each leaf; the tree itself."""
    tree.map(func, tree_, *rests, is_leaf=is_leaf)
    return tree_


def tree_map_only(type_or_types: Any, func: Any, tree_: Any, is_leaf: Test = None) -> Any:
    """`tree_map` over the leaves of some types; the others stay."""
    return tree.map_only(type_or_types, func, tree_, is_leaf)


def tree_any(pred: Callable[[Any], bool], tree_: Any, is_leaf: Test = None) -> bool:
    """Whether `pred` holds for a leaf."""
    return any(map(pred, tree.leaves(tree_, is_leaf)))


def tree_all(pred: Callable[[Any], bool], tree_: Any, is_leaf: Test = None) -> bool:
    """Whether `pred` holds for every leaf."""
    return all(map(pred, tree.leaves(tree_, is_leaf)))


def arg_tree_leaves(*args: Any, **kwargs: Any) -> list[Any]:
    """The leaves of arguments."""
    return [*tree.leaves(args), *tree.leaves(kwargs)]


def register_pytree_node(cls: type, flatten_fn: Callable[[Any], Any],
                         unflatten_fn: Callable[..., Any], *,
                         serialized_type_name: str | None = None,
                         to_dumpable_context: Any = None, from_dumpable_context: Any = None,
                         flatten_with_keys_fn: Any = None) -> None:
    """Makes a type a container: flatten_fn(tree) -> (children, context), unflatten_fn(children,
    context) -> tree. ValueError where it is one already."""
    tree.register(cls, flatten_fn, unflatten_fn)


_register_pytree_node = register_pytree_node


def register_dataclass(cls: type, **kwargs: Any) -> type:
    """Makes a dataclass a container of its fields."""
    return tree.register_dataclass(cls)


def is_namedtuple_instance(obj: Any) -> bool:
    """Whether it is of a named tuple type."""
    return isinstance(obj, tuple) and isinstance(getattr(type(obj), "_fields", None), tuple)
