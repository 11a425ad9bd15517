"""Writing at indices that are data, slice by slice: index_add, index_copy, index_put and their kin.

Functional, as `scatter`.
"""

from __future__ import annotations

from typing import Any

from lehr.base import dtype as dt
from lehr.base.index import delinearize
from lehr.ops import execute, layout, rule
from lehr.ops.index import (
    INTS,
    TAKEN,
    Place,
    add_rows,
    broadcast_at,
    check_along,
    check_each,
    check_flat,
    check_index,
    check_range,
    grown,
    numpy_indices,
    outside,
    zeros_of,
)
from lehr.ops.registry import COMPOSITE, INDEX, op
from lehr.ops.rule import LABELS, Spec, broadcast, device_of, dim_of, numel, same
from lehr.ops.scatter import KINDS, add_at, assign, check_mean, in_float32
from lehr.ops.slice import drop, put
from lehr.ops.view import like


def _slices_rule(name: str, x: Any, dim: int, index: Any, source: Any, allowed: Any = INTS) -> Spec:
    """Of ops that write the slices of `source` at the indices of a dimension."""
    place = dim_of(dim, len(x.shape))
    if len(index.shape) > 1:
        raise IndexError(f"{name}_(): Index is supposed to be a vector, but got dim: "
                         f"{len(index.shape)}")
    check_index(f"{name}_", index, allowed)
    if source.dtype is not x.dtype:
        raise RuntimeError(f"{name}_(): self ({LABELS[x.dtype.name]}) and source "
                           f"({LABELS[source.dtype.name]}) must have the same scalar type")
    count, given = numel(index.shape), source.shape[place] if source.shape else 1
    if len(source.shape) != len(x.shape) or not all(
            map(same, drop(source.shape, place), drop(x.shape, place))):
        raise RuntimeError("source tensor shape must match self tensor shape, excluding the "
                           f"specified dimension. Got self.shape = {list(x.shape)} source.shape "
                           f"= {list(source.shape)}")
    if not same(count, given):
        raise RuntimeError(f"{name}_(): Number of indices ({count}) should be equal to "
                           f"source.size(dim): ({given}), for dim: {place}")
    device_of((x, index, source))
    return like(x, x.shape)


def _front(np: Any, x: Any, dim: int) -> Any:
    """A view with `dim` first."""
    return np.moveaxis(x, dim, 0) if x.ndim > 1 else x


def _copied(np: Any, x: Any, dim: int, index: Any, source: Any, write: Any, error: Any, text: str,
            wrap: bool = False) -> Any:
    """A copy of `x` after `write(copy, index vector, source)`, with `dim` first."""
    out = np.array(x, order="C")
    place = dim_of(dim, x.ndim)
    check_range(np, index, x.shape[place] if x.ndim else 1, error, text, wrap)
    if isinstance(source, np.ndarray) and source.ndim == x.ndim:
        source = _front(np, np.atleast_1d(source), place)
    write(_front(np, out.reshape(-1) if not x.ndim else out, place), index.reshape(-1), source)
    return out


def _lowered_slices(mode: str, wrap: bool = False) -> Any:
    """The `scatter` body of an op with bound arguments (input, dim, index, source or value)."""
    def scatter(L: Any, x: Any, dim: int, index: Any, source: Any, *rest: Any) -> Any:
        place, shape = dim_of(dim, len(x.shape)), tuple(x.shape)

        def target(k: Any) -> Any:
            at = L.index(L.at(index, (k[place],)), shape[place], wrap_negative=wrap)
            return put(k, place, at)

        def value(k: Any) -> Any:
            if not rule.is_tensor(source):
                return L.const(source, x.dtype)
            return L.at(source, k) if source.shape else L.cast(L.at(source, ()), x.dtype)
        return L.scatter(x, put(shape, place, index.shape[0]), target, value, mode)
    return scatter


def _vectors(F: Any, name: str, x: Any, dim: int, index: Any, source: Any, **options: Any) -> Any:
    """The call with a vector of indices and no 0-d tensor; NotImplemented where it is one."""
    if x.shape and index.shape:
        return NotImplemented
    source = grown(F, source) if rule.is_tensor(source) and name != "index_fill" else source
    made = getattr(F, name)(grown(F, x), dim, grown(F, index), source, **options)
    return F.reshape(made, tuple(x.shape))


