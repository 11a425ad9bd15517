"""Index maps between shapes, row-major: what a reshape, a flattening or a view does to an index.

A shape is a sequence of sizes, an index a sequence of expressions with ``0 <= index[i] <
shape[i]``. Sizes and indices are `int` or `Sym`. Where a size is zero there is no index, and any
answer is right: these return zeros.
"""

from __future__ import annotations

from collections.abc import Sequence

from lehr.base.poly import Expr
from lehr.base.proof import prove_eq
from lehr.base.sym import prod, to_text

Index = tuple[Expr, ...]


def _shown(shape: Sequence[Expr]) -> str:
    return f"[{', '.join(map(to_text, shape))}]"


def contiguous(shape: Sequence[Expr]) -> Index:
    """The row-major strides of a shape, in elements."""
    strides: list[Expr] = []
    step: Expr = 1
    for extent in reversed(shape):
        strides.append(step)
        step = step * extent
    return tuple(reversed(strides))


def linearize(
    index: Sequence[Expr], shape: Sequence[Expr], strides: Sequence[Expr] | None = None
) -> Expr:
    """The flat offset, in elements, of an index; `strides` defaults to row-major. `ValueError`
    where ranks differ.
    """
    if strides is None:
        strides = contiguous(shape)
    if not len(index) == len(shape) == len(strides):
        raise ValueError(
            f"an index of {len(index)} and {len(strides)} strides do not fit {_shown(shape)}"
        )
    flat: Expr = 0
    for i, extent, stride in zip(index, shape, strides, strict=True):
        if not (isinstance(extent, int) and extent == 1):
            flat = flat + i * stride
    return flat


def delinearize(flat: Expr, shape: Sequence[Expr]) -> Index:
    """The index of the flat row-major offset, which must be within the shape."""
    if any(isinstance(extent, int) and extent == 0 for extent in shape):
        return (0,) * len(shape)
    index: list[Expr] = []
    inside = [not (isinstance(extent, int) and extent == 1) for extent in shape]
    first = inside.index(True) if True in inside else len(shape)
    for d, (extent, stride) in enumerate(zip(shape, contiguous(shape), strict=True)):
        if not inside[d]:
            index.append(0)
        else:
            i = flat // stride
            index.append(i if d == first else i % extent)
    return tuple(index)


def _prefixes(shape: Sequence[Expr], axes: Sequence[int]) -> list[Expr]:
    """The products of the first k of the listed axes, for k = 1, 2, ..."""
    result: list[Expr] = []
    total: Expr = 1
    for d in axes:
        total = total * shape[d]
        result.append(total)
    return result


def reshape_index(
    out_index: Sequence[Expr], out_shape: Sequence[Expr], in_shape: Sequence[Expr]
) -> Index:
    """Where element `out_index` of a row-major reshape to `out_shape` lies in `in_shape`.

    Axes are grouped where the products of the leading sizes agree, so that a division or remainder
    remains only where an axis is really split. `ValueError` where ranks do not fit or the numbers
    of elements are proven to differ.
    """
    if len(out_index) != len(out_shape):
        raise ValueError(f"an index of {len(out_index)} does not fit the shape {_shown(out_shape)}")
    if prove_eq(prod(out_shape), prod(in_shape)) is False:
        raise ValueError(f"cannot reshape {_shown(in_shape)} to {_shown(out_shape)}: sizes differ")
    if any(isinstance(d, int) and d == 0 for d in (*out_shape, *in_shape)):
        return (0,) * len(in_shape)
    result: list[Expr] = [0] * len(in_shape)
    outer = [d for d, e in enumerate(out_shape) if not (isinstance(e, int) and e == 1)]
    inner = [d for d, e in enumerate(in_shape) if not (isinstance(e, int) and e == 1)]
    ends = {total: k for k, total in enumerate(_prefixes(in_shape, inner), 1)}
    o = i = 0
    for k, total in enumerate(_prefixes(out_shape, outer), 1):
        stop = ends.get(total, 0)
        if k == len(outer):
            stop = len(inner)
        if stop <= i:
            continue
        sources, targets = outer[o:k], inner[i:stop]
        o, i = k, stop
        flat = linearize([out_index[d] for d in sources], [out_shape[d] for d in sources])
        for d, e in zip(targets, delinearize(flat, [in_shape[d] for d in targets]), strict=True):
            result[d] = e
    return tuple(result)
