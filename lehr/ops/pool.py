"""Pooling: maxima, means and norms over windows.

Sums are reductions of `patches`; their backward is `overlap`, a sum over the windows that hold an
element, so that nothing is scattered; that of maxima goes from window to element, for most elements
are no window's maximum.
"""

from __future__ import annotations

import math

import numpy

from lehr.base import dtype as dt
from lehr.base import sym
from lehr.base.proof import decide, prove
from lehr.ops import layout as place
from lehr.ops.patch import at, batched, bordered, each, spread, taps
from lehr.ops.registry import INDEX, op
from lehr.ops.rule import Spec, label, numel

# Order of summation; torch sums half precision in it.
TOLERANCE = {"float32": (1e-5, 1e-6), "float64": (1e-12, 1e-12), "float16": (1e-2, 1e-3),
             "bfloat16": (5e-2, 1e-2)}


# Windows of up to so many elements are looked at one element after the other, in no loop.
SPELLED = 16


def _layout(spec, x, *rest):
    """Channels-last where the images are (and are not contiguous as well)."""
    if place.is_channels_last(x.shape, x.strides) and not place.is_contiguous(x.shape, x.strides):
        return place.channels_last(spec.shape)
    return place.contiguous(spec.shape)


def lowest(dtype):
    """The number that loses against every other."""
    if dtype.category == dt.FLOAT:
        return float("-inf")
    return int(numpy.iinfo(dtype.np).min) if dtype.category == dt.INT else False


def _size(size, kernel, stride, padding, dilation, ceil):
    """The number of windows; with `ceil`, the last may hang over, but starts inside."""
    reach = size + 2 * padding - dilation * (kernel - 1) - 1
    if not ceil:
        return reach // stride + 1
    many = (reach + stride - 1) // stride + 1
    if isinstance(many, int) and isinstance(size, int) and (many - 1) * stride >= size + padding:
        return many - 1
    return many


def _geometry(name, x, n, kernel, stride, padding, dilation, ceil):
    """(kernel, out, stride, padding, dilation), checked."""
    if len(x.shape) not in (n + 1, n + 2):
        raise RuntimeError(f"{name}: Expected {n + 1}D or {n + 2}D (batch mode) input, but got "
                           f"{list(x.shape)}")
    for i, size in enumerate(x.shape[-n - 1:]):
        if isinstance(size, int) and size == 0:
            raise RuntimeError(f"{name}: Expected input's non-batch dimensions to have positive "
                               f"length, but input has a shape of {list(x.shape)} and non-batch "
                               f"dimension {i} has length zero!")
    k = each(kernel, n, "kernel_size")
    s = k if stride is None or stride == [] or stride == () else each(stride, n, "stride")
    p, d = each(padding, n, "padding"), each(dilation, n, "dilation")
    for values, least, what in ((k, 1, "kernel_size"), (s, 1, "stride"), (d, 1, "dilation")):
        if any(v < least for v in values):
            raise RuntimeError(f"{what} should be greater than zero, but got {list(values)}")
    for a, b, c in zip(k, p, d, strict=True):
        if b < 0 or 2 * b > c * (k[0] if n == 1 else a - 1) + (0 if n == 1 else 1):
            raise RuntimeError("pad should be at most half of effective kernel size, but got "
                               f"pad={b}, kernel_size={a} and dilation={c}")
    out = [_size(*v, ceil) for v in zip(x.shape[-n:], k, s, p, d, strict=True)]
    if any(decide(o, "<", 1) for o in out):
        raise RuntimeError(f"Given input size: {tuple(x.shape[-n - 1:])}. Calculated output size: "
                           f"{(x.shape[-n - 1], *out)}. Output size is too small")
    return k, out, s, p, d


def along(F, x, n, dim):
    """[size] as the dimension `dim` of `n`."""
    return F.reshape(x, tuple(x.shape[0] if i == dim else 1 for i in range(n)))


# Maxima


def _values_rule(x, kernel, out, *rest):
    return Spec((*x.shape[:2], *out), x.dtype, x.device, x.dtype)


