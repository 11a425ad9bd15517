"""Resampling of images: interpolation, sampling at given points, and shuffles between channels and
pixels.

Interpolation is separable: along each dimension the result is a sum of a few taps, index_select(x,
i_t) * w_t, with indices and weights computed from the position as PyTorch does (float32, float64
for float64 images). """

from __future__ import annotations

import itertools
import math

import numpy

from lehr.base import dtype as dt
from lehr.base.proof import decide
from lehr.ops import rule
from lehr.ops.contract import cast
from lehr.ops.registry import op
from lehr.ops.rule import Spec, device_of, numel

TOLERANCE = {"float32": (1e-5, 1e-5), "float64": (1e-11, 1e-11), "float16": (4e-3, 4e-3),
             "bfloat16": (3e-2, 3e-2)}  # order of summation

RANKS = {"linear": 3, "bilinear": 4, "bicubic": 4, "trilinear": 5}
MODES = ("nearest", "nearest-exact", "area", *RANKS)


def _targets(x, size, factor, recompute):
    """(output sizes, scale factors or None each) of an interpolation."""
    n = len(x.shape) - 2
    if (size is None) == (factor is None):
        raise ValueError("only one of size or scale_factor should be defined" if size is not None
                         else "either size or scale_factor should be defined")
    if size is not None:
        made = tuple(size) if isinstance(size, (list, tuple)) else (size,) * n
        if len(made) != n:
            raise ValueError("Input and output must have the same number of spatial dimensions, "
                             f"but got input with spatial dimensions of {list(x.shape[2:])} and "
                             f"output size of {list(made)}.")
        return made, (None,) * n
    factors = tuple(factor) if isinstance(factor, (list, tuple)) else (factor,) * n
    if len(factors) != n:
        raise ValueError("Input and scale_factor must have the same number of spatial "
                         "dimensions, but got input with spatial dimensions of "
                         f"{list(x.shape[2:])} and scale_factor of shape {factors}.")
    made = tuple(s * int(f) if f == int(f) else math.floor(s * f)
                 for s, f in zip(x.shape[2:], factors, strict=True))
    return made, (None,) * n if recompute else factors


def _ratio(size, out, factor, align):
    """Input steps a step of the output."""
    if align:
        return (size - 1) / (out - 1) if out > 1 else 0.0
    return 1.0 / factor if factor else size / out


def _made(x):
    """The dtype positions are computed in."""
    return dt.float64 if x.dtype is dt.float64 else dt.float32


def _nearest(size, out, factor, exact, made):
    """Indices as PyTorch's kernels make them: positions in `made`, floors of float32; numpy [out].
    """
    f = made.np.type
    step, i = f(_ratio(size, out, factor, False)), numpy.arange(out).astype(made.np)
    place = numpy.maximum((i + f(0.5)) * step - f(0.5), f(0)) + f(0.5) if exact else i * step
    return numpy.minimum(numpy.floor(place.astype(numpy.float32)).astype(numpy.int64), size - 1)


def _nearest_index(F, size, out, factor, exact, made, device):
    """The same numbers over ops."""
    step = float(made.np.type(_ratio(size, out, factor, False)))
    i = F.to_dtype(F.arange(out, device=device), made)
    place = F.clamp_min((i + 0.5) * step - 0.5, 0.0) + 0.5 if exact else i * step
    place = F.floor(cast(F, place, dt.float32))
    return F.clamp_max(F.to_dtype(place, dt.int64), size - 1)


def _position(F, x, size, out, factor, align):
    """Where outputs lie in the input, unclamped: floating [out]."""
    made = _made(x)
    step = float(made.np.type(_ratio(size, out, factor, align)))
    i = F.to_dtype(F.arange(out, device=x.device), made)
    return i * step if align else (i + 0.5) * step - 0.5


def _cubic(F, t, a):
    """Weights of the four taps at distances t + 1, t, 1 - t, 2 - t (Keys, 1981)."""
    def near(d):
        return ((a + 2) * d - (a + 3)) * d * d + 1

    def far(d):
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return far(t + 1), near(t), near(1 - t), far(2 - t)


