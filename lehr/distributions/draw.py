"""Gamma draws through which gradients reach the shape parameter."""

from __future__ import annotations

from typing import Any

import numpy as np

from lehr.distributions.distribution import F
from lehr.tensor import create, random
from lehr.tensor.function import Function
from lehr.tensor.tensor import Tensor

LARGE = 300.0  # from this shape on the cube-root approximation is exact to 1e-6
TERMS = 3000


def implicit(shape: np.ndarray, draw: np.ndarray, psi: np.ndarray) -> np.ndarray:
    """d draw / d shape at a fixed value of the distribution function, float64 (Figurnov et al.
    2018): minus the derivative of P(shape, x) by the shape over the density.

    With P's power series and the density divided out, that is -x * sum of t_n * (log x - psi(shape
    + n + 1)), t_0 = 1 / shape, t_n = t_(n-1) * x / (shape + n). `psi` is digamma(shape). Large
    shapes use Wilson's and Hilferty's normal approximation of the cube root.
    """
    out = np.empty_like(draw)
    big = shape >= LARGE
    if big.any():
        a, x = shape[big], draw[big]
        root = np.cbrt(x / a)
        g = (root - 1 + 1 / (9 * a)) * 3 * np.sqrt(a)
        out[big] = root ** 3 + 3 * a * root ** 2 * (1 / (9 * a * a) - g / (6 * a ** 1.5))
    if not big.all():
        a, x = shape[~big], draw[~big]
        term, level, log = 1 / a, psi[~big] + 1 / a, np.log(x)
        total = term * (log - level)
        for n in range(1, TERMS):
            term = term * x / (a + n)
            level = level + 1 / (a + n)
            total += term * (log - level)
            if not (term * np.abs(log - level) > 1e-17 * np.abs(total)).any():
                break
        out[~big] = -x * total
    return out


class _Draw(Function):
    """Standard gamma numbers of some shapes."""

    @staticmethod
    def forward(ctx: Any, shape: Tensor) -> Tensor:
        made = random._standard_gamma(shape)
        ctx.save_for_backward(shape, made)
        return made

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        shape, made = ctx.saved_tensors
        wide = shape.double()
        slope = implicit(wide.numpy(), made.double().numpy(), F.digamma(wide).numpy())
        return grad * create.from_numpy(slope).to(grad.dtype)


def standard_gamma(shape: Tensor) -> Tensor:
    """A standard gamma number for each element of `shape`, differentiable by it."""
    return _Draw.apply(shape)
