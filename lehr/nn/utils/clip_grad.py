"""Gradients limited in norm or value, in place."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lehr.tensor.mode import no_grad
from lehr.tensor.tensor import Tensor


def _list(given: Any) -> list[Any]:
    return [given] if isinstance(given, Tensor) else list(given)


def _gradients(parameters: Any) -> list[Any]:
    return [p.grad for p in _list(parameters) if p.grad is not None]


def get_total_norm(tensors: Any, norm_type: float = 2.0, error_if_nonfinite: bool = False,
                   foreach: bool | None = None) -> Tensor:
    """The norm of all the tensors' elements as one vector, 0-d."""
    F = Tensor.F
    tensors = _list(tensors)
    if not tensors:
        made: Any = F.full((), 0.0)
        return made
    with no_grad():
        where = tensors[0].device
        norms = [F.linalg_vector_norm(t, float(norm_type)) for t in tensors]
        norms = [n if n.device == where else n.to(where) for n in norms]
        total: Tensor = F.linalg_vector_norm(F.stack(norms, 0), float(norm_type))
        if error_if_nonfinite and bool(F.logical_not(F.isfinite(total))):
            raise RuntimeError(
                f"The total norm of order {float(norm_type)} for gradients from `parameters` is "
                "non-finite, so it cannot be clipped. To disable this error and scale the "
                "gradients by the non-finite norm anyway, set `error_if_nonfinite=False`")
    return total


def clip_grads_with_norm_(parameters: Any, max_norm: float, total_norm: Tensor,
                          foreach: bool | None = None) -> None:
    """Scales the gradients by max_norm / total_norm where that is below 1."""
    grads = _gradients(parameters)
    if not grads:
        return
    with no_grad():
        factor = Tensor.F.clamp(float(max_norm) / (total_norm + 1e-6), None, 1.0)
        for g in grads:
            g.mul_(factor if factor.device == g.device else factor.to(g.device))


def clip_grad_norm_(parameters: Any, max_norm: float, norm_type: float = 2.0,
                    error_if_nonfinite: bool = False, foreach: bool | None = None) -> Tensor:
    """Scales the gradients so that their total norm is at most `max_norm`; gives the norm before.
    """
    parameters = _list(parameters)
    total = get_total_norm(_gradients(parameters), norm_type, error_if_nonfinite, foreach)
    clip_grads_with_norm_(parameters, max_norm, total, foreach)
    return total


def clip_grad_norm(parameters: Any, max_norm: float, norm_type: float = 2.0,
                   error_if_nonfinite: bool = False, foreach: bool | None = None) -> Tensor:
    """`clip_grad_norm_`, by its older name."""
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


def clip_grad_value_(parameters: Iterable[Any] | Tensor, clip_value: float,
                     foreach: bool | None = None) -> None:
    """Limits every element of the gradients to +-clip_value."""
    limit = float(clip_value)
    with no_grad():
        for g in _gradients(parameters):
            g.clamp_(-limit, limit)


__all__ = ["clip_grad_norm", "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_",
           "get_total_norm"]