def _slices_samples(s: Any) -> Any:
    def unique(*shape: int, high: int) -> Any:
        return s.i(*shape, low=0, high=high, unique=True)
    yield s(s.any(3, 4), 0, unique(2, high=3), s.any(2, 4))
    yield s(s.any(3, 4), -1, unique(3, high=4), s.any(3, 3))
    yield s(s.any(3, 2, 4), 1, unique(2, high=2), s.any(3, 2, 4))
    yield s(s.any(5), 0, s.i(high=5), s.any(1))
    yield s(s.any(), 0, s.i(1, high=1), s.any())
    yield s(s.any(3, 4), 0, s.i(0), s.any(0, 4))
    yield s.raises(RuntimeError, s.any(3, 4), 0, s.i(1), s.any(1, 2))
    yield s.raises(IndexError, s.any(3, 4), 2, s.i(1), s.any(1, 4))


@op("index_add(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Scalar = 1)"
    " -> Tensor")
class index_add:
    """The slices of `source`, times `alpha`, added to those of a copy of `input` at `index`."""

    kind, where, dtypes = INDEX, "function method inplace", "float half int"
    scatter, checks = _lowered_slices("add"), check_along

    def rule(x: Any, dim: int, index: Any, source: Any, alpha: Any) -> Spec:
        return _slices_rule("index_add", x, dim, index, source)

    def eager(np: Any, x: Any, dim: int, index: Any, source: Any, alpha: Any) -> Any:
        if not (isinstance(alpha, int) and alpha == 1):
            source = source * execute.number(alpha, dt.of_numpy(x.dtype))

        def write(out: Any, at: Any, rows: Any) -> None:
            add_rows(np, out, at, rows)
        return _copied(np, x, dim, index, source, write, RuntimeError, outside(dim_of(dim, x.ndim)))

    def decomp(F: Any, x: Any, dim: int, index: Any, source: Any, alpha: Any) -> Any:
        if not (isinstance(alpha, int) and alpha == 1):
            factor = F.full((), alpha, dtype=x.dtype, device=x.device)
            return F.index_add(x, dim, index, F.mul(source, factor))
        made = _vectors(F, "index_add", x, dim, index, source)
        return in_float32(F, "index_add", x, dim, index, source) if made is NotImplemented else made

    def vjp(F: Any, g: Any, out: Any, x: Any, dim: int, index: Any, source: Any, alpha: Any) -> Any:
        def of_source() -> Any:
            part = F.reshape(F.index_select(g, dim, index), source.shape)
            return part if isinstance(alpha, int) and alpha == 1 else F.mul(part, alpha)
        return g, None, of_source

    def samples(s: Any) -> Any:
        yield from _slices_samples(s)
        yield s(s.any(3, 4), 0, s.i(5, high=3), s.any(5, 4))
        yield s(s.any(3, 4), 0, s.i(2, high=3, dtype=dt.int32), s.any(2, 4), alpha=2)
        yield s(s.any(6), 0, s.i(9, high=6), s.any(9), alpha=-1)
        yield s.raises(RuntimeError, s.any(3, 4), 0, s.i(1, low=3, high=4), s.any(1, 4),
                       match="out of bounds")
        yield s.raises(RuntimeError, s.any(3, 4), 0, s.i(1, low=-1, high=0), s.any(1, 4))
        yield s.raises(RuntimeError, s.any(3, 4), 0, s.i(1), s.any(2, 4), match="Number of indices")


