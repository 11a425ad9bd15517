"""Sorting and order statistics. NaN counts as larger than every number; sorting is always stable.

Where several equal elements could be named, the index is that of the first in sorted order (`mode`:
the last occurrence, as PyTorch).
"""

from __future__ import annotations

from typing import Any

from lehr.base import dtype as dt
from lehr.base.proof import decide
from lehr.ops import layout, rule
from lehr.ops.index import zeros_of
from lehr.ops.registry import COMPOSITE, INDEX, op
from lehr.ops.rule import Size, Spec, device_of, dim_of, numel, reduced_shape, same
from lehr.ops.slice import put
from lehr.ops.view import like


def keys(np: Any, x: Any) -> Any:
    """Something numpy sorts well: half precision as float32, bool as bytes."""
    if x.dtype == bool:
        return x.view(np.uint8)
    return x.astype(np.float32) if dt.of_numpy(x.dtype).wide is not dt.of_numpy(x.dtype) else x


def order_of(np: Any, x: Any, dim: int, descending: bool) -> Any:
    """The stable order of the elements along a dimension."""
    if placed(x.dtype, x.shape[dim]):
        key = np.sort(places(np, np.moveaxis(x, dim, -1), descending), -1)
        return np.ascontiguousarray(np.moveaxis(key & PLACE, -1, dim))
    key = keys(np, x)
    if not descending:
        return np.argsort(key, dim, kind="stable")
    back = np.flip(np.argsort(np.flip(key, dim), dim, kind="stable"), dim)
    return x.shape[dim] - 1 - back


def ranks(np: Any, x: Any) -> Any:
    """Integers in the order of the values; NaN above infinity, both zeros equal."""
    key = keys(np, x)
    if key.dtype.kind != "f":
        return key
    bits = (key + 0).view(np.int32 if key.dtype == np.float32 else np.int64)
    top = np.iinfo(bits.dtype).max
    bits ^= (bits >> (8 * bits.itemsize - 1)) & top
    lost = np.isnan(key)
    return np.where(lost, top, bits) if lost.any() else bits


# The bits of a place in a key that has an element's rank above them.
PLACE = (1 << 32) - 1


def placed(dtype: Any, size: int) -> bool:
    """Whether rank and place of an element of a row fit one key."""
    return dt.of_numpy(dtype).wide.itemsize <= 4 and size <= PLACE


def places(np: Any, x: Any, descending: bool) -> Any:
    """Rank and place of each element of the last dimension, as one int64: no two are equal, and
    numpy sorts them with vectors, ten times as fast as it finds a stable order."""
    key = ranks(np, x)
    wide = (~key if descending else key).astype(np.int64, "C")
    wide <<= 32
    wide |= np.arange(x.shape[-1])
    return wide


def _sorted_rule(x: Any, dim: int, *rest: Any) -> tuple[Spec, Spec]:
    dim_of(dim, len(x.shape))
    return like(x, x.shape), Spec(tuple(x.shape), dt.int64, x.device)


def _put_back(F: Any, g: Any, indices: Any, shape: Any, dim: int) -> Any:
    """The gradient of values picked along `dim` at `indices`, all different."""
    return F.scatter(zeros_of(F, tuple(shape), g[0]), dim, indices, g[0])


@op("sort(input: Tensor, dim: int = -1, descending: bool = False, *, stable: bool | None = False)"
    " -> named(values=Tensor, indices=Tensor)")
class sort:
    """Sorted values along `dim` and where they came from."""

    kind, rule, layout = INDEX, _sorted_rule, layout.preserved
    exact, host, nondiff = True, True, (1,)

    def eager(np: Any, x: Any, dim: int, descending: bool, stable: Any) -> Any:
        if not x.ndim:
            return x.copy(), np.zeros((), np.int64)
        order = order_of(np, x, dim, descending)
        return np.take_along_axis(x, order, dim), order

    def vjp(F: Any, g: Any, out: Any, x: Any, dim: int, descending: bool, stable: Any) -> Any:
        return _put_back(F, g, out[1], x.shape, dim)

    def samples(s: Any) -> Any:
        yield s(s.any(3, 5))
        yield s(s.any(3, 5), 0, True)
        yield s(s.any(2, 3, 4), dim=1, descending=True, stable=True)
        yield s(s.any(6, **_special(s)))
        yield s(s.any(9, **_special(s)), descending=True)
        yield s(s.any())
        yield s(s.any(3, 0))
        yield s.raises(IndexError, s.any(3), 1)


