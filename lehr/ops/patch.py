"""Windows of images: `patches` copies every window out, `overlap` adds windows back (each the
other's adjoint).

Convolution, pooling, `unfold` and `fold` are built on these two index maps. Spatial parameters are
lists, one entry a spatial dimension; images are [n, c, *size], windows [n, c, *kernel, *out].
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy

from lehr.base import sym
from lehr.base.proof import decide
from lehr.ops import rule
from lehr.ops.registry import INDEX, op
from lehr.ops.rule import Spec

Sizes = Sequence[Any]


def each(value: Any, n: int, name: str) -> tuple[Any, ...]:
    """An int, or a list of 1 or `n`, as `n` entries."""
    made = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    if len(made) == 1:
        return made * n
    if len(made) != n:
        raise RuntimeError(f"{name} must be a single int, or a list of {n} ints, got {list(made)}")
    return made


def batched(F: Any, x: Any, n: int, run: Any) -> Any:
    """`run` on a batch of images of `n` dimensions; an image alone is a batch of one."""
    if x.ndim == n + 2:
        return run(x)
    made = run(F.unsqueeze(x, 0))
    return tuple(F.squeeze(t, 0) for t in made) if type(made) is tuple else F.squeeze(made, 0)


class _One:
    """The type of a batch of one."""

    def __init__(self, x: Any) -> None:
        self.shape, self.dtype, self.device = (1, *x.shape), x.dtype, x.device


def typed(x: Any, n: int, rule: Any) -> Any:
    """`rule` of a batch, for a batch or an image alone."""
    if len(x.shape) != n + 1:
        return rule(x)
    spec = rule(_One(x))
    if type(spec) is tuple:
        return tuple(t._replace(shape=t.shape[1:]) for t in spec)
    return spec._replace(shape=spec.shape[1:])


def out_size(size: Any, kernel: Any, stride: Any, padding: Any, dilation: Any) -> Any:
    """How many windows fit."""
    return (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


def taps(kernel: Sizes) -> Iterator[tuple[int, ...]]:
    """Every position inside a window, row-major."""
    return iter(numpy.ndindex(*kernel))


# numpy kernels


def padded(x: Any, low: Sizes, high: Sizes, value: Any = 0) -> Any:
    """`x` with constant borders on its last dimensions; `x` itself where there are none."""
    if not any(low) and not any(high):
        return x
    n = len(low)
    size = [p + s + q for s, p, q in zip(x.shape[-n:], low, high, strict=True)]
    out: Any = numpy.full((*x.shape[:-n], *size), value, x.dtype)
    place = tuple(slice(max(p, 0), max(p, 0) + min(s, t))
                  for s, p, t in zip(x.shape[-n:], low, size, strict=True))
    source: Any = (..., *(slice(0, s.stop - s.start) for s in place))
    out[(..., *place)] = x[source]
    return out


def bordered(x: Any, kernel: Sizes, out: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes,
             value: Any = 0) -> Any:
    """`x` padded so that every one of the `out` windows lies inside."""
    need = [(o - 1) * s + d * (k - 1) + 1
            for o, s, d, k in zip(out, stride, dilation, kernel, strict=True)]
    high = [max(0, n - p - s) for n, p, s in zip(need, padding, x.shape[-len(out):], strict=True)]
    return padded(x, padding, high, value)


def at(tap: Sizes, out: Sizes, stride: Sizes, dilation: Sizes) -> tuple[Any, ...]:
    """Where the elements of all windows at position `tap` lie in the bordered image."""
    return (..., *(slice(t * d, t * d + (o - 1) * s + 1, s)
                   for t, d, o, s in zip(tap, dilation, out, stride, strict=True)))


def windows(x: Any, kernel: Sizes, out: Sizes, stride: Sizes, dilation: Sizes) -> Any:
    """All windows of a bordered image as a strided view [.., *kernel, *out]."""
    n = len(kernel)
    steps = x.strides[-n:]
    strides = [b * d for b, d in zip(steps, dilation, strict=True)]
    strides += [b * s for b, s in zip(steps, stride, strict=True)]
    return numpy.lib.stride_tricks.as_strided(x, (*x.shape[:-n], *kernel, *out),
                                              (*x.strides[:-n], *strides), writeable=False)


def spread(
    cols: Any, size: Sizes, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes
) -> Any:
    """Adds windows [.., *kernel, *out] into images [.., *size]."""
    n = len(size)
    out = cols.shape[-n:]
    need = [max(p + s, (o - 1) * st + d * (k - 1) + 1) for p, s, o, st, d, k in
            zip(padding, size, out, stride, dilation, kernel, strict=True)]
    image: Any = numpy.zeros((*cols.shape[:-2 * n], *need), cols.dtype)
    if cols.size:
        for tap in taps(kernel):
            place = at(tap, out, stride, dilation)
            image[place] += cols[(..., *tap, *(slice(None),) * n)]
    crop = tuple(slice(p, p + s) for p, s in zip(padding, size, strict=True))
    return image[(..., *crop)]


# Ops


def _patches_rule(x: Any, kernel: Any, out: Any, stride: Any, padding: Any, dilation: Any,
                  value: Any = 0) -> Spec:
    if len(x.shape) != 2 + len(kernel):
        raise RuntimeError(f"patches: expected [n, c] and {len(kernel)} sizes, got {list(x.shape)}")
    return Spec((*x.shape[:2], *kernel, *out), x.dtype, x.device)


@op("patches(input: Tensor, kernel: list[int], out: list[int], stride: list[int], padding: "
    "list[int], dilation: list[int], value: float = 0.0) -> Tensor")
class patches:
    """All windows of images [n, c, *size] as [n, c, *kernel, *out]; outside the image there is
    `value`."""

    kind, rule, where, exact = INDEX, _patches_rule, "", True

    def eager(np: Any, x: Any, kernel: Any, out: Any, stride: Any, padding: Any, dilation: Any,
              value: Any) -> Any:
        wide = bordered(x, kernel, out, stride, padding, dilation,
                        np.asarray(value).astype(x.dtype))
        return np.ascontiguousarray(windows(wide, kernel, out, stride, dilation))

    def lower(L: Any, idx: Any, x: Any, kernel: Any, out: Any, stride: Any, padding: Any,
              dilation: Any,
              value: Any) -> Any:
        n = len(kernel)
        place = [o * s + k * d - p for k, o, s, d, p in
                 zip(idx[2: 2 + n], idx[2 + n:], stride, dilation, padding, strict=True)]
        size = L.shape(x)[2:]
        inside = L.inside(tuple((i, 0, s) for i, s in zip(place, size, strict=True)))
        return L.at(x, (*idx[:2], *place), mask=inside, other=L.const(value, x.dtype))

    def vjp(F: Any, g: Any, out: Any, x: Any, kernel: Any, many: Any, stride: Any, padding: Any,
            dilation: Any, value: Any) -> Any:
        return F.overlap(g, x.shape[2:], stride, padding, dilation)

    def samples(s: Any) -> Any:
        yield s(s.any(2, 3, 5, 6), [2, 3], [4, 4], [1, 1], [0, 0], [1, 1])
        yield s(s.any(2, 1, 5, 6), [2, 2], [4, 3], [2, 2], [1, 0], [1, 2], 1.0)
        yield s(s.any(2, 1, 5), [3], [6], [1], [2], [1])
        yield s(s.any(0, 1, 5), [3], [3], [1], [0], [1])


def _overlap_rule(cols: Any, size: Any, stride: Any, padding: Any, dilation: Any) -> Spec:
    if len(cols.shape) != 2 + 2 * len(size):
        raise RuntimeError(f"overlap: expected [n, c, *kernel, *out] for {len(size)} sizes, got "
                           f"{list(cols.shape)}")
    return Spec((*cols.shape[:2], *size), cols.dtype, cols.device, cols.dtype)


def _found(kernel: Any, stride: Any, dilation: Any) -> Any:
    """How many windows have a look at an element along one dimension."""
    return kernel if dilation != 1 else sym.ceildiv(kernel, stride)


def _window(i: Any, j: Any, kernel: Any, out: Any, stride: Any, padding: Any, dilation: Any
            ) -> tuple[Any, Any, list[tuple[Any, Any, Any]]]:
    """Of the windows that may hold element `i`, number `j`: (the position in it, which it is, what
    must be so: (value, from, below))."""
    far = i + padding
    if dilation == 1:   # positions of one remainder, from the last window that begins before
        k, place, limits = far % stride + j * stride, far // stride - j, []
        if not (isinstance(kernel, int) and kernel % stride == 0):
            limits.append((k, 0, kernel))
    else:
        far -= j * dilation
        k, place, limits = j, far // stride, [(far % stride, 0, 1)]
    return k, place, [*limits, (place, 0, out)]


@op("overlap(input: Tensor, size: list[int], stride: list[int], padding: list[int], dilation: "
    "list[int]) -> Tensor")
class overlap:
    """Windows [n, c, *kernel, *out] added up into images [n, c, *size]; what lies outside is
    dropped."""

    kind, rule, where = INDEX, _overlap_rule, ""

    def eager(np: Any, cols: Any, size: Any, stride: Any, padding: Any, dilation: Any) -> Any:
        kernel = cols.shape[2: 2 + len(size)]
        return spread(cols, size, kernel, stride, padding, dilation)

    def lower(L: Any, idx: Any, cols: Any, size: Any, stride: Any, padding: Any,
              dilation: Any) -> Any:
        n = len(size)
        shape = L.shape(cols)
        many = [_found(*v) for v in zip(shape[2: 2 + n], stride, dilation, strict=True)]

        # the windows that may have this element, each at one position k
        def tap(j: Any) -> Any:
            made = [_window(*v) for v in zip(idx[2:], j, shape[2: 2 + n], shape[2 + n:], stride,
                                             padding, dilation, strict=True)]
            k, place = [m[0] for m in made], [m[1] for m in made]
            value = L.at(cols, (*idx[:2], *k, *place), mask=L.inside(tuple(
                limit for m in made for limit in m[2])), other=L.const(0, cols.dtype))
            return L.cast(value, cols.dtype.wide)
        return L.cast(L.reduce("sum", many, tap), cols.dtype)

    def vjp(F: Any, g: Any, out: Any, cols: Any, size: Any, stride: Any, padding: Any,
            dilation: Any) -> Any:
        shape = cols.shape
        return F.patches(g, shape[2: 2 + len(size)], shape[2 + len(size):], stride, padding,
                         dilation)

    def samples(s: Any) -> Any:
        yield s(s.any(2, 3, 2, 3, 4, 4), [5, 6], [1, 1], [0, 0], [1, 1])
        yield s(s.any(2, 1, 2, 2, 4, 3), [5, 6], [2, 2], [1, 0], [1, 2])
        yield s(s.any(2, 1, 3, 6), [5], [1], [2], [1])
        yield s(s.any(0, 1, 3, 3), [5], [1], [0], [1])
    dtypes = "float half int"


def _image(x: Any, name: str) -> None:
    if len(x.shape) not in (3, 4):
        raise RuntimeError(f"{name}: expected a 3D (unbatched) or 4D (batched) image, got "
                           f"{list(x.shape)}")


def _im2col_rule(x: Any, kernel: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Spec:
    if len(x.shape) not in (3, 4):
        raise RuntimeError("Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and "
                           f"other non-zero dimensions for input, but got: {list(x.shape)}")
    k, d, p, s = _quad(kernel, dilation, padding, stride)
    out = [out_size(*v) for v in zip(x.shape[-2:], k, s, p, d, strict=True)]
    if any(decide(o, "<", 1) for o in out):
        raise RuntimeError(f"Given input with spatial size {tuple(x.shape[-2:])}, "
                           f"kernel_size={k}, dilation={d}, padding={p}, stride={s}, calculated "
                           f"shape of the array of sliding blocks as {tuple(out)}, but its "
                           "components must be at least one.")
    return Spec((*x.shape[:-3], x.shape[-3] * k[0] * k[1], out[0] * out[1]), x.dtype, x.device)


def _quad(kernel: Any, dilation: Any, padding: Any, stride: Any) -> tuple[Any, ...]:
    made = (each(kernel, 2, "kernel_size"), each(dilation, 2, "dilation"),
            each(padding, 2, "padding"),
            each(stride, 2, "stride"))
    for name, values, least in zip(("kernel", "dilation", "padding", "stride"), made, (1, 1, 0, 1),
                                   strict=True):
        if any(v < least for v in values):
            bound = "greater than zero" if least else "non-negative"
            raise RuntimeError(f"{name} should be {bound}, but got {values}")
    return made


@op("im2col(input: Tensor, kernel_size: int | list[int], dilation: int | list[int] = 1, padding: "
    "int | list[int] = 0, stride: int | list[int] = 1) -> Tensor")
class im2col:
    """Sliding blocks of images [n, c, h, w] as columns [n, c * kernel elements, blocks]."""

    rule, where, api = _im2col_rule, "nn", "nn_unfold"

    def decomp(F: Any, x: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Any:
        k, d, p, s = _quad(kernel, dilation, padding, stride)
        out = [out_size(*v) for v in zip(x.shape[-2:], k, s, p, d, strict=True)]
        single = x.ndim == 3
        cols = F.patches(F.unsqueeze(x, 0) if single else x, k, out, s, p, d)
        head = () if single else cols.shape[:1]
        return F.reshape(cols, (*head, cols.shape[1] * math.prod(k), out[0] * out[1]))

    def samples(s: Any) -> Any:
        yield s(s.f(2, 3, 5, 6), [2, 3])
        yield s(s.f(3, 5, 6), 2, dilation=2, padding=1, stride=2)
        yield s(s.f(2, 3, 5, 6), (2, 2), padding=(1, 0), stride=[2, 1])
        yield s.raises(RuntimeError, s.f(2, 3, 5, 6), 8)
        yield s.raises(RuntimeError, s.f(5, 6), 2, parity=False)  # torch: IndexError
    dtypes = "float half"


def _col2im_rule(x: Any, output_size: Any, kernel: Any, dilation: Any = 1, padding: Any = 0,
                 stride: Any = 1) -> Spec:
    if len(x.shape) not in (2, 3):
        raise RuntimeError("Expected 2D or 3D (batch mode) tensor for input with possibly 0 "
                           "batch size and non-zero dimensions for input, but got: "
                           f"{list(x.shape)}")
    size = each(output_size, 2, "output_size")
    k, d, p, s = _quad(kernel, dilation, padding, stride)
    block = k[0] * k[1]
    if not rule.same(x.shape[-2] % block, 0):
        raise RuntimeError("Expected size of input's dimension 1 to be divisible by the product "
                           f"of kernel_size, but got input.size(1)={x.shape[-2]} and "
                           f"kernel_size={k}.")
    out = [out_size(*v) for v in zip(size, k, s, p, d, strict=True)]
    if not rule.same(out[0] * out[1], x.shape[-1]):
        raise RuntimeError(f"Given output_size={size}, kernel_size={k}, dilation={d}, "
                           f"padding={p}, stride={s}, expected size of input's dimension 2 to "
                           f"match the calculated number of sliding blocks {out[0]} * {out[1]} = "
                           f"{out[0] * out[1]}, but got {x.shape[-1]}.")
    return Spec((*x.shape[:-2], x.shape[-2] // block, *size), x.dtype, x.device, x.dtype)


@op("col2im(input: Tensor, output_size: int | list[int], kernel_size: int | list[int], dilation: "
    "int | list[int] = 1, padding: int | list[int] = 0, stride: int | list[int] = 1) -> Tensor")
class col2im:
    """Columns [n, c * kernel elements, blocks] added up into images [n, c, *output_size]."""

    rule, where, api = _col2im_rule, "nn", "fold"

    def decomp(F: Any, x: Any, output_size: Any, kernel: Any, dilation: Any, padding: Any,
               stride: Any) -> Any:
        size = each(output_size, 2, "output_size")
        k, d, p, s = _quad(kernel, dilation, padding, stride)
        out = [out_size(*v) for v in zip(size, k, s, p, d, strict=True)]
        single = x.ndim == 2
        n = 1 if single else x.shape[0]
        cols = F.reshape(x, (n, x.shape[-2] // math.prod(k), *k, *out))
        image = F.overlap(cols, size, s, p, d)
        return F.squeeze(image, 0) if single else image

    def samples(s: Any) -> Any:
        yield s(s.f(2, 12, 12), (4, 5), 2)
        yield s(s.f(12, 4), [4, 4], [2, 2], stride=2)
        yield s(s.f(2, 4, 9), (5, 5), 2, dilation=2)
        yield s(s.f(2, 4, 12), (4, 5), (2, 2), padding=(1, 1), stride=(2, 1))
        yield s.raises(RuntimeError, s.f(2, 12, 11), (4, 5), 2)
    dtypes = "float half"
    # torch rounds half precision after every addition
    tolerance = {"float16": (1e-2, 1e-2), "bfloat16": (6e-2, 6e-2)}