@op("index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor")
class index_copy:
    """The slices of a copy of `input` at `index` replaced by those of `source`."""

    kind, where, exact = INDEX, "function method inplace", True
    scatter, checks = _lowered_slices("set"), check_along

    def rule(x: Any, dim: int, index: Any, source: Any) -> Spec:
        return _slices_rule("index_copy", x, dim, index, source, (dt.int64,))

    def eager(np: Any, x: Any, dim: int, index: Any, source: Any) -> Any:
        return _copied(np, x, dim, index, source, assign, IndexError,
                       "index_copy_(): " + outside(dim_of(dim, x.ndim)))

    def decomp(F: Any, x: Any, dim: int, index: Any, source: Any) -> Any:
        return _vectors(F, "index_copy", x, dim, index, source)

    def vjp(F: Any, g: Any, out: Any, x: Any, dim: int, index: Any, source: Any) -> Any:
        return (lambda: F.index_fill(g, dim, index, 0), None,
                lambda: F.reshape(F.index_select(g, dim, index), source.shape))

    def samples(s: Any) -> Any:
        yield from _slices_samples(s)
        yield s.raises(IndexError, s.any(3, 4), 0, s.i(1, low=3, high=4), s.any(1, 4))
        yield s.raises(RuntimeError, s.any(3, 4), 0, s.i(1, dtype=dt.int32), s.any(1, 4))


@op("index_fill(input: Tensor, dim: int, index: Tensor, value: Tensor | Scalar) -> Tensor")
class index_fill:
    """The slices of a copy of `input` at `index` filled with a number or a 0-d tensor."""

    kind, where, layout, exact = INDEX, "function method inplace", layout.preserved, True
    scatter = _lowered_slices("set", wrap=True)

    def checks(F: Any, x: Any, dim: int, index: Any, value: Any) -> None:
        F.check_index(index, x.shape[dim_of(dim, len(x.shape))], True)

    def rule(x: Any, dim: int, index: Any, value: Any) -> Spec:
        dim_of(dim, len(x.shape))
        if index.dtype is not dt.int64:
            raise IndexError("index_fill_(): Expected dtype int64 for index.")
        if len(index.shape) > 1:
            raise RuntimeError(f"Index has to be a vector/scalar, got shape {list(index.shape)}")
        if rule.is_tensor(value) and value.shape:
            raise RuntimeError("index_fill_ only supports a 0-dimensional value tensor, but got "
                               f"tensor with {len(value.shape)} dimension(s).")
        device_of((x, index))
        return like(x, x.shape)

    def eager(np: Any, x: Any, dim: int, index: Any, value: Any) -> Any:
        made = dt.of_numpy(x.dtype)
        value = (execute.cast(value, made) if isinstance(value, np.ndarray)
                 else execute.number(value, made))
        return _copied(np, x, dim, index, value, assign, IndexError, outside(dim_of(dim, x.ndim)),
                       wrap=True)

    def decomp(F: Any, x: Any, dim: int, index: Any, value: Any) -> Any:
        return _vectors(F, "index_fill", x, dim, index, value)

    def vjp(F: Any, g: Any, out: Any, x: Any, dim: int, index: Any, value: Any) -> Any:
        def of_value() -> Any:
            place = dim_of(dim, len(x.shape))
            line = (x.shape[place],) if x.shape else (1,)
            hit = F.gt(F.index_fill(zeros_of(F, line, g), 0, index, 1), 0)
            hit = F.reshape(hit, put((1,) * len(x.shape), place, -1) if x.shape else ())
            return F.sum(F.where(hit, g, zeros_of(F, (), g)))
        own = lambda: F.index_fill(g, dim, index, 0)
        return (own, None, of_value if rule.is_tensor(value) else None)

    def samples(s: Any) -> Any:
        yield s(s.any(3, 4), 0, s.i(2, low=-3, high=3), 1)
        yield s(s.any(3, 4), -1, s.i(high=4), 2.5)
        yield s(s.any(3, 4), 1, s.i(9, high=4), s.any())
        yield s(s.any(), 0, s.i(1, high=1), 1)
        yield s(s.any(3), 0, s.i(0), 1)
        yield s.raises(IndexError, s.any(3), 0, s.i(1, low=3, high=4), 1)
        yield s.raises(IndexError, s.any(3), 0, s.i(1, dtype=dt.int32), 1)
        yield s.raises(RuntimeError, s.any(3), 0, s.i(1), s.any(1))


@op("index_reduce(input: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, "
    "include_self: bool = True) -> Tensor")