def _special(s: Any) -> dict[str, Any]:
    return {"nonfinite": True} if s.dtype.category == dt.FLOAT else {}


@op("argsort(input: Tensor, dim: int = -1, descending: bool = False, *, "
    "stable: bool | None = False) -> Tensor")
class argsort:
    kind, exact, nondiff = COMPOSITE, True, True

    def rule(x: Any, dim: int, descending: bool, stable: Any) -> Spec:
        return _sorted_rule(x, dim)[1]

    def decomp(F: Any, x: Any, dim: int, descending: bool, stable: Any) -> Any:
        return F.sort(x, dim, descending, stable=stable)[1]

    def samples(s: Any) -> Any:
        yield s(s.any(3, 5))
        yield s(s.any(3, 5), 0, True)
        yield s(s.any(8, **_special(s)), descending=True, stable=True)


@op("msort(input: Tensor) -> Tensor")
class msort:
    """Sorted along the first dimension."""

    kind, exact = COMPOSITE, True

    def rule(x: Any) -> Spec:
        return like(x, x.shape)

    def decomp(F: Any, x: Any) -> Any:
        return F.sort(x, 0)[0]

    def samples(s: Any) -> Any:
        yield s(s.any(4, 3))


def _few(np: Any, rows: Any, k: int, largest: bool) -> Any:
    """The places of the k best of each row, ascending; None where the last of them has equals, or
    is NaN."""
    key = np.ascontiguousarray(keys(np, rows))
    n = key.shape[-1]
    last = n - k if largest else k - 1
    limit = np.partition(key, last)[..., last:last + 1]
    found = np.flatnonzero(key >= limit if largest else key <= limit)
    if found.size != key.size // n * k or (limit != limit).any():
        return None
    return (found % n).reshape(*key.shape[:-1], k)


@op("topk(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True)"
    " -> named(values=Tensor, indices=Tensor)")
class topk:
    """The k largest (or smallest) values along `dim`, best first; of equal ones the first."""

    kind, exact, host, nondiff = INDEX, True, True, (1,)

    def rule(x: Any, k: Size, dim: int, largest: bool, sorted: bool) -> Any:
        rule.no_bool("topk does not support bool dtypes on CPU", x)
        place = dim_of(dim, len(x.shape))
        size = x.shape[place] if x.shape else 1
        if decide(k, "<", 0) or decide(k, ">", size):
            raise RuntimeError(f"selected index k out of range: {k} of {size}")
        shape = put(x.shape, place, k) if x.shape else ()
        return like(x, shape), Spec(shape, dt.int64, x.device)

    def eager(np: Any, x: Any, k: int, dim: int, largest: bool, sorted: bool) -> Any:
        if not x.ndim:
            return x.copy(), np.zeros((), np.int64)
        rows = np.moveaxis(x, dim, -1)
        n = x.shape[dim]
        few = _few(np, rows, k, largest) if 0 < 4 * k <= n and x.size else None
        if few is not None:
            order = order_of(np, np.take_along_axis(rows, few, -1), -1, largest)
            where = np.take_along_axis(few, order, -1)
            values = np.take_along_axis(rows, where, -1)
            return np.moveaxis(values, -1, dim), np.moveaxis(where, -1, dim)
        if 0 < k < n and placed(x.dtype, n):
            key = np.sort(np.partition(places(np, rows, largest), k - 1)[..., :k], -1)
            where = key & PLACE
            values = np.take_along_axis(rows, where, -1)
            return np.moveaxis(values, -1, dim), np.moveaxis(where, -1, dim)
        key = np.ascontiguousarray(ranks(np, rows))
        key = ~key if largest else key  # smallest first from here on
        if 0 < k < n and x.size:
            limit = np.partition(key, k - 1)[..., k - 1:k]
            below, at = key < limit, key == limit
            room = k - below.sum(-1, keepdims=True)
            if (at.sum(-1, keepdims=True) > room).any():  # equal elements at the limit
                at &= np.cumsum(at, -1) <= room
            chosen = below | at
            where = np.nonzero(chosen)[-1].reshape(*rows.shape[:-1], k)
        else:
            where = np.broadcast_to(np.arange(k), (*rows.shape[:-1], k))
        inner = np.argsort(np.take_along_axis(key, where, -1), -1, kind="stable")
        where = np.take_along_axis(where, inner, -1)
        values = np.take_along_axis(rows, where, -1)
        return np.moveaxis(values, -1, dim), np.moveaxis(where, -1, dim)

    def vjp(F: Any, g: Any, out: Any, x: Any, k: Any, dim: int, largest: bool, sorted: bool) -> Any:
        return _put_back(F, g, out[1], x.shape, dim)

    def samples(s: Any) -> Any:
        yield s(s.any(3, 7, **_unique(s)), 2)
        yield s(s.any(5, 3, **_unique(s)), 3, 0, False)
        yield s(s.any(3, 4, 2, **_unique(s)), 4, 1)
        yield s(s.any(3, 4), 0)
        yield s(s.any(), 1)
        yield s.raises(RuntimeError, s.any(3), 4, match="out of range")

    dtypes = "float half int"


