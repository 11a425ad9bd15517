"""Normalisation layers: one op, `standardize`, over chosen dimensions; each layer is a choice of
dimensions.

y = (x - mean) / sqrt(var + eps) * weight + bias, statistics over `dims`. Layer norm: Ba, Kiros,
Hinton, 2016; batch norm: Ioffe, Szegedy, 2015; instance norm: Ulyanov, Vedaldi, Lempitsky, 2016;
group norm: Wu, He, 2018; RMS norm (no mean subtracted): Zhang, Sennrich, 2019. Statistics and sums
are float32 for half precision. """

from __future__ import annotations

import math
from typing import Any

from lehr.base import dtype as dt
from lehr.ops import layout as place
from lehr.ops import rule
from lehr.ops.reduce import count
from lehr.ops.registry import EXTERN, op
from lehr.ops.rule import Spec, device_of, numel, reduced_shape, same

# Order of summation.
TOLERANCE = {"float32": (2e-5, 2e-5), "float64": (1e-11, 1e-11), "float16": (4e-3, 2e-3),
             "bfloat16": (3e-2, 1e-2)}


def _mean(x: Any, dims: Any) -> Any:
    """Mean over `dims`, dimensions kept; the trailing run first, where numpy sums pairwise."""
    dims = sorted(dims)
    n = numel(x.shape[d] for d in dims)
    tail: list[int] = []
    while dims and dims[-1] == x.ndim - 1 - len(tail):
        tail.append(dims.pop())
    total = x.sum(tuple(tail), keepdims=True) if tail else x
    return (total.sum(tuple(dims), keepdims=True) if dims else total) / x.dtype.type(n)


def _scale(np: Any, y: Any, *factors: Any) -> Any:
    """y * the factors, in place; small factors are multiplied first."""
    small = [f for f in factors if f is not None]
    if len(small) == 2:
        shape = np.broadcast_shapes(small[0].shape, small[1].shape)
        if math.prod(shape) * 4 <= y.size:
            small = [small[0] * small[1]]
    for f in small:
        y *= f
    return y


def _stats(x: Any, dims: Any) -> tuple[Any, ...]:
    return reduced_shape(tuple(x.shape), dims, True)


def _standardize_rule(x: Any, w: Any, b: Any, dims: Any, eps: Any, center: bool = True) -> Any:
    if x.dtype.category != dt.FLOAT:
        raise RuntimeError(f"expected a floating-point input to a normalisation, got {x.dtype}")
    device = device_of((x, w, b))
    stat = Spec(_stats(x, dims), x.dtype.wide, device)
    return Spec(tuple(x.shape), x.dtype, device, x.dtype), stat, stat


def _standardize_layout(spec: Spec, x: Any, w: Any = None, b: Any = None, dims: Any = (),
                        eps: Any = 0, center: bool = True) -> Any:
    """Channels-last as the input is, but where the last dimensions are centred (layer and instance
    norm), as PyTorch does it."""
    last = range(len(x.shape) - len(dims), len(x.shape))
    if (tuple(spec.shape) == tuple(x.shape) and place.is_channels_last(x.shape, x.strides)
            and not place.is_contiguous(x.shape, x.strides)
            and not (center and dims and list(dims) == list(last))):
        return place.channels_last(x.shape)
    return place.contiguous(spec.shape)


@op("standardize(input: Tensor, weight: Tensor | None, bias: Tensor | None, dims: list[int], "
    "eps: float, center: bool = True) -> tuple[Tensor, Tensor, Tensor]")