def _window_samples(s):
    yield s(s.any(2, 3, 6, 7), [2, 3], [3, 3], [2, 2], [0, 1], [1, 1])
    yield s(s.f(2, 1, 6, 5, nonfinite=True), [2, 2], [4, 4], [1, 1], [0, 0], [2, 1])
    yield s(s.any(2, 3, 7), [3], [5], [2], [1], [1])
    yield s(s.f(1, 1, 3) * 0 - float("inf"), [2], [4], [1], [1], [1])
    yield s(s.any(0, 3, 7), [3], [3], [2], [0], [1])


@op("max_pool(input: Tensor, kernel: list[int], out: list[int], stride: list[int], padding: "
    "list[int], dilation: list[int]) -> Tensor")
class max_pool:
    """The maxima [n, c, *out] of windows of [n, c, *size]; a NaN wins, padding never does."""

    kind, rule, layout, where, exact = INDEX, _values_rule, _layout, "", True

    def eager(np, x, kernel, out, stride, padding, dilation):
        x = bordered(x, kernel, out, stride, padding, dilation, lowest(dt.of_numpy(x.dtype)))
        best = None
        for tap in taps(kernel):
            part = x[at(tap, out, stride, dilation)]
            best = part.copy() if best is None else np.maximum(best, part, out=best)
        return best

    def lower(L, idx, x, kernel, out, stride, padding, dilation):
        size = L.shape(x)[2:]
        first, _, nearest = _windows(idx[2:], size, stride, padding, dilation)
        if numel(kernel) <= SPELLED and _met(size, kernel, out, stride, padding, dilation):
            return _first(L, kernel, lambda k: (L.at(x, (*idx[:2], *nearest(k))),) * 2, x.dtype)

        def tap(k):
            place = [f + t * d for t, f, d in zip(k, first, dilation, strict=True)]
            inside = L.inside(tuple((i, 0, s) for i, s in zip(place, size, strict=True)))
            return L.at(x, (*idx[:2], *place), mask=inside, other=L.const(lowest(x.dtype), x.dtype))
        return L.reduce("max", kernel, tap)

    def vjp(F, g, y, x, kernel, out, stride, padding, dilation):
        places = F.max_pool_place(x, kernel, out, stride, padding, dilation)
        return F.max_pool_grad(g, places, x.shape[2:], kernel, stride, padding, dilation)

    def samples(s):
        yield s(s.f(2, 3, 6, 7, unique=True), [2, 3], [3, 3], [2, 2], [0, 1], [1, 1])
        yield s(s.f(2, 3, 7, unique=True), [3], [4], [2], [1], [1])
        yield s(s.f(2, 1, 4, 4, 3, unique=True), [2, 2, 2], [2, 2, 1], [2] * 3, [0] * 3, [1] * 3)
    dtypes = "float half"


@op("max_pool_place(input: Tensor, kernel: list[int], out: list[int], stride: list[int], "
    "padding: list[int], dilation: list[int]) -> Tensor")
