"""Ops whose result sizes depend on data (graph breaks), and counting.

A size that only the data gives is None in the rule's result. `unique_all` and its kin return
everything they can; `lehr.ops.parts` has the functions that pick what the caller asked for.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

from lehr.base import dtype as dt
from lehr.base.device import CPU, Device
from lehr.ops import rule
from lehr.ops.index import zeros_of
from lehr.ops.registry import COMPOSITE, CREATE, INDEX, op
from lehr.ops.rule import LABELS, Shape, Spec, broadcast, device_of, dim_of, same
from lehr.ops.slice import put
from lehr.ops.view import like

BREAK = "data-dependent-size"


@op("nonzero(input: Tensor) -> Tensor")
class nonzero:
    """The indices (n, input.ndim), int64, of the elements that are not zero; NaN is not zero."""

    kind, host, breaks, nondiff, exact = INDEX, True, BREAK, True, True

    def rule(x: Any) -> Spec:
        return Spec((None, len(x.shape)), dt.int64, x.device)

    def eager(np: Any, x: Any) -> Any:
        if not x.ndim:
            return np.zeros((int(x != 0), 0), np.int64)
        return np.stack(np.nonzero(x != 0)).T  # as PyTorch stores it: one dimension after the other

    def samples(s: Any) -> Any:
        yield s(s.any(3, 4))
        yield s(s.any(5))
        yield s(s.any())
        yield s(s.any(0, 2))
        yield s(s.any(2, 3, 2))


@op("argwhere(input: Tensor) -> Tensor")
class argwhere:
    kind, breaks, nondiff = COMPOSITE, BREAK, True
    rule, samples = nonzero.rule, nonzero.samples

    def decomp(F: Any, x: Any) -> Any:
        return F.nonzero(x)


@op("nonzero_static(input: Tensor, *, size: int, fill_value: int = -1) -> Tensor")
class nonzero_static:
    """The first `size` rows of `nonzero`, filled up with `fill_value`."""

    kind, host, nondiff, exact = INDEX, True, True, True

    def rule(x: Any, size: Any, fill_value: int) -> Spec:
        if isinstance(size, int) and size < 0:
            raise RuntimeError("nonzero_static: 'size' must be an non-negative integer, got "
                               f"{size}")
        return Spec((size, len(x.shape)), dt.int64, x.device)

    def eager(np: Any, x: Any, size: int, fill_value: int) -> Any:
        out = np.full((size, x.ndim), fill_value, np.int64)
        if x.ndim:
            found = np.stack(np.nonzero(x != 0), 1)[:size]
            out[:len(found)] = found
        return out

    def samples(s: Any) -> Any:
        yield s(s.any(3, 4), size=5)
        yield s(s.any(3), size=7, fill_value=0)
        yield s(s.any(), size=2)
        yield s.raises(RuntimeError, s.any(3), size=-1)


@op("masked_select(input: Tensor, mask: Tensor) -> Tensor")
class masked_select:
    """The elements (n,) where `mask` is true, in row-major order of the broadcast shape."""

    kind, host, breaks, exact = INDEX, True, BREAK, True

    def rule(x: Any, mask: Any) -> Spec:
        if mask.dtype is not dt.bool_:
            raise RuntimeError("masked_select: expected BoolTensor for mask, got "
                               f"{LABELS[mask.dtype.name]}")
        broadcast(tuple(x.shape), tuple(mask.shape))
        return Spec((None,), x.dtype, device_of((x, mask)))

    def eager(np: Any, x: Any, mask: Any) -> Any:
        x, mask = np.broadcast_arrays(x, mask)
        return x[mask]

    def vjp(F: Any, g: Any, out: Any, x: Any, mask: Any) -> Any:
        def of_input() -> Any:
            shape = broadcast(tuple(x.shape), tuple(mask.shape))
            return F.masked_scatter(zeros_of(F, shape, g), mask, g)
        return of_input, None

    def samples(s: Any) -> Any:
        yield s(s.any(3, 4), s.b(3, 4))
        yield s(s.any(3, 4), s.b(4))
        yield s(s.any(4), s.b(3, 1))
        yield s(s.any(), s.b(2))
        yield s.raises(RuntimeError, s.any(3), s.i(3))
        yield s.raises(RuntimeError, s.any(3), s.b(4))


def _three(x: Any, values: Shape, inverse: Shape) -> tuple[Spec, Spec, Spec]:
    counts = Spec((None,), dt.int64, x.device)
    return like(x, values), Spec(inverse, dt.int64, x.device), counts


def _runs(np: Any, new: Any) -> tuple[Any, Any, Any]:
    """(first places, number of the run of every place, lengths) of runs that begin where `new`."""
    first = np.flatnonzero(new)
    return first, np.cumsum(new) - 1, np.diff(np.append(first, new.size))


def _different(np: Any, a: Any) -> Any:
    """Whether each row (or element) differs from the one before."""
    if not len(a):
        return np.zeros(0, bool)
    changed = a[1:] != a[:-1]
    return np.concatenate(([True], changed.any(tuple(range(1, a.ndim))) if a.ndim > 1 else changed))


@op("unique_all(input: Tensor, dim: int | None = None)"
    " -> named(values=Tensor, inverse=Tensor, counts=Tensor)")
class unique_all:
    """The different elements, sorted (or the different slices along `dim`, sorted as rows), which
    of them stands at each place, and how often each occurs. Every NaN is different."""

    kind, where, host, breaks, nondiff, exact = INDEX, "", True, BREAK, True, True

    def rule(x: Any, dim: Any) -> Any:
        if dim is None:
            return _three(x, (None,), tuple(x.shape))
        place = dim_of(dim, len(x.shape))
        return (_three(x, put(x.shape, place, None), (x.shape[place],)) if x.shape
                else _three(x, (None,), (1,)))

    def eager(np: Any, x: Any, dim: Any) -> Any:
        rows = x.reshape(-1) if dim is None or not x.ndim else np.moveaxis(x, dim, 0)
        flat = np.ascontiguousarray(rows).reshape(len(rows), math.prod(rows.shape[1:]))
        order = (np.argsort(_comparable(np, flat[:, 0]), kind="stable") if flat.shape[1] == 1
                 else np.lexsort(_comparable(np, flat).T[::-1]) if flat.shape[1]
                 else np.arange(len(rows)))
        first, number, counts = _runs(np, _different(np, flat[order]))
        inverse = np.empty(len(rows), np.int64)
        inverse[order] = number
        values = rows[order[first]]
        if dim is None:
            return values, inverse.reshape(x.shape), counts
        return np.moveaxis(values, 0, dim) if x.ndim else values, inverse, counts

    def samples(s: Any) -> Any:
        yield s(s.any(9))
        yield s(s.i(3, 4, high=4))
        yield s(s.i(6, 2, high=2), 0)
        yield s(s.i(2, 3, 6, high=2), -1)
        yield s(s.any())
        yield s(s.any(0))


def _comparable(np: Any, a: Any) -> Any:
    """bfloat16 as float32, which numpy sorts with NaN last."""
    return a.astype(np.float32) if dt.of_numpy(a.dtype) is dt.bfloat16 else a


@op("unique_consecutive_all(input: Tensor, dim: int | None = None)"
    " -> named(values=Tensor, inverse=Tensor, counts=Tensor)")
class unique_consecutive_all:
    """`unique_all` of runs of equal neighbours, in their order."""

    kind, where, host, breaks, nondiff, exact = INDEX, "", True, BREAK, True, True
    rule, samples = unique_all.rule, unique_all.samples

    def eager(np: Any, x: Any, dim: Any) -> Any:
        rows = x.reshape(-1) if dim is None or not x.ndim else np.moveaxis(x, dim, 0)
        first, inverse, counts = _runs(np, _different(np, rows))
        if dim is None:
            return rows[first], inverse.reshape(x.shape), counts
        return np.moveaxis(rows[first], 0, dim) if x.ndim else rows[first], inverse, counts


@op("bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor")
class bincount:
    """How often each non-negative integer occurs, or the sum of its weights."""

    kind, host, breaks, nondiff, exact, dtypes = INDEX, True, BREAK, True, True, "int"

    def rule(x: Any, weights: Any, minlength: int) -> Spec:
        if len(x.shape) != 1 or x.dtype.category != dt.INT:
            raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
        if minlength < 0:
            raise RuntimeError("minlength should be >= 0")
        if weights is None:
            return Spec((None,), dt.int64, x.device)
        if len(weights.shape) != 1 or not same(weights.shape[0], x.shape[0]):
            raise RuntimeError("weights should be 1-d and have the same length as input, got "
                               f"{list(weights.shape)} and {list(x.shape)}")
        made = dt.float32 if weights.dtype is dt.float32 else dt.float64
        return Spec((None,), made, device_of((x, weights)))

    def eager(np: Any, x: Any, weights: Any, minlength: int) -> Any:
        if x.size and x.min() < 0:
            raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
        if weights is not None:
            weights = weights.astype(np.float64)
        return np.bincount(x, weights, minlength)

    def samples(s: Any) -> Any:
        yield s(s.any(9, low=0, high=6))
        yield s(s.any(9, low=0, high=6), minlength=8)
        yield s(s.any(5, low=0, high=6), s.f(5))
        yield s(s.any(5, low=0, high=6), s.i(5))
        yield s(s.any(0))
        yield s.raises(RuntimeError, s.any(2, 2, low=0))
        yield s.raises(RuntimeError, s.i(2, low=-2, high=0))
        yield s.raises(RuntimeError, s.any(2, low=0), s.f(3))
        yield s.raises(RuntimeError, s.any(2, low=0), minlength=-1)


def _span(np: Any, x: Any, low: float, high: float) -> tuple[float, float]:
    """The range of a histogram: given, or that of the data; widened where it is a point."""
    if low == high == 0 and x.size:
        low, high = float(x.min()), float(x.max())
    if not (np.isfinite(low) and np.isfinite(high)):
        raise RuntimeError(f"torch.histc: range of [{low}, {high}] is not finite")
    if low > high:
        raise RuntimeError("torch.histc: max must be larger than min")
    return (low - 1, high + 1) if low == high else (low, high)


@op("histc(input: Tensor, bins: int = 100, min: Scalar = 0, max: Scalar = 0) -> Tensor")
class histc:
    """How many elements fall into each of `bins` equal intervals from `min` to `max`, both ends
    included; with both 0, of the range of the data. NaN and what lies outside are not counted."""

    kind, host, nondiff, dtypes = INDEX, True, True, "float"
    stops = True

    def rule(x: Any, bins: int, low: Any, high: Any) -> Spec:
        if x.dtype.category != dt.FLOAT:
            raise NotImplementedError(f"histc is not implemented for {LABELS[x.dtype.name]}")
        if bins <= 0:
            raise RuntimeError(f"torch.histc: bins must be > 0, but got {bins}")
        return like(x, (bins,))

    def eager(np: Any, x: Any, bins: int, low: Any, high: Any) -> Any:
        low, high = _span(np, x, float(low), float(high))
        kept = x[(x >= low) & (x <= high)].astype(np.float64)
        places = ((kept - low) / (high - low) * bins).astype(np.int64)
        return np.bincount(np.minimum(places, bins - 1), minlength=bins)

    def samples(s: Any) -> Any:
        yield s(s.any(20), 4, -2, 2)
        yield s(s.any(4, 5), 7)
        yield s(s.any(20, nonfinite=True), 4, 0, 3)
        yield s.raises(RuntimeError, s.any(3), 4, 2, 1)
        yield s.raises(RuntimeError, s.any(3), 0)
        yield s.raises(NotImplementedError, s.i(3), 4)


@op("histogram(input: Tensor, bins: int | Tensor, *, range: list[float] | None = None, "
    "weight: Tensor | None = None, density: bool = False)"
    " -> named(hist=Tensor, bin_edges=Tensor)")
class histogram:
    """Counts (or sums of weights, or a density) in equal intervals or between given edges."""

    kind, host, nondiff, dtypes = INDEX, True, True, "float"
    stops = True

    def rule(x: Any, bins: Any, range: Any, weight: Any, density: bool) -> Any:
        if x.dtype not in (dt.float32, dt.float64):
            raise NotImplementedError(f"histogram is not implemented for {LABELS[x.dtype.name]}")
        if rule.is_tensor(bins):
            if len(bins.shape) != 1:
                raise RuntimeError("torch.histogram(): bins tensor should have one dimension, but "
                                   f"got {len(bins.shape)} dimensions")
            return like(x, (bins.shape[0] - 1,)), like(x, bins.shape)
        if bins <= 0:
            raise RuntimeError(f"torch.histogram(): bins must be > 0, but got {bins}")
        return like(x, (bins,)), like(x, (bins + 1,))

    def eager(np: Any, x: Any, bins: Any, range: Any, weight: Any, density: bool) -> Any:
        if not isinstance(bins, np.ndarray):
            low, high = range or ((float(x.min()), float(x.max())) if x.size else (0.0, 1.0))
            if low > high or not (np.isfinite(low) and np.isfinite(high)):
                raise RuntimeError(f"torch.histogram(): range [{low}, {high}] is not one")
            range = (low - 0.5, high + 0.5) if low == high else (low, high)
        weight = None if weight is None else weight.reshape(-1)
        return np.histogram(x.reshape(-1), bins, range, density, weight)

    def samples(s: Any) -> Any:
        yield s(s.any(20), 4)
        yield s(s.any(20), 4, range=(-2.0, 2.0), weight=s.any(20, pos=True))
        yield s(s.any(20), _edges(s), density=True)
        yield s.raises(RuntimeError, s.any(3), 0)


def _edges(s: Any) -> Any:
    edges = s.any(5, unique=True)
    edges.sort()
    return edges


@op("one_hot(input: Tensor, num_classes: int) -> Tensor")
class one_hot:
    """int64 (*input.shape, num_classes): 1 at the class of each element, 0 elsewhere."""

    kind, where, nondiff, exact, dtypes = COMPOSITE, "", True, True, "int"

    def rule(x: Any, num_classes: Any) -> Spec:
        if x.dtype is not dt.int64:
            raise RuntimeError("one_hot is only applicable to index tensor of type LongTensor.")
        return Spec((*x.shape, num_classes), dt.int64, x.device)

    def eager(np: Any, x: Any, num_classes: int) -> Any:
        if x.size and x.min() < 0:
            raise RuntimeError("Class values must be non-negative.")
        if x.size and x.max() >= num_classes:
            raise RuntimeError("Class values must be smaller than num_classes.")
        return (x[..., None] == np.arange(num_classes)).astype(np.int64)

    def decomp(F: Any, x: Any, num_classes: Any) -> Any:
        zeros = F.full((*x.shape, num_classes), 0, dtype=dt.int64, device=x.device)
        return F.scatter_value(zeros, -1, F.unsqueeze(x, -1), 1)

    def samples(s: Any) -> Any:
        yield s(s.i(3, 2, high=4), 4)
        yield s(s.i(high=4), 5)
        yield s(s.i(0), 3)
        yield s.raises(RuntimeError, s.i(2, low=-2, high=0), 3)
        yield s.raises(RuntimeError, s.i(2, low=3, high=5), 3)
        yield s.raises(RuntimeError, s.f(2), 3)


@op("isin(elements: Tensor | Scalar, test_elements: Tensor | Scalar, *, "
    "assume_unique: bool = False, invert: bool = False) -> Tensor")
class isin:
    """Whether each element occurs in `test_elements` (or does not, with `invert`)."""

    kind, nondiff, exact, where = COMPOSITE, True, True, "function"
    dtypes = "float half int"

    def rule(x: Any, tests: Any, assume_unique: bool, invert: bool) -> Spec:
        for given in (x, tests):
            rule.no_bool("Unsupported input type encountered for isin(): Bool", given)
        shape = tuple(x.shape) if rule.is_tensor(x) else ()
        return Spec(shape, dt.bool_, device_of((x, tests)))

    def eager(np: Any, x: Any, tests: Any, assume_unique: bool, invert: bool) -> Any:
        made = np.result_type(x, tests)
        x, tests = (_comparable(np, np.asarray(a).astype(made)) for a in (x, tests))
        return np.isin(x, tests, assume_unique=False, invert=invert)

    def decomp(F: Any, x: Any, tests: Any, assume_unique: bool, invert: bool) -> Any:
        if not rule.is_tensor(tests):
            return F.ne(x, tests) if invert else F.eq(x, tests)
        spread = F.unsqueeze(x, -1) if rule.is_tensor(x) else x
        hit = F.any(F.eq(F.reshape(tests, -1), spread), -1)
        return F.logical_not(hit) if invert else hit

    def samples(s: Any) -> Any:
        yield s(s.any(3, 4), s.any(5))
        yield s(s.any(3, 4), s.any(2, 2), invert=True)
        yield s(s.any(5), 2)
        yield s(2, s.any(5))
        yield s(s.any(3), s.any(0))


def _triangle(name: str, lower: bool) -> None:
    """Registers `tril_indices` or `triu_indices`."""
    def places(np: Any, row: int, col: int, offset: int) -> Any:
        table = np.tri(row, col, offset if lower else offset - 1, dtype=bool)
        return np.stack(np.nonzero(table if lower else ~table))

    def rule_of(row: int, col: int, offset: int, dtype: Any, device: Any) -> Spec:
        for word, n in (("row", row), ("col", col)):
            if n < 0:
                raise RuntimeError(f"{word} must be non-negative, got {n}")
        below = sum(min(max(r + offset + (1 if lower else 0), 0), col) for r in range(row))
        count = below if lower else row * col - below
        return Spec((2, count), dtype or dt.int64, CPU if device is None else Device(device))

    def eager(np: Any, row: int, col: int, offset: int, dtype: Any, device: Any) -> Any:
        return places(np, row, col, offset)

    def samples(s: Any) -> Any:
        for offset in (0, 1, -2, 7, -7):
            yield s(3, 4, offset)
        yield s(0, 4)
        yield s(4, 2, dtype=dt.int32)
        yield s.raises(RuntimeError, -1, 2)

    fields = {"kind": CREATE, "rule": rule_of, "eager": eager, "samples": samples, "host": True,
              "nondiff": True, "where": "function",
              "__doc__": f"The indices (2, n) of the {'lower' if lower else 'upper'} triangle."}
    op(f"{name}(row: int, col: int, offset: int = 0, *, dtype: dtype | None = None, "
       "device: device | None = None) -> Tensor")(type(name, (), fields))


_triangle("tril_indices", True)
_triangle("triu_indices", False)


@op("combination_indices(n: int, r: int, with_replacement: bool = False) -> Tensor")
class combination_indices:
    """The (count, r) index table of `combinations`."""

    kind, where, host, nondiff = CREATE, "", True, True

    def rule(n: int, r: int, with_replacement: bool) -> Spec:  # type: ignore[misc]
        return Spec((len(_combined(n, r, with_replacement)), r), dt.int64)

    def eager(np: Any, n: int, r: int, with_replacement: bool) -> Any:
        return np.array(_combined(n, r, with_replacement), np.int64).reshape(-1, r)

    def samples(s: Any) -> Any:
        yield s(4, 2)
        yield s(3, 2, True)
        yield s(2, 3)


def _combined(n: int, r: int, with_replacement: bool) -> list[tuple[int, ...]]:
    every = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    return list(every(range(n), r))


@op("combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor")
class combinations:
    """Every choice of r elements of a vector, one a row."""

    kind, exact, where = COMPOSITE, True, "function"

    def rule(x: Any, r: int, with_replacement: bool) -> Spec:
        if len(x.shape) != 1:
            raise RuntimeError(f"Expect a 1D vector, but got shape {list(x.shape)}")
        if r < 0:
            raise RuntimeError(f"Expect a non-negative number, but got {r}")
        return like(x, (len(_combined(x.shape[0], r, with_replacement)), r) if r else (0,))

    def decomp(F: Any, x: Any, r: int, with_replacement: bool) -> Any:
        if r == 0:
            return F.full((0,), 0, dtype=x.dtype, device=x.device)
        table = F.combination_indices(x.shape[0], r, with_replacement)
        return F.reshape(F.index_select(x, 0, F.reshape(table, -1)), table.shape)

    def samples(s: Any) -> Any:
        yield s(s.any(4))
        yield s(s.any(3), 2, True)
        yield s(s.any(4), 3)
        yield s.raises(RuntimeError, s.any(2, 2))
