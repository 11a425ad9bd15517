"""Window functions of signal processing.

A periodic window is the symmetric one that is one longer, without its last element.
"""

from __future__ import annotations

import math

from lehr.base import dtype as dt
from lehr.base.device import CPU, Device
from lehr.ops.registry import CREATE, op
from lehr.ops.rule import LABELS, Spec


def _window(name):
    def typed(length, periodic=True, *rest) -> Spec:
        *_, dtype, device = rest if rest else (None, None)
        made = dtype or dt.Default.dtype
        if made.category != dt.FLOAT:
            raise RuntimeError(f"{name} expects floating point dtypes, got: {LABELS[made.name]}")
        if length < 0:
            raise RuntimeError(f"{name} requires non-negative window_length, got "
                               f"window_length={length}")
        return Spec((length,), made, CPU if device is None else Device(device))
    return typed


def _places(F, length, periodic, device):
    """(k, the last k of the symmetric window), k = 0, 1, ... in float64."""
    return F.arange(length, dtype=dt.float64, device=device), max(length - (not periodic), 1)


def _cosines(F, coefficients, length, periodic, dtype, device):
    """The sum of coefficients[j] * cos(2 pi j k / last)."""
    made = dtype or dt.Default.dtype
    if length == 1:
        return F.full((1,), 1, dtype=made, device=device)
    k, last = _places(F, length, periodic, device)
    total = F.full((length,), coefficients[0], dtype=dt.float64, device=device)
    for j, factor in enumerate(coefficients[1:], 1):
        total = F.add(total, F.mul(F.cos(F.mul(k, 2 * math.pi * j / last)), factor))
    return F.to_dtype(total, made)


def _lengths(*more):
    def samples(s):
        for length in (8, 7, 1, 0):
            yield s(length, dtype=s.floating)
            yield s(length, False)
        for args in more:
            yield s(8, True, *args)
        s.touched = True
        yield s.raises(RuntimeError, -1, match="non-negative")
        yield s.raises(RuntimeError, 4, dtype=dt.int64, match="floating point")
    return samples


HEAD = "window_length: int, periodic: bool = True"
TAIL = "*, dtype: dtype | None = None, device: device | None = None"


@op(f"hann_window({HEAD}, {TAIL}) -> Tensor")
class hann_window:
    """sin(pi k / n) ** 2."""

    kind, rule, where, nondiff = CREATE, _window("hann_window"), "function", True
    dtypes, samples = "float half", _lengths()

    def decomp(F, length, periodic, dtype, device):
        return _cosines(F, (0.5, -0.5), length, periodic, dtype, device)


@op(f"hamming_window({HEAD}, alpha: float = 0.54, beta: float = 0.46, {TAIL}) -> Tensor")
class hamming_window:
    """alpha - beta * cos(2 pi k / n)."""

    kind, rule, where, nondiff = CREATE, _window("hamming_window"), "function", True
    dtypes, samples = "float half", _lengths((0.6, 0.4))

    def decomp(F, length, periodic, alpha, beta, dtype, device):
        return _cosines(F, (alpha, -beta), length, periodic, dtype, device)


@op(f"blackman_window({HEAD}, {TAIL}) -> Tensor")
class blackman_window:
    """0.42 - 0.5 cos(2 pi k / n) + 0.08 cos(4 pi k / n)."""

    kind, rule, where, nondiff = CREATE, _window("blackman_window"), "function", True
    dtypes, samples = "float half", _lengths()

    def decomp(F, length, periodic, dtype, device):
        return _cosines(F, (0.42, -0.5, 0.08), length, periodic, dtype, device)


@op(f"bartlett_window({HEAD}, {TAIL}) -> Tensor")
class bartlett_window:
    """The triangle 1 - abs(2 k / n - 1)."""

    kind, rule, where, nondiff = CREATE, _window("bartlett_window"), "function", True
    dtypes, samples = "float half", _lengths()

    def decomp(F, length, periodic, dtype, device):
        made = dtype or dt.Default.dtype
        if length == 1:
            return F.full((1,), 1, dtype=made, device=device)
        k, last = _places(F, length, periodic, device)
        return F.to_dtype(F.rsub(F.abs(F.sub(F.mul(k, 2 / last), 1)), 1), made)


@op(f"kaiser_window({HEAD}, beta: float = 12.0, {TAIL}) -> Tensor")
class kaiser_window:
    """I0(beta sqrt(1 - (2 k / n - 1) ** 2)) / I0(beta)."""

    kind, rule, where, nondiff = CREATE, _window("kaiser_window"), "function", True
    dtypes, samples = "float half", _lengths((5.0,))

    def decomp(F, length, periodic, beta, dtype, device):
        made = dtype or dt.Default.dtype
        if length == 1:
            return F.full((1,), 1, dtype=made, device=device)
        k, last = _places(F, length, periodic, device)
        side = F.sub(F.mul(k, 2 / last), 1)
        height = F.i0(F.mul(F.sqrt(F.clamp_min(F.rsub(F.mul(side, side), 1), 0)), beta))
        top = F.i0(F.full((), beta, dtype=dt.float64, device=device))
        return F.to_dtype(F.div(height, top), made)
