"""Hooks on gradients: of leaves, of results, after accumulation."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import Any

from lehr.tensor.state import STATE

PAST = ("a hook replaces, or somebody asks for, the gradient of one result of a compiled call of "
        "which a part comes through another result of that call, which was made from it: what "
        "happened inside the call is not recorded. Put the hook inside the compiled function, or "
        "compute the second result outside of it.")


def watch(node: Any) -> None:
    """Somebody is to see the gradient of a node's result. RuntimeError where that is a view that a
    compiled call made other results from."""
    if getattr(node, "passed", False):
        raise RuntimeError(PAST)


class Handle:
    """Removes a hook; also as a context manager."""

    _ids = itertools.count()

    def __init__(self, table: dict[int, Any], hook: Any) -> None:
        self.table, self.id = table, next(Handle._ids)
        table[self.id] = hook

    def remove(self) -> None:
        """Takes the hook away."""
        self.table.pop(self.id, None)

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.remove()


def register_hook(self: Any, hook: Callable[[Any], Any]) -> Handle:
    """`hook(grad)` runs whenever this tensor's gradient is computed; it may return another one."""
    if not self.requires_grad:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    fn = self.grad_fn
    if fn is not None:
        watch(fn)
        return Handle(fn.hooks_of(self._meta.index), hook)
    meta = self._autograd()
    meta.hooks = {} if meta.hooks is None else meta.hooks
    node = meta.accumulate() if meta.accumulate is not None else None
    if node is not None:
        node.tensor_hooks = {0: meta.hooks}
    return Handle(meta.hooks, hook)


def register_post_accumulate_grad_hook(self: Any, hook: Callable[[Any], None]) -> Handle:
    """`hook(tensor)` runs after a gradient has been added to this leaf's `.grad`."""
    if not self.requires_grad:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    if self.grad_fn is not None:
        raise RuntimeError("post accumulate grad hooks cannot be registered on non-leaf tensors")
    meta = self._autograd()
    meta.post_hooks = {} if meta.post_hooks is None else meta.post_hooks
    return Handle(meta.post_hooks, hook)


def retain_grad(self: Any) -> None:
    """Makes backward keep this result's gradient in `.grad`."""
    if not self.requires_grad:
        raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False")
    fn = self.grad_fn
    if fn is None or self._meta.retains:
        return
    if STATE.tracer is not None:
        STATE.tracer.retains()
    watch(fn)
    self._meta.retains = True
    retain(self)


def retain(t: Any) -> None:
    """Puts the tensor on the list of its node's results whose gradients are kept."""
    fn = t.grad_fn
    fn.retain = {} if fn.retain is None else fn.retain
    fn.retain[t._meta.index] = weakref.ref(t)


def unretain(t: Any) -> None:
    """Takes it off again, before an in-place write gives it another node."""
    fn = t.grad_fn
    if fn is not None and fn.retain is not None:
        fn.retain.pop(t._meta.index, None)
