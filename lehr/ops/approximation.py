"""Special functions in numpy, which has none of them: arrays in, arrays out, float32 or float64.

The coefficients were fitted with mpmath at 40 digits; each table names the function, the interval
and the error that was reached. Long polynomials run over blocks that stay in the first-level
cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
BLOCK = 8192

# erf(x)/x = P(x*x)/Q(x*x) on |x| <= 3.92: relative error 1.9e-8.
ERF_P = (1.12837915, 0.190569349, 0.0527666659, 0.00377165724, 0.000284850691, 2.0465819e-06)
ERF_EDGE = 3.92
ERF_Q = (1.0, 0.50222042, 0.114173172, 0.0149813995, 0.00116369119, 3.8053868e-05)
# erf(x)/x as a polynomial in x*x on |x| <= 1: absolute error 1e-18.
ERF_SMALL = (
    1.1283791670955126, -0.37612638903183752, 0.1128379167095512, -0.026866170645129854,
    0.0052239776254234544, -0.00085483270219454273, 0.00012055332903350668, -1.4925647581008593e-5,
    1.6462045711013025e-6, -1.6364645854816388e-7, 1.4792435426962471e-8, -1.2164764337224506e-9,
    8.7097552328517897e-11, -4.2320376764874592e-12)
# (1 + 2x) exp(x*x) erfc(x) as a Chebyshev series in (x - 3.75)/(x + 3.75), x >= 0: error 1e-18.
ERFCX = (
    1.1775789345674018, -0.0045900545806464773, -0.084249133366517916, 0.05920993999819189,
    -0.026658668435305752, 0.0090749976707052651, -0.0024131635404176082, 0.00049077583652580863,
    -6.9169733025012064e-5, 4.1390279860730102e-6, 7.7403830661984907e-7, -2.1886401049234396e-7,
    1.076499946567091e-8, 4.5219598112182869e-9, -7.7544002088313511e-10, -6.3180883408866845e-11,
    2.8687950109306699e-11, 1.9455868545777347e-13, -9.6546967484334389e-13, 3.2525481481487398e-14,
    3.3478119482868054e-14, -1.8645628804193131e-15, -1.2507950530688647e-15,
    7.4182352566240435e-17,
    5.0681489047961113e-17)
# erfinv(x)/x as polynomials in w - 2.5 and sqrt(w) - 4, w = -log(1 - x*x), below and above w = 5:
# error 5e-6, the start of Newton's iteration.
INVERSE_LOW = (1.50140936, 0.2466402894, -0.004177389759, -0.001252748416, 0.0002183469147,
               -4.959743495e-6, -3.463356166e-6, 4.654287305e-7, 2.328584451e-8, -8.739830973e-9)
INVERSE_HIGH = (3.839782975, 1.009498675, 0.001271032568, -0.0009000946708, 0.0003004193819,
                -6.75942048e-5, 6.219021466e-5, -6.434098772e-5, 2.44820904e-5, -1.848178717e-6,
                -4.492128651e-7)
# exp(-x) I0(x) and exp(-x) I1(x)/x as Chebyshev series in x/4 - 1 on [0, 8]; exp(-x) sqrt(x) I0(x)
# and I1(x) as series in 16/x - 1 beyond: errors 1e-18.
I0_LOW = (
    0.33839763720473804, -0.3046826723431984, 0.17162090152220878, -0.094901097048047644,
    0.049305284239670708, -0.023737414805899469, 0.010546460394594998, -0.0043243099950505759,
    0.0016394756169413358, -0.00057637557453858237, 0.00018850288509584166,
    -5.7541950100821037e-5, 1.6448448070728897e-5, -4.4167383584587506e-6,
    1.1173875391201037e-6, -2.6707938539406117e-7, 6.0469950225419189e-8, -1.300025009986248e-8,
    2.6598237246823867e-9, -5.1897956016352629e-10, 9.6758090353732369e-11,
    -1.7268262914415557e-11, 2.9550526631296398e-12, -4.8564467831119295e-13,
    7.6761854986049356e-14, -1.1685332877993452e-14, 1.715391285555133e-15,
    -2.4312798465479547e-16, 3.3307945188222381e-17, -4.4153416464793394e-18)
I0_HIGH = (
    0.40224520550705442, 0.0033691164782556941, 6.889758346916824e-5, 2.8913705208347565e-6,
    2.0489185894690637e-7, 2.2666689904981781e-8, 3.3962320257083863e-9, 4.9406023882249696e-10,
    1.1889147107846438e-11, -3.1499165279632414e-11, -1.3215811840447713e-11,
    -1.7941785315068061e-12, 7.1801244513836662e-13, 3.8527783827421427e-13,
    1.5400862175214098e-14, -4.1505693472872221e-14, -9.5548466988283076e-15,
    3.8116806693526224e-15, 1.7725601330565264e-15, -3.4254856196772191e-16,
    -2.8276239805165835e-16, 3.4612228676974609e-17, 4.4656214202967624e-17,
    -4.8305044859442179e-18, -7.2331804878747736e-18, 9.9214754121753041e-19,
    1.1936508908457661e-18)
I1_LOW = (
    0.12629359322181683, -0.17641651835783406, 0.1026436586898471, -0.052945981208094991,
    0.024726449030626517, -0.010564084894626198, 0.0041564229443128882, -0.0015135724506312531,
    0.00051228595616857577, -0.00016176081582589675, 4.7815651075500542e-5,
    -1.3273163656039436e-5, 3.4702513081376785e-6, -8.5687202646954547e-7,
    2.0032947535521353e-7, -4.4450591287963281e-8, 9.3815373864957718e-9,
    -1.8872497517228293e-9, 3.625590281552117e-10, -6.6634897235020277e-11,
    1.1736186298890902e-11, -1.9839743977649437e-12, 3.2237933659455747e-13,
    -5.0421855047279117e-14, 7.6006842947354069e-15, -1.1055969477353863e-15,
    1.5536319577362005e-16, -2.1114212143581661e-17, 2.7779141127610464e-18)
I1_HIGH = (
    0.38928811750914006, -0.0097610974913614684, -0.00011058893876262372,
    -3.8825648088776904e-6, -2.5122362378702089e-7, -2.6314688468895195e-8,
    -3.835380385964237e-9, -5.5897434621965838e-10, -1.8974958123505412e-11,
    3.2526035830154882e-11, 1.4125807436613781e-11, 2.0356285441470895e-12,
    -7.1985517762459085e-13, -4.0835511110921973e-13, -2.1015418427726643e-14,
    4.2724400167119514e-14, 1.0420276984128803e-14, -3.8144030724370078e-15,
    -1.8803547755107824e-15, 3.3082023109209282e-16, 2.9626289976459502e-16,
    -3.2095259219934237e-17, -4.6503053684893608e-17, 4.4143483230717448e-18,
    7.5172963108421231e-18, -9.3141788673285024e-19, -1.2421932751946678e-18)
# B(2k) / (2k (2k - 1)): the series of log gamma; B(2k) / 2k: that of digamma; B(2k): that of zeta.
BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
SHIFT = 10
ROUNDS = 2000


def horner(x: Array, coefficients: Sequence[float]) -> Array:
    """The polynomial with `coefficients` in ascending order."""
    out = np.full_like(x, coefficients[-1])
    for c in coefficients[-2::-1]:
        out *= x
        out += x.dtype.type(c)
    return out


def chebyshev(t: Array, coefficients: Sequence[float]) -> Array:
    """Clenshaw's sum of a Chebyshev series on [-1, 1]."""
    a, b = np.zeros_like(t), np.zeros_like(t)
    for c in coefficients[:0:-1]:
        a, b = 2 * t * a - b + c, a
    return t * a - b + coefficients[0]


