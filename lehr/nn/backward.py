"""Backward hooks of modules: identity operations around `forward` whose nodes call them."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from lehr.tensor.function import Function
from lehr.tensor.tensor import Tensor

Hook = Callable[..., Any]


class Boundary(Function):
    """Returns its arguments; the node marks one side of a module."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Any:
        ctx.mark_non_differentiable(*[a for a in args if not a.requires_grad])
        return args

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads


def _through(values: tuple[Any, ...]) -> tuple[tuple[Any, ...], Any, list[int]]:
    """The values with tensors behind a Boundary, its node, and where the tensors are."""
    at = [i for i, v in enumerate(values) if isinstance(v, Tensor)]
    if not any(values[i].requires_grad for i in at):
        return values, None, []
    made = Boundary.apply(*[values[i] for i in at])
    node = next(t.grad_fn for t in made if t.requires_grad)
    out = list(values)
    for i, t in zip(at, made, strict=True):
        out[i] = t
    return tuple(out), node, at


def _packed(at: list[int], grads: Any, count: int) -> tuple[Any, ...]:
    """Gradients at the places of their tensors, None elsewhere."""
    out = [None] * count
    for i, g in zip(at, grads, strict=True):
        out[i] = g
    return tuple(out)


class Wrap:
    """One call of a module with backward hooks (`after`) and backward pre-hooks (`before`)."""

    def __init__(self, module: Any, after: list[Hook], before: list[Hook]) -> None:
        self.module, self.after, self.before = module, after, before
        self.grads: Any = None              # of the outputs, once they are known
        self.places: list[int] | None = None  # of the inputs that are tensors
        self.count = 0                      # of the inputs

    def inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The module's arguments, watched."""
        out, node, at = _through(args)
        self.count = len(args)
        if node is not None:
            self.places = at
            node.register_hook(self._inputs_known)
        return out

    def outputs(self, result: Any) -> Any:
        """The module's result, watched."""
        single = not isinstance(result, tuple)
        out, node, at = _through((result,) if single else result)
        if node is not None:
            count = len(out)
            node.register_prehook(lambda grads: self._outputs_known(at, grads, count))
        return out[0] if single else out

    def _outputs_known(self, at: list[int], grads: Any, count: int) -> Any:
        full = _packed(at, grads, count)
        for hook in self.before:
            made = hook(self.module, full)
            if made is not None:
                made = made if isinstance(made, tuple) else (made,)
                if len(made) != len(full):
                    raise RuntimeError("Backward pre hook returned an invalid number of "
                                       "grad_output, got "
                                       f"{len(made)}, but expected {len(full)}")
                full = made
        self.grads = full
        if self.places is None:
            for hook in self.after:
                made = hook(self.module, (None,) * self.count, full)
                if made is not None and not (isinstance(made,
                                                        tuple) and all(g is None for g in made)):
                    raise RuntimeError("Backward hook for Modules where no input requires gradient "
                                       "should always return None or None for all gradients.")
            self.grads = None
        return tuple(full[i] for i in at)

    def _inputs_known(self, grad_inputs: Any, grad_outputs: Any) -> Any:
        assert self.places is not None
        if self.grads is None:  # no gradient came through the module's result
            return None
        made = _packed(self.places, grad_inputs, self.count)
        for hook in self.after:
            new = hook(self.module, made, self.grads)
            if new is None:
                continue
            new = new if isinstance(new, tuple) else (new,)
            if len(new) != len(made):
                raise RuntimeError("Backward hook returned an invalid number of grad_input, got "
                                   f"{len(new)}, but expected {len(made)}")
            made = new
        self.grads = None
        return tuple(made[i] for i in self.places)


def watch_last(module: Any, hooks: list[Hook], result: Any) -> None:
    """The deprecated hooks: on the operation that made the (first) result."""
    last = result
    while not isinstance(last, Tensor):
        last = (next(v for v in last.values() if isinstance(v, Tensor)) if isinstance(last, dict)
                else last[0])
    node = last.grad_fn
    if node is not None:
        owner = weakref.ref(module)
        for hook in hooks:
            node.register_hook(lambda grads, outs, hook=hook: hook(owner(), grads, outs))