class index_reduce:
    """`index_add` with another combination: reduce "prod" | "mean" | "amax" | "amin"."""

    kind, where, dtypes = COMPOSITE, "function method inplace", "float half int"

    def rule(x: Any, dim: int, index: Any, source: Any, reduce: str, include: bool) -> Spec:
        if reduce not in KINDS or reduce == "sum":
            raise RuntimeError("index_reduce(): Expected reduce to be one of prod, mean, amax or "
                               f"amin but got {reduce}.")
        check_mean("index_reduce", x, reduce)
        return _slices_rule("index_reduce", x, dim, index, source)

    def decomp(F: Any, x: Any, dim: int, index: Any, source: Any, reduce: str,
               include: bool) -> Any:
        place, ndim = dim_of(dim, len(x.shape)), len(source.shape)
        shape = put((1,) * ndim, place, -1) if ndim else ()
        places = F.expand(F.reshape(index, shape), source.shape)
        return F.scatter_reduce(x, dim, places, source, reduce, include_self=include)

    def samples(s: Any) -> Any:
        unique = {"unique": True} if s.dtype.category == dt.FLOAT else {}
        other = {**unique, "domain": (-2.9, 2.9)} if unique else {}
        for reduce in KINDS[1:]:
            yield s(s.any(3, 4, **unique), 0, s.i(5, high=3), s.any(5, 4, **other), reduce)
            yield s(s.any(3, 4, **unique), 1, s.i(2, high=4), s.any(3, 2, **other), reduce,
                    include_self=False)
        yield s.raises(RuntimeError, s.any(3), 0, s.i(2), s.any(2), "sum")
        yield s.raises(NotImplementedError, s.b(3), 0, s.i(2), s.b(2), "mean")


def _put_rule(x: Any, index: Any, source: Any, accumulate: bool) -> Spec:
    if index.dtype is not dt.int64:
        raise RuntimeError("put_(): Expected a long tensor for index, but got "
                           f"{LABELS[index.dtype.name]}")
    if source.dtype is not x.dtype:
        raise RuntimeError("put_(): self and source expected to have the same dtype, but got "
                           f"self.dtype = {LABELS[x.dtype.name]} and source.dtype = "
                           f"{LABELS[source.dtype.name]}")
    if not same(numel(index.shape), numel(source.shape)):
        raise IndexError("put_(): Expected source and index to have the same number of elements, "
                         f"but got source.numel() = {numel(source.shape)}, index.numel() = "
                         f"{numel(index.shape)}")
    device_of((x, index, source))
    return like(x, x.shape)


@op("put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor")
class put_op:
    """Elements of a copy of `input`, flattened in row-major order, replaced or added to."""

    kind, rule, where = INDEX, _put_rule, "function method inplace"
    layout, checks = layout.preserved, check_flat

    def eager(np: Any, x: Any, index: Any, source: Any, accumulate: bool) -> Any:
        out = np.array(x, order="C")
        check_range(np, index, x.size, IndexError, TAKEN, wrap=True)
        places = np.where(index < 0, index + x.size, index).reshape(-1)
        (add_at if accumulate else assign)(out.reshape(-1), places, source.reshape(-1))
        return out

    def decomp(F: Any, x: Any, index: Any, source: Any, accumulate: bool) -> Any:
        if len(index.shape) != 1 or len(source.shape) != 1:
            return F.put(x, F.reshape(index, -1), F.reshape(source, -1), accumulate)
        return (in_float32(F, "put", x, index, source, accumulate) if accumulate
                else NotImplemented)

    def scatter(L: Any, x: Any, index: Any, source: Any, accumulate: bool) -> Any:
        def target(k: Any) -> Any:
            at = L.index(L.at(index, k), numel(x.shape), wrap_negative=True)
            return delinearize(at, tuple(x.shape)) if x.shape else ()
        return L.scatter(x, tuple(index.shape), target, lambda k: L.at(source, k),
                         "add" if accumulate else "set")

    def vjp(F: Any, g: Any, out: Any, x: Any, index: Any, source: Any, accumulate: bool) -> Any:
        zeros = lambda: F.put(g, index, zeros_of(F, tuple(source.shape), g))
        return (g if accumulate else zeros, None,
                lambda: F.reshape(F.take(g, index), source.shape))

    def samples(s: Any) -> Any:
        yield s(s.any(3, 4), s.i(2, 3, low=0, high=12, unique=True), s.any(6))
        yield s(s.any(3, 4), s.i(2, low=-12, high=-10, unique=True), s.any(2))
        if s.dtype is not dt.bool_:
            yield s(s.any(3, 4), s.i(7, low=-12, high=12), s.any(7), True)
        yield s(s.any(), s.i(high=1), s.any())
        yield s.raises(IndexError, s.any(3), s.i(1, low=3, high=4), s.any(1))
        yield s.raises(IndexError, s.any(3), s.i(2), s.any(1))
        yield s.raises(RuntimeError, s.any(3), s.i(1, dtype=dt.int32), s.any(1))