class max_pool_place:
    """Where the maximum of each window lies: row-major in the image, the first of equals, as int64.
    """

    kind, layout, where, nondiff, samples = INDEX, _layout, "", True, _window_samples

    def rule(x, kernel, out, *rest):
        return Spec((*x.shape[:2], *out), dt.int64, x.device, x.dtype)

    def eager(np, x, kernel, out, stride, padding, dilation):
        size, n = x.shape[2:], len(kernel)
        wide = bordered(x, kernel, out, stride, padding, dilation, lowest(dt.of_numpy(x.dtype)))
        first, inside = [], []
        for i, (o, s, p, d) in enumerate(zip(out, stride, padding, dilation, strict=True)):
            low = np.arange(o) * s - p
            shape = [-1 if i == j else 1 for j in range(n)]
            first.append(low.reshape(shape))
            inside.append(np.where(low < 0, low + (d - 1 - low) // d * d, low).reshape(shape))
        every = list(taps(kernel))
        none = len(every)       # nothing is above the lowest number
        parts = [np.ascontiguousarray(wide[at(tap, out, stride, dilation)]) for tap in every]
        best = np.full((*x.shape[:2], *out), lowest(dt.of_numpy(x.dtype)), x.dtype)
        for part in parts:
            np.maximum(best, part, out=best)        # a NaN wins
        kind = np.min_scalar_type(none)
        which = np.full(best.shape, none, kind)
        odd = bool(np.isnan(best).any())
        for i in reversed(range(none)):             # the first of equals
            same = parts[i] == best
            if odd:
                same |= parts[i] != parts[i]
            which = np.where(same, kind.type(i), which)
        which[best == lowest(dt.of_numpy(x.dtype))] = none
        steps = [position([t * d for t, d in zip(tap, dilation, strict=True)], size)
                 for tap in every]
        found = np.asarray([*steps, 0], np.int64)[which]
        found += position(first, size)
        lost = which == none
        if lost.any():
            np.copyto(found, np.broadcast_to(position(inside, size), found.shape), where=lost)
        return found

    def lower(L, idx, x, kernel, out, stride, padding, dilation):
        size = L.shape(x)[2:]
        many = numel(size)
        index = dt.int32 if isinstance(many, int) and many < 1 << 31 else dt.int64
        highest = (1 << (8 * index.itemsize - 1)) - 1
        first, inner, nearest = _windows(idx[2:], size, stride, padding, dilation)

        def clamped(k):
            place = nearest(k)
            return (L.cast(L.at(x, (*idx[:2], *place)), x.dtype.wide),
                    L.iota(position(place, size), index))

        # An element of the padding comes after all others, so that no -inf is taken for it.
        def masked(k):
            place = [f + t * d for t, f, d in zip(k, first, dilation, strict=True)]
            inside = L.inside(tuple((i, 0, s) for i, s in zip(place, size, strict=True)))
            value = L.at(x, (*idx[:2], *place), mask=inside,
                         other=L.const(lowest(x.dtype), x.dtype))
            where = L.select(inside, L.iota(position(place, size), index), L.const(highest, index))
            return L.cast(value, x.dtype.wide), where
        if numel(kernel) <= SPELLED and _met(size, kernel, out, stride, padding, dilation):
            return L.cast(_first(L, kernel, clamped, x.dtype), dt.int64)
        found = L.reduce("argmax", kernel, masked)[1]
        # A window that lies outside as a whole: where it begins.
        none = L.op("eq", found, L.const(highest, index))
        return L.cast(L.select(none, L.iota(position(inner, size), index), found), dt.int64)
    dtypes = "float half int"


def _windows(idx, size, stride, padding, dilation):
    """Where windows begin, where their first element inside is, and from a tap to the nearest
    element inside: taken for what lies outside, once more, it changes no maximum."""
    first = [o * s - p for o, s, p in zip(idx, stride, padding, strict=True)]
    inner = [i + sym.maximum(0, (d - 1 - i) // d) * d for i, d in zip(first, dilation, strict=True)]

    def nearest(k):
        return [sym.minimum(sym.maximum(f + t, 0), s - 1) if d == 1 else
                sym.minimum(sym.maximum(f + t * d, i), i + (s - 1 - i) // d * d)
                for t, f, i, s, d in zip(k, first, inner, size, dilation, strict=True)]
    return first, inner, nearest


def _met(size, kernel, out, stride, padding, dilation):
    """Whether every window has an element of the image along every dimension."""
    def met(size, k, o, s, p, d):
        if d == 1:      # the first ends after the image's beginning, the last begins before its end
            return p < k and prove("<", (o - 1) * s - p, size)
        return isinstance(size, int) and isinstance(o, int) and all(
            any(0 <= i * s - p + t * d < size for t in range(k)) for i in range(o))
    return all(map(met, size, kernel, out, stride, padding, dilation))


def _first(L, kernel, tap, dtype):
    """What `tap` gives, beside a value, for the greatest element of a window, the first of equals;
    a NaN is above all.

    One condition a selection: of loops with combined ones compilers make no vectors.
    """
    pairs = [tap(k) for k in taps(kernel)]
    best, found = pairs[0]
    for value, mark in pairs[1:]:
        wins = L.op("gt", value, best)
        best, found = L.select(wins, value, best), L.select(wins, mark, found)
    if dtype.category != dt.FLOAT:
        return found
    odd, last = pairs[-1]
    for value, mark in reversed(pairs[:-1]):
        nan = L.op("ne", value, value)
        odd, last = L.select(nan, value, odd), L.select(nan, mark, last)
    return L.select(L.op("ne", odd, odd), last, found)


def position(index, size):
    """Row-major position of an index tuple of arrays."""
    flat = 0
    for i, s in zip(index, size, strict=True):
        flat = flat * s + i
    return flat


def _unflat(flat, size):
    """The index tuple of a row-major position."""
    index = []
    for s in reversed(size[1:]):
        index.append(flat % s)
        flat = flat // s
    return (flat, *reversed(index))


@op("max_pool_grad(grad: Tensor, place: Tensor, size: list[int], kernel: list[int], stride: "
    "list[int], padding: list[int], dilation: list[int]) -> Tensor")
class max_pool_grad:
    """Every window's gradient added to the element [n, c, *size] that was its maximum."""

    kind, where = INDEX, ""

    def rule(g, places, size, *rest):
        return Spec((*g.shape[:2], *size), g.dtype, g.device)

    def eager(np, g, places, size, kernel, stride, padding, dilation):
        n, out = len(kernel), g.shape[2:]
        many = numel(size)
        if not _met(size, kernel, out, stride, padding, dilation):
            # a window outside as a whole has a place all the same, which may be another's element
            image, at = np.zeros((*g.shape[:2], many), g.dtype), places.reshape(*g.shape[:2], -1)
            n, c, i = np.nonzero((at >= 0) & (at < many))
            np.add.at(image, (n, c, at[n, c, i]), g.reshape(at.shape)[n, c, i])
            return image.reshape(*g.shape[:2], *size)
        if (all(s >= k and d == 1 for s, k, d in zip(stride, kernel, dilation, strict=True))
                and places.size and 0 <= places.min() and places.max() < many):
            image = np.zeros((*g.shape[:2], *size), g.dtype)    # every element is in one window
            rows = np.arange(places.shape[0] * places.shape[1]).reshape(-1, 1) * many
            image.reshape(-1)[places.reshape(len(rows), -1) + rows] = g.reshape(len(rows), -1)
            return image

        class Columns:  # one tap of the windows at a time
            shape, size, dtype = (*g.shape[:2], *kernel, *out), g.size, g.dtype

            def __getitem__(self, key):
                here = [(np.arange(o) * s - p
                         + t * d).reshape([-1 if i == j else 1 for j in range(n)])
                        for i, (t, o, s, p, d) in enumerate(zip(key[1: 1 + n], out, stride, padding,
                                                                dilation, strict=True))]
                return np.where(places == position(here, size), g, g.dtype.type(0))
        return spread(Columns(), size, kernel, stride, padding, dilation)

    def scatter(L, g, places, size, kernel, stride, padding, dilation):
        many, none = numel(size), L.const(0, g.dtype)
        met = _met(size, kernel, g.shape[2:], stride, padding, dilation)

        def here(at):
            return L.op("lt", at, L.iota(many, at.dtype))

        def target(k):
            at = L.at(places, k)
            if not met:     # windows outside as a whole lie nowhere
                at = L.select(here(at), at, L.const(0, at.dtype))
            elif isinstance(many, int):     # but for a hook that alters what is kept
                at = L.op("minimum", L.op("maximum", at, L.const(0, at.dtype)),
                          L.const(many - 1, at.dtype))
            return (*k[:2], *_unflat(L.index(at, many, False), size))

        def value(k):
            return L.at(g, k) if met else L.select(here(L.at(places, k)), L.at(g, k), none)
        return L.scatter(none, g.shape, target, value, "add")

    def vjp(F, g, out, grad, places, size, kernel, stride, padding, dilation):
        flat = (*grad.shape[:2], numel(grad.shape[2:]))
        rows = F.reshape(g, (*g.shape[:2], numel(size)))
        return F.reshape(F.gather(rows, 2, F.reshape(places, flat)), tuple(grad.shape)), None

    def samples(s):
        for x, *rest in (((2, 3, 6, 7), [2, 3], [3, 3], [2, 2], [0, 1], [1, 1]),
                         ((2, 3, 7), [3], [7], [1], [1], [1])):
            places = max_pool_place.eager(numpy, s.random.standard_normal(x), *rest)
            yield s(s.f(*x[:2], *rest[1]), places, list(x[2:]), rest[0], *rest[2:])
    dtypes = "float"


def _declare_max(n):
    sizes = "int | list[int]"
    params = (f"input: Tensor, kernel_size: {sizes}, stride: {sizes} | None = None, padding: "
              f"{sizes} = 0, dilation: {sizes} = 1, ceil_mode: bool = False")

    def prepared(x, kernel, stride, padding, dilation, ceil):
        return _geometry(f"max_pool{n}d", x, n, kernel, stride, padding, dilation, ceil)

    def made(x, kernel, stride=None, padding=0, dilation=1, ceil=False):
        out = prepared(x, kernel, stride, padding, dilation, ceil)[1]
        return Spec((*x.shape[:-n], *out), x.dtype, x.device)

    @op(f"max_pool{n}d({params}) -> Tensor")
    class pool:
        """Maxima of windows; implicit padding never wins."""

        rule, where = made, "nn function"

        def decomp(F, x, *rest):
            window = prepared(x, *rest)
            return batched(F, x, n, lambda t: F.max_pool(t, *window))

        def samples(s):
            size = (7, 6, 5)[:n]
            yield s(s.f(2, 3, *size, unique=True), 2)
            yield s(s.f(3, *size, unique=True), 3, 2, 1, ceil_mode=True)
            yield s(s.f(2, 3, *size, unique=True), [2] * n, stride=[1] * n, dilation=2)
            yield s(s.f(2, 3, *size, nonfinite=True), 2, 1)
            yield s.raises(RuntimeError, s.f(2, 3, *size), 2, padding=2)
            yield s.raises(RuntimeError, s.f(2, 3, *size), 9)
        dtypes = "float half"

    @op(f"max_pool{n}d_with_indices({params}) -> tuple[Tensor, Tensor]")
    class indexed:
        """Maxima of windows, and where they lie in the image (row-major, int64)."""

        where, nondiff = "nn", (1,)

        def rule(x, *rest):
            spec = made(x, *rest)
            return spec, spec._replace(dtype=dt.int64)

        def decomp(F, x, *rest):
            window = prepared(x, *rest)
            return batched(F, x, n,
                           lambda t: (F.max_pool(t, *window), F.max_pool_place(t, *window)))

        def samples(s):
            size = (7, 6, 5)[:n]
            yield s(s.f(2, 3, *size, unique=True), 2)
            yield s(s.f(3, *size, unique=True), 3, 2, 1, ceil_mode=True)
        dtypes = "float"
    return pool, indexed


# Sums and means


@op("window_sum(input: Tensor, kernel: list[int], out: list[int], stride: list[int], padding: "
    "list[int]) -> Tensor")
class window_sum:
    """The sums [n, c, *out] of windows of [n, c, *size]; there are zeros outside."""

    kind, rule, layout, where, tolerance = INDEX, _values_rule, _layout, "", TOLERANCE

    def eager(np, x, kernel, out, stride, padding):
        ones = (1,) * len(kernel)
        x = bordered(x, kernel, out, stride, padding, ones)
        total = None
        for tap in taps(kernel):
            part = x[at(tap, out, stride, ones)]
            total = part.copy() if total is None else np.add(total, part, out=total)
        return total

    def decomp(F, x, kernel, out, stride, padding):
        n = len(kernel)
        return F.sum(F.patches(x, kernel, out, stride, padding, (1,) * n), tuple(range(2, 2 + n)))

    def vjp(F, g, y, x, kernel, out, stride, padding):
        n = len(kernel)
        g = F.reshape(g, (*g.shape[:2], *(1,) * n, *out))
        g = F.expand(g, (*g.shape[:2], *kernel, *out))
        return F.overlap(g, x.shape[2:], stride, padding, (1,) * n)

    def samples(s):
        yield s(s.f(2, 3, 6, 7), [2, 3], [3, 3], [2, 2], [0, 1])
        yield s(s.f(2, 3, 7), [3], [5], [2], [1])
        yield s(s.f(0, 3, 7), [3], [3], [2], [0])
    dtypes = "float half"


def _divisor(F, x, n, window, include, override):
    """How many elements each window counts: a number, or a tensor that broadcasts over [*out]."""
    kernel, out, stride, padding, _ = window
    size = x.shape[-n:]
    if override is not None:
        return override
    fits = all(isinstance(o, int) and isinstance(z, int) and (o - 1) * s + k <= z + 2 * p for o, s,
               k, z, p
               in zip(out, stride, kernel, size, padding, strict=True))
    if fits and (include or not any(padding)):
        return math.prod(kernel)
    count = None
    for i in range(n):
        first = F.arange(out[i], device=x.device) * stride[i] - padding[i]
        last = F.clamp_max(first + kernel[i], size[i] + padding[i])
        if not include:
            first, last = F.clamp_min(first, 0), F.clamp_max(last, size[i])
        many = along(F, last - first, n, i)
        count = many if count is None else count * many
    return F.to_dtype(count, x.dtype)


def _declare_avg(n):
    sizes = "int | list[int]"
    more = ", divisor_override: int | None = None" if n > 1 else ""

    def prepared(x, kernel, stride, padding, ceil):
        return _geometry(f"avg_pool{n}d", x, n, kernel, stride, padding, 1, ceil)

    @op(f"avg_pool{n}d(input: Tensor, kernel_size: {sizes}, stride: {sizes} | None = None, "
        f"padding: {sizes} = 0, ceil_mode: bool = False, count_include_pad: bool = True{more}) -> "
        "Tensor")
    class pool:
        """Means of windows; `count_include_pad` counts the padding, `divisor_override` replaces the
        count."""

        where, tolerance = "nn function" if n == 1 else "nn", TOLERANCE

        def rule(x, kernel, stride=None, padding=0, ceil=False, include=True, override=None):
            if override == 0:
                raise RuntimeError("divisor must be not zero")
            if x.dtype.category != dt.FLOAT and x.dtype is not dt.int64:
                raise NotImplementedError(f'"avg_pool{n}d" not implemented for {label(x.dtype)}')
            out = prepared(x, kernel, stride, padding, ceil)[1]
            return Spec((*x.shape[:-n], *out), x.dtype, x.device, x.dtype)

        def decomp(F, x, kernel, stride, padding, ceil, include, override=None):
            window = prepared(x, kernel, stride, padding, ceil)
            many = _divisor(F, x, n, window, include, override)
            mode = "trunc" if x.dtype.is_integer else None
            return batched(F, x, n, lambda t: F.div(F.window_sum(t, *window[:4]), many,
                                                    rounding_mode=mode))

        def samples(s):
            size = (7, 6, 5)[:n]
            yield s(s.f(2, 3, *size), 2)
            yield s(s.f(3, *size), 3, 2, 1, ceil_mode=True)
            yield s(s.f(2, 3, *size), [3] * n, 2, [1] * n, count_include_pad=False)
            yield s(s.f(2, 3, *size), 3, 2, 1, True, False)
            if n > 1:
                yield s(s.f(2, 3, *size), 2, divisor_override=3)
                yield s.raises(RuntimeError, s.f(2, 3, *size), 2, divisor_override=0)
            yield s.raises(RuntimeError, s.f(2, 3, *size), 2, padding=2)
            yield s.raises(RuntimeError, s.f(2, 3, *size), 9)
        dtypes = "float half"
    if n == 1:  # one parameter fewer
        rule, decomp = pool.rule, pool.decomp
        pool.rule = lambda *bound: rule(*bound)
        pool.decomp = lambda *bound: decomp(*bound)
    return pool


def _declare_lp(n):
    sizes = "int | list[int]"

    @op(f"lp_pool{n}d(input: Tensor, norm_type: float, kernel_size: {sizes}, stride: {sizes} | "
        "None = None, ceil_mode: bool = False) -> Tensor")
    class pool:
        """The p-norm of windows, without absolute values: (sum x ** p) ** (1 / p)."""

        where, tolerance = "nn", {"float32": (1e-5, 1e-5)}

        def rule(x, norm_type, kernel, stride=None, ceil=False):
            out = _geometry(f"lp_pool{n}d", x, n, kernel, stride, 0, 1, ceil)[1]
            return Spec((*x.shape[:-n], *out), x.dtype, x.device, x.dtype)

        def decomp(F, x, norm_type, kernel, stride, ceil):
            mean = getattr(F, f"avg_pool{n}d")(F.pow(x, norm_type), kernel, stride, 0, ceil)
            whole = math.prod(each(kernel, n, "kernel_size"))
            return F.pow(F.sign(mean) * F.relu(F.abs(mean)) * whole, 1 / norm_type)

        def samples(s):
            size = (7, 6, 5)[:n]
            yield s(s.f(2, 3, *size, pos=True), 2, 2)
            yield s(s.f(3, *size, pos=True), 3.0, 3, 2, ceil_mode=True)
        dtypes = "float"
    return pool


for _n in (1, 2, 3):
    _declare_max(_n)
    _declare_avg(_n)
    _declare_lp(_n)


# Unpooling


def _declare_unpool(n):
    sizes = "int | list[int]"

    def size_of(x, kernel, stride, padding, output_size):
        k = each(kernel, n, "kernel_size")
        s = k if stride is None or stride in ([], ()) else each(stride, n, "stride")
        p = each(padding, n, "padding")
        plain = [(i - 1) * b - 2 * c + a for i, a, b, c in zip(x.shape[-n:], k, s, p, strict=True)]
        if output_size is None:
            return plain
        made = list(output_size)[-n:]
        for have, want, b in zip(made, plain, s, strict=True):
            if not want - b < have < want + b:
                raise ValueError(f'invalid output_size "{made}" (dim sizes must lie around '
                                 f"{plain}, less than the stride {list(s)} away)")
        return made

    @op(f"max_unpool{n}d(input: Tensor, indices: Tensor, kernel_size: {sizes}, stride: {sizes} | "
        f"None = None, padding: {sizes} = 0, output_size: list[int] | None = None) -> Tensor")
    class unpool:
        """Puts values back to where `max_pool` found them, among zeros."""

        where = "nn"

        def rule(x, indices, kernel, stride=None, padding=0, output_size=None):
            if len(x.shape) not in (n + 1, n + 2):
                raise RuntimeError(f"Input to max_unpooling{n}d should be a {n + 1}d or {n + 2}d "
                                   f"Tensor, but got a tensor with {len(x.shape)} dimensions.")
            if tuple(x.shape) != tuple(indices.shape):
                raise RuntimeError("Expected shape of indices to be same as that of the input "
                                   f"tensor ({list(x.shape)}) but got indices tensor with shape: "
                                   f"{list(indices.shape)}")
            size = size_of(x, kernel, stride, padding, output_size)
            return Spec((*x.shape[:-n], *size), x.dtype, x.device)

        def decomp(F, x, indices, kernel, stride, padding, output_size):
            size = size_of(x, kernel, stride, padding, output_size)
            head, many = tuple(x.shape[:-n]), numel(x.shape[-n:])
            zeros = F.full((*head, numel(size)), 0, dtype=x.dtype, device=x.device)
            made = F.scatter(zeros, -1, F.reshape(indices, (*head, many)),
                             F.reshape(x, (*head, many)))
            return F.reshape(made, (*head, *size))

        def samples(s):
            x = s.f(2, 3, *(4, 6, 4)[:n], unique=True)
            window = ([2] * n, [v // 2 for v in x.shape[2:]], [2] * n, [0] * n, [1] * n)
            wide = x.astype(numpy.float64)
            places = max_pool_place.eager(numpy, wide, *window)
            yield s(max_pool.eager(numpy, wide, *window).astype(x.dtype), places, 2)
            yield s(max_pool.eager(numpy, wide, *window).astype(x.dtype)[0], places[0], 2,
                    output_size=list(x.shape[2:]))
            yield s.raises(ValueError, x, numpy.zeros(x.shape, numpy.int64), 2,
                           output_size=[99] * n)
        dtypes = "float"
    return unpool


for _n in (1, 2, 3):
    _declare_unpool(_n)