def _unique(s: Any) -> dict[str, Any]:
    return {"unique": True} if s.dtype.category == dt.FLOAT else {"unique": True, "low": 0}


def _reduced(name: str, x: Any, dim: int, keepdim: bool) -> tuple[Spec, Spec]:
    place = dim_of(dim, len(x.shape))
    if x.shape and same(x.shape[place], 0):
        raise IndexError(f"{name}(): Expected reduction dim {place} to have non-zero size.")
    shape = reduced_shape(tuple(x.shape), (place,) if x.shape else (), keepdim)
    return like(x, shape), Spec(shape, dt.int64, x.device)


@op("kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False)"
    " -> named(values=Tensor, indices=Tensor)")
class kthvalue:
    """The k-th smallest value along `dim`, counted from 1."""

    kind, exact, nondiff, dtypes = COMPOSITE, True, (1,), "float half int"

    def rule(x: Any, k: Size, dim: int, keepdim: bool) -> Any:
        rule.no_bool('"kthvalue" not implemented for \'Bool\'', x, NotImplementedError)
        made = _reduced("kthvalue", x, dim, keepdim)
        size = x.shape[dim_of(dim, len(x.shape))] if x.shape else 1
        if decide(k, "<", 1) or decide(k, ">", size):
            raise RuntimeError(f"kthvalue(): selected number k out of range for dimension {dim}: "
                               f"{k} of {size}")
        return made

    def decomp(F: Any, x: Any, k: Size, dim: int, keepdim: bool) -> Any:
        values, indices = F.sort(x, dim)
        if not x.shape:
            return values, indices
        pick = (lambda a: F.slice_copy(a, dim, k - 1, k)) if keepdim else (
            lambda a: F.select_copy(a, dim, k - 1))
        return pick(values), pick(indices)

    def samples(s: Any) -> Any:
        yield s(s.any(3, 5, **_unique(s)), 2)
        yield s(s.any(4, 3, **_unique(s)), 4, 0, True)
        yield s(s.any(), 1)
        yield s.raises(RuntimeError, s.any(3), 4)
        yield s.raises(RuntimeError, s.any(3), 0)
        yield s.raises(IndexError, s.any(2, 0), 1)


