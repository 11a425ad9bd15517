"""New tensors: constants, ranges, unit matrices, and their `_like` and `new_` forms.

`requires_grad`, `pin_memory`, `layout` and `out` belong to the function that users call, not to
the ops. Sizes may be symbolic. Ranges are computed in float64 (or int64) and rounded once.
"""

from __future__ import annotations

import math

from lehr.base import dtype as dt
from lehr.base.device import CPU, Device
from lehr.base.proof import decide
from lehr.ops import execute, rule
from lehr.ops.convert import formatted
from lehr.ops.layout import ordered
from lehr.ops.registry import CREATE, EVERYWHERE, INDEX, op
from lehr.ops.rule import Spec


def _made(size, dtype, device) -> Spec:
    for n in size:
        if isinstance(n, int) and n < 0:
            raise RuntimeError(f"Trying to create tensor with negative dimension {n}: {list(size)}")
    return Spec(tuple(size), dtype or dt.Default.dtype, CPU if device is None else Device(device))


def _filled(size, value, dtype=None, device=None) -> Spec:
    return _made(size, dtype or dt.of_category(dt.category_of(value)), device)


def _sizes(s):
    yield s((2, 3), dtype=s.dtype)
    yield s(2, 0, dtype=s.dtype)
    yield s(())
    yield s(4)
    s.touched = True
    yield s.raises(RuntimeError, 2, -1, match="negative dimension")


@op("full(size: list[int], fill_value: Scalar, *, dtype: dtype | None = None,"
    " device: device | None = None) -> Tensor")
class full:
    """`fill_value` everywhere; its own type (bool, int64, the default float) unless `dtype` is
    given."""

    kind, rule, where, nondiff = CREATE, _filled, "function", True

    def eager(np, size, value, dtype, device):
        made = (dtype or dt.of_category(dt.category_of(value))).wide
        return np.full(size, execute.number(value, made))

    def lower(L, idx, size, value, dtype, device):
        return L.const(value, dtype or dt.of_category(dt.category_of(value)))

    def samples(s):
        s.touched = True
        yield s((2, 3), 3, dtype=s.dtype)
        yield s((), 2.5, dtype=s.dtype)
        for value in (True, 7, 0.1, float("inf"), -1):
            yield s([4], value)
        yield s.raises(RuntimeError, (2, -1), 0, match="negative dimension")


@op("zeros(*size: int, dtype: dtype | None = None, device: device | None = None) -> Tensor")
class zeros:
    kind, rule, where, nondiff = CREATE, _made, "function", True
    samples = _sizes

    def decomp(F, size, dtype, device):
        return F.full(size, 0, dtype=dtype or dt.Default.dtype, device=device)


@op("ones(*size: int, dtype: dtype | None = None, device: device | None = None) -> Tensor")
class ones:
    kind, rule, where, nondiff = CREATE, _made, "function", True
    samples = _sizes

    def decomp(F, size, dtype, device):
        return F.full(size, 1, dtype=dtype or dt.Default.dtype, device=device)


def _unset(s):
    s.touched = True
    yield s((2, 3), dtype=s.dtype)._replace(parity=False)
    yield s(2, 0, dtype=s.dtype)


@op("empty(*size: int, dtype: dtype | None = None, device: device | None = None,"
    " memory_format: str | None = None) -> Tensor")
class empty:
    """A tensor to be written to. Its elements are zeros here, so that no program depends on
    leftovers."""

    kind, where, nondiff = CREATE, "function", True
    samples = _unset

    def rule(size, dtype=None, device=None, memory_format=None):
        return _made(size, dtype, device)

    def layout(spec, size, dtype=None, device=None, memory_format=None):
        return formatted(spec, memory_format or "contiguous_format")

    def decomp(F, size, dtype, device, memory_format):
        return F.full(size, 0, dtype=dtype or dt.Default.dtype, device=device)


def _in_place_of(size, stride):
    if len(size) != len(stride):
        raise RuntimeError(f"mismatch in length of strides and shape: {list(stride)}, {list(size)}")
    return tuple(stride)


@op("empty_strided(size: list[int], stride: list[int], *, dtype: dtype | None = None,"
    " device: device | None = None) -> Tensor")
