"""Eager layouts: the strides PyTorch gives to results, computed from shapes and strides alone.

Strides are in elements. A rule here sees no data, so eager tensors and captured ones get the same
layout.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from lehr.base.proof import decide

Shape = tuple[Any, ...]


def contiguous(shape: Shape) -> Shape:
    """Row-major strides; a size of 0 counts as 1, as in PyTorch."""
    out: list[Any] = [1] * len(shape)
    n: Any = 1
    for i in range(len(shape) - 1, -1, -1):
        out[i] = n
        size = shape[i]
        if not (isinstance(size, int) and size == 0):
            n = n * size
    return tuple(out)


def is_contiguous(shape: Shape, strides: Shape) -> bool:
    """Row-major up to the strides of size-1 dimensions; tensors without elements are contiguous."""
    want: Any = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if isinstance(size, int):
            if size == 0:
                return True
            if size == 1:
                continue
        if stride is not want and not (stride == want):
            if not isinstance(size, int) and size == 1:     # a symbol that is decided to be 1
                continue
            return any(isinstance(s, int) and s == 0 for s in shape)
        want = want * size
    return True


def ordered(shape: Shape, order: Sequence[int]) -> Shape:
    """Dense strides with `order` listing the dimensions from slowest to fastest."""
    out: list[Any] = [1] * len(shape)
    n: Any = 1
    for d in reversed(order):
        out[d] = n
        size = shape[d]
        if not (isinstance(size, int) and size == 0):
            n = n * size
    return tuple(out)


CHANNELS_LAST = {4: (0, 2, 3, 1), 5: (0, 2, 3, 4, 1)}


def channels_last(shape: Shape) -> Shape:
    return ordered(shape, CHANNELS_LAST[len(shape)])


def is_channels_last(shape: Shape, strides: Shape) -> bool:
    """Channels innermost (4-d and 5-d), up to the strides of size-1 dimensions. Unlike
    `is_contiguous`, a tensor without elements has to have such strides too."""
    if len(shape) not in CHANNELS_LAST:
        return False
    want: Any = 1
    for d in reversed(CHANNELS_LAST[len(shape)]):
        size = shape[d]
        if not (isinstance(size, int) and size == 1):
            if strides[d] is not want and not (strides[d] == want):
                return False
            want = want * size
    return True


def is_dense(shape: Shape, strides: Shape) -> bool:
    """Non-overlapping and dense: some permutation of the dimensions is row-major."""
    dims = [(st, s) for s, st in zip(shape, strides, strict=True) if s != 1]
    if any(s == 0 for _, s in dims) or all(isinstance(v, int) for d in dims for v in d):
        want = 1
        for stride, size in sorted(dims):
            if stride != want:
                return any(s == 0 for s in shape)
            want *= size
        return True
    if is_contiguous(shape, strides):
        return True
    if any(isinstance(stride, int) and stride == 0 for stride, _ in dims):
        return False
    end: Any = 1
    for stride, size in sorted(dims, key=functools.cmp_to_key(_by_stride)):
        if stride is not end and not stride == end:
            return False
        end = end * size
    return True


def _by_stride(a: Any, b: Any) -> int:
    return _compare(a[0], b[0])


def _compare(a: Any, b: Any) -> int:
    if isinstance(a, int) and isinstance(b, int):
        return (a > b) - (a < b)
    if a is b or a == b:
        return 0
    return -1 if decide(a, "<", b) else 0 if decide(a, "==", b) else 1


def pointwise(shape: Shape, operands: Sequence[tuple[Shape, Shape]]) -> Shape:
    """Strides of an elementwise result, from each tensor operand's (shape, strides).

    PyTorch's TensorIterator: equal dense layouts are kept; otherwise dimensions are ordered by the
    first operand that tells two of them apart.
    """
    alike = all(len(s) == len(shape) and s == shape for s, _ in operands)
    if alike:
        if all(is_contiguous(s, st) for s, st in operands):
            return contiguous(shape)
        # PyTorch's shortcut knows the 4-d format only.
        if len(shape) == 4 and all(is_channels_last(s, st) for s, st in operands):
            return channels_last(shape)
        first = operands[0][1]
        if all(st == first for _, st in operands) and is_dense(shape, first):
            return tuple(first)
    ndim = len(shape)
    wide = []
    for s, st in operands:
        gap = ndim - len(s)
        wide.append([0] * gap + [0 if _is_one(s[i]) and shape[gap + i] != 1 else st[i]
                                 for i in range(len(s))])
    order = list(range(ndim - 1, -1, -1))  # fastest first

    def swap(a: int, b: int) -> int:
        for strides in wide:
            x, y = strides[a], strides[b]
            if (isinstance(x, int) and x == 0) or (isinstance(y, int) and y == 0):
                continue
            side = _compare(x, y)
            if side:
                return side
            if _compare(shape[a], shape[b]) > 0:
                return 1
        return 0

    for i in range(1, ndim):
        low = i
        for j in range(i - 1, -1, -1):
            side = swap(order[j], order[low])
            if side > 0:
                order[j], order[low] = order[low], order[j]
                low = j
            elif side < 0:
                break
    if order == list(range(ndim - 1, -1, -1)):
        return contiguous(shape)
    out: list[Any] = [1] * ndim
    n: Any = 1
    for d in order:  # here, unlike in `contiguous`, a size of 0 makes the outer strides 0
        out[d] = n
        n = n * shape[d]
    return tuple(out)


def preserve(shape: Shape, strides: Shape) -> Shape:
    """`memory_format=torch.preserve_format` of one tensor."""
    return tuple(strides) if is_dense(shape, strides) else pointwise(shape, [(shape, strides)])


# Layouts as declarations hold them: the strides of a result from its spec and the bound arguments.

def preserved(spec: Any, x: Any, *rest: Any) -> Shape:
    """The layout of the first operand, made dense."""
    return preserve(tuple(x.shape), tuple(x.strides))


def cloned(spec: Any, x: Any, *rest: Any) -> Shape:
    """The strides of the first operand, gaps included, unless elements of it may share memory."""
    held = sorted((st, n) for st, n in zip(x.strides, x.shape, strict=True) if not _is_one(n))
    end: Any = 1
    for stride, size in held:
        if _compare(stride, end) < 0:
            return preserved(spec, x)
        end = stride * size
    return tuple(x.strides)


def column_major(shape: Shape) -> Shape:
    """Matrices in the last two dimensions as LAPACK has them: columns are contiguous."""
    n = len(shape)
    return ordered(shape, (*range(n - 2), n - 1, n - 2)) if n > 1 else contiguous(shape)


def columns(spec: Any, x: Any, *rest: Any) -> Shape:
    """Column-major results of as many dimensions as the first operand; others are row-major."""
    shape = tuple(spec.shape)
    return column_major(shape) if len(shape) == len(x.shape) else contiguous(shape)


def transformed(spec: Any, x: Any, dims: Sequence[int], last: int | None = None) -> Shape:
    """What the Fourier transform along `dims` leaves: the other dimensions outermost, both by
    descending strides of the input; `last` (the halved dimension) is the fastest."""
    order = [d for d in range(len(x.shape)) if d not in dims and d != last]
    inner = [d for d in dims if d != last]
    for group in (order, inner):
        group.sort(key=functools.cmp_to_key(
            lambda a, b: _compare(x.strides[b], x.strides[a])))
    return ordered(tuple(spec.shape), (*order, *inner, *(() if last is None else (last,))))


def suggested(spec: Any, x: Any, *rest: Any) -> Shape:
    """Channels-last where the first operand is, else row-major."""
    shape = tuple(spec.shape)
    return channels_last(shape) if prefers_channels(x) else contiguous(shape)


def row_major(spec: Any, *rest: Any) -> Shape:
    return contiguous(tuple(spec.shape))


def prefers_channels(x: Any) -> bool:
    """A 4-d or 5-d tensor whose strides are channels-last and not also row-major."""
    what = tuple(x.shape), tuple(x.strides)
    return is_channels_last(*what) and not is_contiguous(*what)


def view(shape: Shape, strides: Shape, target: Shape) -> Shape | None:
    """Strides of a view of (shape, strides) as `target`, or None where only a copy can have it.

    Adjacent dimensions that step evenly merge into one run; each run must be cut up exactly by
    consecutive target dimensions. A target dimension of size 1 belongs to the run to its right.
    """
    if any(isinstance(s, int) and s == 0 for s in shape):
        return tuple(strides) if tuple(shape) == tuple(target) else contiguous(target)
    out: list[Any] = [1] * len(target)
    place = len(target) - 1
    for size, stride in _runs(shape, strides) or [(1, 1)]:
        filled: Any = 1
        while place >= 0 and (_is_one(target[place]) or _compare(filled, size) < 0):
            out[place] = filled * stride
            filled = filled * target[place]
            place -= 1
        if _compare(filled, size):
            return None
    return tuple(out) if place < 0 else None


def _is_one(size: Any) -> bool:
    return isinstance(size, int) and size == 1


def _runs(shape: Shape, strides: Shape) -> list[tuple[Any, Any]]:
    """(elements, innermost stride) of the runs of dimensions that merge, innermost first."""
    runs: list[tuple[Any, Any]] = []
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if runs:
            count, inner = runs[-1]
            if _is_one(size) or stride is count * inner or stride == count * inner:
                runs[-1] = (count * size, inner)
                continue
        runs.append((size, stride))
    return runs
