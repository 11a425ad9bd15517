"""Writing at indices that are data, element by element: scatter and its reductions.

All are functional: a new tensor with the writes done. Where several writes of "set" mode meet in
one element the last one in row-major order stays in eager mode; compiled code keeps one of them.
"""

from __future__ import annotations

from typing import Any

from lehr.base import dtype as dt
from lehr.base.proof import decide
from lehr.ops import execute, rule
from lehr.ops.index import (
    check_along,
    check_index,
    check_range,
    corner,
    grown,
    outside,
    zeros_of,
)
from lehr.ops.registry import COMPOSITE, INDEX, op
from lehr.ops.rule import LABELS, Shape, Spec, device_of, dim_of, label
from lehr.ops.slice import put
from lehr.ops.view import like


def in_float32(F: Any, name: str, x: Any, *values: Any, **options: Any) -> Any:
    """A half-precision accumulation done in float32 and rounded once; NotImplemented for others."""
    wide = x.dtype.wide
    if wide is x.dtype:
        return NotImplemented
    args = [F.to_dtype(a, wide) if rule.is_tensor(a) and a.dtype is x.dtype else a for a in values]
    return F.to_dtype(getattr(F, name)(F.to_dtype(x, wide), *args, **options), x.dtype)


def is_empty(shape: Shape) -> bool:
    return any(isinstance(n, int) and n == 0 for n in shape)


def _scatter_rule(name: str, x: Any, dim: int, index: Any, src: Any) -> Spec:
    place = dim_of(dim, len(x.shape))
    if not is_empty(tuple(index.shape)):
        check_index(name, index)
    if rule.is_tensor(src) and src.dtype is not x.dtype:
        raise RuntimeError(f"{name}(): Expected self.dtype to be equal to src.dtype, but got "
                           f"{LABELS[x.dtype.name]} and {LABELS[src.dtype.name]}")
    if is_empty(tuple(index.shape)):
        return like(x, x.shape)
    shapes = [tuple(x.shape) or (1,), tuple(index.shape) or (1,)]
    if rule.is_tensor(src):
        shapes.append(tuple(src.shape) or (1,))
    if len({len(s) for s in shapes}) > 1:
        raise RuntimeError("Index tensor must have the same number of dimensions as self and src "
                           f"tensors, but got {', '.join(map(str, map(list, shapes)))}")
    for d, n in enumerate(shapes[1]):
        bad = d != place and decide(n, ">", shapes[0][d])
        if bad or (rule.is_tensor(src) and decide(n, ">", shapes[2][d])):
            text = (f" and to be no larger size than src {list(src.shape)}" if len(shapes) > 2
                    else "")
            raise RuntimeError(f"Expected index {list(index.shape)} to be no larger than self "
                               f"{list(x.shape)} apart from dimension {place}{text}")
    device_of((x, index, src))
    return like(x, x.shape)


def _flat_targets(np: Any, shape: Shape, dim: int, index: Any) -> Any:
    """The row-major place in a tensor of `shape` of every element of a scatter's index."""
    check_range(np, index, shape[dim], RuntimeError, outside(dim))
    flat = np.zeros(index.shape, np.int64)
    stride = 1
    for d in range(len(shape) - 1, -1, -1):
        at = index if d == dim else np.arange(index.shape[d]).reshape(
            (-1,) + (1,) * (index.ndim - d - 1))
        flat += at * np.int64(stride)
        stride *= shape[d]
    return flat.reshape(-1)


def _scattered(np: Any, x: Any, dim: int, index: Any, src: Any, write: Any) -> Any:
    """A copy of `x` after `write(flat copy, places, values)`."""
    out = np.array(x, order="C")
    if not index.size:
        return out
    flat, index = out.reshape(-1), np.atleast_1d(index)
    places = _flat_targets(np, np.atleast_1d(x).shape, dim_of(dim, x.ndim), index)
    if isinstance(src, np.ndarray):
        src = np.atleast_1d(src)[corner(index.shape, -1)].reshape(-1)
    write(flat, places, src)
    return out


def assign(flat: Any, places: Any, values: Any) -> None:
    flat[places] = values


def _lowered(mode: str) -> Any:
    """The `scatter` body of an op whose bound arguments start with (input, dim, index, src)."""
    def scatter(L: Any, x: Any, dim: int, index: Any, src: Any, *rest: Any) -> Any:
        place, shape = dim_of(dim, len(x.shape)), tuple(x.shape)

        def target(k: Any) -> Any:
            at = L.index(L.at(index, k), shape[place], wrap_negative=False)
            return put(k, place, at)

        def value(k: Any) -> Any:
            return L.at(src, k) if rule.is_tensor(src) else L.const(src, x.dtype)
        return L.scatter(x, tuple(index.shape), target, value, mode)
    return scatter


