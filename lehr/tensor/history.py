"""In-place writes and gradients: what becomes of the histories of a base and its views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lehr.base.dtype import DType
from lehr.ops import layout
from lehr.ops.registry import Op
from lehr.tensor import hook
from lehr.tensor.node import Cut, Described, Edge, Node, Saved, alias, edge_of, fit, keep_out
from lehr.tensor.tensor import Tensor

Chain = Sequence[tuple[Op, tuple[Any, ...]]]


def apply_chain(F: Any, base: Any, chain: Chain) -> Any:
    """The view of `base` that the chain describes."""
    for op, rest in chain:
        base = F._interpret(op, (base, *rest))
    return base


def write_chain(F: Any, base: Any, chain: Chain, value: Any) -> Any:
    """`base` with the elements that the chain views replaced by `value`."""
    if not chain:
        return value
    (op, rest), *more = chain
    if op.inverse is None:
        raise RuntimeError(f"cannot write through a view made by {op.name}; clone() it first")
    if more:
        value = write_chain(F, F._interpret(op, (base, *rest)), more, value)
    return op.inverse(F, base, value, *rest)


class CopySlices(Node):
    """The history of a base after a write through a view: (old base, written value) -> new base.

    `extra`: the view's chain, and the base's strides
    """

    __slots__ = ()

    def name(self) -> str:
        return "torch::autograd::CopySlices"

    def apply(self, grads: list[Tensor | None]) -> list[Tensor | None]:
        g: Any = grads[0]
        chain, strides = self.extra
        F = Tensor.F
        g = laid(g, strides)
        seen = apply_chain(F, g, chain)
        zeros = F.zeros_like(seen)
        return [write_chain(F, g, chain, zeros) if self.edges[0] is not None else None,
                fit(F.clone(seen), self.inputs[1]) if self.edges[1] is not None else None]

    def release(self) -> None:
        pass


def laid(g: Tensor, strides: tuple[Any, ...]) -> Tensor:
    """`g` with the base's strides, so that the base's views can be taken of it."""
    shape = g._shape
    if g._strides == strides:
        return g
    F = Tensor.F
    if not layout.is_dense(shape, strides) or layout.is_contiguous(shape, strides):
        return F.clone(g, memory_format="contiguous_format")
    order = sorted(range(len(shape)), key=lambda d: (strides[d], shape[d]), reverse=True)
    made = F.clone(F.permute(g, order), memory_format="contiguous_format")
    return F.permute(made, [order.index(d) for d in range(len(shape))])


class AsView(Node):
    """The history of a view of a base that was written in place: its chain's gradient by steps.

    `extra`: (op, arguments, description of its input) for each step
    """

    __slots__ = ()

    def name(self) -> str:
        return "AsStridedBackward0"

    def apply(self, grads: list[Tensor | None]) -> list[Tensor | None]:
        g: Any = grads[0]
        for op, rest, seen in reversed(self.extra):
            g = op.vjp(Tensor.F, g, None, seen, *rest)
            g = g[0] if isinstance(g, tuple) else g
            g = fit(g, seen)
        return [g]

    def release(self) -> None:
        pass


class Mould(Node):
    """What stands before the history of a tensor that got another shape or dtype while nothing was
    recorded: gradients are made what it was recorded with, or do not fit."""

    __slots__ = ()

    def name(self) -> str:
        edge = self.edges[0]
        assert edge is not None
        return edge[0].name()

    def apply(self, grads: list[Tensor | None]) -> list[Tensor | None]:
        g, want = grads[0], self.inputs[0].shape
        gap = 0 if g is None else len(g._shape) - len(want)
        if g is not None and (gap < 0 or any(
                s != 1 and s != n for s, n in zip(want, g._shape[gap:], strict=True))):
            raise RuntimeError(f"invalid gradient at index 0 - got {list(g._shape)} but expected "
                               f"shape compatible with {list(want)}")
        return [fit(g, self.inputs[0])]

    def release(self) -> None:
        pass


def mould(target: Tensor, shape: tuple[Any, ...], dtype: DType) -> None:
    """Keeps to the history of `target` that it was recorded with this shape and dtype."""
    meta = target._meta
    if meta is None or meta.grad_fn is None or (shape, dtype) == (target._shape, target.dtype):
        return
    made = Mould(None, [(meta.grad_fn, meta.index)], 1)
    made.inputs = [Described(shape, dtype, target.device)]
    meta.grad_fn, meta.index = made, 0


def rebase(target: Tensor, value: Tensor) -> None:
    """After `target` was overwritten by `value`: its and its base's history become the value's."""
    version = target._storage.version
    view = target._view
    edge = edge_of(value) or (Cut(None, [], 1), 0)
    described = Described(value._shape, value.dtype, value.device)
    if view is not None and view.base is not None:
        base = view.base
        retains = _drop(base)
        _drop(target)
        node = CopySlices(None, [edge_of(base), edge], 1)
        node.inputs = [Described(base._shape, base.dtype, base.device), described]
        node.extra = view.chain[view.skip:], base._strides
        _save_target(edge, value, target)
        attach(base, (node, 0), version)
        if retains:
            hook.retain(base)
        meta = target._meta
        if meta is not None and meta.retains:
            rebased_view(target)
            hook.retain(target)
        return
    retains = _drop(target)
    attach(target, edge, version)
    _save_target(edge, value, target)
    if retains:
        hook.retain(target)


def _drop(t: Tensor) -> bool:
    """Takes a retained gradient off the history that is about to end."""
    if t._meta is None or not t._meta.retains:
        return False
    hook.unretain(t)
    return True


def attach(t: Tensor, edge: Edge, version: int) -> None:
    """Gives `t` a new history after a write; it is no leaf any more."""
    meta = t._autograd()
    assert edge is not None
    meta.grad_fn, meta.index = edge
    meta.rebased = meta.edge_version = version
    if meta.requires_grad:
        meta.requires_grad = False
        meta.hooks = meta.post_hooks = meta.accumulate = None


def _save_target(edge: Edge, value: Tensor, target: Tensor) -> None:
    """A rule that reads its own result reads the written tensor, not the value it was written from:
    later writes are noticed, and the value's memory is free."""
    node, index = edge  # type: ignore[misc]
    if index == 0 and node.count == 1 and type(node.out) is Saved and node.out.tensor is not None:
        if node.out.tensor._storage is value._storage and value.dtype is target.dtype:
            keep_out(node, target, "value")
            node.out.index = 0


