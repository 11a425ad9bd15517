"""Reading at indices that are data: index_select, gather, take, embedding, advanced indexing.

Indices out of range raise what PyTorch raises: IndexError, or RuntimeError from `gather`. Only
`take` and `index` count negative indices from the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lehr.base import dtype as dt
from lehr.base.index import delinearize
from lehr.base.proof import decide
from lehr.ops import layout, rule
from lehr.ops.registry import COMPOSITE, INDEX, op
from lehr.ops.rule import LABELS, Shape, Size, Spec, broadcast, device_of, dim_of, numel, same
from lehr.ops.slice import put
from lehr.ops.view import like

INTS = (dt.int32, dt.int64)


def check_range(np: Any, index: Any, size: int, error: type[Exception], text: str,
                wrap: bool = False) -> None:
    """Raises `error(text)` with `{index}` filled in where an index lies outside the dimension."""
    if not index.size:
        return
    low = -size if wrap else 0
    if index.min() < low or index.max() >= size:
        flat = index.reshape(-1)
        bad = flat[(flat < low) | (flat >= size)][0]
        raise error(text.format(index=int(bad), size=size))


def check_index(name: str, index: Any, allowed: Sequence[Any] = INTS) -> None:
    if index.dtype not in allowed:
        words = " or ".join(d.name for d in allowed)
        raise RuntimeError(f"{name}(): Expected dtype {words} for index, but got "
                           f"{LABELS[index.dtype.name]}")


def zeros_of(F: Any, shape: Shape, g: Any) -> Any:
    return F.full(tuple(shape), 0, dtype=g.dtype, device=g.device)


IN_SELF = "index out of range in self"


def check_along(F: Any, x: Any, dim: int, index: Any, *rest: Any) -> None:
    """`checks` of an op whose index, the third argument, counts along a dimension."""
    F.check_index(index, x.shape[dim_of(dim, len(x.shape))], False)


def check_flat(F: Any, x: Any, index: Any, *rest: Any) -> None:
    """`checks` of an op whose index counts the elements of a tensor, from its end where below 0."""
    F.check_index(index, numel(x.shape), True)


def check_each(F: Any, x: Any, indices: Any, *rest: Any) -> None:
    """`checks` of an op with an index, or None, for each dimension."""
    for n, i in zip(x.shape, indices, strict=False):
        if i is not None:
            F.check_index(i, n, True)


@op("check_index(index: Tensor, size: int, wrap: bool) -> Tensor")
class check_index_op:
    """Stops the program where an index lies outside of [0, size), from -size on with `wrap`; gives
    the greatest of them. Nobody needs that: the op is there for the error."""

    kind, where, nondiff, stops = INDEX, "", True, True

    def rule(index: Any, size: Size, wrap: bool) -> Spec:
        return Spec((), dt.int64, index.device)

    def eager(np: Any, index: Any, size: int, wrap: bool) -> Any:
        check_range(np, index, size, IndexError, IN_SELF, wrap)
        places = np.where(index < 0, index + size, index).astype(np.int64)
        return places.max(initial=np.iinfo(np.int64).min)

    def lower(L: Any, idx: Any, index: Any, size: Any, wrap: bool) -> Any:
        def place(k: Any) -> Any:
            return L.iota(L.index(L.at(index, k), size, wrap_negative=wrap), dt.int64)
        return L.reduce("max", tuple(index.shape), place)

    def samples(s: Any) -> Any:
        yield s(s.i(5, high=4), 4, False)
        yield s(s.i(2, 3, low=-4, high=4), 4, True)
        yield s(s.i(), 5, False)
        yield s(s.i(0), 4, False)
        yield s.raises(IndexError, s.i(3, low=4, high=6), 4, False, match="out of range")
        yield s.raises(IndexError, s.i(3, low=-4, high=0), 4, False, match="out of range")
        yield s.raises(IndexError, s.i(3, low=-9, high=-4), 4, True, match="out of range")


def _index_select_rule(x: Any, dim: int, index: Any) -> Spec:
    if len(index.shape) > 1:
        raise IndexError("index_select(): Index is supposed to be a vector, but got "
                         f"{len(index.shape)} dimensions")
    check_index("index_select", index)
    place, count = dim_of(dim, len(x.shape)), numel(index.shape)
    device_of((x, index))
    if not x.shape:
        if not same(count, 1):
            raise RuntimeError("index_select(): Index to scalar can have only 1 value, got "
                               f"{count} value(s)")
        return like(x, ())
    return like(x, put(x.shape, place, count))


@op("index_select(input: Tensor, dim: int, index: Tensor) -> Tensor")
class index_select:
    """The slices of `dim` at `index`, a vector or a number."""

    kind, rule, exact, checks = INDEX, _index_select_rule, True, check_along

    def eager(np: Any, x: Any, dim: int, index: Any) -> Any:
        flat = index.reshape(-1)
        check_range(np, flat, x.shape[dim] if x.ndim else 1, IndexError, IN_SELF)
        return np.take(x, flat, dim_of(dim, x.ndim)) if x.ndim else x.copy()

    def decomp(F: Any, x: Any, dim: int, index: Any) -> Any:
        if x.shape and index.shape:
            return NotImplemented
        chosen = F.index_select(F.reshape(x, tuple(x.shape) or (1,)), dim, F.reshape(index, (-1,)))
        return chosen if x.shape else F.reshape(chosen, ())

    def lower(L: Any, idx: Any, x: Any, dim: int, index: Any) -> Any:
        place = dim_of(dim, len(x.shape))
        at = L.index(L.at(index, (idx[place],)), x.shape[place], wrap_negative=False)
        return L.at(x, put(idx, place, at))

    def vjp(F: Any, g: Any, out: Any, x: Any, dim: int, index: Any) -> Any:
        shape = tuple(x.shape)
        return (lambda: F.index_add(zeros_of(F, shape, g), dim, index, g)), None

    def samples(s: Any) -> Any:
        yield s(s.any(3, 4), 0, s.i(5, high=3))
        yield s(s.any(3, 4), -1, s.i(2, high=4, dtype=dt.int32))
        yield s(s.any(3, 4), 1, s.i(high=4))
        yield s(s.any(2, 3, 4), 1, s.i(0))
        yield s(s.any(), 0, s.i(1, high=1))
        yield s.raises(IndexError, s.any(3, 4), 0, s.i(2, low=3, high=5), match=IN_SELF)
        yield s.raises(IndexError, s.any(3, 4), 0, s.i(2, low=-2, high=0), match=IN_SELF)
        yield s.raises(IndexError, s.any(3, 4), 0, s.i(1, 1, high=2))
        yield s.raises(RuntimeError, s.any(3, 4), 0, s.f(2))


def check_smaller(name: str, index: Shape, shape: Shape, dim: int) -> None:
    """`index` may not be larger than `shape` in any dimension but `dim`."""
    for d, (n, m) in enumerate(zip(index, shape, strict=True)):
        if d != dim and n is not m and decide(n, ">", m):
            raise RuntimeError(f"Size does not match at dimension {d} expected index {list(index)} "
                               f"to be no larger than self {list(shape)} apart from dimension "
                               f"{dim}")


def _gather_rule(x: Any, dim: int, index: Any, sparse_grad: bool = False) -> Spec:
    place = dim_of(dim, len(x.shape))
    empty = any(isinstance(n, int) and n == 0 for n in index.shape)
    if not empty:
        check_index("gather", index)
        if max(len(index.shape), 1) != max(len(x.shape), 1):
            raise RuntimeError("Index tensor must have the same number of dimensions as input "
                               f"tensor, but got {len(index.shape)} and {len(x.shape)}")
        if x.shape and index.shape:
            check_smaller("gather", tuple(index.shape), tuple(x.shape), place)
    device_of((x, index))
    return like(x, index.shape)


def corner(shape: Sequence[int], dim: int) -> tuple[slice, ...]:
    """The part of a tensor at which `gather` and `scatter` of an index of this shape work."""
    return tuple(slice(None) if d == dim else slice(n) for d, n in enumerate(shape))


OUTSIDE = "index {index} is out of bounds for dimension {dim} with size {{size}}"


def outside(dim: int) -> str:
    return OUTSIDE.replace("{dim}", str(dim)).replace("{{size}}", "{size}")


def grown(F: Any, x: Any) -> Any:
    """A 0-d value as a vector."""
    return x if x.shape else F.reshape(x, (1,))


@op("gather(input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor")
class gather:
    """out[i][j] = input[index[i][j]][j] for dim 0, and so on. The gradient is always dense."""

    kind, rule, exact, checks = INDEX, _gather_rule, True, check_along

    def eager(np: Any, x: Any, dim: int, index: Any, sparse_grad: bool) -> Any:
        if not index.size:
            return np.empty(index.shape, x.dtype)
        x, at, place = np.atleast_1d(x), np.atleast_1d(index), dim_of(dim, x.ndim)
        check_range(np, at, x.shape[place], RuntimeError, outside(place))
        made = np.take_along_axis(x[corner(at.shape, place)], at, place)
        return made.reshape(index.shape)

    def decomp(F: Any, x: Any, dim: int, index: Any, sparse_grad: bool) -> Any:
        if any(isinstance(n, int) and n == 0 for n in index.shape):
            return F.full(tuple(index.shape), 0, dtype=x.dtype, device=x.device)
        if x.shape and index.shape:
            return NotImplemented
        return F.reshape(F.gather(grown(F, x), dim, grown(F, index)), index.shape)

    def lower(L: Any, idx: Any, x: Any, dim: int, index: Any, sparse_grad: bool) -> Any:
        place = dim_of(dim, len(x.shape))
        at = L.index(L.at(index, idx), x.shape[place], wrap_negative=False)
        return L.at(x, put(idx, place, at))

    def vjp(F: Any, g: Any, out: Any, x: Any, dim: int, index: Any, sparse_grad: bool) -> Any:
        shape = tuple(x.shape)
        return (lambda: F.scatter_add(zeros_of(F, shape, g), dim, index, g)), None

    def samples(s: Any) -> Any:
        yield s(s.any(3, 4), 0, s.i(2, 4, high=3))
        yield s(s.any(3, 4), -1, s.i(2, 7, high=4))
        yield s(s.any(2, 3, 4), 1, s.i(2, 5, 3, high=3, dtype=dt.int32))
        yield s(s.any(), 0, s.i(2, high=1))
        yield s(s.any(3), 0, s.i(high=3))
        yield s(s.any(3, 4), 0, s.i(0))
        yield s.raises(RuntimeError, s.any(3, 4), 0, s.i(1, 4, low=3, high=5),
                       match="out of bounds")
        yield s.raises(RuntimeError, s.any(3, 4), 0, s.i(1, 4, low=-3, high=0))
        yield s.raises(RuntimeError, s.any(3, 4), 0, s.i(1, 5, high=3), match="no larger than self")
        yield s.raises(RuntimeError, s.any(3, 4), 0, s.i(3, high=3))


def _take_rule(x: Any, index: Any) -> Spec:
    if index.dtype is not dt.int64:
        raise RuntimeError("take(): Expected a long tensor for index, but got "
                           f"{LABELS[index.dtype.name]}")
    if same(numel(x.shape), 0) and not same(numel(index.shape), 0):
        raise IndexError("take(): tried to take from an empty tensor")
    device_of((x, index))
    return like(x, index.shape)


TAKEN = "out of range: tried to access index {index} on a tensor of {size} elements."


@op("take(input: Tensor, index: Tensor) -> Tensor")
class take:
    """The elements at `index` of the tensor flattened in row-major order."""

    kind, rule, exact, checks = INDEX, _take_rule, True, check_flat

    def eager(np: Any, x: Any, index: Any) -> Any:
        check_range(np, index, x.size, IndexError, TAKEN, wrap=True)
        return np.take(x, index)

    def lower(L: Any, idx: Any, x: Any, index: Any) -> Any:
        at = L.index(L.at(index, idx), numel(x.shape), wrap_negative=True)
        return L.at(x, delinearize(at, tuple(x.shape)) if x.shape else ())

    def vjp(F: Any, g: Any, out: Any, x: Any, index: Any) -> Any:
        shape = tuple(x.shape)
        return (lambda: F.put(zeros_of(F, shape, g), index, g, True)), None

    def samples(s: Any) -> Any:
        yield s(s.any(3, 4), s.i(2, 3, low=-12, high=12))
        yield s(s.any(3), s.i(high=3))
        yield s(s.any(), s.i(2, high=1))
        yield s(s.any(0), s.i(0))
        yield s.raises(IndexError, s.any(3, 4), s.i(2, low=12, high=15), match="out of range")
        yield s.raises(IndexError, s.any(0), s.i(1, high=1))
        yield s.raises(RuntimeError, s.any(3), s.i(1, dtype=dt.int32))


def _along(x: Any, indices: Any, dim: int) -> tuple[Shape, Shape]:
    """The shapes of both after broadcasting all dimensions but `dim`."""
    if len(x.shape) != len(indices.shape):
        raise RuntimeError(
            "torch.take_along_dim(): input and indices should have the same number of dimensions, "
            f"but got {len(x.shape)} dimensions for input, and {len(indices.shape)} dimensions for "
            "indices")
    place = dim_of(dim, len(x.shape))
    both = broadcast(put(x.shape, place, 1), put(indices.shape, place, 1)) if x.shape else ()
    return ((put(both, place, x.shape[place]), put(both, place, indices.shape[place]))
            if x.shape else ((), ()))


@op("take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor")
class take_along_dim:
    """`gather` whose operands broadcast; without `dim`, of both flattened. Negative indices count
    from the end."""

    kind, exact = COMPOSITE, True

    def rule(x: Any, indices: Any, dim: Any) -> Spec:
        check_index("take_along_dim", indices, (dt.int64,))
        return like(x, (numel(indices.shape),) if dim is None else _along(x, indices, dim)[1])

    def decomp(F: Any, x: Any, indices: Any, dim: Any) -> Any:
        if dim is None:
            flat = _counted(F, F.reshape(indices, -1), numel(x.shape))
            return F.gather(F.reshape(x, -1), 0, flat)
        shape, picked = _along(x, indices, dim)
        size = x.shape[dim_of(dim, len(x.shape))] if x.shape else 1
        return F.gather(F.expand(x, shape), dim, _counted(F, F.expand(indices, picked), size))

    def samples(s: Any) -> Any:
        yield s(s.any(3, 4), s.i(3, 2, high=4), 1)
        yield s(s.any(3, 4), s.i(1, 4, high=3), 0)
        yield s(s.any(1, 4), s.i(3, 2, high=4), -1)
        yield s(s.any(3, 4), s.i(2, 2, high=12))
        yield s.raises(RuntimeError, s.any(3, 4), s.i(2), 0)
        yield s(s.any(3, 4), s.i(3, 2, low=-4, high=4), 1)
        # torch wraps these around, however large
        yield s.raises(RuntimeError, s.any(3, 4), s.i(1, 4, low=3, high=5), 0, parity=False)


def _counted(F: Any, index: Any, size: Size) -> Any:
    """Indices with the negative ones counted from the end."""
    return F.where(F.lt(index, 0), F.add(index, size), index)


def _rows(weight: Any, padding_idx: int | None) -> int | None:
    """`padding_idx` made nonnegative."""
    if padding_idx is None:
        return None
    count = weight if not rule.is_tensor(weight) else weight.shape[0]
    if decide(padding_idx, ">=", count) or decide(padding_idx, "<", -count):
        raise AssertionError("Padding_idx must be within num_embeddings")
    return padding_idx + count if padding_idx < 0 else padding_idx


def _embedding_rule(index: Any, weight: Any, padding_idx: Any, max_norm: Any, *rest: Any) -> Spec:
    if index.dtype not in INTS:
        raise RuntimeError("Expected tensor for argument #1 'indices' to have one of the following "
                           f"scalar types: Long, Int; but got {LABELS[index.dtype.name]} instead")
    if len(weight.shape) != 2:
        raise RuntimeError(f"'weight' must be 2-D, got shape {list(weight.shape)}")
    if max_norm is not None:
        raise NotImplementedError(
            "embedding: max_norm changes the weight and is not part of this op; write "
            "weight.copy_(embedding_renorm(weight, input, max_norm, norm_type)) first")
    _rows(weight, padding_idx)
    return Spec((*index.shape, weight.shape[1]), weight.dtype, device_of((weight, index)))


@op("embedding(input: Tensor, weight: Tensor, padding_idx: int | None = None, "
    "max_norm: float | None = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False, "
    "sparse: bool = False) -> Tensor")
class embedding:
    """Rows of `weight` (num, dim) at `input` (any shape): shape (*input.shape, dim).

    `padding_idx`: a row that gets no gradient; `scale_grad_by_freq`: gradients are divided by how
    often a row occurs. The gradient is dense, also with `sparse=True`.
    """

    kind, rule, exact, where, dtypes = INDEX, _embedding_rule, True, "nn", "float half"

    def eager(np: Any, index: Any, weight: Any, *rest: Any) -> Any:
        check_range(np, index, weight.shape[0], IndexError, IN_SELF)
        return np.take(weight, index, 0)

    def checks(F: Any, index: Any, weight: Any, *rest: Any) -> None:
        F.check_index(index, weight.shape[0], False)

    def lower(L: Any, idx: Any, index: Any, weight: Any, *rest: Any) -> Any:
        row = L.index(L.at(index, tuple(idx[:-1])), weight.shape[0], wrap_negative=False)
        return L.at(weight, (row, idx[-1]))

    def vjp(F: Any, g: Any, out: Any, index: Any, weight: Any, padding_idx: Any, max_norm: Any,
            norm_type: float, scale_grad_by_freq: bool, sparse: bool) -> Any:
        rows = weight.shape[0]
        return None, lambda: F.embedding_backward(g, index, rows, padding_idx, scale_grad_by_freq)

    def samples(s: Any) -> Any:
        yield s(s.i(2, 3, high=5), s.any(5, 4))
        yield s(s.i(3, high=5, dtype=dt.int32), s.any(5, 4), 1)
        yield s(s.i(7, high=5), s.any(5, 2), -1, scale_grad_by_freq=True)
        yield s(s.i(high=5), s.any(5, 4))
        yield s(s.i(0), s.any(5, 4))
        yield s.raises(IndexError, s.i(2, low=5, high=7), s.any(5, 4), match=IN_SELF)
        yield s.raises(IndexError, s.i(2, low=-2, high=0), s.any(5, 4), match=IN_SELF)
        yield s.raises(RuntimeError, s.f(2), s.any(5, 4))
        yield s.raises(RuntimeError, s.i(2), s.any(5), match="must be 2-D")
        yield s.raises(AssertionError, s.i(2), s.any(5, 4), 7)


def _embedding_backward_rule(g: Any, index: Any, rows: Size, *rest: Any) -> Spec:
    check_index("embedding_backward", index)
    return like(g, (rows, g.shape[-1]))


@op("embedding_backward(grad: Tensor, indices: Tensor, num_weights: int, "
    "padding_idx: int | None = None, scale_grad_by_freq: bool = False) -> Tensor")
class embedding_backward:
    """The gradient of an embedding's weight: rows of `grad` added up where their index points."""

    kind, rule, where, dtypes = INDEX, _embedding_backward_rule, "", "float half"

    def eager(np: Any, g: Any, index: Any, rows: int, padding_idx: Any, scale: bool) -> Any:
        flat = index.reshape(-1)
        g = g.reshape(flat.size, g.shape[-1])
        if padding_idx is not None:
            kept = flat != _rows(rows, padding_idx)
            flat, g = flat[kept], g[kept]
        if scale:
            g = g / np.bincount(flat, minlength=rows)[flat, None].astype(g.dtype)
        return add_rows(np, np.zeros((rows, g.shape[1]), g.dtype), flat, g)

    def decomp(F: Any, g: Any, index: Any, rows: Any, padding_idx: Any, scale: bool) -> Any:
        flat, g = F.reshape(index, -1), F.reshape(g, (numel(index.shape), g.shape[-1]))
        if padding_idx is not None:
            padded = F.eq(flat, _rows(rows, padding_idx))
            g = F.masked_fill(g, F.unsqueeze(padded, 1), 0)
        if scale:
            ones = F.full(tuple(flat.shape), 1, dtype=g.dtype, device=g.device)
            counts = F.index_add(zeros_of(F, (rows,), g), 0, flat, ones)
            g = F.div(g, F.unsqueeze(F.index_select(counts, 0, flat), 1))
        return F.index_add(zeros_of(F, (rows, g.shape[-1]), g), 0, flat, g)

    def samples(s: Any) -> Any:
        yield s(s.any(2, 3, 4), s.i(2, 3, high=5), 5)
        yield s(s.any(7, 2), s.i(7, high=3), 5, 1)
        yield s(s.any(7, 2), s.i(7, high=3), 3, -1, True)


