"""`backward` and `grad`: the entries into the tape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lehr.tensor import autograd
from lehr.tensor.state import STATE
from lehr.tensor.tensor import Tensor


def _sequence(given: Any) -> list[Any]:
    return [given] if isinstance(given, Tensor) else list(given)


def _seeds(grads: Any, count: int) -> list[Tensor | None]:
    if grads is None:
        return [None] * count
    made = [grads] if isinstance(grads, Tensor) else list(grads)
    if len(made) != count:
        raise RuntimeError(f"got {count} tensors and {len(made)} gradients")
    return made


def backward(tensors: Any, grad_tensors: Any = None, retain_graph: bool | None = None,
             create_graph: bool = False, grad_variables: Any = None, inputs: Any = None) -> None:
    """Adds the gradients of `tensors`, weighted by `grad_tensors`, to the leaves' `.grad`."""
    if grad_variables is not None:
        if grad_tensors is not None:
            raise RuntimeError("`grad_tensors` and `grad_variables` (deprecated) arguments both "
                               "passed to `backward()`. Please only use `grad_tensors`.")
        grad_tensors = grad_variables
    roots = _sequence(tensors)
    wanted = None
    if inputs is not None:
        wanted = _sequence(inputs)
        if not wanted:
            raise RuntimeError("`inputs` argument to `backward()` cannot be empty.")
    keep = create_graph if retain_graph is None else retain_graph
    autograd.run_backward(roots, _seeds(grad_tensors, len(roots)), keep, create_graph, wanted, True)


def grad(outputs: Any, inputs: Any, grad_outputs: Any = None, retain_graph: bool | None = None,
         create_graph: bool = False, only_inputs: bool = True, allow_unused: bool | None = None,
         is_grads_batched: bool = False,
         materialize_grads: bool = False) -> tuple[Tensor | None, ...]:
    """The gradients of `outputs`, weighted by `grad_outputs`, with respect to `inputs`."""
    if is_grads_batched:
        raise NotImplementedError("torch.autograd.grad(is_grads_batched=True) is not supported: "
                                  "call grad once for each row of grad_outputs")
    if materialize_grads:
        if allow_unused is False:
            raise ValueError("Expected allow_unused to be True or not passed when "
                             "materialize_grads=True, but got: allow_unused=False.")
        allow_unused = True
    roots, wanted = _sequence(outputs), _sequence(inputs)
    keep = create_graph if retain_graph is None else retain_graph
    found = autograd.run_backward(roots, _seeds(grad_outputs, len(roots)), keep, create_graph,
                                  wanted, False, bool(allow_unused))
    if materialize_grads:
        return tuple(Tensor.F.zeros_like(t) if g is None else g
                     for t, g in zip(wanted, found, strict=True))
    return found


def tensor_backward(self: Tensor, gradient: Any = None, retain_graph: bool | None = None,
                    create_graph: bool = False, inputs: Sequence[Tensor] | None = None) -> None:
    """`Tensor.backward`."""
    backward(self, gradient, retain_graph, create_graph, inputs=inputs)


def requires_grad_(self: Tensor, requires_grad: bool = True) -> Tensor:
    """Turns recording of operations on this leaf on or off."""
    self.requires_grad = requires_grad
    return self


def detach_(self: Tensor) -> Tensor:
    """Makes this very tensor a leaf without history."""
    if self._view is not None and self._view.base is not None:
        raise RuntimeError("Can't detach views in-place. Use detach() instead. If you are using "
                           "DistributedDataParallel (DDP) for training, and "
                           "gradient_as_bucket_view is set as True, gradients are views of DDP "
                           "buckets, and hence detach_() cannot be called on these gradients. To "
                           "fix this error, please refer to the Optimizer.zero_grad() function in "
                           "torch/optim/optimizer.py as a solution.")
    if STATE.tracer is not None and self.requires_grad:
        STATE.tracer.changes(self, "detach_()")
    meta = self._meta
    if meta is not None:
        meta.grad_fn, meta.index, meta.requires_grad = None, 0, False
    return self