class empty_strided:
    """`empty` with the strides given (elements)."""

    kind, where, nondiff = CREATE, "function", True

    def rule(size, stride, dtype=None, device=None):
        _in_place_of(size, stride)
        return _made(size, dtype, device)

    def layout(spec, size, stride, dtype=None, device=None):
        return _in_place_of(size, stride)

    def decomp(F, size, stride, dtype, device):
        return F.full(size, 0, dtype=dtype or dt.Default.dtype, device=device)

    def samples(s):
        s.touched = True
        yield s((2, 3), (1, 2), dtype=s.dtype)._replace(parity=False)
        yield s.raises(RuntimeError, (2, 3), (1,), match="mismatch in length")


@op("new_empty_strided(input: Tensor, size: list[int], stride: list[int], *,"
    " dtype: dtype | None = None, device: device | None = None) -> Tensor")
class new_empty_strided:
    """`empty_strided` of the dtype and device of `input`."""

    kind, where, nondiff = CREATE, "method", True

    def rule(x, size, stride, dtype=None, device=None):
        _in_place_of(size, stride)
        return _made(size, dtype or x.dtype, device or x.device)

    def layout(spec, x, size, stride, dtype=None, device=None):
        return _in_place_of(size, stride)

    def decomp(F, x, size, stride, dtype, device):
        return F.full(size, 0, dtype=dtype or x.dtype, device=device or x.device)

    def samples(s):
        yield s(s.any(2), (2, 3), (1, 2))._replace(parity=False)


@op("empty_permuted(size: list[int], physical_layout: list[int], *, dtype: dtype | None = None,"
    " device: device | None = None) -> Tensor")
class empty_permuted:
    """`empty`, dense, with `physical_layout` listing the dimensions from slowest to fastest."""

    kind, where, nondiff = CREATE, "function", True

    def rule(size, order, dtype=None, device=None):
        if sorted(order) != list(range(len(size))):
            raise RuntimeError("Number of dimensions in size does not match the length of the "
                               f"physical_layout: {list(size)}, {list(order)}")
        return _made(size, dtype, device)

    def layout(spec, size, order, dtype=None, device=None):
        return ordered(tuple(size), order)

    def decomp(F, size, order, dtype, device):
        return F.full(size, 0, dtype=dtype or dt.Default.dtype, device=device)

    def samples(s):
        s.touched = True
        yield s((2, 3, 4), (1, 2, 0), dtype=s.dtype)._replace(parity=False)
        yield s.raises(RuntimeError, (2, 3), (0,), match="physical_layout")


@op("scalar_tensor(s: Scalar, *, dtype: dtype | None = None,"
    " device: device | None = None) -> Tensor")
class scalar_tensor:
    """A 0-d tensor, of the default float type unless `dtype` is given."""

    kind, where, nondiff = CREATE, "function", True

    def rule(value, dtype=None, device=None):
        return _made((), dtype, device)

    def decomp(F, value, dtype, device):
        return F.full((), value, dtype=dtype or dt.Default.dtype, device=device)

    def samples(s):
        s.touched = True
        yield s(3, dtype=s.dtype)
        yield s(2.5)


def _like(x, dtype, device) -> Spec:
    return Spec(tuple(x.shape), dtype or x.dtype, x.device if device is None else Device(device))


def _like_rule(x, dtype=None, device=None, memory_format=None) -> Spec:
    return _like(x, dtype, device)


def _like_layout(spec, x, dtype=None, device=None, memory_format=None):
    return formatted(x, memory_format)


def _filled_like(F, x, value, dtype, device):
    return F.full(x.shape, value, dtype=dtype or x.dtype, device=device or x.device)


def _likes(s):
    yield s(s.any(2, 3))
    yield s(s.any(2, 0))
    yield s(s.f(2, 3), dtype=s.dtype)


LIKE = "dtype: dtype | None = None, device: device | None = None, memory_format: str | None = None"


@op(f"zeros_like(input: Tensor, *, {LIKE}) -> Tensor")
class zeros_like:
    kind, rule, layout, where, nondiff = CREATE, _like_rule, _like_layout, "function", True
    samples = _likes

    def decomp(F, x, dtype, device, memory_format):
        return _filled_like(F, x, 0, dtype, device)