def _in_rank(F: Any, name: str, x: Any, dim: int, index: Any, src: Any, *rest: Any,
             **options: Any) -> Any:
    """The call without empty indices and 0-d operands; NotImplemented where it has none."""
    if is_empty(tuple(index.shape)):
        return F.clone(x)
    if x.shape and index.shape and (not rule.is_tensor(src) or src.shape):
        return NotImplemented
    src = grown(F, src) if rule.is_tensor(src) else src
    made = getattr(F, name)(grown(F, x), dim, grown(F, index), src, *rest, **options)
    return F.reshape(made, tuple(x.shape))


def _scatter_samples(s: Any) -> Any:
    i = s.i
    yield s(s.any(3, 4), 0, i(1, 4, high=3), s.any(1, 4))
    yield s(s.any(3, 4), -1, np_unique(s, 2, 4, 3), s.any(3, 4))
    yield s(s.any(2, 3, 4), 1, np_unique(s, 2, 3, 2).reshape(2, 2, 1), s.any(2, 3, 4))
    yield s(s.any(3), 0, i(high=3), s.any())
    yield s(s.any(), 0, i(1, high=1), s.any(1))
    yield s(s.any(3, 4), 0, i(0), s.any(0))
    yield s(s.any(3, 4), 0, i(1, 2, high=3, dtype=dt.int32), s.any(2, 3))
    yield s.raises(RuntimeError, s.any(3, 4), 0, i(1, 4, low=3, high=5), s.any(1, 4),
                   match="out of bounds")
    yield s.raises(RuntimeError, s.any(3, 4), 0, i(1, 4, low=-2, high=0), s.any(1, 4))
    yield s.raises(RuntimeError, s.any(3, 4), 0, i(1, 5, high=3), s.any(1, 5))
    yield s.raises(RuntimeError, s.any(3, 4), 0, i(1, 4, high=3), s.any(1, 3))
    yield s.raises(RuntimeError, s.any(3, 4), 0, i(4, high=3), s.any(4))
    yield s.raises(RuntimeError, s.any(3, 4), 0, s.f(1, 4), s.any(1, 4))


def np_unique(s: Any, rows: int, high: int, count: int) -> Any:
    """(rows, count) indices below `high`, different within a row."""
    whole_rows = s.i(1, high, low=0, high=high, unique=True).repeat(rows, 0)
    return s.random.permuted(whole_rows, axis=1)[:, :count]


@op("scatter(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor")
class scatter:
    """out[index[i][j]][j] = src[i][j] for dim 0, and so on, on a copy of `input`."""

    kind, where, exact = INDEX, "function method inplace", True
    scatter, samples, checks = _lowered("set"), _scatter_samples, check_along

    def rule(x: Any, dim: int, index: Any, src: Any) -> Spec:
        return _scatter_rule("scatter", x, dim, index, src)

    def eager(np: Any, x: Any, dim: int, index: Any, src: Any) -> Any:
        return _scattered(np, x, dim, index, src, assign)

    def decomp(F: Any, x: Any, dim: int, index: Any, src: Any) -> Any:
        return _in_rank(F, "scatter", x, dim, index, src)

    def vjp(F: Any, g: Any, out: Any, x: Any, dim: int, index: Any, src: Any) -> Any:
        shape = tuple(src.shape)
        return (lambda: F.scatter_value(g, dim, index, 0), None,
                lambda: whole(F, F.gather(g, dim, index), shape))


def whole(F: Any, g: Any, shape: Shape) -> Any:
    """A gradient of the part of a source that an index covered, as the source's."""
    if len(g.shape) != len(shape):
        return F.reshape(g, shape) if not is_empty(tuple(g.shape)) else zeros_of(F, shape, g)
    pad: list[Any] = []
    for n, m in zip(reversed(shape), reversed(g.shape), strict=True):
        pad += [0, n - m]
    return F.constant_pad_nd(g, pad) if any(not (isinstance(n, int) and n == 0) for n in pad) else g