def blocked(fn: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """`fn` of a 1-d array, applied block by block to an array of any shape."""
    def run(x: Array) -> Array:
        flat = np.ascontiguousarray(x).reshape(-1)
        if flat.size <= BLOCK:
            return fn(flat).reshape(x.shape)
        out = np.empty_like(flat)
        for i in range(0, flat.size, BLOCK):
            out[i:i + BLOCK] = fn(flat[i:i + BLOCK])
        return out.reshape(x.shape)
    return run


def _wide(fn: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """`fn` in float64, rounded to the dtype of the argument."""
    def run(x: Array) -> Array:
        return fn(x.astype(np.float64)).astype(x.dtype)
    return run


@blocked
def erf(x: Array) -> Array:
    """The error function."""
    if x.dtype == np.float32:
        x = np.clip(x, np.float32(-ERF_EDGE), np.float32(ERF_EDGE))
        z = x * x
        x *= horner(z, ERF_P)
        x /= horner(z, ERF_Q)
        return np.clip(x, np.float32(-1), np.float32(1))
    small = np.clip(x, -1, 1)
    near = small * horner(small * small, ERF_SMALL)
    return np.where(np.abs(x) <= 1, near, np.copysign(1 - _tail(np.abs(x)), x))


def _scaled_tail(x: Array) -> Array:
    """exp(x*x) erfc(x) for x >= 0."""
    t = 1 - 7.5 / (x + 3.75)
    return chebyshev(t, ERFCX) / (1 + 2 * x)


def _tail(x: Array) -> Array:
    """erfc(x) for x >= 0; x*x is split so that its rounding does not reach the exponential."""
    x = np.minimum(x, 30)
    high = np.round(x * 16) / 16
    return np.exp(-high * high) * np.exp((high - x) * (high + x)) * _scaled_tail(x)


@_wide
@blocked
def erfc(x: Array) -> Array:
    """1 - erf(x), accurate where that is small."""
    return np.where(x > 0.5, _tail(np.maximum(x, 0)), 1 - erf(x))


@_wide
@blocked
def erfcx(x: Array) -> Array:
    """exp(x*x) erfc(x)."""
    negative = 2 * np.exp(x * x) - _scaled_tail(np.abs(x))
    return np.where(x >= 0, _scaled_tail(np.abs(x)), negative)


@_wide
@blocked
def erfinv(x: Array) -> Array:
    """The inverse of erf: NaN outside [-1, 1], infinities at its ends."""
    a = np.abs(x)
    w = -np.log1p(-np.minimum(a * a, 1))
    root = np.sqrt(np.minimum(w, 38))
    low, high = horner(np.minimum(w, 5) - 2.5, INVERSE_LOW), horner(root - 4, INVERSE_HIGH)
    y = a * np.where(w < 5, low, high)
    for _ in range(3):
        # Halley's step on erf(y) = a, from the side on which nothing cancels.
        gap = np.where(a < 0.5, erf(y) - a, (1 - a) - _tail(y))
        step = gap / (2 / np.sqrt(np.pi) * np.exp(-y * y))
        y = y - step / (1 + y * step)
    y = np.where(a < 1, y, np.where(a == 1, np.inf, np.nan))
    return np.copysign(y, x)


def _inverse_tail(e: Array) -> Array:
    """The y >= 0 with erfc(y) = e, for 0 < e <= 1."""
    w = -np.log(e * (2 - e))
    root = np.sqrt(w)
    far = np.sqrt(np.maximum(w - np.log(np.sqrt(np.pi) * np.maximum(root, 1)), 1))
    y = np.where(root < 6, (1 - e) * horner(np.minimum(root, 6) - 4, INVERSE_HIGH), far)
    y = np.where(w < 5, (1 - e) * horner(np.minimum(w, 5) - 2.5, INVERSE_LOW), y)
    for _ in range(4):
        step = (e - _tail(y)) / (2 / np.sqrt(np.pi) * np.exp(-y * y))
        y = y - step / (1 + y * step)
    return y


@_wide
@blocked
def ndtri(p: Array) -> Array:
    """The quantile of the standard normal distribution: the x with P(X < x) = p."""
    low = np.minimum(p, 1 - p)
    x = np.sqrt(2) * _inverse_tail(2 * np.clip(low, 1e-307, 0.5))
    x = np.where(low > 0, x, np.where(low == 0, np.inf, np.nan))
    return np.where(p > 0.5, x, -x)


def _shifted(x: Array) -> Array:
    """x raised by SHIFT where it is below SHIFT: the asymptotic series hold from there."""
    return np.where(x < SHIFT, x + SHIFT, x)


def _log_gamma(x: Array) -> Array:
    """Stirling's series, for x > 0."""
    high = _shifted(x)
    series = sum(b / (2 * k * (2 * k - 1)) * high ** (1 - 2 * k)
                 for k, b in enumerate(BERNOULLI, 1))
    out = (high - 0.5) * np.log(high) - high + 0.5 * np.log(2 * np.pi) + series
    product = np.ones_like(x)
    for k in range(SHIFT):
        product = product * np.minimum(x + k, 2.0 * SHIFT)
    return np.where(x < SHIFT, out - np.log(product), out)


@_wide
@blocked
def lgamma(x: Array) -> Array:
    """log |gamma(x)|: infinite at 0, -1, -2, ... and at both ends."""
    positive = _log_gamma(np.where(x > 0.5, x, 1 - x))
    rest = np.abs(x - np.round(x))
    # log(sin(pi r) / pi); of the smallest r, pi r has few digits.
    sine = np.log(np.where(rest < 1e-9, rest, np.sin(np.pi * rest) / np.pi))
    reflected = -sine - positive
    out = np.where(x > 0.5, positive, np.where(np.round(x) == x, np.inf, reflected))
    return np.where(np.isinf(x), np.inf, out)


@_wide
@blocked
def digamma(x: Array) -> Array:
    """The derivative of log gamma: -inf at 0 (inf at -0), NaN at -1, -2, ..."""
    y = np.where(x > 0, x, 1 - x)
    high = _shifted(y)
    out = np.log(high) - 0.5 / high
    out = out - sum(b / (2 * k) * high ** (-2 * k) for k, b in enumerate(BERNOULLI, 1))
    for k in range(SHIFT):
        out = out - np.where(y < SHIFT, 1 / (y + k), 0)
    reflected = out - np.pi / np.tan(np.pi * (x - np.round(x)))
    out = np.where(x > 0, out, np.where(np.round(x) == x, np.nan, reflected))
    return np.where(x == 0, np.copysign(np.inf, -x), np.where(x == -np.inf, np.nan, out))


def zeta(s: Array, q: Array) -> Array:
    """Hurwitz' zeta sum of (q + k) ** -s over k >= 0, by Euler and Maclaurin; float64.

    NaN for s < 1; infinite at s = 1 and at q = 0, -1, -2, ...; NaN at other negative q unless s is
    an integer.
    """
    s, q = np.broadcast_arrays(np.asarray(s, np.float64), np.asarray(q, np.float64))
    total = np.zeros(s.shape)
    low = np.where(np.isfinite(q), q, 1.0)
    steps = math.ceil(max(SHIFT, np.max(SHIFT - low, initial=0)))
    for k in range(min(steps, 10_000)):
        total = total + np.where(low + k < SHIFT, np.abs(low + k) ** -s * np.where(
            (low + k < 0) & (s % 2 == 1), -1, 1), 0)
    high = np.where(low < SHIFT, low + np.ceil(SHIFT - low), low)
    total = total + high ** (1 - s) / (s - 1) + 0.5 * high ** -s
    factor = s * high ** (-s - 1)
    for k, b in enumerate(BERNOULLI, 1):
        total = total + b * factor / _factorial(2 * k)
        factor = factor * (s + 2 * k - 1) * (s + 2 * k) / (high * high)
    total = np.where(np.isnan(q) | np.isnan(s), np.nan, total)
    total = np.where((q < 0) & (np.floor(s) != s), np.nan, total)
    total = np.where((q <= 0) & (np.floor(q) == q), np.inf, total)
    total = np.where((q == np.inf) & (s == s), 0.0, total)
    return np.where(s == 1, np.inf, np.where(s < 1, np.nan, total))


def _factorial(n: int) -> float:
    return float(np.prod(np.arange(1, n + 1, dtype=np.float64)))


def polygamma(n: int, x: Array) -> Array:
    """The n-th derivative of digamma: (-1)**(n + 1) * n! * zeta(n + 1, x)."""
    if n == 0:
        return digamma(x)
    wide = x.astype(np.float64)
    scale = (-1.0) ** (n + 1) * _factorial(n)
    return (scale * zeta(np.full_like(wide, n + 1), wide)).astype(x.dtype)


def _bessel(x: Array, low: Sequence[float], high: Sequence[float], odd: bool) -> Array:
    """exp(-|x|) times a modified Bessel function of the first kind."""
    a = np.abs(x)
    near = chebyshev(np.minimum(a, 8) / 4 - 1, low) * (x if odd else 1)
    far = chebyshev(16 / np.maximum(a, 8) - 1, high) / np.sqrt(np.maximum(a, 8))
    return np.where(a <= 8, near, np.copysign(far, x) if odd else far)


@_wide
@blocked
def i0e(x: Array) -> Array:
    """exp(-|x|) I0(x)."""
    return _bessel(x, I0_LOW, I0_HIGH, False)


@_wide
@blocked
def i1e(x: Array) -> Array:
    """exp(-|x|) I1(x)."""
    return _bessel(x, I1_LOW, I1_HIGH, True)


@_wide
@blocked
def i0(x: Array) -> Array:
    """The modified Bessel function I0; NaN at infinity, as in PyTorch."""
    return np.exp(np.abs(x)) * i0e(x)


@_wide
@blocked
def i1(x: Array) -> Array:
    """The modified Bessel function I1; NaN at infinity, as in PyTorch."""
    return np.exp(np.abs(x)) * i1e(x)


def incomplete_gamma(a: Array, x: Array) -> tuple[Array, Array]:
    """The regularised incomplete gamma functions P(a, x) and Q(a, x) = 1 - P: a series below x = a
    + 1, a continued fraction (Lentz) above. NaN for negative arguments."""
    kind = np.result_type(a, x)
    a, x = np.broadcast_arrays(np.asarray(a, np.float64), np.asarray(x, np.float64))
    good = (a > 0) & (x > 0) & np.isfinite(a) & np.isfinite(x)
    s, y = np.where(good, a, 1.0), np.where(good, x, 1.0)
    scale = np.exp(s * np.log(y) - y - lgamma(s))
    term = 1 / s
    total = term.copy()
    for k in range(1, ROUNDS):
        term = term * y / (s + k)
        total = total + term
        if np.all(np.abs(term) <= 1e-17 * np.abs(total)):
            break
    b = y + 1 - s
    c = np.full_like(b, 1e300)
    d = 1 / np.where(b == 0, 1e-300, b)
    fraction = d.copy()
    for k in range(1, ROUNDS):
        factor = -k * (k - s)
        b = b + 2
        d = 1 / (factor * d + b)
        c = b + factor / c
        fraction = fraction * c * d
        if np.all(np.abs(c * d - 1) <= 1e-16):
            break
    lower = np.where(y < s + 1, scale * total, 1 - scale * fraction)
    upper = np.where(y < s + 1, 1 - scale * total, scale * fraction)
    negative, both = (a < 0) | (x < 0), np.isinf(a) & np.isinf(x)
    rules = [negative, (a == 0) & (x > 0), a == 0, x == 0, both, np.isinf(a), np.isinf(x),
             np.isnan(a + x)]
    lower = np.select(rules, [np.nan, 1.0, np.nan, 0.0, np.nan, 0.0, 1.0, np.nan], lower)
    upper = np.select(rules, [np.nan, 0.0, np.nan, 1.0, np.nan, 1.0, 0.0, np.nan], upper)
    return lower.astype(kind), upper.astype(kind)