class standardize:
    """(y, mean, var) with the statistics of `dims` (kept as size 1); weight and bias broadcast
    against x.

    `center` False subtracts no mean: `mean` is zeros and `var` the mean of squares.
    """

    kind, rule, layout, where = EXTERN, _standardize_rule, _standardize_layout, ""
    tolerance = TOLERANCE

    def eager(np: Any, x: Any, w: Any, b: Any, dims: Any, eps: Any, center: Any) -> Any:
        mean = _mean(x, dims) if center else np.zeros([*_stats(x, dims)], x.dtype)
        y = x - mean if center else x.copy()
        var = _mean(y * y, dims)
        y = _scale(np, y, 1 / np.sqrt(var + x.dtype.type(eps)), w)
        if b is not None:
            y += b
        return y, mean, var

    def decomp(F: Any, x: Any, w: Any, b: Any, dims: Any, eps: Any, center: Any) -> Any:
        if center:
            mean = F.mean(x, dims, True)
            y = x - mean
        else:
            mean = F.full(_stats(x, dims), 0.0, dtype=x.dtype, device=x.device)
            y = x
        var = F.mean(y * y, dims, True)
        y = y * F.rsqrt(var + eps)
        y = y if w is None else y * w
        return y if b is None else y + b, mean, var

    def vjp(F: Any, g: Any, out: Any, x: Any, w: Any, b: Any, dims: Any, eps: Any,
            center: Any) -> Any:
        gy, gmean, gvar = g
        _, mean, var = out
        n = count(F, x.shape, dims)

        def image() -> Any:
            made = None
            if gy is not None:
                made = F.standardize_grad(gy, x, mean, var, w, dims, eps, center)
            if gmean is not None and center:
                part = F.expand(gmean / n, tuple(x.shape))
                made = part if made is None else made + part
            if gvar is not None:
                part = (x - mean) * (gvar * 2 / n)
                made = part if made is None else made + part
            return made

        def weight() -> Any:
            return None if gy is None else F.standardize_scale(gy, x, mean, var, tuple(w.shape),
                                                               dims, eps, center)
        return image, weight, gy

    def samples(s: Any) -> Any:
        yield s(s.f(3, 4, 5), s.f(5), s.f(5), [2], 1e-5)
        yield s(s.f(3, 4, 5), s.f(1, 4, 1), s.f(1, 4, 1), [0, 2], 1e-5)
        yield s(s.f(3, 4, 5), None, None, [1, 2], 1e-3)
        yield s(s.f(3, 4, 5), s.f(4, 5), None, [1, 2], 1e-3, False)
        yield s(s.f(0, 4), s.f(4), s.f(4), [1], 1e-5)
    dtypes = "float half"


def _grad_rule(g: Any, x: Any, *rest: Any) -> Spec:
    rule.check_floating("norm_backward", x)
    return Spec(tuple(x.shape), x.dtype, device_of((g, x)), x.dtype)


@op("standardize_grad(grad: Tensor, input: Tensor, mean: Tensor, var: Tensor, weight: Tensor | "
    "None, dims: list[int], eps: float, center: bool = True) -> Tensor")
class standardize_grad:
    """Gradient of `standardize`'s input from its first result's.

    With h = g * weight and x' = (x - mean) * r, r = 1 / sqrt(var + eps): r * (h - mean(h) - x' *
    mean(h * x')). """

    kind, rule, where, tolerance = EXTERN, _grad_rule, "", TOLERANCE

    def layout(spec, g, x, *rest):
        return _standardize_layout(spec, x)

    def eager(np: Any, g: Any, x: Any, mean: Any, var: Any, w: Any, dims: Any, eps: Any,
              center: Any) -> Any:
        r = 1 / np.sqrt(var + x.dtype.type(eps))
        h = g.copy() if w is None else g * w
        hat = x - mean if center else x.copy()
        hat *= r
        along = _mean(h * hat, dims)
        if center:
            h -= _mean(h, dims)
        hat *= along
        h -= hat
        h *= r
        return h

    def decomp(F: Any, g: Any, x: Any, mean: Any, var: Any, w: Any, dims: Any, eps: Any,
               center: Any) -> Any:
        r = F.rsqrt(var + eps)
        h = g if w is None else g * w
        hat = (x - mean if center else x) * r
        h0 = h - F.mean(h, dims, True) if center else h
        return (h0 - hat * F.mean(h * hat, dims, True)) * r

    def samples(s: Any) -> Any:
        yield s(s.f(3, 4, 5), s.f(3, 4, 5), s.f(3, 4, 1), s.f(3, 4, 1, pos=True), s.f(5), [2], 1e-5)
        yield s(s.f(3, 4, 5), s.f(3, 4, 5), s.f(1, 4, 1), s.f(1, 4, 1, pos=True), None, [0, 2],
                1e-5, False)
    dtypes = "float half"