def _linear_taps(F, x, size, out, factor, align):
    place = F.clamp_min(_position(F, x, size, out, factor, align), 0.0)
    first = F.clamp_max(F.to_dtype(place, dt.int64), size - 1)
    share = F.clamp(place - F.to_dtype(first, place.dtype), 0.0, 1.0)
    return [(first, 1 - share), (F.clamp_max(first + 1, size - 1), share)]


def _cubic_taps(F, x, size, out, factor, align):
    place = _position(F, x, size, out, factor, align)
    floor = F.floor(place)
    first = F.to_dtype(floor, dt.int64)
    return [(F.clamp(first + k, 0, size - 1), w) for k, w in
            enumerate(_cubic(F, place - floor, -0.75), -1)]


def _antialiased(F, x, size, out, factor, align, cubic):
    """Taps of a filter stretched by the ratio of a reduction, its weights made to sum to 1."""
    step = _ratio(size, out, factor, align)
    stretch = max(step, 1.0)
    support = (2.0 if cubic else 1.0) * stretch
    made = _made(x)
    center = (F.to_dtype(F.arange(out, device=x.device), made) + 0.5) * step
    low = F.clamp_min(F.to_dtype(center - support + 0.5, dt.int64), 0)
    high = F.clamp_max(F.to_dtype(center + support + 0.5, dt.int64), size)
    taps, total = [], None
    for k in range(math.ceil(support) * 2 + 1):
        distance = F.abs((F.to_dtype(low + k, made) - center + 0.5) / stretch)
        if cubic:
            _, near, _, _ = _cubic(F, distance, -0.5)
            far = _cubic(F, distance - 1, -0.5)[0]
            weight = F.where(distance < 1, near, F.where(distance < 2, far, 0.0))
        else:
            weight = F.clamp_min(1 - distance, 0.0)
        weight = F.where(low + k < high, weight, 0.0)
        total = weight if total is None else total + weight
        taps.append((F.clamp_max(low + k, size - 1), weight))
    return [(i, w / total) for i, w in taps]


def _weighted(F, x, dim, taps):
    """The sum of taps along one dimension."""
    shape = [1] * x.ndim
    shape[dim] = taps[0][0].shape[0]
    total = None
    for i, w in taps:
        part = F.index_select(x, dim, i) * cast(F, F.reshape(w, shape), x.dtype)
        total = part if total is None else total + part
    return total


def _repeated(F, x, factors):
    """Every element `factors` times along each spatial dimension."""
    n = len(factors)
    split = [v for s in x.shape[2:] for v in (s, 1)]
    wide = [v for s, f in zip(x.shape[2:], factors, strict=True) for v in (s, f)]
    y = F.expand(F.reshape(x, (*x.shape[:2], *split)), (*x.shape[:2], *wide))
    return F.reshape(y, (*x.shape[:2], *(wide[2 * i] * wide[2 * i + 1] for i in range(n))))


