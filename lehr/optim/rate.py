"""Checks of hyper-parameters."""

from __future__ import annotations

from typing import Any

from lehr.base import dtype as dt
from lehr.tensor.tensor import Tensor


def check(**given: Any) -> None:
    """ValueError for a negative number; a learning rate may be a tensor of one element."""
    for name, value in given.items():
        if isinstance(value, Tensor):
            if value.numel() != 1:
                raise ValueError(f"Tensor {name} must be 1-element")
        elif value < 0.0:
            raise ValueError(f"Invalid {TITLES.get(name, name)} value: {value}"
                             if name != "lr" else f"Invalid learning rate: {value}")


TITLES = {"eps": "epsilon"}


def check_betas(betas: Any) -> None:
    """ValueError for a decay rate outside [0, 1)."""
    for i, beta in enumerate(betas):
        if isinstance(beta, Tensor):
            if beta.numel() != 1:
                raise ValueError(f"Tensor betas[{i}] must be 1-element")
        elif not 0.0 <= beta < 1.0:
            raise ValueError(f"Invalid beta parameter at index {i}: {beta}")


def count() -> Tensor:
    """A step count of zero."""
    return Tensor.F.full((), 0.0, dtype=dt.float32)