def _widened(shape: Any, size: Any) -> list[int]:
    """The dimensions of `size` over which a weight of `shape` is broadcast."""
    gap = len(size) - len(shape)
    return [*range(gap), *(gap + i for i, n in enumerate(shape)
                           if isinstance(n, int) and n == 1 and not same(size[gap + i], 1))]


@op("standardize_scale(grad: Tensor, input: Tensor, mean: Tensor, var: Tensor, shape: list[int], "
    "dims: list[int], eps: float, center: bool = True) -> Tensor")
class standardize_scale:
    """Gradient of `standardize`'s weight, of that shape, from its first result's: the sum of
    grad * (x - mean) / sqrt(var + eps)."""

    kind, where, tolerance = EXTERN, "", TOLERANCE

    def rule(g: Any, x: Any, mean: Any, var: Any, shape: Any, *rest: Any) -> Spec:
        for t in (g, x, mean, var):
            rule.check_floating("norm_backward", t)
        return Spec(tuple(shape), mean.dtype, device_of((g, x)), mean.dtype)

    def eager(np: Any, g: Any, x: Any, mean: Any, var: Any, shape: Any, dims: Any, eps: Any,
              center: Any) -> Any:
        hat = x - mean if center else x.copy()
        hat *= 1 / np.sqrt(var + x.dtype.type(eps))
        hat *= g
        return hat.sum(tuple(_widened(shape, x.shape)), keepdims=True).reshape(shape)

    def decomp(F: Any, g: Any, x: Any, mean: Any, var: Any, shape: Any, dims: Any, eps: Any,
               center: Any) -> Any:
        product = g * ((x - mean if center else x) * F.rsqrt(var + eps))
        wide = _widened(shape, x.shape)
        total = F.sum(product, wide, True) if wide else product
        return F.reshape(total, tuple(shape)) if len(shape) < x.ndim else total

    def samples(s: Any) -> Any:
        yield s(s.f(3, 4, 5), s.f(3, 4, 5), s.f(3, 4, 1), s.f(3, 4, 1, pos=True), [5], [2], 1e-5)
        yield s(s.f(3, 4, 5), s.f(3, 4, 5), s.f(1, 4, 1), s.f(1, 4, 1, pos=True), [1, 4, 1], [0, 2],
                1e-5)
        yield s(s.f(3, 4), s.f(3, 4), s.f(3, 1) * 0, s.f(3, 1, pos=True), [3, 4], [1], 1e-5, False)
    dtypes = "float"


# Layers


def _normalized(name: str, x: Any, shape: Any, *affine: Any) -> list[int]:
    """The trailing dimensions that `shape` names."""
    shape = list(shape) if isinstance(shape, (list, tuple)) else [shape]
    n = len(shape)
    if not n:
        raise RuntimeError("Expected normalized_shape to be at least 1-dimensional, i.e., "
                           "containing at least one element, but got normalized_shape = []")
    for t, which in zip(affine, ("weight", "bias"), strict=False):
        if t is not None and (len(t.shape) != n or not all(map(same, t.shape, shape))):
            raise RuntimeError(f"Expected {which} to be of same shape as normalized_shape, but "
                               f"got {which} of shape {list(t.shape)} and normalized_shape = "
                               f"{shape}")
    if len(x.shape) < n or not all(map(same, x.shape[len(x.shape) - n:], shape)):
        raise RuntimeError(f"Given normalized_shape={shape}, expected input with shape [*, "
                           f"{', '.join(map(str, shape))}], but got input of size{list(x.shape)}")
    return list(range(len(x.shape) - n, len(x.shape)))


def _layer_norm_rule(x: Any, shape: Any, w: Any = None, b: Any = None, eps: float = 1e-5) -> Any:
    return _standardize_rule(x, w, b, _normalized("layer_norm", x, shape, w, b), eps)