MASKS = (dt.bool_, dt.uint8)


def is_mask(index: Any) -> bool:
    return index is not None and index.dtype in MASKS


def _check_masks(shape: tuple[Any, ...], indices: Any) -> None:
    """IndexError where a mask does not have the sizes of the dimensions that it stands for."""
    at = 0
    for i in indices:
        count = len(i.shape) if is_mask(i) else 1
        if at + count > len(shape):
            raise IndexError(f"too many indices for tensor of dimension {len(shape)}")
        if is_mask(i) and not all(map(same, i.shape, shape[at:at + count])):
            raise IndexError(f"The shape of the mask {list(i.shape)} at index 0 does not match the "
                             f"shape of the indexed tensor {list(shape)} at index {at}")
        at += count


def _index_put_rule(x: Any, indices: Any, values: Any, accumulate: bool) -> Spec:
    if values.dtype is not x.dtype:
        raise RuntimeError("Index put requires the source and destination dtypes match, got "
                           f"{LABELS[x.dtype.name]} for the destination and "
                           f"{LABELS[values.dtype.name]} for the source.")
    if any(map(is_mask, indices)):
        _check_masks(tuple(x.shape), indices)
        device_of((x, values, *(i for i in indices if i is not None)))
        return like(x, x.shape)
    want = Place(tuple(x.shape), indices).result(tuple(x.shape))
    try:
        made = broadcast(tuple(values.shape), want)
    except RuntimeError:
        made = ()
    if len(made) != len(want) or not all(map(same, made, want)):
        raise RuntimeError(f"shape mismatch: value tensor of shape {list(values.shape)} cannot be "
                           f"broadcast to indexing result of shape {list(want)}")
    device_of((x, values, *(i for i in indices if i is not None)))
    return like(x, x.shape)


@op("index_put(input: Tensor, indices: list[Tensor | None], values: Tensor, "
    "accumulate: bool = False) -> Tensor")