@op("scatter_value(input: Tensor, dim: int, index: Tensor, value: Scalar) -> Tensor")
class scatter_value:
    """`scatter` of one number."""

    kind, api, where, exact = INDEX, "scatter", "function method inplace", True
    scatter, checks = _lowered("set"), check_along

    def rule(x: Any, dim: int, index: Any, value: Any) -> Spec:
        return _scatter_rule("scatter", x, dim, index, value)

    def eager(np: Any, x: Any, dim: int, index: Any, value: Any) -> Any:
        return _scattered(np, x, dim, index, execute.number(value, dt.of_numpy(x.dtype)), assign)

    def decomp(F: Any, x: Any, dim: int, index: Any, value: Any) -> Any:
        return _in_rank(F, "scatter_value", x, dim, index, value)

    def vjp(F: Any, g: Any, out: Any, x: Any, dim: int, index: Any, value: Any) -> Any:
        return (lambda: F.scatter_value(g, dim, index, 0)), None

    def samples(s: Any) -> Any:
        yield s(s.any(3, 4), 0, s.i(2, 4, high=3), 1)
        yield s(s.any(3, 4), 1, s.i(3, 1, high=4), 2.5)
        yield s(s.any(), 0, s.i(high=1), 1)
        yield s.raises(RuntimeError, s.any(3, 4), 0, s.i(1, 4, low=3, high=5), 1)


REDUCE = {"add": "sum", "multiply": "prod"}
KINDS = ("sum", "prod", "mean", "amax", "amin")


def _reducing(reduce: str) -> str:
    if reduce not in REDUCE:
        raise RuntimeError("reduce argument must be either add or multiply.")
    return REDUCE[reduce]


@op("scatter_src_reduce(input: Tensor, dim: int, index: Tensor, src: Tensor, *, reduce: str)"
    " -> Tensor")
class scatter_src_reduce:
    """`scatter` that adds or multiplies: reduce "add" | "multiply"."""

    kind, api, where = COMPOSITE, "scatter", "function method inplace"
    dtypes = "float half int"

    def rule(x: Any, dim: int, index: Any, src: Any, reduce: str) -> Spec:
        _reducing(reduce)
        return _scatter_rule("scatter", x, dim, index, src)

    def decomp(F: Any, x: Any, dim: int, index: Any, src: Any, reduce: str) -> Any:
        return F.scatter_reduce(x, dim, index, src, _reducing(reduce))

    def samples(s: Any) -> Any:
        yield s(s.any(3, 4), 0, s.i(2, 4, high=3), s.any(2, 4), reduce="add")
        yield s(s.any(3, 4), 0, s.i(2, 4, high=3), s.any(2, 4), reduce="multiply")
        yield s.raises(RuntimeError, s.any(3, 4), 0, s.i(2, 4, high=3), s.any(2, 4), reduce="max")


@op("scatter_value_reduce(input: Tensor, dim: int, index: Tensor, value: Scalar, *, reduce: str)"
    " -> Tensor")
class scatter_value_reduce:
    """`scatter` of one number that adds or multiplies: reduce "add" | "multiply"."""

    kind, api, where = COMPOSITE, "scatter", "function method inplace"
    dtypes = "float half int"

    def rule(x: Any, dim: int, index: Any, value: Any, reduce: str) -> Spec:
        _reducing(reduce)
        return _scatter_rule("scatter", x, dim, index, value)

    def decomp(F: Any, x: Any, dim: int, index: Any, value: Any, reduce: str) -> Any:
        src = F.full(tuple(index.shape), value, dtype=x.dtype, device=x.device)
        return F.scatter_reduce(x, dim, index, src, _reducing(reduce))

    def samples(s: Any) -> Any:
        yield s(s.any(3, 4), 0, s.i(2, 4, high=3), 2, reduce="add")
        yield s(s.any(3, 4), 1, s.i(3, 4, high=4), 3, reduce="multiply")


def add_at(flat: Any, places: Any, values: Any) -> None:
    execute.np.add.at(flat, places, values)


@op("scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor")
class scatter_add:
    """out[index[i][j]][j] += src[i][j] for dim 0, and so on, on a copy of `input`."""

    kind, where = INDEX, "function method inplace"
    scatter, samples, checks = _lowered("add"), _scatter_samples, check_along

    def rule(x: Any, dim: int, index: Any, src: Any) -> Spec:
        return _scatter_rule("scatter_add", x, dim, index, src)

    def eager(np: Any, x: Any, dim: int, index: Any, src: Any) -> Any:
        return _scattered(np, x, dim, index, src, add_at)

    def decomp(F: Any, x: Any, dim: int, index: Any, src: Any) -> Any:
        made = _in_rank(F, "scatter_add", x, dim, index, src)
        return in_float32(F, "scatter_add", x, dim, index, src) if made is NotImplemented else made

    def vjp(F: Any, g: Any, out: Any, x: Any, dim: int, index: Any, src: Any) -> Any:
        shape = tuple(src.shape)
        return g, None, lambda: whole(F, F.gather(g, dim, index), shape)