@op("layer_norm(input: Tensor, normalized_shape: list[int], weight: Tensor | None = None, bias: "
    "Tensor | None = None, eps: float = 1e-05) -> Tensor")
class layer_norm:
    """Standardises over the last dimensions, of sizes `normalized_shape`, which weight and bias
    have too."""

    where, tolerance = "nn function", TOLERANCE

    def rule(*bound):
        return _layer_norm_rule(*bound)[0]._replace(compute=None)

    def decomp(F: Any, x: Any, shape: Any, w: Any, b: Any, eps: Any) -> Any:
        return F.standardize(x, w, b, _normalized("layer_norm", x, shape), eps)[0]

    def samples(s: Any) -> Any:
        yield s(s.f(3, 4, 5), [5], s.f(5), s.f(5))
        yield s(s.f(3, 4, 5), (4, 5), s.f(4, 5), s.f(4, 5), 1e-3)
        yield s(s.f(3, 4, 5), [4, 5])
        yield s(s.f(0, 5), [5], s.f(5), s.f(5))
        yield s.raises(RuntimeError, s.f(3, 4), [5])
        yield s.raises(RuntimeError, s.f(3, 4), [4], s.f(5))
        yield s.raises(RuntimeError, s.f(3, 4), [])
    dtypes = "float half"


@op("native_layer_norm(input: Tensor, normalized_shape: list[int], weight: Tensor | None, bias: "
    "Tensor | None, eps: float) -> tuple[Tensor, Tensor, Tensor]")
class native_layer_norm:
    """`layer_norm` with its mean and 1 / sqrt(var + eps)."""

    where, rule, tolerance = "function", _layer_norm_rule, TOLERANCE

    def decomp(F: Any, x: Any, shape: Any, w: Any, b: Any, eps: Any) -> Any:
        y, mean, var = F.standardize(x, w, b, _normalized("layer_norm", x, shape), eps)
        return y, mean, F.rsqrt(var + eps)

    def samples(s: Any) -> Any:
        yield s(s.f(3, 4, 5), [5], s.f(5), s.f(5), 1e-5)
    dtypes = "float"


@op("rms_norm(input: Tensor, normalized_shape: list[int], weight: Tensor | None = None, eps: "
    "float | None = None) -> Tensor")
class rms_norm:
    """x / sqrt(mean(x * x) + eps) * weight over the last dimensions; eps None: the dtype's epsilon.
    """

    where, tolerance = "nn function", TOLERANCE

    def rule(x: Any, shape: Any, w: Any = None, eps: Any = None) -> Spec:
        return _standardize_rule(x, w, None, _normalized("rms_norm", x, shape, w), eps)[0]._replace(
            compute=None)

    def decomp(F: Any, x: Any, shape: Any, w: Any, eps: Any) -> Any:
        eps = EPSILON[x.dtype] if eps is None else eps
        return F.standardize(x, w, None, _normalized("rms_norm", x, shape), eps, False)[0]

    def samples(s: Any) -> Any:
        yield s(s.f(3, 4, 5), [5], s.f(5))
        yield s(s.f(3, 4, 5), [4, 5], None, 1e-3)
        yield s.raises(RuntimeError, s.f(3, 4), [5])
    dtypes = "float half"


EPSILON = {dt.float16: 2.0 ** -10, dt.bfloat16: 2.0 ** -7, dt.float32: 2.0 ** -23,
           dt.float64: 2.0 ** -52}


def _channels(x: Any, w: Any, b: Any, name: str) -> Any:
    if len(x.shape) < 2:
        raise RuntimeError("Expected at least 2 dimensions for input tensor but received "
                           f"{len(x.shape)}")
    for t, which in ((w, "weight"), (b, "bias")):
        if t is not None and (len(t.shape) != 1 or not same(t.shape[0], x.shape[1])):
            raise RuntimeError(f"Expected {which} to be a vector of size equal to the number of "
                               f"channels in input, but got {which} of shape {list(t.shape)} and "
                               f"input of shape {list(x.shape)}")


