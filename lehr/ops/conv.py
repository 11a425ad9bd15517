"""Convolution in one to three dimensions: two primitives, each the other's derivative.

`convolution` is the product of a kernel with the windows of an image, or, `transposed`, the adjoint
of that; so the gradient of either with respect to its image is the other. `conv_weight` is the
gradient with respect to the kernel. The numpy kernels copy windows out and multiply (Chellapilla,
Puri, Simard, 2006), a bounded part of the batch at a time; kernels with one channel a group are
summed tap by tap. """

from __future__ import annotations

import math
from typing import Any

import numpy

from lehr.base.proof import decide
from lehr.ops import layout as place
from lehr.ops.contract import cast, multiplied
from lehr.ops.patch import (
    Sizes,
    at,
    batched,
    bordered,
    each,
    out_size,
    spread,
    taps,
    typed,
    windows,
)
from lehr.ops.registry import EXTERN, op
from lehr.ops.rule import Spec, device_of, same

# Order of summation; in half precision torch also rounds partial sums of transposed convolutions.
TOLERANCE = {"float64": (1e-11, 1e-11), "float32": (1e-5, 1e-5), "float16": (1e-2, 5e-2),
             "bfloat16": (6e-2, 6e-2)}

# numpy kernels

BUFFER = 1 << 21  # elements of copied windows at a time