# reduce -> (ufunc name, lowered mode, the value that an excluded element starts from)
MONOIDS = {"sum": ("add", "add", lambda d: 0), "prod": ("multiply", "mul", lambda d: 1),
           "amax": ("maximum", "max", lambda d: lowest(d)),
           "amin": ("minimum", "min", lambda d: highest(d))}


def lowest(dtype: Any) -> Any:
    """The identity of maximum."""
    if dtype.category == dt.FLOAT:
        return float("-inf")
    return 0 if not dtype.signed else -(1 << (8 * dtype.itemsize - 1))


def highest(dtype: Any) -> Any:
    """The identity of minimum."""
    if dtype.category == dt.FLOAT:
        return float("inf")
    return 1 if dtype is dt.bool_ else (1 << (8 * dtype.itemsize - dtype.signed)) - 1


def check_mean(name: str, x: Any, reduce: str) -> None:
    """Booleans have no mean."""
    if reduce == "mean" and x.dtype is dt.bool_:
        raise NotImplementedError(f'"{name}_mean" not implemented for {label(x.dtype)}')


def _reduce_scatter(L: Any, x: Any, dim: int, index: Any, src: Any, reduce: str,
                    include: bool) -> Any:
    assert include and reduce in MONOIDS
    return _lowered(MONOIDS[reduce][1])(L, x, dim, index, src)


@op("scatter_reduce(input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, "
    "include_self: bool = True) -> Tensor")
class scatter_reduce:
    """Values that meet in one element combined: reduce "sum" | "prod" | "mean" | "amax" | "amin".

    `include_self=False` leaves the input's own elements out where anything is written. An integer
    mean is rounded down.
    """

    kind, where, dtypes = INDEX, "function method inplace", "float half int"
    scatter, checks = _reduce_scatter, check_along

    def rule(x: Any, dim: int, index: Any, src: Any, reduce: str, include: bool) -> Spec:
        if reduce not in KINDS:
            raise RuntimeError("reduce argument must be either sum, prod, mean, amax or amin, got "
                               f"{reduce}")
        check_mean("scatter_reduce", x, reduce)
        return _scatter_rule("scatter_reduce", x, dim, index, src)

    def eager(np: Any, x: Any, dim: int, index: Any, src: Any, reduce: str, include: bool) -> Any:
        def write(flat: Any, places: Any, values: Any) -> None:
            name = "sum" if reduce == "mean" else reduce
            ufunc, _, identity = MONOIDS[name]
            if not include:
                flat[places] = identity(dt.of_numpy(flat.dtype))
            getattr(np, ufunc).at(flat, places, values)
            if reduce == "mean":
                count = np.full(flat.shape, int(include), np.int64)
                np.add.at(count, places, 1)
                count = np.maximum(count, 1).astype(flat.dtype)
                flat[...] = flat / count if flat.dtype.kind not in "iu" else flat // count
        return _scattered(np, x, dim, index, src, write)

    def decomp(F: Any, x: Any, dim: int, index: Any, src: Any, reduce: str, include: bool) -> Any:
        made = _in_rank(F, "scatter_reduce", x, dim, index, src, reduce, include_self=include)
        if made is not NotImplemented:
            return made
        if reduce == "mean":
            ones = F.full(tuple(src.shape), 1, dtype=dt.int64, device=x.device)
            start = F.full(tuple(x.shape), int(include), dtype=dt.int64, device=x.device)
            count = F.clamp_min(F.scatter_add(start, dim, index, ones), 1)
            wide = F.to_dtype(x, x.dtype.wide)
            added = F.scatter_reduce(wide, dim, index, F.to_dtype(src, wide.dtype), "sum",
                                     include_self=include)
            if x.dtype.category == dt.FLOAT:
                return F.to_dtype(F.div(added, F.to_dtype(count, added.dtype)), x.dtype)
            return F.to_dtype(F.floor_divide(added, F.to_dtype(count, x.dtype)), x.dtype)
        if not include:
            x = F.scatter_value(x, dim, index, MONOIDS[reduce][2](x.dtype))
            return F.scatter_reduce(x, dim, index, src, reduce)
        return in_float32(F, "scatter_reduce", x, dim, index, src, reduce)

    def vjp(F: Any, g: Any, out: Any, x: Any, dim: int, index: Any, src: Any, reduce: str,
            include: bool) -> Any:
        made = GRADS[reduce](F, g, out, x, dim, index, src, include)
        own, of_src = made
        if not include:
            own = F.scatter_value(own, dim, index, 0)
        return own, None, whole(F, of_src, tuple(src.shape))

    def samples(s: Any) -> Any:
        for reduce in KINDS:
            for include in (True, False):
                unique = {"unique": True} if s.dtype.category == dt.FLOAT else {}
                other = {**unique, "domain": (-2.9, 2.9)} if unique else {}
                yield s(s.any(3, 4, **unique), 0, s.i(2, 4, high=3), s.any(2, 4, **other), reduce,
                        include_self=include)
            yield s(s.any(4), 0, s.i(6, high=3), s.any(6), reduce)
        yield s(s.any(3), 0, s.i(high=3), s.any(), "sum")
        yield s.raises(RuntimeError, s.any(3), 0, s.i(2, high=3), s.any(2), "middle")
        yield s.raises(NotImplementedError, s.b(3), 0, s.i(2, high=3), s.b(2), "mean")


