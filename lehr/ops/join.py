"""Joining tensors: concatenation, stacking, grids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lehr.base import dtype as dt
from lehr.ops import layout, rule
from lehr.ops.registry import COMPOSITE, INDEX, op
from lehr.ops.rule import Shape, Size, Spec, device_of, dim_of, numel, same
from lehr.ops.slice import add_at, put
from lehr.ops.view import like


def joined_dtype(tensors: Sequence[Any]) -> Any:
    return rule.operands_type(tensors)


def is_legacy(x: Any) -> bool:
    """An empty 1-d tensor, which `cat` skips whatever the shape of the others."""
    return len(x.shape) == 1 and isinstance(x.shape[0], int) and x.shape[0] == 0


def check_tensor(x: Any, place: int) -> None:
    if not rule.is_tensor(x):
        raise TypeError(f"expected Tensor as element {place} in argument 0, but got "
                        f"{type(x).__name__}")


def parts(tensors: Sequence[Any], dim: int) -> tuple[list[Any], int]:
    """The tensors that `cat` joins, and the dimension; errors where shapes differ elsewhere."""
    if not len(tensors):
        raise ValueError("torch.cat(): expected a non-empty list of Tensors")
    for i, x in enumerate(tensors):
        check_tensor(x, i)
        if not x.shape:
            raise RuntimeError(f"zero-dimensional tensor (at position {i}) cannot be concatenated")
    kept = [x for x in tensors if not is_legacy(x)]
    if not kept:
        return [tensors[0]], dim_of(dim, 1)
    first = kept[0]
    place = dim_of(dim, len(first.shape))
    for i, x in enumerate(kept):
        if len(x.shape) != len(first.shape):
            raise RuntimeError("Tensors must have same number of dimensions: got "
                               f"{len(first.shape)} and {len(x.shape)}")
        for d, (a, b) in enumerate(zip(first.shape, x.shape, strict=True)):
            if d != place and not same(a, b):
                raise RuntimeError(
                    f"Sizes of tensors must match except in dimension {place}. Expected size {a} "
                    f"but got size {b} for tensor number {i} in the list.")
    return kept, place


def total(sizes: Sequence[Size]) -> Size:
    out: Size = 0
    for n in sizes:
        out = out + n
    return out


def _cat_rule(tensors: Any, dim: int) -> Spec:
    kept, place = parts(tensors, dim)
    shape = put(kept[0].shape, place, total([x.shape[place] for x in kept]))
    return Spec(shape, joined_dtype(tensors), device_of(tensors))


def _cat_layout(spec: Spec, tensors: Any, dim: int) -> Shape:
    shape = tuple(spec.shape)
    if all(layout.prefers_channels(x) for x in tensors):
        return layout.channels_last(shape)
    return layout.contiguous(shape)


@op("cat(tensors: list[Tensor], dim: int = 0) -> Tensor")
class cat:
    """The tensors one after the other along `dim`, in their common dtype."""

    kind, rule, layout, exact = INDEX, _cat_rule, _cat_layout, True
    aliases = ("concat", "concatenate")
    where, described = "function", ("tensors",)

    def eager(np: Any, tensors: Any, dim: int) -> Any:
        kept, place = parts(tensors, dim)
        made = _numpy_dtype(tensors)
        return np.concatenate([x if x.dtype == made else x.astype(made) for x in kept], place)

    def decomp(F: Any, tensors: Any, dim: int) -> Any:
        made = joined_dtype(tensors)
        if all(x.dtype is made for x in tensors):
            return NotImplemented
        return F.cat([F.to_dtype(x, made) for x in tensors], dim)

    def lower(L: Any, idx: Any, tensors: Any, dim: int) -> Any:
        kept, place = parts(tensors, dim)
        starts: list[Any] = [0]
        for x in kept:
            starts.append(starts[-1] + x.shape[place])
        out = L.at(kept[-1], put(idx, place, idx[place] - starts[-2]),
                   **({} if len(kept) == 1 else {
                       "mask": L.inside(((idx[place], starts[-2], starts[-1]),)),
                       "other": L.const(0, kept[-1].dtype)}))
        for x, low, high in zip(kept[-2::-1], starts[-3::-1], starts[-2:0:-1], strict=True):
            here = L.inside(((idx[place], low, high),))
            out = L.at(x, put(idx, place, idx[place] - low), mask=here, other=out)
        return out

    def vjp(F: Any, g: Any, out: Any, tensors: Any, dim: int) -> Any:
        _, place = parts(tensors, dim)
        grads, start = [], 0
        for x in tensors:
            if is_legacy(x):
                grads.append(F.full(x.shape, 0, dtype=g.dtype, device=g.device))
                continue
            end = start + x.shape[place]
            grads.append(lambda start=start, end=end: F.slice(g, place, start, end))
            start = end
        return grads

    def samples(s: Any) -> Any:
        yield s([s.any(2, 3), s.any(1, 3)])
        yield s([s.any(2, 3), s.any(2, 1), s.any(2, 2)], -1)
        yield s([s.any(2, 3)], 1)
        yield s([s.any(0), s.any(2, 3)])
        yield s([s.any(0), s.any(0)])
        yield s([s.any(3), s.f(2, dtype=dt.float64)])
        yield s([s.any(3), s.i(2, dtype=dt.int16)])
        yield s([s.any(3, 0), s.any(3, 2)], 1)
        yield s.raises(RuntimeError, [s.any(2, 3), s.any(2, 4)], match="must match except")
        yield s.raises(RuntimeError, [s.any(2, 3), s.any(3)], match="same number of dimensions")
        yield s.raises(RuntimeError, [s.any()], match="zero-dimensional")
        yield s.raises(IndexError, [s.any(2, 3), s.any(2, 3)], 2)
        yield s.raises(ValueError, [])
        yield s.raises(TypeError, [None, s.any(2)])


def _numpy_dtype(tensors: Sequence[Any]) -> Any:
    made = {x.dtype for x in tensors}
    if len(made) == 1:
        return made.pop()
    return dt.result_type([dt.of_numpy(x.dtype) for x in tensors if x.ndim],
                          [dt.of_numpy(x.dtype) for x in tensors if not x.ndim]).np


def _alike(name: str, tensors: Sequence[Any]) -> Any:
    if not len(tensors):
        raise RuntimeError(f"{name} expects a non-empty TensorList")
    first = tensors[0]
    for i, x in enumerate(tensors):
        check_tensor(x, i)
        if len(x.shape) != len(first.shape) or not all(map(same, x.shape, first.shape)):
            raise RuntimeError(f"{name} expects each tensor to be equal size, but got "
                               f"{list(first.shape)} at entry 0 and {list(x.shape)} at entry {i}")
    return first


def _stack_rule(tensors: Any, dim: int) -> Spec:
    first = _alike("stack", tensors)
    shape = add_at(first.shape, dim_of(dim, len(first.shape) + 1), len(tensors))
    return Spec(shape, joined_dtype(tensors), device_of(tensors))


@op("stack(tensors: list[Tensor], dim: int = 0) -> Tensor")
class stack:
    """The tensors side by side along a new dimension, in their common dtype."""

    kind, rule, exact, where = COMPOSITE, _stack_rule, True, "function"

    def decomp(F: Any, tensors: Any, dim: int) -> Any:
        place = dim_of(dim, len(tensors[0].shape) + 1)
        return F.cat([F.unsqueeze(x, place) for x in tensors], place)

    def samples(s: Any) -> Any:
        yield s([s.any(2, 3), s.any(2, 3)])
        yield s([s.any(2, 3), s.any(2, 3), s.any(2, 3)], -1)
        yield s([s.any(), s.any()], 0)
        yield s([s.any(0), s.any(0)], 1)
        yield s([s.any(3), s.f(3, dtype=dt.float64)])
        yield s.raises(RuntimeError, [s.any(2, 3), s.any(2, 4)], match="equal size")
        yield s.raises(IndexError, [s.any(2, 3), s.any(2, 3)], 3)


def _rows(x: Any, ndim: int) -> Shape:
    """The shape after atleast_1d, 2d or 3d."""
    n = tuple(x.shape)
    if len(n) >= ndim:
        return n
    if ndim == 3 and n:
        return (1, n[0], 1) if len(n) == 1 else (*n, 1)
    return (1,) * (ndim - len(n)) + n


def _column(x: Any) -> Shape:
    n = tuple(x.shape)
    return n if len(n) > 1 else (n[0] if n else 1, 1)


STACKS: dict[str, tuple[Any, Any]] = {
    # name: (shape of an operand, joined dimension given that shape's rank)
    "hstack": (lambda x: _rows(x, 1), lambda ndim: 0 if ndim == 1 else 1),
    "vstack": (lambda x: _rows(x, 2), lambda ndim: 0),
    "dstack": (lambda x: _rows(x, 3), lambda ndim: 2),
    "column_stack": (_column, lambda ndim: 1),
}
ALIASES = {"vstack": ("row_stack",)}


class _Shaped:
    """A tensor's type under another shape."""

    def __init__(self, x: Any, shape: Shape) -> None:
        self.shape, self.dtype, self.device = shape, x.dtype, x.device