@op(f"ones_like(input: Tensor, *, {LIKE}) -> Tensor")
class ones_like:
    kind, rule, layout, where, nondiff = CREATE, _like_rule, _like_layout, "function", True
    samples = _likes

    def decomp(F, x, dtype, device, memory_format):
        return _filled_like(F, x, 1, dtype, device)


@op(f"empty_like(input: Tensor, *, {LIKE}) -> Tensor")
class empty_like:
    """`empty` of the shape, dtype, device and strides of `input`."""

    kind, rule, layout, where, nondiff = CREATE, _like_rule, _like_layout, "function", True

    def decomp(F, x, dtype, device, memory_format):
        return _filled_like(F, x, 0, dtype, device)

    def samples(s):
        yield s(s.any(2, 3))._replace(parity=False)
        yield s(s.any(2, 0))


@op(f"full_like(input: Tensor, fill_value: Scalar, *, {LIKE}) -> Tensor")
class full_like:
    kind, where, nondiff = CREATE, "function", True

    def rule(x, value, dtype=None, device=None, memory_format=None):
        return _like(x, dtype, device)

    def layout(spec, x, value, dtype=None, device=None, memory_format=None):
        return formatted(x, memory_format)

    def decomp(F, x, value, dtype, device, memory_format):
        return _filled_like(F, x, value, dtype, device)

    def samples(s):
        yield s(s.any(2, 3), 1)
        yield s(s.f(2, 3), 2.5, dtype=s.dtype)


def _new_rule(x, size, dtype=None, device=None) -> Spec:
    return _made(size, dtype or x.dtype, device or x.device)


def _news(s):
    yield s(s.any(2), 3, 4)
    yield s(s.f(2), (3,), dtype=s.dtype)


NEW = "dtype: dtype | None = None, device: device | None = None"


@op(f"new_zeros(input: Tensor, *size: int, {NEW}) -> Tensor")
class new_zeros:
    kind, rule, where, nondiff, samples = CREATE, _new_rule, "method", True, _news

    def decomp(F, x, size, dtype, device):
        return F.full(size, 0, dtype=dtype or x.dtype, device=device or x.device)


@op(f"new_ones(input: Tensor, *size: int, {NEW}) -> Tensor")
class new_ones:
    kind, rule, where, nondiff, samples = CREATE, _new_rule, "method", True, _news

    def decomp(F, x, size, dtype, device):
        return F.full(size, 1, dtype=dtype or x.dtype, device=device or x.device)


@op(f"new_empty(input: Tensor, *size: int, {NEW}) -> Tensor")
class new_empty:
    kind, rule, where, nondiff = CREATE, _new_rule, "method", True

    def decomp(F, x, size, dtype, device):
        return F.full(size, 0, dtype=dtype or x.dtype, device=device or x.device)

    def samples(s):
        yield s(s.any(2), 3, 4)._replace(parity=False)
        yield s(s.any(2), (3, 0))


@op(f"new_full(input: Tensor, size: list[int], fill_value: Scalar, *, {NEW}) -> Tensor")
class new_full:
    kind, where, nondiff = CREATE, "method", True

    def rule(x, size, value, dtype=None, device=None):
        return _new_rule(x, size, dtype, device)

    def decomp(F, x, size, value, dtype, device):
        return F.full(size, value, dtype=dtype or x.dtype, device=device or x.device)

    def samples(s):
        yield s(s.any(2), (3, 4), 1)
        yield s(s.f(2), [3], 2.5, dtype=s.dtype)


def _count(start, end, step, dtype=None):
    """Elements of range(start, end, step), also of floats and of symbolic integers. Of int64 the
    numbers are truncated first, as in PyTorch."""
    if dtype is dt.int64:
        start, end, step = (int(v) if isinstance(v, float) and math.isfinite(v) else v
                            for v in (start, end, step))
    if isinstance(step, (int, float)) and step == 0:
        raise RuntimeError("step must be nonzero")
    known = all(isinstance(v, (int, float)) for v in (start, end, step))
    if known and (start > end if step > 0 else start < end):
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    if any(isinstance(v, float) for v in (start, end, step)):
        if not all(math.isfinite(v) for v in (start, end)):
            raise RuntimeError(f"unsupported range: {start} -> {end}")
        return math.ceil((end - start) / step)
    if not isinstance(step, int):
        raise RuntimeError("arange with a symbolic step has no size known beforehand; pass an "
                           "int step")
    n = (end - start + step - 1) // step if step > 0 else (start - end - step - 1) // -step
    if not known and not decide(n, ">=", 0):
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    return n