def _middle(F: Any, x: Any, dim: int, keepdim: bool, skip_nan: bool) -> Any:
    """(value, index) of the lower median; of the numbers alone, or NaN where there is one."""
    values, indices = F.sort(x, dim)
    if not x.shape:
        return values, indices
    place = dim_of(dim, len(x.shape))
    n = x.shape[place]
    if x.dtype.category == dt.FLOAT:
        bad = F.sum(F.to_dtype(F.isnan(x), dt.int64), place, True)
        numbers = F.sub(n, bad)
        if skip_nan:
            at = F.clamp_min(F.floor_divide(F.sub(numbers, 1), 2), 0)
        else:
            half = F.full((), (n - 1) // 2, dtype=dt.int64, device=x.device)
            at = F.where(F.gt(bad, 0), numbers, half)
    else:
        shape = put(x.shape, place, 1)
        at = F.full(shape, (n - 1) // 2, dtype=dt.int64, device=x.device)
    picked = F.gather(values, place, at), F.gather(indices, place, at)
    return picked if keepdim else tuple(F.squeeze(p, place) for p in picked)


def _median_of(skip_nan: bool, name: str) -> None:
    """Registers `median` or `nanmedian`, of a whole tensor and along a dimension."""
    refusal = '"median" not implemented for \'Bool\''

    def typed(x: Any, dim: int, keepdim: bool) -> Any:
        rule.no_bool(refusal, x, NotImplementedError)
        return _reduced(name, x, dim, keepdim)

    def decomp(F: Any, x: Any, dim: int, keepdim: bool) -> Any:
        return _middle(F, x, dim, keepdim, skip_nan)

    def samples(s: Any) -> Any:
        yield s(s.any(3, 5, **_unique(s)), 1)
        yield s(s.any(4, 3, **_unique(s)), 0, True)
        yield s(s.any(), 0)
        if s.dtype.category == dt.FLOAT:
            yield s(s.any(3, 9, nonfinite=True, unique=True), -1)
        yield s.raises(IndexError, s.any(2, 0), 1)

    doc = "The lower median along `dim`" + (" of what is not NaN." if skip_nan else
                                            "; NaN where there is one.")
    shared = {"kind": COMPOSITE, "dtypes": "float half int", "exact": True}
    fields = {**shared, "rule": typed, "decomp": decomp, "samples": samples, "api": name,
              "nondiff": (1,), "__doc__": doc}
    op(f"{name}_dim(input: Tensor, dim: int, keepdim: bool = False)"
       " -> named(values=Tensor, indices=Tensor)")(type(f"{name}_dim", (), fields))

    def whole_rule(x: Any) -> Spec:
        rule.no_bool(refusal, x, NotImplementedError)
        return like(x, ())

    def eager(np: Any, x: Any) -> Any:
        flat = keys(np, x).reshape(-1)
        bad = np.isnan(flat) if flat.dtype.kind == "f" else np.zeros(flat.shape, bool)
        if not flat.size or (bad.all() if skip_nan else bad.any()):
            return np.asarray(np.nan)
        flat = flat[~bad] if bad.any() else flat
        half = (flat.size - 1) // 2
        return np.asarray(np.partition(flat, half)[half])

    def whole(F: Any, x: Any) -> Any:
        if same(numel(x.shape), 0):
            return F.full((), float("nan"), dtype=x.dtype, device=x.device)
        return _middle(F, F.reshape(x, -1), 0, False, skip_nan)[0]

    def vjp(F: Any, g: Any, out: Any, x: Any) -> Any:
        hit = F.logical_or(F.eq(x, out), F.logical_and(F.isnan(x), F.isnan(out)))
        share = F.div(g, F.to_dtype(F.sum(F.to_dtype(hit, dt.int64)), g.dtype))
        return F.where(hit, share, zeros_of(F, (), g))

    def whole_samples(s: Any) -> Any:
        yield s(s.any(3, 4))
        yield s(s.any(5))
        yield s(s.any())
        if s.dtype.category == dt.FLOAT:
            yield s(s.any(9, nonfinite=True))
            yield s(s.any(0))

    fields = {**shared, "rule": whole_rule, "decomp": whole, "eager": eager, "vjp": vjp,
              "samples": whole_samples, "__doc__": doc.replace("along `dim`", "of all elements")}
    op(f"{name}(input: Tensor) -> Tensor")(type(name, (), fields))


_median_of(False, "median")
_median_of(True, "nanmedian")


@op("mode(input: Tensor, dim: int = -1, keepdim: bool = False)"
    " -> named(values=Tensor, indices=Tensor)")
class mode:
    """The most frequent value along `dim`, the smallest of several, and its last occurrence."""

    kind, exact, host, nondiff = INDEX, True, True, (1,)

    def rule(x: Any, dim: int, keepdim: bool) -> Any:
        return _reduced("mode", x, dim, keepdim)

    def eager(np: Any, x: Any, dim: int, keepdim: bool) -> Any:
        if not x.ndim:
            return x.copy(), np.zeros((), np.int64)
        rows = np.moveaxis(x, dim, -1)
        order = order_of(np, rows, -1, False)
        key = np.take_along_axis(keys(np, rows), order, -1)
        places = np.arange(key.shape[-1])
        starts = np.where(np.concatenate((np.ones_like(key[..., :1], bool),
                                          key[..., 1:] != key[..., :-1]), -1), places, 0)
        length = places - np.maximum.accumulate(starts, -1)
        at = np.take_along_axis(order, np.argmax(length, -1)[..., None], -1)
        out = np.take_along_axis(rows, at, -1), at
        return tuple(np.moveaxis(a, -1, dim) if keepdim else a[..., 0] for a in out)

    def vjp(F: Any, g: Any, out: Any, x: Any, dim: int, keepdim: bool) -> Any:
        if keepdim or not x.shape:
            return _put_back(F, g, out[1], x.shape, dim)
        widened = [F.unsqueeze(a, dim_of(dim, len(x.shape))) for a in (g[0], out[1])]
        return F.scatter(zeros_of(F, tuple(x.shape), g[0]), dim, widened[1], widened[0])

    def samples(s: Any) -> Any:
        yield s(s.any(3, 8, low=0, high=3) if s.dtype.category == dt.INT else s.any(3, 8))
        yield s(s.i(5, 2, high=3), 0, True)
        yield s(s.any())
        yield s.raises(IndexError, s.any(2, 0))


INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


def _quantile_rule(name: str) -> Any:
    def rule_of(x: Any, q: Any, dim: Any, keepdim: bool, interpolation: str) -> Spec:
        if x.dtype not in (dt.float32, dt.float64):
            raise RuntimeError(f"{name}() input tensor must be either float or double dtype")
        if interpolation not in INTERPOLATIONS:
            raise RuntimeError(f"{name}() interpolation must be one of linear, lower, higher, "
                               f"midpoint or nearest, but got {interpolation}")
        if isinstance(q, (int, float)) and not 0 <= q <= 1:
            raise RuntimeError(f"{name}() q must be in the range [0, 1] but got {q}")
        if rule.is_tensor(q):
            if len(q.shape) > 1:
                raise RuntimeError(f"{name}() q must be a scalar or 1D tensor")
            if q.dtype is not x.dtype:
                raise RuntimeError(f"{name}() q tensor must be same dtype as the input tensor")
        place = None if dim is None else dim_of(dim, len(x.shape))
        if same(numel(x.shape) if place is None else x.shape[place] if x.shape else 1, 0):
            raise RuntimeError(f"{name}() input tensor must be non-empty")
        dims = tuple(range(len(x.shape))) if place is None else (place,) if x.shape else ()
        shape = reduced_shape(tuple(x.shape), dims, keepdim)
        lead = tuple(q.shape) if rule.is_tensor(q) else ()
        return Spec((*lead, *shape), x.dtype, device_of((x, q)))
    return rule_of


def _quantile(F: Any, x: Any, q: Any, dim: Any, keepdim: bool, interpolation: str,
              skip_nan: bool) -> Any:
    ndim = len(x.shape)
    rows = F.reshape(x, (-1,)) if dim is None or not ndim else F.movedim(x, dim, -1)
    n = rows.shape[-1]
    points = q if rule.is_tensor(q) else F.full((), q, dtype=x.dtype, device=x.device)
    flat = F.reshape(points, (-1,))
    ordered = F.sort(rows, -1)[0]
    bad = F.isnan(rows)
    lead = tuple(rows.shape[:-1])
    if skip_nan:
        numbers = F.sub(n, F.sum(F.to_dtype(bad, dt.int64), -1, True))
        last = F.to_dtype(F.clamp_min(F.sub(numbers, 1), 0), x.dtype)
        at = F.mul(flat, last)
    else:
        end = F.full((), n - 1, dtype=x.dtype, device=x.device)
        at = F.where(F.any(bad, -1, True), end, F.mul(flat, n - 1))
    at = F.expand(at, (*lead, flat.shape[0]))
    if interpolation == "nearest":
        at = F.round(at)
    low = F.ceil(at) if interpolation == "higher" else F.floor(at)
    out = F.gather(ordered, -1, F.to_dtype(low, dt.int64))
    if interpolation in ("linear", "midpoint"):
        high = F.gather(ordered, -1, F.to_dtype(F.ceil(at), dt.int64))
        weight = F.sub(at, low) if interpolation == "linear" else F.full(
            (), 0.5, dtype=x.dtype, device=x.device)
        out = F.lerp(out, high, weight)
    out = F.movedim(out, -1, 0) if points.shape else F.squeeze(out, -1)
    if not keepdim or not ndim:
        return out
    shape = (1,) * ndim if dim is None else put(x.shape, dim_of(dim, ndim), 1)
    return F.reshape(out, (*points.shape, *shape))


def _quantile_of(skip_nan: bool, name: str) -> None:
    def decomp(F: Any, x: Any, q: Any, dim: Any, keepdim: bool, interpolation: str) -> Any:
        return _quantile(F, x, q, dim, keepdim, interpolation, skip_nan)

    def samples(s: Any) -> Any:
        yield s(s.any(3, 5), 0.3)
        yield s(s.any(3, 5), s.f(3, domain=(0.0, 1.0)), 1)
        yield s(s.any(3, 5), 0.5, 0, True)
        yield s(s.any(9, nonfinite=True), s.f(2, domain=(0.0, 1.0)))
        for word in INTERPOLATIONS:
            yield s(s.any(6), s.f(3, domain=(0.0, 1.0)), -1, interpolation=word)
        yield s(s.any(), 1.0)
        yield s.raises(RuntimeError, s.any(3), 1.5, match="range")
        yield s.raises(RuntimeError, s.any(0), 0.5, match="non-empty")
        yield s.raises(RuntimeError, s.i(3), 0.5, match="float or double")

    doc = ("The q-quantiles" + (" of what is not NaN" if skip_nan else "; NaN where there is one")
           + ", shape (*q.shape, *reduced shape).")
    fields = {"kind": COMPOSITE, "rule": _quantile_rule(name), "decomp": decomp,
              "samples": samples, "dtypes": "float", "__doc__": doc}
    op(f"{name}(input: Tensor, q: float | Tensor, dim: int | None = None, keepdim: bool = False, "
       "*, interpolation: str = 'linear') -> Tensor")(type(name, (), fields))


_quantile_of(False, "quantile")
_quantile_of(True, "nanquantile")


def _places(np: Any, ordered: Any, values: Any, right: bool) -> Any:
    """How many elements of each sorted row come before a value: a binary search, all at once."""
    low = np.zeros(values.shape, np.int64)
    high = np.full(values.shape, ordered.shape[-1], np.int64)
    if not ordered.shape[-1]:
        return low
    for _ in range(int(ordered.shape[-1]).bit_length()):
        middle = (low + high) // 2
        safe = np.minimum(middle, ordered.shape[-1] - 1)
        have = np.take_along_axis(ordered, safe, -1) if ordered.ndim > 1 else ordered[safe]
        after = ~(have > values) if right else ~(have >= values)
        after &= low < high
        high = np.where(after | (low >= high), high, middle)
        low = np.where(after, middle + 1, low)
    return low


def _side(right: bool, side: str | None) -> bool:
    if side not in (None, "left", "right"):
        raise RuntimeError("torch.searchsorted(): side can only be 'left' or 'right' but got "
                           f"{side}")
    if side == "left" and right:
        raise RuntimeError("torch.searchsorted(): side and right can't be set to opposites, got "
                           "side of left while right was True")
    return right or side == "right"


@op("searchsorted(sorted_sequence: Tensor, input: Tensor | Scalar, *, out_int32: bool = False, "
    "right: bool = False, side: str | None = None, sorter: Tensor | None = None) -> Tensor")
class searchsorted:
    """Where `input` would be inserted into the sorted last dimension: before equal elements, or
    after them with `right`. The leading dimensions of both agree, or the sequence is 1-d."""

    kind, host, nondiff, where, dtypes = INDEX, True, True, "function", "float half int"

    def rule(seq: Any, values: Any, out_int32: bool, right: bool, side: Any, sorter: Any) -> Spec:
        _side(right, side)
        rule.no_bool('"searchsorted" not implemented for \'Bool\'', seq, NotImplementedError)
        shape = tuple(values.shape) if rule.is_tensor(values) else ()
        if not seq.shape:
            raise RuntimeError("torch.searchsorted(): the sorted sequence needs a dimension")
        if len(seq.shape) > 1 and (len(shape) != len(seq.shape) or not all(
                map(same, shape[:-1], seq.shape[:-1]))):
            raise RuntimeError(
                "torch.searchsorted(): boundaries tensor should be 1 dimension or the first N-1 "
                "dimensions of boundaries tensor and input value tensor must match, but we got "
                f"boundaries tensor {list(seq.shape)} and input value tensor {list(shape)}")
        if sorter is not None and (sorter.dtype is not dt.int64
                                   or tuple(sorter.shape) != tuple(seq.shape)):
            raise RuntimeError("torch.searchsorted(): boundary and sorter must have the same size "
                               "and the sorter must be a long tensor")
        return Spec(shape, dt.int32 if out_int32 else dt.int64, seq.device)

    def eager(np: Any, seq: Any, values: Any, out_int32: bool, right: bool, side: Any,
              sorter: Any) -> Any:
        seq = seq if sorter is None else np.take_along_axis(seq, sorter, -1)
        return _places(np, seq, np.asarray(values), _side(right, side))

    def samples(s: Any) -> Any:
        row = lambda *shape: np_sorted(s.any(*shape))
        yield s(row(5), s.any(3, 4))
        yield s(row(2, 5), s.any(2, 3), right=True)
        yield s(row(5), 2, side="right")
        yield s(row(5), s.any(3), out_int32=True)
        yield s(row(1), s.any())
        yield s.raises(RuntimeError, row(2, 5), s.any(3))
        yield s.raises(RuntimeError, row(5), s.any(3), side="middle")


def np_sorted(a: Any) -> Any:
    a.sort(-1)
    return a


@op("bucketize(input: Tensor | Scalar, boundaries: Tensor, *, out_int32: bool = False, "
    "right: bool = False) -> Tensor")
class bucketize:
    """`searchsorted` of a 1-d sequence with its operands exchanged."""

    kind, nondiff, where, dtypes = COMPOSITE, True, "function", "float half int"

    def rule(values: Any, seq: Any, out_int32: bool, right: bool) -> Spec:
        if len(seq.shape) != 1:
            raise RuntimeError("boundaries tensor must be 1 dimension, but got "
                               f"dim({len(seq.shape)})")
        shape = tuple(values.shape) if rule.is_tensor(values) else ()
        return Spec(shape, dt.int32 if out_int32 else dt.int64, seq.device)

    def decomp(F: Any, values: Any, seq: Any, out_int32: bool, right: bool) -> Any:
        return F.searchsorted(seq, values, out_int32=out_int32, right=right)

    def samples(s: Any) -> Any:
        yield s(s.any(3, 4), np_sorted(s.any(5)))
        yield s(s.any(3), np_sorted(s.any(5)), right=True, out_int32=True)
        yield s(2, np_sorted(s.any(5)))
        yield s.raises(RuntimeError, s.any(3), np_sorted(s.any(2, 5)))
