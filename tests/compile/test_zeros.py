"""The sign of zero: compiled as in eager mode, for every op of one tensor."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest

import lehr as torch
from lehr.ops import registry
from lehr.tensor.dispatch import F
from tests.compile.batch import tensors_in

KINDS = (registry.POINTWISE, registry.REDUCE, registry.SCAN)


def calls() -> list[tuple[Any, tuple[int, ...]]]:
    """Ops of one tensor, with 0 for a dimension that they have to be told."""
    made = []
    for op in registry.OPS.values():
        needed = [p.name for p in op.params if p.default is registry.REQUIRED]
        if op.where and op.kind in KINDS and not op.breaks and needed[1:] in ([], ["dim"]):
            made.append((op, (0,) * len(needed[1:])))
    return made


def signs(results: Any) -> list[Any]:
    """Of each tensor, where there is a negative zero."""
    return [np.signbit(t.detach().numpy()) & (t.detach().numpy() == 0) for t in tensors_in(results)
            if t.dtype.is_floating_point]


@pytest.mark.parametrize("size", [1, 2, 37])
@pytest.mark.parametrize("value", [-0.0, 0.0])
def test_zeros_keep_their_signs(size: int, value: float) -> None:
    x = torch.full((size,), value)
    x[size // 2] = -0.0
    mixed = size > 1 and not np.signbit(value)      # either zero is the largest, and the smallest
    fit, want = [], []
    for op, args in calls():
        # What an op makes of numbers that it refuses is no matter here.
        with contextlib.suppress(TypeError, ValueError, IndexError, RuntimeError):
            if tensors_in(made := getattr(F, op.name)(x, *args)):
                want.append(signs(made))
                fit.append((op, args))
    assert len(fit) > 100

    def all_of_them(x: Any) -> list[Any]:
        return [getattr(F, op.name)(x, *args) for op, args in fit]
    have = [signs(made) for made in torch.compile(all_of_them)(x)]
    wrong = [f"{op.name}{args}" for (op, args), a, b in zip(fit, have, want, strict=True)
             if any((m != n).any() for m, n in zip(a, b, strict=True))
             and not (mixed and op.name.removeprefix("a").startswith(("max", "min")))]
    assert not wrong