def _range_dtype(values, dtype):
    if dtype is not None:
        return dtype
    return dt.Default.dtype if any(dt.category_of(v) > dt.INT for v in values) else dt.int64


@op("arange(end: Scalar, *, dtype: dtype | None = None, device: device | None = None) -> Tensor")
class arange:
    """0, 1, ... below `end`."""

    kind, where, nondiff = CREATE, "function", True

    def rule(end, dtype=None, device=None):
        return _made((_count(0, end, 1, dtype),), _range_dtype((end,), dtype), device)

    def decomp(F, end, dtype, device):
        return F.arange_start(0, end, 1, dtype=dtype, device=device)

    def samples(s):
        s.touched = True
        yield s(5)
        yield s(4.5)
        yield s(0)
        if s.dtype.category:
            yield s(5, dtype=s.dtype)
        yield s.raises(RuntimeError, -1, match="bound")


@op("arange_start(start: Scalar, end: Scalar, step: Scalar = 1, *, dtype: dtype | None = None,"
    " device: device | None = None) -> Tensor")
class arange_start:
    """start + i * step below `end`; ceil((end - start) / step) elements."""

    kind, api, where, nondiff = CREATE, "arange", "function", True

    def rule(start, end, step=1, dtype=None, device=None):
        count = _count(start, end, step, dtype)
        return _made((count,), _range_dtype((start, end, step), dtype), device)

    def eager(np, start, end, step, dtype, device):
        count = np.arange(_count(start, end, step, dtype))
        made = _range_dtype((start, end, step), dtype)
        if made.category == dt.INT:
            return np.int64(start) + count * np.int64(step)
        return (start + count * float(step)).astype(made.np)

    def lower(L, idx, start, end, step, dtype, device):
        made = _range_dtype((start, end, step), dtype)
        work = dt.int64 if made.category <= dt.INT else dt.float64
        value = L.cast(L.iota(idx[0], dt.int64), work)
        value = L.op("mul", value, L.const(step, work))
        return L.cast(L.op("add", value, L.const(start, work)), made)

    def samples(s):
        s.touched = True
        yield s(2, 7)
        yield s(7, 2, -2)
        yield s(0.5, 2.0, 0.3)
        yield s(1, 2.5)
        yield s(-0.9, 2.1, 2.0, dtype=dt.int64)
        if s.dtype.category:
            yield s(1, 9, 2, dtype=s.dtype)
        yield s.raises(RuntimeError, 0, 5, 0, match="nonzero")
        yield s.raises(RuntimeError, 0, 5, -1, match="bound")


def _spaced(start, end, steps, dtype=None, device=None) -> Spec:
    if steps < 0:
        raise RuntimeError("number of steps must be non-negative")
    return _made((steps,), dtype, device)


def _spaces(s):
    s.touched = True
    yield s(0, 10, 5)
    yield s(-1.5, 2.5, steps=8)
    yield s(3, 3.5, 1)
    yield s(3, 4, 0)
    if s.dtype.category:
        yield s(1, 4, 7, dtype=s.dtype)
    yield s.raises(RuntimeError, 0, 1, -1, match="number of steps")


@op("linspace(start: Scalar, end: Scalar, steps: int, *, dtype: dtype | None = None,"
    " device: device | None = None) -> Tensor")
