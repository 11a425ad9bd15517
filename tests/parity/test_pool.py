"""Places and gradients of maxima in random windows, with equals and infinities among numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import lehr


def drawn(seed: int) -> tuple[np.ndarray, list[Any]]:
    """An image and (kernel, stride, padding, dilation, ceil_mode)."""
    draw = np.random.default_rng(seed)
    n = seed % 3 + 1
    size, kernel, stride = (draw.integers(a, b, n).tolist() for a, b in ((4, 9), (1, 4), (1, 4)))
    dilation = draw.integers(1, 3, n).tolist() if seed % 2 else [1] * n
    padding = [int(draw.integers(0, k // 2 + 1)) for k in kernel]
    x = draw.integers(-3, 4, (2, 2, *size)).astype("f")
    if seed % 4 == 0:
        x[draw.random(x.shape) < 0.5] = -np.inf
    return x, [kernel, stride, padding, dilation, bool(draw.integers(2))]


def run(m: Any, x: np.ndarray, words: list[Any]) -> list[np.ndarray]:
    t = m.tensor(x).requires_grad_()
    out, index = getattr(m.nn.functional, f"max_pool{x.ndim - 2}d")(t, *words, return_indices=True)
    weight = m.arange(float(out.numel())).reshape(out.shape)
    m.where(out == -np.inf, m.zeros_like(out), out * weight).sum().backward()
    return [v.numpy() for v in (out.detach(), index, t.grad)]


@pytest.mark.parametrize("seed", range(60))
def test_maxima(seed: int) -> None:
    x, words = drawn(seed)
    try:
        want = run(torch, x, words)
    except RuntimeError:
        with pytest.raises(RuntimeError):
            run(lehr, x, words)
        return
    for have, wanted in zip(run(lehr, x, words), want, strict=True):
        np.testing.assert_array_equal(have, wanted)
