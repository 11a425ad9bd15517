"""Views of a part of a tensor (slice, select, diagonal, windows) and their inverses.

Each view has a `_scatter` form (a copy of the base with the viewed elements replaced) and a way to
put a gradient back, so that writes through views and derivatives are index maps too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lehr.base import dtype as dt
from lehr.base.index import delinearize, linearize
from lehr.base.proof import decide
from lehr.base.sym import maximum, minimum
from lehr.ops import layout
from lehr.ops.registry import COMPOSITE, INDEX, VIEW, op
from lehr.ops.rule import Shape, Size, Spec, dim_of, numel, same
from lehr.ops.view import copy_of, like


def clip(value: Size | None, size: Size, default: Size) -> Size:
    """A slice bound as Python's: negative counts from the end, beyond the ends is cut off."""
    if value is None or value is size:
        return default if value is None else size
    if isinstance(value, int) and isinstance(size, int):
        return min(max(value + size if value < 0 else value, 0), size)
    if decide(value, "<", 0):
        value = value + size
        return 0 if decide(value, "<", 0) else value
    return size if decide(value, ">", size) else value


def bounds(size: Size, start: Size | None, end: Size | None, step: int) -> tuple[Size, Size]:
    """(first index, number of indices) of a slice with a positive step."""
    if step <= 0:
        raise ValueError(f"step must be greater than zero, got {step}")
    first, last = clip(start, size, 0), clip(end, size, size)
    if isinstance(first, int) and isinstance(last, int):
        return first, max(0, -((first - last) // step))
    whole = isinstance(first, int) and first == 0 and last is size
    if not whole and decide(first, ">=", last):
        return first, 0
    length = last - first
    return first, length if step == 1 else (length + (step - 1)) // step


def dim_in(dim: int, shape: Shape, name: str) -> int:
    """`dim` made nonnegative; a 0-d tensor has none."""
    if not shape:
        raise IndexError(f"{name}() cannot be applied to a 0-dim tensor.")
    return dim_of(dim, len(shape))


def put(seq: Sequence[Any], place: int, item: Any) -> tuple[Any, ...]:
    return (*seq[:place], item, *seq[place + 1:])


def drop(seq: Sequence[Any], place: int) -> tuple[Any, ...]:
    return (*seq[:place], *seq[place + 1:])


def add_at(seq: Sequence[Any], place: int, item: Any) -> tuple[Any, ...]:
    return (*seq[:place], item, *seq[place:])


def along(ndim: int, place: int, part: Any) -> tuple[Any, ...]:
    """A numpy index with `part` at dimension `place`."""
    return put((slice_of(None, None, None),) * ndim, place, part)


slice_of = slice  # the op below has the name of the builtin


def _slice_rule(x: Any, dim: int, start: Any, end: Any, step: int) -> Spec:
    place = dim_in(dim, tuple(x.shape), "slice")
    return like(x, put(x.shape, place, bounds(x.shape[place], start, end, step)[1]))


def _slice_samples(s: Any) -> Any:
    yield s(s.any(5, 3), 0, 1, 4)
    yield s(s.any(2, 7), 1, None, None, 3)
    yield s(s.any(2, 7), -1, -5, -1, 2)
    yield s(s.any(4), 0, 3, 1)
    yield s(s.any(4), 0, -9, 99)
    yield s(s.any(0, 2), 0, 0, 1)
    yield s.raises(IndexError, s.any(2, 3), 2)
    yield s.raises(ValueError, s.any(2, 3), 0, 0, 2, 0, parity=False)


@op("slice(input: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, "
    "step: int = 1) -> Tensor")
class slice:
    """`input[start:end:step]` along `dim`."""

    kind, rule, where, exact, samples = VIEW, _slice_rule, "", True, _slice_samples

    def layout(x: Any, dim: int, start: Any, end: Any, step: int) -> Any:
        place = dim_in(dim, tuple(x.shape), "slice")
        first, length = bounds(x.shape[place], start, end, step)
        return (put(x.shape, place, length), put(x.strides, place, x.strides[place] * step),
                x.offset + first * x.strides[place])

    def eager(np: Any, x: Any, dim: int, start: Any, end: Any, step: int) -> Any:
        return x[along(x.ndim, dim_of(dim, x.ndim), slice_of(start, end, step))]

    def lower(L: Any, idx: Any, x: Any, dim: int, start: Any, end: Any, step: int) -> Any:
        place = dim_of(dim, len(x.shape))
        first, _ = bounds(x.shape[place], start, end, step)
        return L.at(x, put(idx, place, idx[place] * step + first))

    def vjp(F: Any, g: Any, out: Any, x: Any, dim: int, start: Any, end: Any, step: int) -> Any:
        return F.slice_backward(g, x.shape, dim, start, end, step)

    def inverse(F: Any, base: Any, value: Any, dim: int, start: Any, end: Any, step: int) -> Any:
        return F.slice_scatter(base, value, dim, start, end, step)


def _inside(L: Any, at: Any, first: Size, length: Size, step: int) -> tuple[Any, Any]:
    """(condition, place in the slice) for index `at` of the sliced dimension."""
    if step == 1:
        return L.inside(((at, first, first + length),)), at - first
    rest = (at - first) % step
    return L.inside(((at, first, first + length * step), (rest, 0, 1))), (at - first) // step


@op("slice_backward(grad: Tensor, input_sizes: list[int], dim: int, start: int | None, "
    "end: int | None, step: int) -> Tensor")
class slice_backward:
    """Zeros of `input_sizes` with `grad` in the place of the slice."""

    kind, where, exact = VIEW, "", True

    def rule(g: Any, sizes: Any, dim: int, start: Any, end: Any, step: int) -> Spec:
        place = dim_in(dim, tuple(sizes), "slice")
        want = put(sizes, place, bounds(sizes[place], start, end, step)[1])
        check_shape("slice_backward", tuple(g.shape), want)
        return like(g, sizes)

    def eager(np: Any, g: Any, sizes: Any, dim: int, start: Any, end: Any, step: int) -> Any:
        out = np.zeros(sizes, g.dtype)
        out[along(g.ndim, dim_of(dim, g.ndim), slice_of(start, end, step))] = g
        return out

    def lower(L: Any, idx: Any, g: Any, sizes: Any, dim: int, start: Any, end: Any,
              step: int) -> Any:
        place = dim_of(dim, len(sizes))
        inside, at = _inside(L, idx[place], *bounds(sizes[place], start, end, step), step)
        return L.at(g, put(idx, place, at), mask=inside, other=L.const(0, g.dtype))

    def vjp(F: Any, gg: Any, out: Any, g: Any, sizes: Any, dim: int, start: Any, end: Any,
            step: int) -> Any:
        return F.slice(gg, dim, start, end, step)

    def samples(s: Any) -> Any:
        yield s(s.any(3, 3), (5, 3), 0, 1, 4, 1)
        yield s(s.any(2, 3), (2, 7), 1, None, None, 3)
        yield s(s.any(2, 2), (2, 7), -1, -5, -1, 2)
        yield s(s.any(0), (4,), 0, 3, 1, 1)
        yield s.raises(RuntimeError, s.any(2, 3), (5, 3), 0, 1, 4, 1)


def check_shape(name: str, have: Shape, want: Shape) -> None:
    if len(have) != len(want) or not all(same(a, b) for a, b in zip(have, want, strict=True)):
        raise RuntimeError(f"{name}: expected the source to have the size of the part it replaces, "
                           f"{list(want)}, got {list(have)}")


def _scatter_rule(name: str, part: Any) -> Any:
    """The rule of a `_scatter` op, whose `part` rule gives the replaced part's type."""
    def rule(x: Any, src: Any, *rest: Any) -> Spec:
        check_shape(name, tuple(src.shape), part(x, *rest).shape)
        return like(x, x.shape)
    return rule


@op("slice_scatter(input: Tensor, src: Tensor, dim: int = 0, start: int | None = None, "
    "end: int | None = None, step: int = 1) -> Tensor")
class slice_scatter:
    """A copy of `input` with a slice replaced by `src`."""

    kind, rule, layout = INDEX, _scatter_rule("slice_scatter", _slice_rule), layout.cloned
    exact = True

    def eager(np: Any, x: Any, src: Any, dim: int, start: Any, end: Any, step: int) -> Any:
        out = x.copy()
        out[along(x.ndim, dim_of(dim, x.ndim), slice_of(start, end, step))] = src
        return out

    def lower(L: Any, idx: Any, x: Any, src: Any, dim: int, start: Any, end: Any,
              step: int) -> Any:
        place = dim_of(dim, len(x.shape))
        inside, at = _inside(L, idx[place], *bounds(x.shape[place], start, end, step), step)
        value = L.at(src, put(idx, place, at), mask=inside, other=L.const(0, src.dtype))
        return L.select(inside, L.cast(value, x.dtype), L.at(x, idx))

    def vjp(F: Any, g: Any, out: Any, x: Any, src: Any, dim: int, start: Any, end: Any,
            step: int) -> Any:
        zeros = F.full(src.shape, 0, dtype=g.dtype, device=g.device)
        return (lambda: F.slice_scatter(g, zeros, dim, start, end, step),
                lambda: F.slice(g, dim, start, end, step))

    def samples(s: Any) -> Any:
        yield s(s.any(5, 3), s.any(3, 3), 0, 1, 4)
        yield s(s.any(2, 7), s.any(2, 3), 1, None, None, 3)
        yield s(s.any(2, 7), s.any(2, 2), -1, -5, -1, 2)
        yield s(s.any(4), s.any(0), 0, 3, 1)
        yield s(s.any(4), s.any(4))
        yield s.raises(RuntimeError, s.any(5, 3), s.any(2, 3), 0, 1, 4)


def index_of(index: Size, size: Size, shape: Shape, dim: int) -> Size:
    """A `select` index made nonnegative; IndexError outside the dimension."""
    if decide(index, "<", -size) or decide(index, ">=", size):
        raise IndexError(f"select(): index {index} out of range for tensor of size {list(shape)} "
                         f"at dimension {dim}")
    return index + size if decide(index, "<", 0) else index


def _chosen(shape: Shape, dim: int, index: Any) -> tuple[int, Size]:
    place = dim_in(dim, tuple(shape), "select")
    return place, index_of(index, shape[place], tuple(shape), place)


def _select_rule(x: Any, dim: int, index: Any) -> Spec:
    return like(x, drop(x.shape, _chosen(x.shape, dim, index)[0]))


@op("select(input: Tensor, dim: int, index: int) -> Tensor")
class select:
    """`input[index]` along `dim`, which disappears."""

    kind, rule, exact = VIEW, _select_rule, True

    def layout(x: Any, dim: int, index: Any) -> Any:
        place, at = _chosen(x.shape, dim, index)
        return drop(x.shape, place), drop(x.strides, place), x.offset + at * x.strides[place]

    def eager(np: Any, x: Any, dim: int, index: Any) -> Any:
        return x[along(x.ndim, dim_of(dim, x.ndim), index)]

    def lower(L: Any, idx: Any, x: Any, dim: int, index: Any) -> Any:
        return L.at(x, add_at(idx, *_chosen(x.shape, dim, index)))

    def vjp(F: Any, g: Any, out: Any, x: Any, dim: int, index: Any) -> Any:
        place, at = _chosen(x.shape, dim, index)
        return F.slice_backward(F.unsqueeze(g, place), x.shape, place, at, at + 1, 1)

    def inverse(F: Any, base: Any, value: Any, dim: int, index: Any) -> Any:
        return F.select_scatter(base, value, dim, index)

    def samples(s: Any) -> Any:
        yield s(s.any(3, 4), 0, 1)
        yield s(s.any(3, 4), -1, -2)
        yield s(s.any(3), 0, 2)
        yield s(s.any(3, 0), 0, 2)
        yield s.raises(IndexError, s.any(3, 4), 0, 3)
        yield s.raises(IndexError, s.any(3, 4), 0, -4)
        yield s.raises(IndexError, s.any(), 0, 0)


@op("select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Tensor")
class select_scatter:
    """A copy of `input` with `input[index]` along `dim` replaced by `src`."""

    kind, rule, exact = COMPOSITE, _scatter_rule("select_scatter", _select_rule), True

    def decomp(F: Any, x: Any, src: Any, dim: int, index: Any) -> Any:
        place, at = _chosen(x.shape, dim, index)
        return F.slice_scatter(x, F.unsqueeze(src, place), place, at, at + 1)

    def samples(s: Any) -> Any:
        yield s(s.any(3, 4), s.any(4), 0, 1)
        yield s(s.any(3, 4), s.any(3), -1, -2)
        yield s(s.any(3), s.any(), 0, 2)
        yield s.raises(RuntimeError, s.any(3, 4), s.any(3), 0, 1)
        yield s.raises(IndexError, s.any(3, 4), s.any(4), 0, 3)


@op("narrow(input: Tensor, dim: int, start: int, length: int) -> Tensor")
class narrow:
    """`length` indices of `dim` from `start` on."""

    kind, exact = COMPOSITE, True

    def rule(x: Any, dim: int, start: Any, length: Any) -> Spec:
        if not x.shape:
            raise RuntimeError("narrow() cannot be applied to a 0-dim tensor.")
        place = dim_of(dim, len(x.shape))
        size = x.shape[place]
        if decide(length, "<", 0):
            raise RuntimeError("narrow(): length must be non-negative.")
        if decide(start, "<", -size) or decide(start, ">", size):
            raise IndexError("start out of range (expected to be in range of "
                             f"[{-size}, {size}], but got {start})")
        first = _start(start, size)
        if decide(first + length, ">", size):
            raise RuntimeError(f"start ({first}) + length ({length}) exceeds dimension size "
                               f"({size}).")
        return like(x, put(x.shape, place, length))

    def decomp(F: Any, x: Any, dim: int, start: Any, length: Any) -> Any:
        first = _start(start, x.shape[dim_of(dim, len(x.shape))])
        return F.slice(x, dim, first, first + length)

    def samples(s: Any) -> Any:
        yield s(s.any(5, 3), 0, 1, 3)
        yield s(s.any(5, 3), -1, -2, 2)
        yield s(s.any(5), 0, 5, 0)
        yield s.raises(RuntimeError, s.any(5), 0, 4, 2, match="exceeds dimension size")
        yield s.raises(RuntimeError, s.any(5), 0, 0, -1)
        yield s.raises(IndexError, s.any(5), 0, 6, 0)


def _start(start: Size, size: Size) -> Size:
    return start + size if decide(start, "<", 0) else start


def _diagonal(shape: Shape, offset: int, dim1: int, dim2: int) -> tuple[int, int, Size]:
    """(dim1, dim2, length) of a diagonal."""
    a, b = dim_of(dim1, len(shape)), dim_of(dim2, len(shape))
    if a == b:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    rows, cols = shape[a] + min(offset, 0), shape[b] - max(offset, 0)
    return a, b, maximum(0, minimum(rows, cols))


def _diagonal_rule(x: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Spec:
    a, b, length = _diagonal(tuple(x.shape), offset, dim1, dim2)
    return like(x, (*drop(drop(x.shape, max(a, b)), min(a, b)), length))


@op("diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor")
class diagonal:
    """Elements (i, i + offset) of the dimensions dim1, dim2, as the last dimension."""

    kind, rule, exact = VIEW, _diagonal_rule, True

    def layout(x: Any, offset: int, dim1: int, dim2: int) -> Any:
        a, b, length = _diagonal(tuple(x.shape), offset, dim1, dim2)
        high, low = max(a, b), min(a, b)
        shift = max(offset, 0) * x.strides[b] + max(-offset, 0) * x.strides[a]
        none = decide(length, "==", 0)
        return ((*drop(drop(x.shape, high), low), length),
                (*drop(drop(x.strides, high), low), x.strides[a] + x.strides[b]),
                x.offset if none else x.offset + shift)

    def eager(np: Any, x: Any, offset: int, dim1: int, dim2: int) -> Any:
        return np.diagonal(x, offset, dim1, dim2)

    def lower(L: Any, idx: Any, x: Any, offset: int, dim1: int, dim2: int) -> Any:
        a, b, _ = _diagonal(tuple(x.shape), offset, dim1, dim2)
        ends = sorted([(a, idx[-1] + max(-offset, 0)), (b, idx[-1] + max(offset, 0))],
                      key=lambda e: e[0])
        at = tuple(idx[:-1])
        for place, i in ends:
            at = add_at(at, place, i)
        return L.at(x, at)

    def vjp(F: Any, g: Any, out: Any, x: Any, offset: int, dim1: int, dim2: int) -> Any:
        zeros = F.full(x.shape, 0, dtype=g.dtype, device=g.device)
        return F.diagonal_scatter(zeros, g, offset, dim1, dim2)

    def inverse(F: Any, base: Any, value: Any, offset: int, dim1: int, dim2: int) -> Any:
        return F.diagonal_scatter(base, value, offset, dim1, dim2)

    def samples(s: Any) -> Any:
        yield s(s.any(3, 4))
        yield s(s.any(3, 4), 1)
        yield s(s.any(3, 4), -2)
        yield s(s.any(3, 4), 7)
        yield s(s.any(3, 4), -7)
        yield s(s.any(2, 3, 4), 1, 2, 0)
        yield s(s.any(2, 3, 4), 0, -1, -2)
        yield s(s.any(0, 4))
        yield s.raises(RuntimeError, s.any(3, 4), 0, 1, -1)
        yield s.raises(IndexError, s.any(3))


@op("linalg_diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor")
class linalg_diagonal:
    kind, exact, where = COMPOSITE, True, "linalg"
    rule = _diagonal_rule

    def decomp(F: Any, x: Any, offset: int, dim1: int, dim2: int) -> Any:
        return F.diagonal(x, offset, dim1, dim2)

    def samples(s: Any) -> Any:
        yield s(s.any(2, 3, 4))
        yield s(s.any(2, 3, 4), offset=1)


@op("diagonal_scatter(input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1)"
    " -> Tensor")
class diagonal_scatter:
    """A copy of `input` with a diagonal replaced by `src`."""

    kind, rule, layout = INDEX, _scatter_rule("diagonal_scatter", _diagonal_rule), layout.cloned
    exact = True

    def eager(np: Any, x: Any, src: Any, offset: int, dim1: int, dim2: int) -> Any:
        out = x.copy()
        view = np.diagonal(out, offset, dim1, dim2)
        view.flags.writeable = True
        view[...] = src
        return out

    def lower(L: Any, idx: Any, x: Any, src: Any, offset: int, dim1: int, dim2: int) -> Any:
        a, b, _ = _diagonal(tuple(x.shape), offset, dim1, dim2)
        inside = L.inside(((idx[b] - idx[a], offset, offset + 1),))
        rest = drop(drop(idx, max(a, b)), min(a, b))
        at = (*rest, idx[a] - max(-offset, 0))
        value = L.at(src, at, mask=inside, other=L.const(0, src.dtype))
        return L.select(inside, L.cast(value, x.dtype), L.at(x, idx))

    def vjp(F: Any, g: Any, out: Any, x: Any, src: Any, offset: int, dim1: int, dim2: int) -> Any:
        zeros = F.full(src.shape, 0, dtype=g.dtype, device=g.device)
        return (lambda: F.diagonal_scatter(g, zeros, offset, dim1, dim2),
                lambda: F.diagonal(g, offset, dim1, dim2))

    def samples(s: Any) -> Any:
        yield s(s.any(3, 4), s.any(3))
        yield s(s.any(3, 4), s.any(1), -2)
        yield s(s.any(2, 3, 4), s.any(3, 1), 1, 2, 0)
        yield s(s.any(2, 3, 4), s.any(3, 2), 1, 0, 2)
        yield s.raises(RuntimeError, s.any(3, 4), s.any(4))


def _windows(shape: Shape, dim: int, size: int, step: int) -> tuple[int, Size]:
    """(dimension, number of windows) of `unfold`."""
    place = dim_of(dim, len(shape))
    length = shape[place] if shape else 1
    if size < 0:
        raise RuntimeError(f"size is {size} but must be >= 0")
    if step <= 0:
        raise RuntimeError(f"step is {step} but must be > 0")
    if decide(length, "<", size):
        raise RuntimeError(f"maximum size for tensor at dimension {place} is {length} but size is "
                           f"{size}")
    return place, (length - size) // step + 1


@op("unfold(input: Tensor, dimension: int, size: int, step: int) -> Tensor")
class unfold:
    """Windows of `size` every `step` along a dimension; the window is the last dimension."""

    kind, exact, where = VIEW, True, "method"

    def rule(x: Any, dim: int, size: int, step: int) -> Spec:
        place, count = _windows(tuple(x.shape), dim, size, step)
        return like(x, (*put(x.shape, place, count), size) if x.shape else (size,))

    def layout(x: Any, dim: int, size: int, step: int) -> Any:
        place, count = _windows(tuple(x.shape), dim, size, step)
        if not x.shape:
            return (size,), (1,), x.offset
        inner = x.strides[place]
        return ((*put(x.shape, place, count), size), (*put(x.strides, place, inner * step), inner),
                x.offset)

    def eager(np: Any, x: Any, dim: int, size: int, step: int) -> Any:
        if not x.ndim:
            return x.reshape(1)[:size]
        place, count = _windows(x.shape, dim, size, step)
        if size == 0:
            return np.empty((*put(x.shape, place, count), 0), x.dtype)
        windows = np.lib.stride_tricks.sliding_window_view(x, size, place)
        return windows[along(windows.ndim, place, slice_of(None, None, step))]

    def lower(L: Any, idx: Any, x: Any, dim: int, size: int, step: int) -> Any:
        if not x.shape:
            return L.at(x, ())
        place = dim_of(dim, len(x.shape))
        return L.at(x, put(idx[:-1], place, idx[place] * step + idx[-1]))

    def vjp(F: Any, g: Any, out: Any, x: Any, dim: int, size: int, step: int) -> Any:
        return F.unfold_backward(g, x.shape, dim, size, step)

    def inverse(F: Any, base: Any, value: Any, dim: int, size: int, step: int) -> Any:
        if size > step:
            raise RuntimeError("unsupported operation: a write through overlapping windows; "
                               "clone() the windows first")
        place = dim_of(dim, len(base.shape)) if base.shape else 0
        put_back = F.unfold_backward(value, base.shape, dim, size, step)
        seen = F.full((1,) * max(len(value.shape), 1), True, dtype=dt.bool_, device=base.device)
        seen = F.unfold_backward(F.to_dtype(F.expand(seen, value.shape), dt.int32), base.shape,
                                 place, size, step)
        return F.where(F.ne(seen, 0), put_back, base)

    def samples(s: Any) -> Any:
        yield s(s.any(7), 0, 3, 2)
        yield s(s.any(2, 6), -1, 2, 3)
        yield s(s.any(6, 2), 0, 3, 1)
        yield s(s.any(), 0, 1, 1)
        yield s(s.any(3), 0, 0, 1)
        yield s.raises(RuntimeError, s.any(3), 0, 4, 1)
        yield s.raises(RuntimeError, s.any(3), 0, 2, 0)


@op("unfold_backward(grad: Tensor, input_sizes: list[int], dim: int, size: int, step: int)"
    " -> Tensor")
class unfold_backward:
    """The sum, at every index of `input_sizes`, over the windows of `unfold` that hold it."""

    kind, where, dtypes = INDEX, "", "float half int"

    def rule(g: Any, sizes: Any, dim: int, size: int, step: int) -> Spec:
        place, count = _windows(tuple(sizes), dim, size, step)
        want = (*put(sizes, place, count), size) if len(sizes) else (size,)
        check_shape("unfold_backward", tuple(g.shape), want)
        return like(g, sizes)

    def eager(np: Any, g: Any, sizes: Any, dim: int, size: int, step: int) -> Any:
        if not len(sizes):
            return g.sum(dtype=g.dtype)
        place, count = _windows(tuple(sizes), dim, size, step)
        out = np.zeros(sizes, g.dtype)
        for k in range(size):
            part = slice_of(k, k + (count - 1) * step + 1, step)
            out[along(out.ndim, place, part)] += g[..., k]
        return out

    def lower(L: Any, idx: Any, g: Any, sizes: Any, dim: int, size: int, step: int) -> Any:
        if not len(sizes):
            return L.reduce("sum", (size,), lambda k: L.at(g, k))
        place, count = _windows(tuple(sizes), dim, size, step)
        zero = L.const(0, g.dtype)

        def body(k: Any) -> Any:
            # Of the windows that hold the index, number k counted from the last one that does.
            window = idx[place] // step - k[0]
            within = idx[place] - window * step
            here = L.inside(((window, 0, count), (within, 0, size)))
            return L.at(g, (*put(idx, place, window), within), mask=here, other=zero)
        return L.reduce("sum", (-(-size // step),), body)

    def vjp(F: Any, gg: Any, out: Any, g: Any, sizes: Any, dim: int, size: int, step: int) -> Any:
        return F.unfold(gg, dim, size, step)

    def samples(s: Any) -> Any:
        yield s(s.any(3, 3), (7,), 0, 3, 2)
        yield s(s.any(2, 2, 2), (2, 6), -1, 2, 3)
        yield s(s.any(4, 2, 3), (6, 2), 0, 3, 1)
        yield s(s.any(1), (), 0, 1, 1)
        yield s(s.any(4, 0), (3,), 0, 0, 1)


def _spread(size: Sequence[Size], stride: Sequence[Size], offset: Size | None) -> None:
    if len(size) != len(stride):
        raise RuntimeError(f"mismatch in length of strides and shape: {list(stride)}, {list(size)}")
    if any(isinstance(n, int) and n < 0 for n in stride):
        raise RuntimeError("as_strided: Negative strides are not supported at the moment, got "
                           f"strides: {list(stride)}")
    if offset is not None and decide(offset, "<", 0):
        raise RuntimeError(f"as_strided: negative storage offset {offset}")


def _as_strided_rule(x: Any, size: Any, stride: Any, offset: Any = None) -> Spec:
    _spread(size, stride, offset)
    return like(x, size)


def _flat_places(np: Any, count: int, size: Any, stride: Any, offset: Any) -> Any:
    """The storage index of each element of a strided view; RuntimeError beyond `count`."""
    places = np.full(tuple(size), offset or 0, np.int64)
    for d, (n, st) in enumerate(zip(size, stride, strict=True)):
        places += (np.arange(n) * st).reshape((n,) + (1,) * (len(size) - d - 1))
    if places.size and places.max() >= count:
        raise RuntimeError(
            f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {offset or 0} "
            f"require {int(places.max()) + 1} elements and are out of bounds for storage of "
            f"{count}")
    return places


@op("as_strided(input: Tensor, size: list[int], stride: list[int], "
    "storage_offset: int | None = None) -> Tensor")
class as_strided:
    """Any sizes and strides (in elements) on the storage.

    In graphs and in `eager` the storage is taken to be the input's elements in row-major order.
    """

    kind, rule, exact = VIEW, _as_strided_rule, True

    def layout(x: Any, size: Any, stride: Any, offset: Any) -> Any:
        _spread(size, stride, offset)
        return tuple(size), tuple(stride), x.offset if offset is None else offset

    def eager(np: Any, x: Any, size: Any, stride: Any, offset: Any) -> Any:
        return x.reshape(-1)[_flat_places(np, x.size, size, stride, offset)]

    def lower(L: Any, idx: Any, x: Any, size: Any, stride: Any, offset: Any) -> Any:
        flat = linearize(tuple(idx), tuple(size), tuple(stride)) + (offset or 0)
        if tuple(x.shape) == (0,):      # a data-dependent index stays, which is checked
            return L.at(x, (flat,))
        return L.at(x, delinearize(flat, tuple(x.shape)))

    def vjp(F: Any, g: Any, out: Any, x: Any, size: Any, stride: Any, offset: Any) -> Any:
        count = numel(x.shape)
        places = F.as_strided(F.arange(count, device=g.device), size, stride, offset)
        zeros = F.full((count,), 0, dtype=g.dtype, device=g.device)
        summed = F.index_add(zeros, 0, F.reshape(places, -1), F.reshape(g, -1))
        return F.reshape(summed, x.shape)

    def inverse(F: Any, base: Any, value: Any, size: Any, stride: Any, offset: Any) -> Any:
        return F.as_strided_scatter(base, value, size, stride, offset)

    def samples(s: Any) -> Any:
        yield s(s.any(12), (2, 3), (4, 1))
        yield s(s.any(3, 4), (4, 3), (1, 4), 0)
        yield s(s.any(12), (3, 3), (2, 1), 3)
        yield s(s.any(5), (), (), 2)
        yield s(s.any(5), (0, 2), (1, 1))
        yield s.raises(RuntimeError, s.any(5), (2, 3), (1, 2), match="out of bounds")
        yield s.raises(RuntimeError, s.any(5), (2,), (1, 2), match="mismatch in length")
        yield s.raises(RuntimeError, s.any(5), (2,), (-1,), match="Negative strides")


@op("as_strided_scatter(input: Tensor, src: Tensor, size: list[int], stride: list[int], "
    "storage_offset: int | None = None) -> Tensor")
class as_strided_scatter:
    """A copy of `input` with the elements of an `as_strided` view replaced by `src`."""

    kind, rule = INDEX, _scatter_rule("as_strided_scatter", _as_strided_rule)
    layout, exact = layout.cloned, True

    def eager(np: Any, x: Any, src: Any, size: Any, stride: Any, offset: Any) -> Any:
        out = x.copy()
        out.reshape(-1)[_flat_places(np, x.size, size, stride, offset)] = src
        return out

    def scatter(L: Any, x: Any, src: Any, size: Any, stride: Any, offset: Any) -> Any:
        def index(k: Any) -> Any:
            flat = linearize(tuple(k), tuple(size), tuple(stride)) + (offset or 0)
            return delinearize(flat, tuple(x.shape))
        return L.scatter(x, tuple(size), index, lambda k: L.cast(L.at(src, k), x.dtype), "set")

    def vjp(F: Any, g: Any, out: Any, x: Any, src: Any, size: Any, stride: Any, offset: Any) -> Any:
        zeros = F.full(src.shape, 0, dtype=g.dtype, device=g.device)
        return (lambda: F.as_strided_scatter(g, zeros, size, stride, offset),
                lambda: F.as_strided(g, size, stride, offset))

    def samples(s: Any) -> Any:
        yield s(s.any(12), s.any(2, 3), (2, 3), (4, 1))
        yield s(s.any(3, 4), s.any(4, 3), (4, 3), (1, 4), 0)
        yield s.raises(RuntimeError, s.any(12), s.any(2), (2, 3), (4, 1))


def _diag_rule(x: Any, diagonal: int = 0) -> Spec:
    if len(x.shape) == 2:
        return _diagonal_rule(x, diagonal)
    if len(x.shape) == 1:
        n = x.shape[0] + abs(diagonal)
        return like(x, (n, n))
    raise RuntimeError(f"diag(): Supports 1D or 2D tensors. Got {len(x.shape)}D")


@op("diag(input: Tensor, diagonal: int = 0) -> Tensor")
class diag:
    """The diagonal of a matrix (a copy), or the matrix with this diagonal."""

    kind, rule, exact = COMPOSITE, _diag_rule, True

    def decomp(F: Any, x: Any, diagonal: int) -> Any:
        return (F.diagonal_copy(x, diagonal) if len(x.shape) == 2
                else F.diag_embed(x, diagonal))

    def samples(s: Any) -> Any:
        yield s(s.any(3, 4))
        yield s(s.any(3, 4), -1)
        yield s(s.any(3))
        yield s(s.any(3), 2)
        yield s.raises(RuntimeError, s.any(2, 3, 4))


def _embedding(shape: Shape, offset: int, dim1: int, dim2: int) -> tuple[int, int, Shape]:
    """(dim1, dim2, shape) of the result of `diag_embed`."""
    if not shape:
        raise IndexError("diag_embed: a 0-d tensor has no diagonal")
    ndim = len(shape) + 1
    a, b = dim_of(dim1, ndim), dim_of(dim2, ndim)
    if a == b:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    n = shape[-1] + abs(offset)
    return a, b, add_at(add_at(shape[:-1], min(a, b), n), max(a, b), n)


@op("diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor")
class diag_embed:
    """Square matrices of zeros whose diagonals are the last dimension of the input."""

    kind, exact = VIEW, True

    def rule(x: Any, offset: int, dim1: int, dim2: int) -> Spec:
        return like(x, _embedding(tuple(x.shape), offset, dim1, dim2)[2])

    def eager(np: Any, x: Any, offset: int, dim1: int, dim2: int) -> Any:
        a, b, shape = _embedding(x.shape, offset, dim1, dim2)
        out = np.zeros(shape, x.dtype)
        view = np.diagonal(out, offset, a, b)
        view.flags.writeable = True
        view[...] = x
        return out

    def lower(L: Any, idx: Any, x: Any, offset: int, dim1: int, dim2: int) -> Any:
        a, b, _ = _embedding(tuple(x.shape), offset, dim1, dim2)
        inside = L.inside(((idx[b] - idx[a], offset, offset + 1),))
        rest = drop(drop(idx, max(a, b)), min(a, b))
        return L.at(x, (*rest, idx[a] - max(-offset, 0)), mask=inside, other=L.const(0, x.dtype))

    def vjp(F: Any, g: Any, out: Any, x: Any, offset: int, dim1: int, dim2: int) -> Any:
        return F.diagonal(g, offset, dim1, dim2)

    def samples(s: Any) -> Any:
        yield s(s.any(3))
        yield s(s.any(2, 3), 1)
        yield s(s.any(2, 3), -2, 0, 2)
        yield s(s.any(2, 3), 1, 1, 0)
        yield s(s.any(0))
        yield s.raises(RuntimeError, s.any(3), 0, 1, 1)


@op("diagflat(input: Tensor, offset: int = 0) -> Tensor")
class diagflat:
    kind, exact = COMPOSITE, True

    def rule(x: Any, offset: int) -> Spec:
        n = numel(x.shape) + abs(offset)
        return like(x, (n, n))

    def decomp(F: Any, x: Any, offset: int) -> Any:
        return F.diag_embed(F.reshape(x, -1), offset)

    def samples(s: Any) -> Any:
        yield s(s.any(2, 2))
        yield s(s.any(3), -1)
        yield s(s.any())


@op("narrow_copy(input: Tensor, dim: int, start: int, length: int) -> Tensor")
class narrow_copy:
    """`narrow` into new memory."""

    kind, rule, exact, samples = COMPOSITE, narrow.rule, True, narrow.samples

    def decomp(F: Any, x: Any, dim: int, start: Any, length: Any) -> Any:
        first = _start(start, x.shape[dim_of(dim, len(x.shape))])
        return F.slice_copy(x, dim, first, first + length)


for _source in (slice, select, diagonal, unfold, as_strided):
    copy_of(_source)