def add_rows(np: Any, base: Any, index: Any, rows: Any) -> Any:
    """`base[index[i]] += rows[i]` for every i, in place; sums each row's terms first."""
    if rows.size == 0:
        return base
    if rows.ndim == 1:
        np.add.at(base, index, rows)
        return base
    order = np.argsort(index, kind="stable")
    ordered = index[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    if len(starts) == len(order):
        base[index] += rows
    else:
        base[ordered[starts]] += np.add.reduceat(rows[order], starts, 0, base.dtype)
    return base


@op("embedding_renorm(input: Tensor, indices: Tensor, max_norm: float, norm_type: float = 2.0)"
    " -> Tensor")
class embedding_renorm:
    """A weight whose rows at `indices` are scaled down to a norm of `max_norm` where larger."""

    kind, where, nondiff, dtypes = COMPOSITE, "", True, "float half"

    def rule(x: Any, indices: Any, max_norm: float, norm_type: float) -> Spec:
        check_index("embedding_renorm", indices)
        rule.check_floating("embedding_renorm", x)
        return like(x, x.shape)

    def eager(np: Any, x: Any, indices: Any, max_norm: float, norm_type: float) -> Any:
        out = x.copy()
        at = np.unique(indices)
        norms = np.linalg.norm(x[at], norm_type, 1)
        large = norms > max_norm
        out[at[large]] *= (max_norm / (norms[large] + 1e-7))[:, None].astype(x.dtype)
        return out

    def decomp(F: Any, x: Any, indices: Any, max_norm: float, norm_type: float) -> Any:
        norms = F.linalg_vector_norm(x, norm_type, 1, True)
        flat = F.reshape(indices, -1)
        seen = F.index_fill(zeros_of(F, (x.shape[0],), x), 0, flat, 1)
        large = F.logical_and(F.gt(norms, max_norm), F.unsqueeze(F.gt(seen, 0), 1))
        return F.where(large, F.mul(x, F.div(max_norm, F.add(norms, 1e-7))), x)

    def samples(s: Any) -> Any:
        yield s(s.any(5, 4), s.i(3, high=5), 1.0)
        yield s(s.any(5, 4), s.i(2, 2, high=5), 1.5, 1.0)


class Place:
    """Where advanced indexing puts its dimensions.

    dims     the indexed dimensions, in order
    shape    the shape of the broadcast indices
    start    the first dimension of the result that counts over the indices: the first indexed
             dimension where all are adjacent, else 0
    rest     the other dimensions of the input, in order
    """

    __slots__ = ("dims", "rest", "shape", "start")

    def __init__(self, shape: Shape, indices: Sequence[Any]) -> None:
        if len(indices) > len(shape):
            raise IndexError(f"too many indices for tensor of dimension {len(shape)}")
        self.dims = [d for d, i in enumerate(indices) if i is not None]
        if not self.dims:
            raise IndexError("index: at least one index must be a tensor")
        given = [indices[d] for d in self.dims]
        for i in given:
            if i.dtype not in INTS:
                raise IndexError("tensors used as indices must be long, int, byte or bool tensors; "
                                 f"a mask is given by its nonzero(), got {LABELS[i.dtype.name]}")
        shapes = [tuple(i.shape) for i in given]
        try:
            self.shape = broadcast(*shapes)
        except RuntimeError:
            raise IndexError("shape mismatch: indexing tensors could not be broadcast together "
                             f"with shapes {', '.join(str(list(s)) for s in shapes)}") from None
        adjacent = self.dims[-1] - self.dims[0] == len(self.dims) - 1
        self.start = self.dims[0] if adjacent else 0
        self.rest = [d for d in range(len(shape)) if d not in self.dims]

    def result(self, shape: Shape) -> Shape:
        kept = [shape[d] for d in self.rest]
        return (*kept[:self.start], *self.shape, *kept[self.start:])

    def source(self, L: Any, idx: Any, shape: Shape, indices: Sequence[Any]) -> tuple[Any, ...]:
        """The input's index of the result's element `idx`."""
        stop = self.start + len(self.shape)
        at: list[Any] = [None] * len(shape)
        for d, i in zip(self.rest, (*idx[:self.start], *idx[stop:]), strict=True):
            at[d] = i
        for d in self.dims:
            at[d] = L.index(L.at(indices[d], broadcast_at(idx[self.start:stop], indices[d].shape)),
                            shape[d], wrap_negative=True)
        return tuple(at)


def broadcast_at(idx: Any, shape: Shape) -> tuple[Any, ...]:
    """The index, in an operand of `shape`, of the element `idx` of the broadcast result."""
    kept = idx[len(idx) - len(shape):] if shape else ()
    return tuple(0 if isinstance(n, int) and n == 1 else i
                 for i, n in zip(kept, shape, strict=True))


def _index_rule(x: Any, indices: Any) -> Spec:
    device_of((x, *(i for i in indices if i is not None)))
    return like(x, Place(tuple(x.shape), indices).result(tuple(x.shape)))


def _index_layout(spec: Spec, x: Any, indices: Any) -> Shape:
    """As TensorIterator orders dimensions: the input with stride 0 where it is indexed, then the
    indices."""
    place = Place(tuple(x.shape), indices)
    kept = [x.strides[d] for d in place.rest]
    strides = (*kept[:place.start], *(0,) * len(place.shape), *kept[place.start:])
    operands = [(tuple(spec.shape), strides)]
    after = len(place.rest) - place.start
    for d in place.dims:
        i = indices[d]
        gap = len(place.shape) - len(i.shape)
        operands.append(((1,) * (place.start + gap) + tuple(i.shape) + (1,) * after,
                         (0,) * (place.start + gap) + tuple(i.strides) + (0,) * after))
    return layout.pointwise(tuple(spec.shape), operands)


def numpy_indices(np: Any, shape: Sequence[int], indices: Sequence[Any]) -> tuple[Any, ...]:
    """Checked indices for numpy, whose advanced indexing has the same rules."""
    for d, i in enumerate(indices):
        if i is not None:
            check_range(np, i, shape[d], IndexError, outside(d), wrap=True)
    return tuple(slice(None) if i is None else i for i in indices)


@op("index(input: Tensor, indices: list[Tensor | None]) -> Tensor")
class index:
    """`input[indices]` with integer tensors and None for a whole dimension.

    Indices broadcast; their dimensions stand where the first indexed one stood, or in front where
    indexed dimensions are apart.
    """

    kind, rule, layout, exact, where = INDEX, _index_rule, _index_layout, True, ""
    checks = check_each

    def eager(np: Any, x: Any, indices: Any) -> Any:
        at = numpy_indices(np, x.shape, indices)
        given = [d for d, i in enumerate(indices) if i is not None]
        if len(given) == 1:
            return np.take(x, at[given[0]], given[0])
        out = np.asarray(x[at])
        return out if out.flags.owndata and out.flags.c_contiguous else out.copy()

    def lower(L: Any, idx: Any, x: Any, indices: Any) -> Any:
        place = Place(tuple(x.shape), indices)
        return L.at(x, place.source(L, tuple(idx), tuple(x.shape), indices))

    def vjp(F: Any, g: Any, out: Any, x: Any, indices: Any) -> Any:
        shape = tuple(x.shape)
        return (lambda: F.index_put(zeros_of(F, shape, g), indices, g, True)), None

    def samples(s: Any) -> Any:
        yield s(s.any(3, 4), [s.i(2, low=-3, high=3)])
        yield s(s.any(3, 4), [None, s.i(2, 2, high=4)])
        yield s(s.any(3, 4, 5), [s.i(2, 1, high=3), s.i(3, high=4)])
        yield s(s.any(3, 4, 5), [s.i(2, high=3), None, s.i(2, high=5)])
        yield s(s.any(2, 3, 4, 5), [None, s.i(2, high=3), s.i(1, high=4, dtype=dt.int32)])
        yield s(s.any(3, 4), [s.i(high=3)])
        yield s(s.any(3, 4), [s.i(0)])
        yield s.raises(IndexError, s.any(3, 4), [s.i(1, low=3, high=4)], match="out of bounds")
        yield s.raises(IndexError, s.any(3, 4), [s.i(2), s.i(3)], match="could not be broadcast")
        yield s.raises(IndexError, s.any(3), [s.i(1), s.i(1)], match="too many indices")
        yield s.raises(IndexError, s.any(3), [s.f(1)], match="must be long")