def _stack_of(name: str, shape_of: Any, dim_given: Any) -> Any:
    def rule(tensors: Any) -> Spec:
        if not len(tensors):
            raise RuntimeError(f"{name} expects a non-empty TensorList")
        shaped = [_Shaped(x, shape_of(x)) for x in tensors]
        return _cat_rule(shaped, dim_given(len(shaped[0].shape)))

    def decomp(F: Any, tensors: Any) -> Any:
        shaped = [F.reshape(x, shape_of(x)) if shape_of(x) != tuple(x.shape) else x
                  for x in tensors]
        return F.cat(shaped, dim_given(len(shaped[0].shape)))

    def samples(s: Any) -> Any:
        yield s([s.any(2, 3), s.any(2, 3)])
        yield s([s.any(3), s.any(3)])
        yield s([s.any(), s.any()])
        yield s([s.any(2, 3, 4), s.any(2, 3, 4)])
        yield s.raises(RuntimeError, [s.any(2, 3), s.any(3, 4)])

    fields = {"kind": COMPOSITE, "rule": rule, "decomp": decomp, "samples": samples, "exact": True,
              "where": "function", "aliases": ALIASES.get(name, ()),
              "__doc__": f"`{name}` as a reshape and `cat`."}
    return op(f"{name}(tensors: list[Tensor]) -> Tensor")(type(name, (), fields))