class index_put:
    """A copy of `input` with `values`, broadcast, stored at (or added to) `input[indices]`.

    An index may be a mask over as many dimensions as it has; one mask and values that are the same
    for all its elements need no count of them.
    """

    kind, rule, where = INDEX, _index_put_rule, "function method inplace"
    layout, checks = layout.preserved, check_each

    def eager(np: Any, x: Any, indices: Any, values: Any, accumulate: bool) -> Any:
        if any(i is not None and i.dtype in (bool, np.uint8) for i in indices):
            return _put_masked(np, x, indices, values, accumulate)
        out, at = np.array(x, order="C"), numpy_indices(np, x.shape, indices)
        if not accumulate:
            out[at] = values
        elif len(indices) == 1:
            rows = np.broadcast_to(values, indices[0].shape + x.shape[1:])
            add_rows(np, out, at[0].reshape(-1) % max(x.shape[0], 1),
                     rows.reshape(-1, *x.shape[1:]))
        else:
            np.add.at(out, at, values)
        return out

    def decomp(F: Any, x: Any, indices: Any, values: Any, accumulate: bool) -> Any:
        if any(map(is_mask, indices)):
            spread = _spread(len(x.shape), indices, values.shape)
            if spread is None:
                return F.index_put_masked(x, indices, values, accumulate)
            mask, value = _mask_of(F, len(x.shape), indices), F.reshape(values, spread)
            if accumulate:
                return F.add(x, F.where(mask, value, zeros_of(F, (), x)))
            return F.where(mask, value, x)
        return (in_float32(F, "index_put", x, indices, values, accumulate) if accumulate
                else NotImplemented)

    def scatter(L: Any, x: Any, indices: Any, values: Any, accumulate: bool) -> Any:
        shape, place = tuple(x.shape), Place(tuple(x.shape), indices)
        return L.scatter(x, place.result(shape), lambda k: place.source(L, k, shape, indices),
                         lambda k: L.at(values, broadcast_at(k, tuple(values.shape))),
                         "add" if accumulate else "set")

    def vjp(F: Any, g: Any, out: Any, x: Any, indices: Any, values: Any, accumulate: bool) -> Any:
        def of_values() -> Any:
            if not any(map(is_mask, indices)):
                return F.index(g, indices)
            if _spread(len(g.shape), indices, values.shape) is None:
                return F.index_put_gradient(g, indices, values.shape)
            mask, dims = _mask_of(F, len(g.shape), indices), _covered_dims(indices)
            part = F.where(mask, g, zeros_of(F, (), g))
            shape = (*g.shape[:dims[0]], 1, *g.shape[dims[-1] + 1:])
            return F.reshape(F.sum(part, dims, True), shape)
        zeros = lambda: F.index_put(g, indices, zeros_of(F, (), g))
        return g if accumulate else zeros, None, of_values

    def samples(s: Any) -> Any:
        yield from _mask_samples(s)
        yield s(s.any(5, 4), [s.i(2, low=0, high=5, unique=True)], s.any(2, 4))
        whole = s(s.any(3, 4), [None, s.i(2, low=-4, high=-2, unique=True)], s.any(2))
        yield whole._replace(parity=False)  # torch's function takes no None
        yield s(s.any(3, 4, 5), [s.i(2, 1, high=3), s.i(3, high=4)], s.any())
        yield s(s.any(3, 4, 5), [s.i(2, low=0, high=3, unique=True), None, s.i(2, high=5)],
                s.any(2, 4))._replace(parity=False)
        if s.dtype is not dt.bool_:
            yield s(s.any(3, 4), [s.i(5, low=-3, high=3)], s.any(5, 1), True)
            yield s(s.any(3, 4, 5), [s.i(6, high=3), None, s.i(6, high=5)], s.any(6, 4),
                    True)._replace(parity=False)
        yield s.raises(IndexError, s.any(3, 4), [s.i(1, low=3, high=4)], s.any())
        yield s.raises(RuntimeError, s.any(3, 4), [s.i(1)], s.any(3), match="cannot be broadcast")


def _covered_dims(indices: Any) -> tuple[int, ...]:
    """The dimensions under the only index that is no None."""
    start = next(d for d, i in enumerate(indices) if i is not None)
    return tuple(range(start, start + len(indices[start].shape)))


def _spread(ndim: int, indices: Any, size: Any) -> tuple[Any, ...] | None:
    """The shape, broadcastable to a tensor of `ndim` dimensions, of values of shape `size` that do
    not differ among the elements of the only index, a mask; else None."""
    given = [i for i in indices if i is not None]
    if len(given) != 1 or not len(given[0].shape):
        return None
    dims = _covered_dims(indices)
    rank = ndim - len(dims) + 1
    shape = (1,) * (rank - len(size)) + tuple(size)
    one = len(shape) == rank and isinstance(shape[dims[0]], int) and shape[dims[0]] == 1
    return (*shape[:dims[0]], *(1,) * len(dims), *shape[dims[0] + 1:]) if one else None


def _mask_of(F: Any, ndim: int, indices: Any) -> Any:
    """The only index, a mask, broadcastable to a tensor of `ndim` dimensions."""
    mask, after = next(i for i in indices if i is not None), ndim - _covered_dims(indices)[-1] - 1
    return F.reshape(F.to_dtype(mask, dt.bool_), (*mask.shape, *(1,) * after))


