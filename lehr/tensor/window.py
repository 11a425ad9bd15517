"""`torch.signal.windows`: windows of `M` points, 1-d and floating.

`sym` gives the symmetric window; otherwise its period is one point longer, which is left out (for
spectral analysis). Formulas: F. J. Harris, "On the use of windows for harmonic analysis with the
discrete Fourier transform", 1978; Nuttall, 1981.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from lehr.base import dtype as dt
from lehr.tensor.tensor import Tensor

F = Tensor.F


def _grid(name: str, M: int, sym: bool, dtype: Any, device: Any, layout: Any) -> Any:
    """0 .. M - 1 and the number of steps in a period, after the checks that all windows share."""
    if not isinstance(M, int) or isinstance(M, bool):
        raise TypeError(f"{name}(): argument 'M' must be int, not {type(M).__name__}")
    if M < 0:
        raise ValueError(f"{name} requires non-negative window length, got M={M}")
    if layout is not None and str(layout) != "torch.strided":
        raise ValueError(f"{name} is implemented for strided tensors only, got: {layout}")
    made = dtype or dt.Default.dtype
    if made not in (dt.float32, dt.float64):
        raise ValueError(f"{name} expects float32 or float64 dtypes, got: {made}")
    return F.arange(M, dtype=made, device=device), max(M - 1 if sym else M, 1)


Shape = Callable[..., Any]


def _window(shape: Shape) -> Callable[..., Tensor]:
    """The public function of `shape(name, t, steps, M, **own)`: t counts points."""
    name = shape.__name__

    def window(M: int, *, sym: bool = True, dtype: Any = None, layout: Any = None,
               device: Any = None, requires_grad: bool = False, **own: Any) -> Tensor:
        t, steps = _grid(name, M, sym, dtype, device, layout)
        made = shape(t, steps, M, sym, **own)
        return made.requires_grad_() if requires_grad else made  # type: ignore[no-any-return]
    window.__name__ = window.__qualname__ = name
    window.__doc__ = f"{shape.__doc__}\n\nOptions: sym, dtype, layout, device, requires_grad."
    return window


def _cosines(t: Any, steps: int, a: Iterable[float]) -> Any:
    """Sum over k of (-1)**k a[k] cos(2 pi k t / steps)."""
    made: Any = t * 0
    for k, weight in enumerate(a):
        made = made + F.cos(t * (2 * math.pi * k / steps)) * ((-1) ** k * weight)
    return made


@_window
def general_cosine(t: Any, steps: int, M: int, sym: bool, *, a: Iterable[float]) -> Any:
    """A sum of cosines with alternating signs; `a`: their weights."""
    weights = list(a) if isinstance(a, Iterable) else None
    if weights is None:
        raise TypeError("Coefficients must be a list/tuple")
    if not weights:
        raise ValueError("Coefficients cannot be empty")
    return _cosines(t, steps, weights) if M != 1 else t + 1


@_window
def general_hamming(t: Any, steps: int, M: int, sym: bool, *, alpha: float = 0.54) -> Any:
    """alpha - (1 - alpha) cos(2 pi t / steps)."""
    return _cosines(t, steps, (alpha, 1 - alpha)) if M != 1 else t + 1


def _fixed(name: str, weights: tuple[float, ...], doc: str) -> Callable[..., Tensor]:
    def shape(t: Any, steps: int, M: int, sym: bool) -> Any:
        return _cosines(t, steps, weights) if M != 1 else t + 1
    shape.__name__, shape.__doc__ = name, doc
    return _window(shape)


hamming = _fixed("hamming", (0.54, 0.46), "A raised cosine on a pedestal (Hamming).")
hann = _fixed("hann", (0.5, 0.5), "A raised cosine (von Hann).")
blackman = _fixed("blackman", (0.42, 0.5, 0.08), "Three cosines (Blackman).")
nuttall = _fixed("nuttall", (0.3635819, 0.4891775, 0.1365995, 0.0106411),
                 "The four cosines of least side lobes (Nuttall).")


@_window
def cosine(t: Any, steps: int, M: int, sym: bool) -> Any:
    """Half a period of a sine, whose ends lie half a point outside."""
    return F.sin((t + 0.5) * (math.pi / (M + 1 if not sym and M > 1 else max(M, 1))))


@_window
def bartlett(t: Any, steps: int, M: int, sym: bool) -> Any:
    """A triangle that is 0 at both ends."""
    return 1 - F.abs(t * (2 / steps) - 1) if M != 1 else t + 1


@_window
def exponential(t: Any, steps: int, M: int, sym: bool, *, center: float | None = None,
                tau: float = 1.0) -> Any:
    """exp(-|t - center| / tau); a symmetric window has its own center."""
    if tau <= 0:
        raise ValueError(f"Tau must be positive, got: {tau} instead.")
    if sym and center is not None:
        raise ValueError("Center must be None for symmetric windows")
    middle = (M - 1 if sym else M) / 2 if center is None else center
    return F.exp(F.abs(t - middle) * (-1 / tau)) if M != 1 or center is not None else t + 1


@_window
def gaussian(t: Any, steps: int, M: int, sym: bool, *, std: float = 1.0) -> Any:
    """exp(-((t - center) / std) ** 2 / 2)."""
    if std <= 0:
        raise ValueError(f"Standard deviation must be positive, got: {std} instead.")
    away = (t - (M - 1 if sym else M) / 2) / std if M != 1 else t
    return F.exp(away * away * -0.5)


@_window
def kaiser(t: Any, steps: int, M: int, sym: bool, *, beta: float = 12.0) -> Any:
    """I0(beta sqrt(1 - x ** 2)) / I0(beta) for x from -1 to 1 (Kaiser)."""
    if beta < 0:
        raise ValueError(f"beta must be non-negative, got: {beta} instead.")
    x = t * (2 / steps) - 1 if M != 1 else t
    inner = F.i0(F.sqrt(F.clamp_min(1 - x * x, 0)) * beta)
    return inner / F.i0(F.full((), float(beta), dtype=t.dtype, device=t.device))


__all__ = ["bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine",
           "general_hamming", "hamming", "hann", "kaiser", "nuttall"]
