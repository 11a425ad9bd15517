"""Conversions and copies: another dtype, another layout, another value in the same place."""

from __future__ import annotations

from lehr.base import dtype as dt
from lehr.ops import execute, layout, rule, sample
from lehr.ops.registry import COMPOSITE, POINTWISE, op
from lehr.ops.rule import Spec


def formatted(x, memory_format: str | None) -> tuple:
    """Strides of a new tensor of x's shape. memory_format: None or "preserve_format" keeps a dense
    x's strides; "contiguous_format", "channels_last", "channels_last_3d" name an order."""
    shape = tuple(x.shape)
    name = "preserve_format" if memory_format is None else str(memory_format).removeprefix("torch.")
    if name == "preserve_format":
        return layout.preserve(shape, tuple(x.strides))
    if name == "contiguous_format":
        return layout.contiguous(shape)
    rank = {"channels_last": 4, "channels_last_3d": 5}.get(name)
    if rank is None:
        raise RuntimeError(f"unknown memory_format {memory_format!r}")
    if len(shape) != rank:
        raise RuntimeError(f"required rank {rank} tensor to use {name} format")
    return layout.channels_last(shape)


@op("to_dtype(input: Tensor, dtype: dtype) -> Tensor")
class to_dtype:
    """Conversion: truncation toward zero to integers, nonzero (NaN too) to True, rounding to
    even."""

    kind, where, exact = POINTWISE, "", True

    def rule(x, dtype):
        return Spec(tuple(x.shape), dtype, x.device)

    def eager(np, x, dtype):
        return execute.cast(x, dtype)

    def lower(L, idx, x, dtype):
        return L.cast(L.at(x, idx), dtype)

    def vjp(F, g, out, x, dtype):
        return F.to_dtype(g, x.dtype)

    def samples(s):
        for target in sample.TESTED:
            yield s(s.any(3, 4), target)


@op("clone(input: Tensor, *, memory_format: str | None = None) -> Tensor")
class clone:
    """A copy with its own storage."""

    kind, rule, where, exact = POINTWISE, rule.unary, "function method", True

    def layout(spec, x, memory_format=None):
        return formatted(x, memory_format)

    def eager(np, x, memory_format):
        return np.array(x, order="C")

    def lower(L, idx, x, memory_format):
        return L.at(x, idx)

    def vjp(F, g, out, x, memory_format):
        return g

    samples = sample.unary((3, 4), ())


def _first_layout(spec, x, *rest):
    return formatted(x, None)


def _like_first(x, *rest) -> Spec:
    return Spec(tuple(x.shape), x.dtype, x.device)


@op("copy(input: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor")
class copy:
    """`src` broadcast and converted to the shape and dtype of `input`: what `copy_` stores."""

    kind, layout, where, exact = COMPOSITE, _first_layout, "inplace", True

    def rule(x, src, non_blocking=False):
        if rule.broadcast(tuple(x.shape), tuple(src.shape)) != tuple(x.shape):
            raise RuntimeError(f"output with shape {list(x.shape)} doesn't match the broadcast "
                               "shape "
                               f"{list(rule.broadcast(tuple(x.shape), tuple(src.shape)))}")
        return _like_first(x)

    def eager(np, x, src, non_blocking):
        return np.broadcast_to(execute.cast(src, dt.of_numpy(x.dtype)), x.shape)

    def decomp(F, x, src, non_blocking):
        return F.expand(F.to_dtype(src, x.dtype), x.shape)

    def vjp(F, g, out, x, src, non_blocking):
        return lambda: F.zeros_like(g), g

    def samples(s):
        yield s(s.any(3, 4), s.f(4))
        yield s(s.f(3, 4), s.any(3, 1))
        yield s.raises(RuntimeError, s.f(3), s.f(2, 3), match="shape")


@op("fill(input: Tensor, value: Tensor | Scalar) -> Tensor")
class fill:
    """`value`, a number or a 0-d tensor, at every place of `input`."""

    kind, layout, where, exact = COMPOSITE, _first_layout, "function inplace", True

    def rule(x, value):
        if rule.is_tensor(value) and len(value.shape):
            raise RuntimeError("fill_ only supports 0-dimension value tensor but got tensor with "
                               f"{len(value.shape)} dimensions.")
        return _like_first(x)

    def eager(np, x, value):
        made = dt.of_numpy(x.dtype)
        convert = execute.cast if isinstance(value, np.ndarray) else execute.number
        item = convert(value, made)
        return np.full(x.shape, item, x.dtype)

    def decomp(F, x, value):
        if rule.is_tensor(value):
            return F.expand(F.to_dtype(value, x.dtype), x.shape)
        return F.full(x.shape, value, dtype=x.dtype, device=x.device)

    def vjp(F, g, out, x, value):
        return lambda: F.zeros_like(g), lambda: F.sum(g)

    def samples(s):
        yield s(s.any(3, 4), 2)
        yield s(s.any(3, 4), s.any())
        yield s(s.f(3), 2.5)
        yield s.raises(RuntimeError, s.f(3), s.f(1), match="0-dimension")


@op("zero(input: Tensor) -> Tensor")
class zero:
    """Zeros in the place of `input`: what `zero_` stores."""

    kind, rule, layout, where, exact = COMPOSITE, _like_first, _first_layout, "inplace", True

    def decomp(F, x):
        return F.full(x.shape, 0, dtype=x.dtype, device=x.device)

    def vjp(F, g, out, x):
        return F.zeros_like(g)

    samples = sample.unary()