def _sum_grads(F: Any, g: Any, out: Any, x: Any, dim: int, index: Any, src: Any,
               include: bool) -> Any:
    return g, F.gather(g, dim, index)


def _mean_grads(F: Any, g: Any, out: Any, x: Any, dim: int, index: Any, src: Any,
                include: bool) -> Any:
    start = F.full(tuple(x.shape), int(include), dtype=g.dtype, device=g.device)
    ones = F.full(tuple(src.shape), 1, dtype=g.dtype, device=g.device)
    count = F.clamp_min(F.scatter_add(start, dim, index, ones), 1)
    part = F.div(g, count)
    return part, F.gather(part, dim, index)


def _product_grads(F: Any, g: Any, out: Any, x: Any, dim: int, index: Any, src: Any,
                   include: bool) -> Any:
    """The product of the other factors: out / factor, or, beside one zero, what is not zero."""
    part = _covered(F, src, index)
    zero_x, zero_src = F.eq(x, 0), F.eq(part, 0)
    zeros = F.full(tuple(x.shape), 0, dtype=g.dtype, device=g.device)
    count = F.scatter_add(zeros, dim, index, F.to_dtype(zero_src, g.dtype))
    one = F.full((), 1, dtype=g.dtype, device=g.device)
    own = F.where(zero_x, one, x)
    others = F.where(zero_src, one, part)
    if include:
        count = F.add(count, F.to_dtype(zero_x, g.dtype))
    rest = F.scatter_reduce(own, dim, index, others, "prod",
                            include_self=include)  # without any zero
    nothing = F.full((), 0, dtype=g.dtype, device=g.device)
    alone = F.where(F.eq(count, 1), rest, nothing)
    of_x = F.where(zero_x, alone, F.where(F.gt(count, 0), nothing, F.div(rest, own)))
    count_at, rest_at = F.gather(count, dim, index), F.gather(rest, dim, index)
    alone_at = F.where(F.eq(count_at, 1), rest_at, nothing)
    of_src = F.where(zero_src, alone_at,
                     F.where(F.gt(count_at, 0), nothing, F.div(rest_at, others)))
    return F.mul(g, of_x), F.mul(F.gather(g, dim, index), of_src)


def _covered(F: Any, src: Any, index: Any) -> Any:
    """The part of a source that the index covers."""
    if not src.shape or not index.shape:
        return F.reshape(src, tuple(index.shape))
    for d, (n, m) in enumerate(zip(src.shape, index.shape, strict=True)):
        if n is not m and not (isinstance(n, int) and isinstance(m, int) and n == m):
            src = F.slice(src, d, 0, m)
    return src


def _extreme_grads(F: Any, g: Any, out: Any, x: Any, dim: int, index: Any, src: Any,
                   include: bool) -> Any:
    """Shared evenly among the elements that are the extreme."""
    own = F.to_dtype(F.eq(x, out), g.dtype)
    hit = F.to_dtype(F.eq(_covered(F, src, index), F.gather(out, dim, index)), g.dtype)
    count = F.scatter_add(own if include else F.scatter_value(own, dim, index, 0), dim, index, hit)
    part = F.div(g, F.clamp_min(count, 1))
    return F.mul(own, part), F.mul(hit, F.gather(part, dim, index))


GRADS = {"sum": _sum_grads, "mean": _mean_grads, "prod": _product_grads, "amax": _extreme_grads,
         "amin": _extreme_grads}
