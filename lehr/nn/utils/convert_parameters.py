"""All parameters as one vector, and back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lehr.tensor.tensor import Tensor


def parameters_to_vector(parameters: Iterable[Any]) -> Tensor:
    """The parameters' elements, one after the other: [n]."""
    parts = []
    where = None
    for p in parameters:
        where = p.device if where is None else where
        if p.device != where:
            raise TypeError("Found two parameters on different devices, this is currently not "
                            "supported.")
        parts.append(p.view(-1))
    return Tensor.F.cat(parts, 0)  # type: ignore[no-any-return]


def vector_to_parameters(vec: Tensor, parameters: Iterable[Any]) -> None:
    """Makes each parameter a view of its part of a vector [n]."""
    if not isinstance(vec, Tensor):
        raise TypeError(f"expected torch.Tensor, but got: {type(vec).__name__}")
    at = 0
    for p in parameters:
        n = p.numel()
        p.data = vec[at:at + n].view_as(p).data  # type: ignore[index]
        at += n