class linspace:
    """`steps` numbers from start to end, both included; counted from the nearer end."""

    kind, rule, where, nondiff, samples = CREATE, _spaced, "function", True, _spaces

    def eager(np, start, end, steps, dtype, device):
        i = np.arange(steps)
        step = (end - start) / max(steps - 1, 1)
        return np.where(i < steps // 2, start + step * i, end - step * (steps - 1 - i)) if (
            steps > 1) else np.full(steps, start, np.float64)

    def lower(L, idx, start, end, steps, dtype, device):
        i, made, work = idx[0], dtype or dt.Default.dtype, dt.float64
        first, last = L.const(start, work), L.const(end, work)
        if steps == 1:
            return L.cast(first, made)
        step = L.op("div", L.op("sub", last, first), L.const(steps - 1, work))
        up = L.op("add", first, L.op("mul", step, L.cast(L.iota(i, dt.int64), work)))
        down = L.op("sub", last,
                    L.op("mul", step, L.cast(L.iota(steps - 1 - i, dt.int64), work)))
        return L.cast(L.select(L.inside(((i, 0, steps // 2),)), up, down), made)


@op("logspace(start: Scalar, end: Scalar, steps: int, base: float = 10.0, *,"
    " dtype: dtype | None = None, device: device | None = None) -> Tensor")
class logspace:
    """base ** linspace(start, end, steps)."""

    kind, where, nondiff, samples = CREATE, "function", True, _spaces

    def rule(start, end, steps, base=10.0, dtype=None, device=None):
        return _spaced(start, end, steps, dtype, device)

    def decomp(F, start, end, steps, base, dtype, device):
        powers = F.linspace(start, end, steps, dtype=dt.float64, device=device)
        return F.to_dtype(F.pow(base, powers), dtype or dt.Default.dtype)


@op("eye(n: int, m: int | None = None, *, dtype: dtype | None = None, device: device | None = None)"
    " -> Tensor")
class eye:
    """The n by m matrix with ones on its diagonal; m is n where not given."""

    kind, where, nondiff = CREATE, "function", True

    def rule(n, m=None, dtype=None, device=None):
        for size in (n, m):
            if isinstance(size, int) and size < 0:
                raise RuntimeError(f"n and m must be greater or equal to 0, got {size}")
        return _made((n, n if m is None else m), dtype, device)

    def eager(np, n, m, dtype, device):
        return np.eye(n, m)

    def lower(L, idx, n, m, dtype, device):
        made = dtype or dt.Default.dtype
        return L.select(L.inside(((idx[0] - idx[1], 0, 1),)), L.const(1, made), L.const(0, made))

    def samples(s):
        s.touched = True
        yield s(3, dtype=s.dtype)
        yield s(2, 4)
        yield s(0)
        yield s.raises(RuntimeError, -1, match="greater or equal to 0")


def _matrix(x, *rest) -> Spec:
    if len(x.shape) < 2:
        raise RuntimeError("tril and triu need at least 2 dimensions, but the input has "
                           f"{len(x.shape)}")
    return rule.unary(x)


def _matrices(s):
    yield s(s.any(3, 4))
    yield s(s.any(2, 4, 3), 1)
    yield s(s.any(4, 4), diagonal=-2)
    yield s(s.any(4, 3), -9)
    yield s(s.any(0, 3))
    yield s.raises(RuntimeError, s.any(3), match="at least 2 dimensions")


@op("tril(input: Tensor, diagonal: int = 0) -> Tensor")
class tril:
    """The elements at column - row <= diagonal, zeros elsewhere."""

    kind, rule, where, exact, samples = INDEX, _matrix, EVERYWHERE, True, _matrices

    def eager(np, x, diagonal):
        return np.tril(x, diagonal)

    def lower(L, idx, x, diagonal):
        above = idx[-1] - idx[-2] - diagonal
        kept = L.inside(((-above, 0, L.shape(x)[-2] + diagonal),))
        return L.select(kept, L.at(x, idx), L.const(0, x.dtype))

    def vjp(F, g, out, x, diagonal):
        return F.tril(g, diagonal)


@op("triu(input: Tensor, diagonal: int = 0) -> Tensor")
class triu:
    """The elements at column - row >= diagonal, zeros elsewhere."""

    kind, rule, where, exact, samples = INDEX, _matrix, EVERYWHERE, True, _matrices

    def eager(np, x, diagonal):
        return np.triu(x, diagonal)

    def lower(L, idx, x, diagonal):
        above = idx[-1] - idx[-2] - diagonal
        kept = L.inside(((above, 0, L.shape(x)[-1] - diagonal),))
        return L.select(kept, L.at(x, idx), L.const(0, x.dtype))

    def vjp(F, g, out, x, diagonal):
        return F.triu(g, diagonal)