def _whole(size, out, factor, exact, made):
    """The integer factor of an enlargement whose indices are exactly i // factor, else None."""
    if not isinstance(size, int) or not isinstance(out, int):
        whole = factor is not None and factor == int(factor)
        return int(factor) if whole and int(factor) & (int(factor) - 1) == 0 else None
    if not size or out % size:
        return None
    k = out // size
    same = numpy.array_equal(_nearest(size, out, factor, exact, made), numpy.arange(out) // k)
    return k if same else None


def _interpolate_rule(x, size=None, factor=None, mode="nearest", align=None, recompute=None,
                      antialias=False):
    if mode not in MODES:
        raise NotImplementedError(f"Input Error: {mode!r} is not an interpolation mode; there are "
                                  f"{', '.join(MODES)}")
    if not 3 <= len(x.shape) <= 5 or len(x.shape) != RANKS.get(mode, len(x.shape)):
        raise NotImplementedError("Input Error: Only 3D, 4D and 5D input Tensors supported (got "
                                  f"{len(x.shape)}D) for the modes: nearest | linear | bilinear | "
                                  f"bicubic | trilinear | area | nearest-exact (got {mode})")
    if align is not None and mode not in RANKS:
        raise ValueError("align_corners option can only be set with the interpolating modes: "
                         "linear | bilinear | bicubic | trilinear")
    if antialias and mode not in ("bilinear", "bicubic"):
        raise ValueError("Anti-alias option is restricted to bilinear and bicubic modes and "
                         "requires a 4-D tensor as input")
    out, _ = _targets(x, size, factor, recompute)
    if any(decide(n, "<=", 0) for n in (*out, *x.shape[2:])):
        raise RuntimeError("Input and output sizes should be greater than 0, but got input "
                           f"{list(x.shape[2:])}, output {list(out)}")
    if mode in RANKS and x.dtype.category != dt.FLOAT:
        raise NotImplementedError(f'interpolate: mode "{mode}" is not implemented for {x.dtype}')
    exact = mode.startswith("nearest")
    return Spec((*x.shape[:2], *out), x.dtype, x.device, None if exact else x.dtype)


@op("interpolate(input: Tensor, size: int | list[int] | None = None, scale_factor: float | "
    "list[float] | None = None, mode: str = 'nearest', align_corners: bool | None = None, "
    "recompute_scale_factor: bool | None = None, antialias: bool = False) -> Tensor")
class interpolate:
    """Images [n, c, *size] at another size: nearest, nearest-exact, area, linear, bilinear,
    bicubic, trilinear."""

    rule, where, tolerance = _interpolate_rule, "nn", TOLERANCE

    def decomp(F, x, size, factor, mode, align, recompute, antialias):
        out, factors = _targets(x, size, factor, recompute)
        n = len(out)
        if mode == "area":
            return getattr(F, f"adaptive_avg_pool{n}d")(x, list(out))
        every = list(zip(x.shape[2:], out, factors, strict=True))
        if mode.startswith("nearest"):
            exact = mode == "nearest-exact"
            whole = [_whole(*v, exact, _made(x)) for v in every]
            if all(whole):
                return _repeated(F, x, whole)
            for d, v in enumerate(every, 2):
                if v[0] != v[1] or v[2]:
                    x = F.index_select(x, d, _nearest_index(F, *v, exact, _made(x), x.device))
            return x
        for d, v in reversed(list(enumerate(every, 2))):
            if antialias:
                taps = _antialiased(F, x, *v, bool(align), mode == "bicubic")
            else:
                taps = (_cubic_taps if mode == "bicubic" else _linear_taps)(F, x, *v, bool(align))
            x = _weighted(F, x, d, taps)
        return x

    def samples(s):
        yield s(s.f(2, 3, 4), 7)
        yield s(s.f(2, 3, 4, 5), scale_factor=2)
        yield s(s.f(2, 3, 4, 5), (3, 7), mode="nearest-exact")
        yield s(s.f(2, 1, 2, 3, 4), scale_factor=(2.0, 1.5, 1.0))
        yield s(s.f(2, 3, 4), 7, mode="linear")
        yield s(s.f(2, 3, 4), scale_factor=1.7, mode="linear", align_corners=True)
        yield s(s.f(2, 3, 4, 5), (7, 3), mode="bilinear")
        yield s(s.f(2, 3, 4, 5), scale_factor=2.3, mode="bilinear", align_corners=False)
        yield s(s.f(2, 3, 4, 5), scale_factor=2.3, mode="bilinear", recompute_scale_factor=True)
        yield s(s.f(2, 3, 4, 5), (7, 3), mode="bicubic")
        yield s(s.f(2, 3, 4, 5), (1, 9), mode="bicubic", align_corners=True)
        yield s(s.f(2, 1, 2, 3, 4), (3, 2, 5), mode="trilinear")
        yield s(s.f(2, 3, 4, 5), (3, 2), mode="area")
        yield s(s.f(2, 3, 9, 8), (3, 5), mode="bilinear", antialias=True)
        yield s(s.f(2, 3, 9, 8), (4, 11), mode="bicubic", antialias=True)
        yield s(s.f(2, 3, 41, dtype=dt.float32), 41 * 41)
        yield s.raises(ValueError, s.f(2, 3, 4))
        yield s.raises(ValueError, s.f(2, 3, 4), 3, 2.0)
        yield s.raises(NotImplementedError, s.f(2, 3, 4), 3, mode="bilinear")
        yield s.raises(ValueError, s.f(2, 3, 4), 3, align_corners=True)
    dtypes = "float half"


def _as_interpolation(name, signature, doc, arguments, samples_of):
    """An older name of `interpolate`; `arguments` maps its bound arguments."""
    @op(f"{name}({signature}) -> Tensor")
    class made:
        where, tolerance, samples, __doc__ = "nn", TOLERANCE, samples_of, doc

        def rule(*bound):
            return _interpolate_rule(*arguments(*bound))

        def decomp(F, *bound):
            return F.interpolate(*arguments(*bound))
        dtypes = "float"
    return made


SIZES = "size: int | list[int] | None = None, scale_factor: float | list[float] | None = None"


def _one(s):
    yield s(s.f(2, 3, 4, 5), (7, 3))
    yield s(s.f(2, 3, 4, 5), scale_factor=2)


_as_interpolation("upsample",
                  f"input: Tensor, {SIZES}, mode: str = 'nearest', align_corners: bool | None = "
                  "None",
                  "`interpolate` by its older name.", lambda x, *rest: (x, *rest), _one)
_as_interpolation("upsample_nearest", f"input: Tensor, {SIZES}", "`interpolate` with mode nearest.",
                  lambda x, size=None, factor=None: (x, size, factor), _one)
_as_interpolation("upsample_bilinear", f"input: Tensor, {SIZES}",
                  "`interpolate` with mode bilinear and align_corners.",
                  lambda x, size=None, factor=None: (x, size, factor, "bilinear", True), _one)


# Sampling at points


def _grid_rule(x, grid, mode="bilinear", padding="zeros", align=None):
    n = len(x.shape) - 2
    if mode not in ("bilinear", "nearest", "bicubic"):
        raise ValueError("nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' "
                         f"or 'bicubic', but got: '{mode}'")
    if padding not in ("zeros", "border", "reflection"):
        raise ValueError("nn.functional.grid_sample(): expected padding_mode to be 'zeros', "
                         f"'border', or 'reflection', but got: '{padding}'")
    if n not in (2, 3) or len(grid.shape) != n + 2:
        raise RuntimeError("grid_sampler(): expected 4D or 5D input and grid with same number of "
                           f"dimensions, but got input with sizes {list(x.shape)} and grid with "
                           f"sizes {list(grid.shape)}")
    if not rule.same(x.shape[0], grid.shape[0]):
        raise RuntimeError("grid_sampler(): expected grid and input to have same batch size, but "
                           f"got input with sizes {list(x.shape)} and grid with sizes "
                           f"{list(grid.shape)}")
    if grid.shape[-1] != n:
        raise RuntimeError(f"grid_sampler(): expected grid to have size {n} in last dimension, "
                           f"but got grid with sizes {list(grid.shape)}")
    for d, size in enumerate(x.shape[2:], 2):
        if decide(size, "<", 1):
            raise RuntimeError("grid_sampler(): expected input to have non-empty spatial "
                               f"dimensions, but input has sizes {list(x.shape)} with dimension "
                               f"{d} being empty")
    if mode == "bicubic" and n == 3:
        raise RuntimeError("grid_sampler(): bicubic interpolation only supports 4D input")
    if x.dtype is not grid.dtype:
        raise RuntimeError("grid_sampler(): expected input and grid to have same dtype, but "
                           f"input has {x.dtype} and grid has {grid.dtype}")
    return Spec((*x.shape[:2], *grid.shape[1:-1]), x.dtype, device_of((x, grid)), x.dtype)


def _reflected(F, place, size, align):
    """Mirrored at the borders until inside, then clamped."""
    low, high = (0, 2 * (size - 1)) if align else (-1, 2 * size - 1)
    if low == high:
        return place * 0
    least, span = low / 2, (high - low) / 2
    far = F.abs(place - least)
    extra = F.fmod(far, span)
    even = F.eq(F.fmod(F.floor(far / span), 2.0), 0.0)
    return F.clamp(F.where(even, extra + least, span - extra + least), 0, size - 1)


def _placed(F, place, size, padding, align):
    if padding == "border":
        return F.clamp(place, 0, size - 1)
    return _reflected(F, place, size, align) if padding == "reflection" else place


@op("grid_sample(input: Tensor, grid: Tensor, mode: str = 'bilinear', padding_mode: str = "
    "'zeros', align_corners: bool | None = None) -> Tensor")
class grid_sample:
    """Images [n, c, *size] at the points of grid [n, *out, dimensions], x first, -1 and 1 the
    borders."""

    rule, where, tolerance = _grid_rule, "nn", TOLERANCE

    def decomp(F, x, grid, mode, padding, align):
        n, sizes = x.ndim - 2, x.shape[2:]
        many = numel(grid.shape[1:-1])
        places = []
        for d, size in enumerate(sizes):
            c = F.select(grid, -1, n - 1 - d)
            places.append((c + 1) * ((size - 1) / 2) if align else ((c + 1) * size - 1) * 0.5)
        flat = F.reshape(x, (*x.shape[:2], numel(sizes)))

        def at(indices, weight):
            """Elements at floating-point whole coordinates, times weight; 0 outside."""
            inside, index = None, 0
            for i, size in zip(indices, sizes, strict=True):
                ok = F.logical_and(i >= 0, i <= size - 1)
                inside = ok if inside is None else F.logical_and(inside, ok)
                index = index * size + F.clamp(F.to_dtype(i, dt.int64), 0, size - 1)
            shape = (x.shape[0], 1, many)
            index = F.expand(F.reshape(index, shape), (*x.shape[:2], many))
            value = F.gather(flat, 2, index)
            value = value if weight is None else value * F.reshape(weight, shape)
            return F.where(F.reshape(inside, shape), value, 0.0)

        if mode == "bicubic":
            total = _grid_cubic(F, places, sizes, padding, align, at)
        else:
            places = [_placed(F, p, s, padding, align) for p, s in zip(places, sizes, strict=True)]
            if mode == "nearest":
                total = at([F.round(p) for p in places], None)
            else:
                total = _grid_linear(F, places, at)
        return F.reshape(total, (*x.shape[:2], *grid.shape[1:-1]))

    def samples(s):
        x, grid = s.f(2, 3, 4, 5), s.f(2, 3, 2, 2, domain=(-1.4, 1.4))
        for mode in ("bilinear", "nearest", "bicubic"):
            for padding in ("zeros", "border", "reflection"):
                yield s(x, grid, mode, padding, padding == "border")
        yield s(s.f(2, 1, 3, 4, 2), s.f(2, 2, 2, 3, 3, domain=(-1.2, 1.2)), align_corners=True)
        yield s(x, grid, padding_mode="reflection", align_corners=True)
        yield s.raises(RuntimeError, x, grid[..., :1])
        yield s.raises(ValueError, x, grid, "cubic")
        yield s.raises(RuntimeError, x[:1], grid)
    dtypes = "float"


def _grid_linear(F, places, at):
    floors = [F.floor(p) for p in places]
    total = None
    for corner in itertools.product((0, 1), repeat=len(places)):
        weight = None
        for c, p, f in zip(corner, places, floors, strict=True):
            share = p - f if c else f + 1 - p
            weight = share if weight is None else weight * share
        part = at([f + c for f, c in zip(floors, corner, strict=True)], weight)
        total = part if total is None else total + part
    return total


def _grid_cubic(F, places, sizes, padding, align, at):
    floors = [F.floor(p) for p in places]
    weights = [_cubic(F, p - f, -0.75) for p, f in zip(places, floors, strict=True)]
    total = None
    for corner in itertools.product(range(4), repeat=len(places)):
        weight, index = None, []
        for c, f, w, size in zip(corner, floors, weights, sizes, strict=True):
            weight = w[c] if weight is None else weight * w[c]
            index.append(_placed(F, f + (c - 1), size, padding, align))
        part = at(index, weight)
        total = part if total is None else total + part
    return total


@op("affine_grid(theta: Tensor, size: list[int], align_corners: bool | None = None) -> Tensor")
class affine_grid:
    """The points [n, *out, d] that the maps theta [n, d, d + 1] give to the pixels of images [n, c,
    *out]."""

    where, tolerance = "nn", TOLERANCE

    def rule(theta, size, align=None):
        d = len(size) - 2
        if d not in (2, 3):
            raise NotImplementedError("affine_grid only supports 4D and 5D sizes, for 2D and 3D "
                                      f"affine transforms, respectively. Got size {list(size)}.")
        if theta.dtype.category != dt.FLOAT:
            raise ValueError(f"Expected theta to have floating point type, but got {theta.dtype}")
        if len(theta.shape) != 3 or tuple(theta.shape[-2:]) != (d, d + 1):
            raise ValueError(f"Expected a batch of {d}D affine matrices of shape Nx{d}x{d + 1} "
                             f"for size {list(size)}. Got {list(theta.shape)}.")
        return Spec((theta.shape[0], *size[2:], d), theta.dtype, theta.device, theta.dtype)

    def decomp(F, theta, size, align):
        out, d = size[2:], len(size) - 2
        theta = F.clone(theta, memory_format="contiguous_format")
        total = F.reshape(F.select(theta, 2, d), (theta.shape[0], *(1,) * d, d))
        for axis, many in enumerate(out):
            i = F.to_dtype(F.arange(many, device=theta.device), theta.dtype)
            if align:
                point = i * (2 / (many - 1)) - 1 if many > 1 else i * 0
            else:
                point = (i * 2 + (1 - many)) / many
            shape = [1] * (d + 2)
            shape[1 + axis] = many
            column = F.reshape(F.select(theta, 2, d - 1 - axis), (theta.shape[0], *(1,) * d, d))
            total = total + F.reshape(point, shape) * column
        return total

    def samples(s):
        yield s(s.f(2, 2, 3), [2, 3, 4, 5])
        yield s(s.f(2, 2, 3), [2, 3, 4, 1], True)
        yield s(s.f(2, 3, 4), [2, 3, 4, 2, 3], align_corners=False)
        yield s.raises(ValueError, s.f(2, 2, 2), [2, 3, 4, 5])
    dtypes = "float"


# Shuffles


def _factor(name, x, r):
    if len(x.shape) < 3:
        raise RuntimeError(f"{name} expects input to have at least 3 dimensions, but got input "
                           f"with {len(x.shape)} dimension(s)")
    if r <= 0:
        raise RuntimeError(f"{name} expects a positive factor, but got {r}")


@op("pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor")
class pixel_shuffle:
    """[.., c * r * r, h, w] to [.., c, h * r, w * r] (Shi et al., 2016)."""

    where = "nn function"

    def rule(x, r):
        _factor("pixel_shuffle", x, r)
        c, h, w = x.shape[-3:]
        if not rule.same(c % (r * r), 0):
            raise RuntimeError("pixel_shuffle expects its input's 'channel' dimension to be "
                               "divisible by the square of upscale_factor, but "
                               f"input.size(-3)={c} is not divisible by {r * r}")
        return Spec((*x.shape[:-3], c // (r * r), h * r, w * r), x.dtype, x.device)

    def decomp(F, x, r):
        c, h, w = x.shape[-3:]
        head = tuple(x.shape[:-3])
        n = len(head)
        y = F.reshape(x, (*head, c // (r * r), r, r, h, w))
        y = F.permute(y, (*range(n), n, n + 3, n + 1, n + 4, n + 2))
        return F.reshape(y, (*head, c // (r * r), h * r, w * r))

    def samples(s):
        yield s(s.any(2, 8, 2, 3), 2)
        yield s(s.any(9, 2, 3), 3)
        yield s.raises(RuntimeError, s.any(2, 6, 2, 3), 2)


@op("pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor")
class pixel_unshuffle:
    """[.., c, h * r, w * r] to [.., c * r * r, h, w]."""

    where = "nn function"

    def rule(x, r):
        _factor("pixel_unshuffle", x, r)
        c, h, w = x.shape[-3:]
        for size, name in ((h, "height"), (w, "width")):
            if not rule.same(size % r, 0):
                raise RuntimeError(f"pixel_unshuffle expects {name} to be divisible by "
                                   f"downscale_factor, but {size} is not divisible by {r}")
        return Spec((*x.shape[:-3], c * r * r, h // r, w // r), x.dtype, x.device)

    def decomp(F, x, r):
        c, h, w = x.shape[-3:]
        head = tuple(x.shape[:-3])
        n = len(head)
        y = F.reshape(x, (*head, c, h // r, r, w // r, r))
        y = F.permute(y, (*range(n), n, n + 2, n + 4, n + 1, n + 3))
        return F.reshape(y, (*head, c * r * r, h // r, w // r))

    def samples(s):
        yield s(s.any(2, 3, 4, 6), 2)
        yield s(s.any(3, 3, 6), 3)
        yield s.raises(RuntimeError, s.any(2, 3, 5, 6), 2)


@op("channel_shuffle(input: Tensor, groups: int) -> Tensor")
class channel_shuffle:
    """Channels of [n, c, ..] in another order: the first of every group, then the second, and so
    on."""

    where = "nn function"

    def rule(x, groups):
        if len(x.shape) < 3:
            raise RuntimeError("channel_shuffle expects input with > 2 dims, but got input with "
                               f"sizes {list(x.shape)}")
        if groups <= 0:
            raise RuntimeError("Number of groups to divide channels in must be positive. Value "
                               f"of groups:{groups}")
        if not rule.same(x.shape[1] % groups, 0):
            raise RuntimeError(f"Number of channels must be divisible by groups. Got {x.shape[1]} "
                               f"channels and {groups} groups.")
        return Spec(tuple(x.shape), x.dtype, x.device)

    def decomp(F, x, groups):
        n, c, rest = x.shape[0], x.shape[1], tuple(x.shape[2:])
        y = F.transpose(F.reshape(x, (n, groups, c // groups, *rest)), 1, 2)
        return F.reshape(y, tuple(x.shape))

    def samples(s):
        yield s(s.any(2, 6, 3), 3)
        yield s(s.any(2, 6, 3, 2), 2)
        yield s.raises(RuntimeError, s.any(2, 5, 3), 2)


def _declare_sampler(n):
    modes, paddings = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")

    @op(f"grid_sampler_{n}d(input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: "
        "int, align_corners: bool) -> Tensor")
    class sampler:
        """`grid_sample` with its modes as numbers, in the order of its documentation."""

        where, tolerance, dtypes = "function", TOLERANCE, "float"

        def rule(x, grid, mode, padding, align):
            if len(x.shape) != n + 2:
                raise RuntimeError(f"grid_sampler_{n}d(): expected a {n + 2}D input, got "
                                   f"{list(x.shape)}")
            return _grid_rule(x, grid, modes[mode], paddings[padding], align)

        def decomp(F, x, grid, mode, padding, align):
            return F.grid_sample(x, grid, modes[mode], paddings[padding], align)

        def samples(s):
            yield s(s.f(2, 3, *(4, 5, 3)[:n]), s.f(2, *(2, 3, 2)[:n], n, domain=(-1.2, 1.2)), 0, 1,
                    False)
    return sampler


for _n in (2, 3):
    _declare_sampler(_n)
