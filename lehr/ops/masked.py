"""Writes where a mask is true."""

from __future__ import annotations

from typing import Any

from lehr.base import dtype as dt
from lehr.ops import execute, layout, rule
from lehr.ops.index import zeros_of
from lehr.ops.registry import COMPOSITE, POINTWISE, op
from lehr.ops.rule import LABELS, Spec, broadcast, device_of, numel
from lehr.ops.view import like


def check_mask(name: str, mask: Any) -> None:
    if mask.dtype is not dt.bool_:
        raise RuntimeError(f"{name} only supports boolean masks, but got mask with dtype "
                           f"{LABELS[mask.dtype.name]}")


def _filled(x: Any, mask: Any, value: Any) -> Spec:
    check_mask("masked_fill_", mask)
    if rule.is_tensor(value) and value.shape:
        raise RuntimeError("masked_fill_ only supports a 0-dimensional value tensor, but got "
                           f"tensor with {len(value.shape)} dimension(s).")
    made = value.dtype.category if rule.is_tensor(value) else dt.category_of(value)
    if made == dt.COMPLEX and x.dtype.category in (dt.INT, dt.FLOAT):
        raise RuntimeError(f"value cannot be converted to type {x.dtype.name} without overflow")
    device_of((x, mask))
    return like(x, broadcast(tuple(x.shape), tuple(mask.shape)))


@op("masked_fill(input: Tensor, mask: Tensor, value: Tensor | Scalar) -> Tensor")
class masked_fill:
    """`value` (a number or a 0-d tensor) where `mask` is true, else `input`, in its dtype."""

    kind, rule, where, exact = POINTWISE, _filled, "function method inplace", True
    layout = layout.row_major

    def eager(np: Any, x: Any, mask: Any, value: Any) -> Any:
        made = dt.of_numpy(x.dtype)
        value = (execute.cast(value, made) if isinstance(value, np.ndarray)
                 else execute.number(value, made))
        return np.where(mask, value, x)

    def decomp(F: Any, x: Any, mask: Any, value: Any) -> Any:
        value = (F.to_dtype(value, x.dtype) if rule.is_tensor(value)
                 else F.full((), value, dtype=x.dtype, device=x.device))
        return F.where(mask, value, x)

    def vjp(F: Any, g: Any, out: Any, x: Any, mask: Any, value: Any) -> Any:
        def of_value() -> Any:
            return F.sum(F.where(mask, g, zeros_of(F, (), g)))
        return (lambda: F.masked_fill(g, mask, 0), None,
                of_value if rule.is_tensor(value) else None)

    def samples(s: Any) -> Any:
        yield s(s.any(3, 4), s.b(3, 4), 1)
        yield s(s.any(3, 4), s.b(4), 2.5)
        yield s(s.any(4), s.b(3, 1), s.any())
        yield s(s.any(3), s.b(3), s.f())
        if s.dtype.category == dt.FLOAT:
            yield s(s.any(3), s.b(3), float("-inf"))
        yield s.raises(RuntimeError, s.any(3), s.i(3), 1, match="boolean masks")
        yield s.raises(RuntimeError, s.any(3), s.b(3), s.any(1), match="0-dimensional")
        if s.dtype is not dt.bool_:
            yield s.raises(RuntimeError, s.any(3), s.b(3), 1j, match="without overflow")


@op("masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor")
class masked_scatter:
    """The elements of `source`, in order, where `mask` is true, else `input`."""

    kind, where, exact = COMPOSITE, "function method inplace", True

    def rule(x: Any, mask: Any, source: Any) -> Spec:
        check_mask("masked_scatter_", mask)
        if source.dtype is not x.dtype:
            raise RuntimeError("masked_scatter: expected self and source to have same dtypes but "
                               f"got {LABELS[x.dtype.name]} and {LABELS[source.dtype.name]}")
        device_of((x, mask, source))
        return like(x, broadcast(tuple(x.shape), tuple(mask.shape)))

    def eager(np: Any, x: Any, mask: Any, source: Any) -> Any:
        x, mask = np.broadcast_arrays(x, mask)
        count = int(mask.sum())
        if count > source.size:
            raise RuntimeError("Number of elements of source < number of ones in mask: "
                               f"{source.size} < {count}")
        out = np.array(x, order="C")
        out[mask] = source.reshape(-1)[:count]
        return out

    def decomp(F: Any, x: Any, mask: Any, source: Any) -> Any:
        shape = broadcast(tuple(x.shape), tuple(mask.shape))
        flat = F.reshape(F.expand(mask, shape), -1)
        # The k-th true element takes source element k - 1; index 0 is a dummy for the others.
        nth = F.cumsum(F.to_dtype(flat, dt.int64), 0)
        nothing = F.full((), 0, dtype=dt.int64, device=x.device)
        padded = zeros_of(F, (1,), x)
        if 0 not in tuple(source.shape):
            padded = F.cat([padded, F.reshape(source, -1)], 0)
        taken = F.index_select(padded, 0, F.where(flat, nth, nothing))
        return F.where(mask, F.reshape(taken, shape), x)

    def vjp(F: Any, g: Any, out: Any, x: Any, mask: Any, source: Any) -> Any:
        def of_source() -> Any:
            flat = F.reshape(F.expand(mask, g.shape), -1)
            nth = F.cumsum(F.to_dtype(flat, dt.int64), 0)
            nothing = F.full((), 0, dtype=dt.int64, device=g.device)
            spots = F.where(flat, nth, nothing)
            padded = zeros_of(F, (numel(source.shape) + 1,), g)
            masked = F.reshape(F.masked_fill(g, F.logical_not(mask), 0), -1)
            return F.reshape(F.slice(F.index_add(padded, 0, spots, masked), 0, 1), source.shape)
        return (lambda: F.masked_fill(g, mask, 0)), None, of_source

    def samples(s: Any) -> Any:
        yield s(s.any(3, 4), s.b(3, 4), s.any(12))
        yield s(s.any(3, 4), s.b(4), s.any(3, 5))
        yield s(s.any(0), s.b(0), s.any(0))
        yield s.raises(RuntimeError, s.any(3), ~s.b(3) | True, s.any(2))
        yield s.raises(RuntimeError, s.any(3), s.i(3), s.any(3))