def _numpy_places(np: Any, shape: Any, indices: Any) -> tuple[Any, ...]:
    """Indices, masks among them, for numpy, whose advanced indexing has the same rules."""
    places, at = [], 0
    for i in indices:
        mask = i is not None and i.dtype in (bool, np.uint8)
        if mask:
            i = i.astype(bool)
        elif i is not None:
            check_range(np, i, shape[at], IndexError, outside(at), wrap=True)
        places.append(slice(None) if i is None else i)
        at += i.ndim if mask else 1
    return tuple(places)


def _put_masked(np: Any, x: Any, indices: Any, values: Any, accumulate: bool) -> Any:
    out, at = np.array(x, order="C"), _numpy_places(np, x.shape, indices)
    want = out[at].shape
    try:
        np.broadcast_to(values, want)
    except ValueError:
        raise RuntimeError(f"shape mismatch: value tensor of shape {list(values.shape)} cannot be "
                           f"broadcast to indexing result of shape {list(want)}") from None
    if accumulate:
        np.add.at(out, at, values)
    else:
        out[at] = values
    return out


def _mask_samples(s: Any) -> Any:
    yield s(s.any(3, 4), [s.b(3, 4)], s.any())
    yield s(s.any(3, 4), [s.b(3)], s.any(4))
    yield s(s.any(3, 4, 2), [s.b(3, 4)], s.any(1, 2))
    yield s(s.any(5), [np_mask(5, 3)], s.any(3))
    yield s(s.any(4, 5), [np_mask(4, 2), s.i(2, high=5)], s.any(2))
    yield s(s.any(3, 5), [None, np_mask(5, 3)], s.any(3, 1))._replace(parity=False)
    yield s(s.any(3, 5, 2), [None, s.b(5, 2)], s.any(3, 1))._replace(parity=False)
    if s.dtype is not dt.bool_:
        yield s(s.any(3, 4), [s.b(3)], s.any(4), True)
        yield s(s.any(5), [np_mask(5, 3)], s.any(3), True)
    yield s.raises(IndexError, s.any(3, 4), [s.b(4)], s.any(), match="shape of the mask")
    yield s.raises(RuntimeError, s.any(5), [np_mask(5, 3)], s.any(2), match="cannot be broadcast")


def np_mask(size: int, count: int) -> Any:
    """A mask with so many true elements, the odd places first."""
    mask = execute.np.zeros(size, bool)
    mask[execute.np.r_[1:size:2, 0:size:2][:count]] = True
    return mask


@op("index_put_masked(input: Tensor, indices: list[Tensor | None], values: Tensor, "
    "accumulate: bool = False) -> Tensor")
class index_put_masked:
    """`index_put` at masks whose number of true elements matters."""

    kind, rule, where, host, stops = INDEX, _index_put_rule, "", True, True
    layout, samples = layout.preserved, _mask_samples

    def eager(np: Any, x: Any, indices: Any, values: Any, accumulate: bool) -> Any:
        return _put_masked(np, x, indices, values, accumulate)

    vjp = index_put.vjp


@op("index_put_gradient(grad: Tensor, indices: list[Tensor | None], size: list[int]) -> Tensor")
class index_put_gradient:
    """The gradient of the values of `index_put` at masks: `grad[indices]` summed to `size`."""

    kind, where, host = INDEX, "", True

    def rule(g: Any, indices: Any, size: Any) -> Spec:
        _check_masks(tuple(g.shape), indices)
        return like(g, size)

    def eager(np: Any, g: Any, indices: Any, size: Any) -> Any:
        part = g[_numpy_places(np, g.shape, indices)]
        part = part.sum(tuple(range(part.ndim - len(size))))
        kept = tuple(d for d, (n, m) in enumerate(zip(size, part.shape, strict=True)) if n != m)
        return part.sum(kept, keepdims=True)

    def vjp(F: Any, gg: Any, out: Any, g: Any, indices: Any, size: Any) -> Any:
        zeros = zeros_of(F, tuple(g.shape), gg)
        return (lambda: F.index_put(zeros, indices, gg)), None

    def samples(s: Any) -> Any:
        yield s(s.f(5), [np_mask(5, 3)], (3,))
        yield s(s.f(4, 5), [np_mask(4, 2), s.i(2, high=5)], (2,))
        yield s(s.f(3, 5), [None, np_mask(5, 3)], (3, 1))

    dtypes = "float"