def rebased_view(t: Tensor) -> None:
    """A view's history made anew from its base's."""
    view = t._view
    assert view is not None and view.base is not None
    if view.guarded:
        raise RuntimeError(
            "A view was created in no_grad mode and its base or another view of its base has been "
            "modified inplace with grad mode enabled. Given that this use case is ambiguous and "
            "error-prone, it is forbidden. You can clarify your code by moving both the view and "
            "the inplace either both inside the no_grad block (if you don't want the inplace to be "
            "tracked) or both outside (if you want the inplace to be tracked).")
    base = view.base
    node = AsView(None, [edge_of(base)], 1)
    seen: Any = alias(base)
    steps = []
    for op, rest in view.chain[view.skip:]:
        steps.append((op, rest, Described(seen._shape, seen.dtype, seen.device)))
        shape, strides, offset = op.layout(seen, *rest)  # type: ignore[misc]
        dtype = op.rule(seen, *rest).dtype
        seen = Tensor._make(seen._storage, dtype, tuple(shape), tuple(strides), offset)
    node.extra = tuple(steps)
    node.inputs = [Described(base._shape, base.dtype, base.device)]
    meta = t._autograd()
    meta.grad_fn, meta.index, meta.edge_version = node, 0, t._storage.version
    meta.requires_grad = False


Tensor.rebased_view = staticmethod(rebased_view)
