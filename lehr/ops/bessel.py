"""Bessel's functions of order 0 and 1 and Airy's Ai, on the host in float64.

Near 0 their series, in the middle Miller's backward recurrence, far away Hankel's expansion (DLMF
10.8, 10.74(iv), 10.17; Ai: DLMF 9.4, 9.6, 9.7). PyTorch gives them no derivatives.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lehr.ops import rule, sample
from lehr.ops.registry import POINTWISE, op

Array = Any
EULER = 0.5772156649015329
NEAR, FAR, START = 2.0, 25.0, 80


def _near(x: Array) -> tuple[Array, Array, Array, Array]:
    """J0, J1, Y0, Y1 by their series; 0 < x <= 2."""
    q = -x * x / 4
    even, odd = np.ones_like(x), x / 2
    j0, j1, rest, other = even, odd, 0 * x, odd * (1 - 2 * EULER)
    harmonic = 0.0
    for k in range(1, 20):
        harmonic += 1 / k
        even = even * q / (k * k)
        odd = odd * q / (k * (k + 1))
        j0, j1, rest = j0 + even, j1 + odd, rest - even * harmonic
        other = other + odd * (2 * harmonic + 1 / (k + 1) - 2 * EULER)
    log = np.log(x / 2)
    y0 = 2 / math.pi * ((log + EULER) * j0 + rest)
    return j0, j1, y0, 2 / math.pi * (log * j1 - 1 / x) - other / math.pi


def _middle(x: Array) -> tuple[Array, Array, Array, Array]:
    """The same by the recurrence J[k - 1] = 2 k / x J[k] - J[k + 1]; 2 <= x <= 25.

    1 = J0 + 2 sum J[2 k] gives the scale, Neumann's series Y0 and Y1.
    """
    after, here = np.zeros_like(x), np.full_like(x, 1e-290)
    norm, first, second = 0 * x, 0 * x, 0 * x
    for k in range(START, 0, -1):  # `here` is J[k]
        half = k // 2
        if k % 2 == 0:
            norm = norm + 2 * here
            first = first + (-1) ** half * here / half
        elif k > 1:
            second = second + (-1) ** half * k / (half * (half + 1)) * here
        after, here = here, 2 * k / x * here - after
    norm = norm + here
    j0, j1, log = here / norm, after / norm, np.log(x / 2) + EULER
    y0 = 2 / math.pi * (log * j0 - 2 * first / norm)
    y1 = 2 / math.pi * ((log - 1) * j1 - j0 / x - second / norm)
    return j0, j1, y0, y1


def _far(x: Array) -> tuple[Array, Array, Array, Array]:
    """The same by Hankel's expansion; x >= 25."""
    found = []
    for order in (0, 1):
        phase = x - (order / 2 + 0.25) * math.pi
        term, sums = np.ones_like(x), [np.ones_like(x), 0 * x]
        for k in range(1, 18):
            term = term * (4 * order * order - (2 * k - 1) ** 2) / (8 * k * x)
            sums[k % 2] = sums[k % 2] + (-1) ** (k // 2) * term
        size = np.sqrt(2 / (math.pi * x))
        cos, sin = np.cos(phase), np.sin(phase)
        found.append((size * (sums[0] * cos - sums[1] * sin),
                      size * (sums[0] * sin + sums[1] * cos)))
    return found[0][0], found[1][0], found[0][1], found[1][1]


def _cylinder(x: Array, which: int) -> Array:
    """One of J0, J1, Y0, Y1 at finite positive numbers (NaN elsewhere)."""
    wide = np.asarray(x, np.float64)
    out = np.full(wide.shape, np.nan)
    for inside, part in ((wide <= NEAR, _near), ((wide > NEAR) & (wide < FAR), _middle),
                         (wide >= FAR, _far)):
        inside = inside & (wide > 0) & (wide < np.inf)
        if inside.any():
            out[inside] = part(wide[inside])[which]
    return out


def _first(order: int) -> Any:
    def eager(np: Any, x: Any) -> Any:
        made = np.where(x == 0, 1.0 - order, _cylinder(np.abs(x), order))
        return (made * np.where(x < 0, -1, 1) if order else made).astype(x.dtype)
    return eager


def _second(order: int) -> Any:
    def eager(np: Any, x: Any) -> Any:
        return np.where(x == 0, -np.inf, _cylinder(x, 2 + order)).astype(x.dtype)
    return eager


TOLERANCE = {"float32": (1e-5, 1e-6), "float64": (1e-10, 1e-12)}  # near the zeros


def _declare(name: str, kernel: Any, doc: str) -> Any:
    @op(f"{name}(input: Tensor) -> Tensor")
    class function:
        kind, rule, where, host, nondiff = POINTWISE, _real, "special", True, True
        dtypes, tolerance, eager, __doc__ = "int float", TOLERANCE, kernel, doc

        def samples(s: Any) -> Any:  # torch's are good to six digits only
            for made in sample.unary(domain=(0.1, 40.0))(s):
                yield made._replace(parity=False)
    return function


def _real(x: Any) -> Any:
    if x.dtype.wide is not x.dtype or x.dtype.is_complex:
        raise NotImplementedError("Bessel's functions are not implemented for "
                                  f"{rule.label(x.dtype)}")
    return rule.float_unary(x)


_declare("bessel_j0", _first(0), "Bessel's function of the first kind, order 0.")
_declare("bessel_j1", _first(1), "Bessel's function of the first kind, order 1.")
_declare("bessel_y0", _second(0), "Bessel's function of the second kind, order 0; NaN below 0.")
_declare("bessel_y1", _second(1), "Bessel's function of the second kind, order 1; NaN below 0.")


AI_0, AI_SLOPE = 0.3550280538878172, 0.2588194037928068  # Ai(0), -Ai'(0)


def _airy_series(x: Array) -> Array:
    """Maclaurin's series; -7 <= x <= 1."""
    cube, even, odd = x ** 3, np.ones_like(x), x
    total, other = even, odd
    for k in range(45):
        even = even * cube / ((3 * k + 2) * (3 * k + 3))
        odd = odd * cube / ((3 * k + 3) * (3 * k + 4))
        total, other = total + even, other + odd
    return AI_0 * total - AI_SLOPE * other


def _airy_decay(x: Array) -> Array:
    """sqrt(x / 3) / pi * K of order 1/3 at 2/3 x ** 1.5, an integral by the trapezoidal rule."""
    z = 2 / 3 * x ** 1.5
    step = np.minimum(0.25, 0.35 / np.sqrt(z))
    total = 0.5 * np.ones_like(x)
    for k in range(1, 60):
        t = k * step
        total = total + np.exp(-z * (np.cosh(t) - 1)) * np.cosh(t / 3)
    return np.sqrt(x / 3) / math.pi * np.exp(-z) * total * step


def _airy_wave(x: Array) -> Array:
    """The expansion for x <= -7."""
    z = 2 / 3 * (-x) ** 1.5
    term, sums = np.ones_like(x), [np.ones_like(x), 0 * x]
    for k in range(1, 18):
        term = term * (6 * k - 5) * (6 * k - 3) * (6 * k - 1) / (216 * k * (2 * k - 1) * z)
        sums[k % 2] = sums[k % 2] + (-1) ** (k // 2) * term
    phase = z + math.pi / 4
    return (np.sin(phase) * sums[0] - np.cos(phase) * sums[1]) / (
        math.sqrt(math.pi) * (-x) ** 0.25)


def _airy(np: Any, x: Any) -> Any:
    wide = np.asarray(x, np.float64)
    out = np.full(wide.shape, np.nan)
    for inside, part in (((wide < -7) & (wide > -np.inf), _airy_wave),
                         ((wide >= -7) & (wide <= 1), _airy_series),
                         ((wide > 1) & (wide < np.inf), _airy_decay)):
        if inside.any():
            out[inside] = part(wide[inside])
    out[wide == np.inf] = 0
    return out.astype(x.dtype)


_declare("airy_ai", _airy, "Airy's function Ai.")