def _batches(n: int, elements: int) -> Any:
    """Slices of the batch whose windows (of `elements` an image) fit the buffer."""
    step = max(1, BUFFER // max(elements, 1))
    return [slice(i, min(i + step, n)) for i in range(0, n, step)]


def _columns(x: Any, kernel: Sizes, out: Sizes, stride: Sizes, dilation: Sizes, groups: int) -> Any:
    """Windows of a bordered image [n, c, ..] as [groups, c / groups * kernel, n * out]."""
    n, c = x.shape[:2]
    view = windows(x, kernel, out, stride, dilation)
    d = len(kernel)
    view = view.transpose(1, *range(2, 2 + d), 0, *range(2 + d, 2 + 2 * d))
    return view.reshape(groups, c // groups * math.prod(kernel), n * math.prod(out))


def _joined(x: Any, groups: int) -> Any:
    """[n, c, *out] as [groups, c / groups, n * out]."""
    n, c = x.shape[:2]
    return x.reshape(n, groups, c // groups, -1).transpose(1, 2, 0, 3).reshape(groups, c // groups,
                                                                               -1)


def correlate(x: Any, w: Any, out: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes,
              groups: int) -> Any:
    """The plain convolution [n, o, *out] of x [n, c, *size] with w [o, c / groups, *kernel]."""
    n, o, kernel = x.shape[0], w.shape[0], w.shape[2:]
    x = bordered(x, kernel, out, stride, padding, dilation)
    y = numpy.empty((n, o, *out), numpy.result_type(x, w))
    if not y.size:
        return y
    if w.shape[1] == 1 and groups == o == x.shape[1]:
        return _depthwise(x, w, y, stride, dilation)
    if math.prod(kernel) == 1 and groups == 1:
        x = numpy.ascontiguousarray(x[at((0,) * len(out), out, stride, dilation)])
        return numpy.matmul(w.reshape(o, -1), x.reshape(n, x.shape[1], -1), out=y.reshape(n, o, -1)
                            ).reshape(y.shape)
    w = w.reshape(groups, o // groups, -1)
    flat = y.reshape(n, groups, o // groups, math.prod(out))
    for part in _batches(n, math.prod(out) * w[0, 0].size * groups):
        cols = _columns(x[part], kernel, out, stride, dilation, groups)
        if part.stop - part.start == 1:
            numpy.matmul(w, cols, out=flat[part.start])
        else:
            made = multiplied(w, cols).reshape(groups, o // groups, -1, flat.shape[-1])
            flat[part] = made.transpose(2, 0, 1, 3)
    return y


def _depthwise(x: Any, w: Any, y: Any, stride: Sizes, dilation: Sizes) -> Any:
    """One channel a group: a sum over taps of scaled images."""
    out = y.shape[2:]
    term = numpy.empty_like(y)
    for i, tap in enumerate(taps(w.shape[2:])):
        weight = w[(slice(None), 0, *tap)].reshape(-1, *(1,) * len(out))
        numpy.multiply(x[at(tap, out, stride, dilation)], weight, out=term if i else y)
        if i:
            y += term
    return y


def scatter(x: Any, w: Any, size: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes,
            groups: int) -> Any:
    """The adjoint: images [n, o, *size] from x [n, c, *out] and w [c, o / groups, *kernel]."""
    n, c = x.shape[:2]
    per, kernel, out = w.shape[1], w.shape[2:], x.shape[2:]
    y = numpy.empty((n, per * groups, *size), numpy.result_type(x, w))
    if not y.size:
        return y
    flipped = [d * (k - 1) - p for d, k, p in zip(dilation, kernel, padding, strict=True)]
    if all(s == 1 for s in stride) and min(flipped) >= 0 and not per == 1 == c // groups:
        # with unit strides the adjoint is a convolution with the mirrored kernel, which copies less
        mirror = w[(..., *(slice(None, None, -1),) * len(kernel))]
        mirror = mirror.reshape(groups, c // groups, per, *kernel).swapaxes(1, 2)
        return correlate(x, mirror.reshape(groups * per, c // groups, *kernel), size, stride,
                         flipped,
                         dilation, groups)
    if per == 1 and c == groups:
        cols = _Scaled(x, w)
        return spread(cols, size, kernel, stride, padding, dilation)
    right = numpy.ascontiguousarray(w.reshape(groups, c // groups, -1)).swapaxes(1, 2)
    for part in _batches(n, math.prod(out) * per * groups * math.prod(kernel)):
        cols = multiplied(right, _joined(x[part], groups))
        cols = cols.reshape(groups * per, *kernel, part.stop - part.start, *out)
        cols = numpy.moveaxis(cols, 1 + len(kernel), 0)
        y[part] = spread(cols, size, kernel, stride, padding, dilation)
    return y


class _Scaled:
    """Windows x * w of a depthwise kernel, made a tap at a time."""

    def __init__(self, x: Any, w: Any) -> None:
        self.x, self.w = x, w
        self.shape = (*x.shape[:2], *w.shape[2:], *x.shape[2:])
        self.size, self.dtype = math.prod(self.shape), numpy.result_type(x, w)

    def __getitem__(self, key: Any) -> Any:
        tap = key[1: 1 + self.w.ndim - 2]
        return self.x * self.w[(slice(None), 0, *tap)].reshape(-1, *(1,) * (self.x.ndim - 2))


def gradient(x: Any, g: Any, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes,
             groups: int) -> Any:
    """Gradient [o, c / groups, *kernel] of the kernel of `correlate`, from x and g [n, o, *out]."""
    n, o, out = g.shape[0], g.shape[1], g.shape[2:]
    x = bordered(x, kernel, out, stride, padding, dilation)
    per = x.shape[1] // groups
    made = numpy.zeros((groups, o // groups, per * math.prod(kernel)), numpy.result_type(x, g))
    if not g.size or not made.size:
        return made.reshape(o, per, *kernel)
    if per == 1 and groups == o:
        for i, tap in enumerate(taps(kernel)):
            product = x[at(tap, out, stride, dilation)] * g
            made[:, 0, i] = product.reshape(n, o, -1).sum(2).sum(0)
        return made.reshape(o, per, *kernel)
    for part in _batches(n, math.prod(out) * made[0, 0].size * groups):
        cols = _columns(x[part], kernel, out, stride, dilation, groups)
        made += multiplied(_joined(g[part], groups), cols.swapaxes(1, 2))
    return made.reshape(o, per, *kernel)


# Ops


def _geometry(name: str, spatial: int, stride: Any, padding: Any, dilation: Any) -> tuple[Any, ...]:
    s, p, d = (each(v, spatial, n) for v, n in
               ((stride, "stride"), (padding, "padding"), (dilation, "dilation")))
    for values, least, text in ((s, 1, "non-positive stride"), (p, 0, "negative padding"),
                                (d, 1, "dilation should be greater than zero")):
        if any(isinstance(v, int) and v < least for v in values):
            tail = "" if text.startswith("dil") else " is not supported"
            raise RuntimeError(f"{name}: {text}{tail}")
    return s, p, d


def _same_types(x: Any, w: Any, b: Any) -> None:
    for t, name in ((w, "weight"), (b, "bias")):
        if t is not None and t.dtype is not x.dtype:
            raise RuntimeError(f"Input type ({x.dtype}) and {name} type ({t.dtype}) should be the "
                               "same")


def _check(x: Any, w: Any, b: Any, transposed: bool, groups: int) -> None:
    shape, size = tuple(w.shape), tuple(x.shape)
    if len(shape) < 3 or len(size) != len(shape):
        raise RuntimeError(f"Expected {len(shape) - 1}D (unbatched) or {len(shape)}D (batched) "
                           "input to "
                           f"conv{'_transpose' if transposed else ''}{len(shape) - 2}d, but got "
                           f"input of size: {list(size)}")
    if groups < 1:
        raise RuntimeError("non-positive groups is not supported")
    want = shape[0] if transposed else shape[1] * groups
    if not same(size[1], want):
        given = "transposed=1" if transposed else f"groups={groups}"
        raise RuntimeError(f"Given {given}, weight of size {list(shape)}, expected "
                           f"input{list(size)} to have {want} channels, but got {size[1]} "
                           "channels instead")
    if isinstance(shape[0], int) and shape[0] % groups:
        raise RuntimeError(f"Given groups={groups}, expected weight to be divisible by {groups} "
                           f"at dimension 0, but got weight of size {list(shape)} instead")
    outputs = shape[1] * groups if transposed else shape[0]
    if b is not None and (len(b.shape) != 1 or not same(b.shape[0], outputs)):
        raise RuntimeError(f"Given weight of size {list(shape)}, expected bias to be "
                           f"1-dimensional with {outputs} elements, but got bias of size "
                           f"{list(b.shape)} instead")
    _same_types(x, w, b)


def _rule(x: Any, w: Any, b: Any, stride: Any, padding: Any, dilation: Any, transposed: bool,
          output_padding: Any, groups: int, out_dtype: Any = None) -> Spec:
    _check(x, w, b, transposed, groups)
    n = len(w.shape) - 2
    s, p, d = _geometry("convolution", n, stride, padding, dilation)
    kernel = w.shape[2:]
    if transposed:
        extra = each(output_padding, n, "output_padding")
        for e, a, c in zip(extra, s, d, strict=True):
            if isinstance(e, int) and (e < 0 or e >= max(a, c)):
                raise RuntimeError("output padding must be smaller than either stride or "
                                   f"dilation, but got output_padding: {list(extra)}, stride: "
                                   f"{list(s)}, dilation: {list(d)}")
        size = [(i - 1) * a - 2 * q + c * (k - 1) + e + 1
                for i, a, q, c, k, e in zip(x.shape[2:], s, p, d, kernel, extra, strict=True)]
        channels = w.shape[1] * groups
    else:
        size = [out_size(i, k, a, q, c)
                for i, k, a, q, c in zip(x.shape[2:], kernel, s, p, d, strict=True)]
        channels = w.shape[0]
        wide = [i + 2 * q for i, q in zip(x.shape[2:], p, strict=True)]
        full = [c * (k - 1) + 1 for k, c in zip(kernel, d, strict=True)]
        if any(decide(v, "<", k) for v, k in zip(wide, full, strict=True)):
            raise RuntimeError("Calculated padded input size per channel: "
                               f"({' x '.join(map(str, wide))}). "
                               f"Kernel size: ({' x '.join(map(str, full))}). Kernel size can't "
                               "be greater than actual input size")
    if any(decide(v, "<", 0) for v in size):
        raise RuntimeError(f"Given input size per channel: {list(x.shape[2:])}. Calculated output "
                           f"size per channel: {size}. Output size is too small")
    return Spec((x.shape[0], channels, *size), out_dtype or x.dtype, device_of((x, w, b)))


def _layout(spec: Spec, x: Any, w: Any, *rest: Any) -> Any:
    """Channels-last where the image or the kernel is (and is not contiguous as well)."""
    for t in (x, w):
        if (place.is_channels_last(t.shape, t.strides)
                and not place.is_contiguous(t.shape, t.strides)):
            return place.channels_last(spec.shape)
    return place.contiguous(spec.shape)


def _cropped(F: Any, x: Any, size: Sizes) -> Any:
    """The first elements of every spatial dimension: an output padding of a whole stride made more.
    """
    for i, (have, want) in enumerate(zip(x.shape[2:], size, strict=True)):
        if not same(have, want):
            x = F.narrow(x, 2 + i, 0, want)
    return x


def _image_grad(F: Any, g: Any, w: Any, size: Sizes, stride: Any, padding: Any, dilation: Any,
                transposed: bool, groups: int) -> Any:
    """Gradient of the image [n, c, *size] from the result's gradient."""
    n = len(size)
    s, p, d = _geometry("convolution", n, stride, padding, dilation)
    if transposed:
        return _cropped(F, F.convolution(g, w, None, s, p, d, False, (0,) * n, groups), size)
    extra = [i - ((o - 1) * a - 2 * q + c * (k - 1) + 1) for i, o, a, q, c, k in
             zip(size, g.shape[2:], s, p, d, w.shape[2:], strict=True)]
    return F.convolution(g, w, None, s, p, d, True, extra, groups)


@op("convolution(input: Tensor, weight: Tensor, bias: Tensor | None, stride: list[int], padding: "
    "list[int], dilation: list[int], transposed: bool, output_padding: list[int], groups: int, "
    "*, out_dtype: dtype | None = None) -> Tensor")
class convolution:
    """Products of a kernel with all windows of images, or the adjoint of that.

    input [n, c, *size]; weight [o, c / groups, *kernel], transposed [c, o / groups, *kernel]; bias
    [o]. """

    kind, rule, layout, where = EXTERN, _rule, _layout, "function"

    def eager(np: Any, x: Any, w: Any, b: Any, stride: Any, padding: Any, dilation: Any,
              transposed: Any, output_padding: Any, groups: Any, out_dtype: Any) -> Any:
        n = w.ndim - 2
        s, p, d = _geometry("convolution", n, stride, padding, dilation)
        size = x.shape[2:]
        if transposed:
            extra = each(output_padding, n, "output_padding")
            size = [(i - 1) * a - 2 * q + c * (k - 1) + e + 1 for i, a, q, c, k, e in
                    zip(size, s, p, d, w.shape[2:], extra, strict=True)]
            y = scatter(x, w, size, s, p, d, groups)
        else:
            size = [out_size(*v) for v in zip(size, w.shape[2:], s, p, d, strict=True)]
            y = correlate(x, w, size, s, p, d, groups)
        if b is not None:
            y = y if y.flags.writeable else y.copy()
            y += b.reshape(-1, *(1,) * n)
        return y

    def decomp(F: Any, x: Any, w: Any, b: Any, stride: Any, padding: Any, dilation: Any,
               transposed: Any, output_padding: Any, groups: Any, out_dtype: Any) -> Any:
        if b is None:
            return NotImplemented
        wide = x.dtype.wide
        y = F.convolution(x, w, None, stride, padding, dilation, transposed, output_padding, groups,
                          out_dtype=wide)
        y = y + F.reshape(cast(F, b, wide), (b.shape[0], *(1,) * (x.ndim - 2)))
        return cast(F, y, out_dtype or x.dtype)

    def vjp(F: Any, g: Any, out: Any, x: Any, w: Any, b: Any, stride: Any, padding: Any,
            dilation: Any,
            transposed: Any, output_padding: Any, groups: Any, out_dtype: Any) -> Any:
        size, kernel = x.shape[2:], w.shape[2:]
        g = cast(F, g, x.dtype)

        def weight() -> Any:
            images = (g, x) if transposed else (x, g)
            return F.conv_weight(*images, kernel, stride, padding, dilation, groups)
        return (lambda: _image_grad(F, g, w, size, stride, padding, dilation, transposed, groups),
                weight, lambda: F.sum(g, (0, *range(2, len(g.shape)))))

    def samples(s: Any) -> Any:
        yield s(s.f(2, 4, 5, 6), s.f(6, 2, 3, 2), s.f(6), [2, 1], [1, 0], [1, 2], False, [0, 0], 2)
        yield s(s.f(2, 4, 5), s.f(4, 3, 3), None, [2], [1], [1], True, [1], 1)
        yield s(s.f(2, 4, 3, 3), s.f(4, 2, 2, 3), s.f(4), [2, 1], [1, 0], [1, 2], True, [1, 1], 2)
        yield s(s.f(2, 3, 4, 4), s.f(3, 1, 3, 3), None, [1, 1], [1, 1], [1, 1], False, [0, 0], 3)
        yield s(s.f(2, 3, 4, 4), s.f(3, 1, 3, 3), s.f(3), [2, 2], [1, 1], [1, 1], True, [1, 1], 3)
        yield s(s.f(1, 2, 3, 4, 3), s.f(3, 2, 2, 2, 2), None, [1] * 3, [1] * 3, [1] * 3, False,
                [0] * 3, 1)
        yield s(s.f(2, 2, 4), s.f(2, 2, 3), None, [1], [0], [2], True, [1], 1)
        yield s.raises(RuntimeError, s.f(2, 4, 5), s.f(4, 3, 3), None, [1], [0], [1], False, [0], 1)
    dtypes, tolerance = "float half", TOLERANCE


def _weight_rule(x: Any, g: Any, kernel: Any, stride: Any, padding: Any, dilation: Any,
                 groups: int) -> Spec:
    _same_types(x, g, None)
    return Spec((g.shape[1], x.shape[1] // groups, *kernel), x.dtype, device_of((x, g)))


@op("conv_weight(input: Tensor, grad: Tensor, kernel: list[int], stride: list[int], padding: "
    "list[int], dilation: list[int], groups: int) -> Tensor")
class conv_weight:
    """Gradient of the plain convolution's kernel [o, c / groups, *kernel], from the images [n, c,
    *size] and the result's gradient [n, o, *out]."""

    kind, rule, where = EXTERN, _weight_rule, ""

    def eager(np: Any, x: Any, g: Any, kernel: Any, stride: Any, padding: Any, dilation: Any,
              groups: Any) -> Any:
        s, p, d = _geometry("convolution", len(kernel), stride, padding, dilation)
        return gradient(x, g, kernel, s, p, d, groups)

    def vjp(F: Any, g: Any, out: Any, x: Any, grad: Any, kernel: Any, stride: Any, padding: Any,
            dilation: Any, groups: Any) -> Any:
        size, many, n = x.shape[2:], grad.shape[2:], len(kernel)

        def result() -> Any:
            y = F.convolution(x, g, None, stride, padding, dilation, False, (0,) * n, groups)
            return _cropped(F, y, many)
        return (lambda: _image_grad(F, grad, g, size, stride, padding, dilation, False, groups),
                result)

    def samples(s: Any) -> Any:
        yield s(s.f(2, 4, 5, 6), s.f(2, 6, 3, 5), [3, 2], [2, 1], [1, 0], [1, 1], 2)
        yield s(s.f(2, 4, 5), s.f(2, 4, 3), [3], [1], [0], [1], 4)
        yield s(s.f(2, 4, 8), s.f(2, 3, 3), [3], [1], [0], [2], 1)
    dtypes, tolerance = "float half", TOLERANCE


def _resolved(padding: Any, kernel: Sizes, stride: Sizes, dilation: Sizes) -> tuple[Any, Any]:
    """Padding as numbers: what both sides get, and what the end gets in addition."""
    n = len(kernel)
    if not isinstance(padding, str):
        return each(padding, n, "padding"), (0,) * n
    if padding == "valid":
        return (0,) * n, (0,) * n
    if padding != "same":
        raise RuntimeError(f"Invalid padding string: '{padding}'")
    if any(s != 1 for s in stride):
        raise RuntimeError("padding='same' is not supported for strided convolutions")
    total = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    return tuple(t // 2 for t in total), tuple(t % 2 for t in total)


def _declare(n: int) -> tuple[Any, Any]:
    sizes = "int | list[int]"

    def plain(F: Any, x: Any, w: Any, b: Any, stride: Any, padding: Any, dilation: Any,
              groups: Any) -> Any:
        s, d = each(stride, n, "stride"), each(dilation, n, "dilation")
        both, more = _resolved(padding, w.shape[2:], s, d)
        if any(not isinstance(m, int) or m for m in more):
            x = F.constant_pad_nd(x, [v for m in reversed(more) for v in (0, m)], 0)
        return F.convolution(x, w, b, s, both, d, False, (0,) * n, groups)

    def plain_rule(x: Any, w: Any, b: Any = None, stride: Any = 1, padding: Any = 0,
                   dilation: Any = 1,
                   groups: int = 1) -> Spec:
        s, d = each(stride, n, "stride"), each(dilation, n, "dilation")
        _fits(x, w, n, False)
        both, more = _resolved(padding, w.shape[2:], s, d)

        def made(t: Any) -> Spec:
            spec = _rule(t, w, b, s, both, d, False, (0,) * n, groups)
            return spec._replace(shape=(*spec.shape[:2],
                                        *(v + m for v,
                                          m in zip(spec.shape[2:], more, strict=True))))
        return typed(x, n, made)

    @op(f"conv{n}d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: {sizes} = "
        f"1, padding: {sizes} | str = 0, dilation: {sizes} = 1, groups: int = 1) -> Tensor")
    class conv:
        rule, where = plain_rule, "nn function"

        def decomp(F: Any, x: Any, *rest: Any) -> Any:
            return batched(F, x, n, lambda t: plain(F, t, *rest))

        def samples(s: Any) -> Any:
            size, kernel = (5, 6, 4)[:n], (3, 2, 2)[:n]
            yield s(s.f(2, 4, *size), s.f(6, 4, *kernel), s.f(6))
            yield s(s.f(4, *size), s.f(6, 2, *kernel), stride=2, padding=1, groups=2)
            yield s(s.f(2, 4, *size), s.f(6, 4, *kernel), s.f(6), padding="same")
            yield s(s.f(2, 4, *size), s.f(6, 4, *kernel), None, 1, "valid", 2 if n == 1 else 1)
            yield s(s.f(2, 4, *size), s.f(3, 4, *(1,) * n), stride=[2] * n)
            yield s(s.f(0, 4, *size), s.f(3, 4, *kernel))
            yield s(s.f(2, 4, *size), s.f(4, 1, *kernel), None, [1] * n, [1] * n, [1] * n, 4)
            yield s.raises(RuntimeError, s.f(2, 3, *size), s.f(6, 4, *kernel))
            yield s.raises(RuntimeError, s.f(2, 4, *size), s.f(6, 4, *(9,) * n))
            yield s.raises(RuntimeError, s.f(4), s.f(6, 4, *kernel))
            yield s.raises(RuntimeError, s.f(2, 4, *size), s.f(6, 4, *kernel), stride=0)
            yield s.raises(RuntimeError, s.f(2, 4, *size), s.f(6, 4, *kernel), stride=2,
                           padding="same")
        dtypes, tolerance = "float half", TOLERANCE

    def transposed_rule(x: Any, w: Any, b: Any = None, stride: Any = 1, padding: Any = 0,
                        output_padding: Any = 0, groups: int = 1, dilation: Any = 1) -> Spec:
        _fits(x, w, n, True)
        return typed(x, n, lambda t: _rule(t, w, b, stride, padding, dilation, True,
                                            output_padding, groups))

    @op(f"conv_transpose{n}d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: "
        f"{sizes} = 1, padding: {sizes} = 0, output_padding: {sizes} = 0, groups: int = 1, "
        f"dilation: {sizes} = 1) -> Tensor")
    class conv_transpose:
        rule, where = transposed_rule, "nn function"

        def decomp(F: Any, x: Any, w: Any, b: Any, stride: Any, padding: Any, output_padding: Any,
                   groups: Any, dilation: Any) -> Any:
            s, p, d = _geometry("conv_transpose", n, stride, padding, dilation)
            extra = each(output_padding, n, "output_padding")
            return batched(F, x, n, lambda t: F.convolution(t, w, b, s, p, d, True, extra, groups))

        def samples(s: Any) -> Any:
            size, kernel = (3, 4, 3)[:n], (3, 2, 2)[:n]
            yield s(s.f(2, 4, *size), s.f(4, 3, *kernel), s.f(3))
            yield s(s.f(4, *size), s.f(4, 3, *kernel), stride=2, padding=1, output_padding=1,
                    groups=2)
            yield s(s.f(2, 4, *size), s.f(4, 3, *kernel), s.f(3), dilation=2, output_padding=1)
            yield s.raises(RuntimeError, s.f(2, 3, *size), s.f(4, 3, *kernel))
            yield s.raises(RuntimeError, s.f(2, 4, *size), s.f(4, 3, *kernel), output_padding=1)
        dtypes, tolerance = "float half", TOLERANCE

    return conv, conv_transpose


def _fits(x: Any, w: Any, n: int, transposed: bool) -> None:
    if len(w.shape) != n + 2:
        raise RuntimeError(f"expected a {n + 2}-D weight for conv{n}d, got {list(w.shape)}")
    if len(x.shape) not in (n + 1, n + 2):
        raise RuntimeError(f"Expected {n + 1}D (unbatched) or {n + 2}D (batched) input to "
                           f"conv{'_transpose' if transposed else ''}{n}d, but got input of size: "
                           f"{list(x.shape)}")


conv1d, conv_transpose1d = _declare(1)
conv2d, conv_transpose2d = _declare(2)
conv3d, conv_transpose3d = _declare(3)