def _column(F: Any, t: Any, ndim: int) -> Any:
    """[c] as [1, c, 1, ..]."""
    return None if t is None else F.reshape(t, (1, t.shape[0], *(1,) * (ndim - 2)))


@op("group_norm(input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | "
    "None = None, eps: float = 1e-05) -> Tensor")
class group_norm:
    """Standardises each of `num_groups` groups of channels of [n, c, ..]; weight and bias [c]."""

    where, tolerance = "nn function", TOLERANCE

    def rule(x: Any, groups: Any, w: Any = None, b: Any = None, eps: Any = 1e-5) -> Spec:
        if groups <= 0:
            raise RuntimeError("Expected num groups to be greater than 0, got " + str(groups))
        _channels(x, w, b, "group_norm")
        if not same(x.shape[1] % groups, 0):
            raise RuntimeError("Expected number of channels in input to be divisible by "
                               f"num_groups, but got input of shape {list(x.shape)} and "
                               f"num_groups={groups}")
        return _standardize_rule(x, w, b, [0], eps)[0]._replace(compute=None)

    def decomp(F: Any, x: Any, groups: Any, w: Any, b: Any, eps: Any) -> Any:
        c, ndim = x.shape[1], x.ndim
        grouped = F.reshape(x, (x.shape[0], groups, c // groups, *x.shape[2:]))

        def affine(t: Any) -> Any:
            return None if t is None else F.reshape(t, (1, groups, c // groups, *(1,) * (ndim - 2)))
        y = F.standardize(grouped, affine(w), affine(b), list(range(2, ndim + 1)), eps)[0]
        return F.reshape(y, tuple(x.shape))

    def samples(s: Any) -> Any:
        yield s(s.f(3, 4, 5), 2, s.f(4), s.f(4))
        yield s(s.f(3, 6, 2, 3), 3, None, None, 1e-3)
        yield s(s.f(3, 4), 1)
        yield s.raises(RuntimeError, s.f(3, 4, 5), 3)
        yield s.raises(RuntimeError, s.f(3, 4, 5), 2, s.f(5))
    dtypes = "float half"


@op("batch_norm_train(input: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> "
    "named(output=Tensor, mean=Tensor, var=Tensor)")
class batch_norm_train:
    """Standardises every channel of [n, c, ..]; `mean` and (biased) `var` [c] are for the running
    statistics."""

    where, tolerance = "", TOLERANCE

    def rule(x: Any, w: Any, b: Any, eps: Any) -> Any:
        _channels(x, w, b, "batch_norm")
        size = numel(x.shape) // x.shape[1] if x.shape[1] != 0 else 0
        if isinstance(size, int) and size == 1:
            raise ValueError("Expected more than 1 value per channel when training, got input "
                             f"size torch.Size({list(x.shape)})")
        y, stat, _ = _standardize_rule(x, w, b, [0], eps)
        stat = stat._replace(shape=(x.shape[1],))
        return y._replace(compute=None), stat, stat

    def decomp(F: Any, x: Any, w: Any, b: Any, eps: Any) -> Any:
        dims = [0, *range(2, x.ndim)]
        y, mean, var = F.standardize(x, _column(F, w, x.ndim), _column(F, b, x.ndim), dims, eps)
        return y, F.reshape(mean, (x.shape[1],)), F.reshape(var, (x.shape[1],))

    def samples(s: Any) -> Any:
        yield s(s.f(3, 4, 5), s.f(4), s.f(4), 1e-5)
        yield s(s.f(3, 4), None, None, 1e-5)
        yield s(s.f(2, 3, 4, 2), s.f(3), None, 1e-3)
        yield s.raises(RuntimeError, s.f(3, 4, 5), s.f(5), None, 1e-5)
        yield s.raises(ValueError, s.f(1, 4), None, None, 1e-5)
    dtypes = "float half"


@op("batch_norm_eval(input: Tensor, mean: Tensor, var: Tensor, weight: Tensor | None, bias: "
    "Tensor | None, eps: float) -> Tensor")
class batch_norm_eval:
    """(input [n, c, ..] - mean [c]) / sqrt(var [c] + eps) * weight [c] + bias [c]."""

    kind, where, tolerance = EXTERN, "", TOLERANCE

    def rule(x: Any, mean: Any, var: Any, w: Any, b: Any, eps: Any) -> Spec:
        rule.check_floating("batch_norm", x)
        _channels(x, w, b, "batch_norm")
        for t, which in ((mean, "running_mean"), (var, "running_var")):
            if not same(t.shape[0], x.shape[1]):
                raise RuntimeError(f"{which} should contain {x.shape[1]} elements not {t.shape[0]}")
        return Spec(tuple(x.shape), x.dtype, device_of((x, mean, var, w, b)), x.dtype)

    def layout(spec, x, *rest):
        return _standardize_layout(spec, x)

    def eager(np: Any, x: Any, mean: Any, var: Any, w: Any, b: Any, eps: Any) -> Any:
        shape = (1, -1, *(1,) * (x.ndim - 2))
        scale = 1 / np.sqrt(var + x.dtype.type(eps))
        scale = scale if w is None else scale * w
        y = x - mean.reshape(shape)
        y *= scale.reshape(shape)
        if b is not None:
            y += b.reshape(shape)
        return y

    def decomp(F: Any, x: Any, mean: Any, var: Any, w: Any, b: Any, eps: Any) -> Any:
        scale = F.rsqrt(var + eps)
        scale = scale if w is None else scale * w
        y = (x - _column(F, mean, x.ndim)) * _column(F, scale, x.ndim)
        return y if b is None else y + _column(F, b, x.ndim)

    def samples(s: Any) -> Any:
        yield s(s.f(3, 4, 5), s.f(4), s.f(4, pos=True), s.f(4), s.f(4), 1e-5)
        yield s(s.f(3, 4), s.f(4), s.f(4, pos=True), None, None, 1e-5)
        yield s.raises(RuntimeError, s.f(3, 4, 5), s.f(3), s.f(3), None, None, 1e-5)
    dtypes = "float half"


@op("instance_norm_train(input: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) "
    "-> named(output=Tensor, mean=Tensor, var=Tensor)")
class instance_norm_train:
    """Standardises every channel of every image of [n, c, ..]; `mean` and (biased) `var` are [n,
    c]."""

    where, tolerance = "", TOLERANCE

    def rule(x: Any, w: Any, b: Any, eps: Any) -> Any:
        _channels(x, w, b, "instance_norm")
        if isinstance(numel(x.shape[2:]), int) and numel(x.shape[2:]) == 1:
            raise ValueError("Expected more than 1 spatial element when training, got input size "
                             f"torch.Size({list(x.shape)})")
        y, stat, _ = _standardize_rule(x, w, b, [0], eps)
        stat = stat._replace(shape=tuple(x.shape[:2]))
        return y._replace(compute=None), stat, stat

    def decomp(F: Any, x: Any, w: Any, b: Any, eps: Any) -> Any:
        dims = list(range(2, x.ndim))
        y, mean, var = F.standardize(x, _column(F, w, x.ndim), _column(F, b, x.ndim), dims, eps)
        return y, F.reshape(mean, tuple(x.shape[:2])), F.reshape(var, tuple(x.shape[:2]))

    def samples(s: Any) -> Any:
        yield s(s.f(3, 4, 5), s.f(4), s.f(4), 1e-5)
        yield s(s.f(2, 3, 4, 2), None, None, 1e-3)
        yield s.raises(ValueError, s.f(2, 3, 1), None, None, 1e-5)
    dtypes = "float half"


@op("local_response_norm(input: Tensor, size: int, alpha: float = 0.0001, beta: float = 0.75, k: "
    "float = 1.0) -> Tensor")
class local_response_norm:
    """x / (k + alpha * mean of squares over `size` neighbouring channels) ** beta (Krizhevsky et
    al., 2012)."""

    where, tolerance = "nn", TOLERANCE

    def rule(x: Any, size: Any, alpha: Any = 1e-4, beta: Any = 0.75, k: Any = 1.0) -> Spec:
        if len(x.shape) < 3:
            raise ValueError(f"Expected 3D or higher dimensionality input (got {len(x.shape)} "
                             "dimensions)")
        kind = x.dtype if 0 in tuple(x.shape) else rule.as_float(x.dtype)
        return Spec(tuple(x.shape), kind, x.device, x.dtype)

    def decomp(F: Any, x: Any, size: Any, alpha: Any, beta: Any, k: Any) -> Any:
        if 0 in tuple(x.shape):     # as it is, integers too
            return F.clone(x)
        pad = [0] * (2 * (x.ndim - 2)) + [size // 2, (size - 1) // 2]
        near = F.sum(F.unfold(F.constant_pad_nd(x * x, pad, 0), 1, size, 1), -1)
        near = near // size if x.dtype.is_integer else near / size
        return x / F.pow(near * alpha + k, beta)

    def samples(s: Any) -> Any:
        yield s(s.f(2, 5, 3), 3)
        yield s(s.f(2, 0, 3), 3)
        yield s(s.f(2, 5, 3, 2), 2, 0.5, 0.5, 2.0)
        yield s.raises(ValueError, s.f(2, 5), 3)
    dtypes = "float"


@op("normalize(input: Tensor, p: float = 2.0, dim: int | list[int] = 1, eps: float = 1e-12) -> "
    "Tensor")
class normalize:
    """x / max(the p-norm over dim, eps)."""

    where, tolerance = "nn", TOLERANCE

    def rule(x: Any, p: Any = 2.0, dim: Any = 1, eps: Any = 1e-12) -> Spec:
        return Spec(tuple(x.shape), x.dtype, x.device, x.dtype)

    def decomp(F: Any, x: Any, p: Any, dim: Any, eps: Any) -> Any:
        return x / F.clamp_min(F.linalg_vector_norm(x, p, dim, True), eps)

    def samples(s: Any) -> Any:
        yield s(s.f(3, 4))
        yield s(s.f(3, 4, 2), 1.0, 2)
        yield s(s.f(3, 4, 2), 3.0, -2, 1e-3)
        yield s(s.f(3, 4, 2), dim=(1, 2))
    dtypes = "float half"


def _others(v: Any, dim: int) -> list[int]:
    return [d for d in range(len(v.shape)) if dim == -1 or d != dim % len(v.shape)]


@op("norm_except_dim(v: Tensor, pow: int = 2, dim: int = 0) -> Tensor")
class norm_except_dim:
    """The p-norm over all dimensions but `dim`, kept as size 1; over all of them to a 0-d result
    for -1."""

    where = "function"

    def rule(v: Any, pow: Any = 2, dim: Any = 0) -> Spec:
        shape = () if dim == -1 else reduced_shape(tuple(v.shape), _others(v, dim), True)
        return Spec(shape, v.dtype, v.device, v.dtype)

    def decomp(F: Any, v: Any, pow: Any, dim: Any) -> Any:
        return F.linalg_vector_norm(v, pow, _others(v, dim), dim != -1)

    def samples(s: Any) -> Any:
        yield s(s.f(3, 4, 2))
        yield s(s.f(3, 4, 2), 2, 2)
        yield s(s.f(3, 4), 2, -1)
    dtypes = "float"
    tolerance = TOLERANCE


@op("_weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensor")
class _weight_norm:
    """v * (g / norm of v over all dimensions but `dim`) (Salimans, Kingma, 2016)."""

    where, tolerance = "function", TOLERANCE

    def rule(v: Any, g: Any, dim: Any = 0) -> Spec:
        return Spec(tuple(v.shape), v.dtype, device_of((v, g)), v.dtype)

    def decomp(F: Any, v: Any, g: Any, dim: Any) -> Any:
        return v * (g / F.norm_except_dim(v, 2, dim))

    def samples(s: Any) -> Any:
        yield s(s.f(3, 4, 2), s.f(3, 1, 1))
        yield s(s.f(3, 4, 2), s.f(1, 1, 2), 2)
    dtypes = "float"