for _name, _how in STACKS.items():
    _stack_of(_name, *_how)


def _atleast(ndim: int) -> Any:
    """`atleast_<n>d` of one tensor."""
    def rule(x: Any) -> Spec:
        return like(x, _rows(x, ndim))

    def decomp(F: Any, x: Any) -> Any:
        return x if len(x.shape) >= ndim else F.reshape(x, _rows(x, ndim))

    def samples(s: Any) -> Any:
        for shape in ((), (3,), (2, 3), (2, 3, 4), (1, 2, 3, 4)):
            yield s(s.any(*shape))

    fields = {"kind": COMPOSITE, "rule": rule, "decomp": decomp, "samples": samples, "exact": True,
              "where": "function", "__doc__": f"At least {ndim} dimensions, a view."}
    return op(f"atleast_{ndim}d(input: Tensor) -> Tensor")(type(f"atleast_{ndim}d", (), fields))


for _ndim in (1, 2, 3):
    _atleast(_ndim)


def _block(x: Any) -> Shape:
    if len(x.shape) > 2:
        raise RuntimeError("torch.block_diag: Input tensors must have 2 or fewer dimensions. Got "
                           f"{len(x.shape)} dimensions")
    return (1,) * (2 - len(x.shape)) + tuple(x.shape)


@op("block_diag(*tensors: Tensor) -> Tensor")
class block_diag:
    """The matrices along the diagonal of a matrix of zeros; fewer dimensions count as a row."""

    kind, exact, where = COMPOSITE, True, "function"

    def rule(tensors: Any) -> Spec:
        blocks = [_block(x) for x in tensors] or [(1, 0)]
        shape = (total([n for n, _ in blocks]), total([n for _, n in blocks]))
        made = joined_dtype(tensors) if tensors else dt.Default.dtype
        return Spec(shape, made, device_of(tensors))

    def decomp(F: Any, tensors: Any) -> Any:
        made = joined_dtype(tensors) if tensors else dt.Default.dtype
        if not tensors:
            return F.full((1, 0), 0, dtype=made)
        width = total([_block(x)[1] for x in tensors])
        rows, start = [], 0
        for x in tensors:
            n, m = _block(x)
            row = F.to_dtype(F.reshape(x, (n, m)), made)
            rows.append(F.constant_pad_nd(row, (start, width - start - m)))
            start = start + m
        return F.cat(rows, 0)

    def samples(s: Any) -> Any:
        yield s(s.any(2, 3), s.any(1, 2))
        yield s(s.any(3), s.any(), s.any(2, 2))
        yield s(s.any(0, 2), s.any(1, 1))
        yield s.raises(RuntimeError, s.any(1, 1, 1))


def _grid_rank(tensors: Sequence[Any]) -> None:
    for x in tensors:
        if len(x.shape) != 1:
            raise RuntimeError(f"Expect a 1D vector, but got shape {list(x.shape)}")


@op("cartesian_prod(*tensors: Tensor) -> Tensor")
class cartesian_prod:
    """Every combination of one element of each vector, one a row."""

    kind, exact, where = COMPOSITE, True, "function"

    def rule(tensors: Any) -> Spec:
        _grid_rank(tensors)
        if not len(tensors):
            raise RuntimeError("cartesian_prod: expected a non-empty TensorList")
        rows = numel([x.shape[0] for x in tensors])
        shape = (rows, len(tensors)) if len(tensors) > 1 else (rows,)
        return Spec(shape, joined_dtype(tensors), device_of(tensors))

    def decomp(F: Any, tensors: Any) -> Any:
        if len(tensors) == 1:
            return tensors[0]
        sizes = [x.shape[0] for x in tensors]
        columns = []
        for i, x in enumerate(tensors):
            shape = [1] * len(sizes)
            shape[i] = sizes[i]
            columns.append(F.reshape(F.expand(F.reshape(x, shape), sizes), -1))
        return F.stack(columns, 1)

    def samples(s: Any) -> Any:
        yield s(s.any(2), s.any(3))
        yield s(s.any(2), s.any(1), s.any(3))
        yield s(s.any(3))
        yield s(s.any(3), s.any(0))
        yield s.raises(RuntimeError, s.any(2, 2))
