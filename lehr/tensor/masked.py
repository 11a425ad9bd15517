"""`torch.masked`: reductions and normalisations of the elements that a mask keeps.

`mask` is bool, true where an element counts, and broadcasts to the input. Elements that do not
count become the operation's identity; where nothing counts, sums are 0, extrema the identity, and
means NaN. Integers sum in int64.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lehr.base import dtype as dt
from lehr.base.dtype import DType
from lehr.ops import rule
from lehr.tensor.tensor import Tensor

F = Tensor.F


def _checked(input: Tensor, mask: Any) -> Any:
    """The mask in the input's shape; None where there is none."""
    if mask is None:
        return None
    if not isinstance(mask, Tensor):
        raise TypeError(f"mask must be a Tensor, not {type(mask).__name__}")
    if mask.dtype is not dt.bool_:
        raise ValueError(f"mask must be of dtype bool, got {mask.dtype}")
    shape = tuple(input.shape)
    if rule.broadcast(shape, tuple(mask.shape)) != shape:
        raise IndexError(f"mask of shape {list(mask.shape)} does not broadcast to the input's "
                         f"{list(shape)}")
    return F.expand(mask, shape)


def _least(dtype: DType) -> Any:
    if dtype.category == dt.FLOAT:
        return -math.inf
    return False if dtype is dt.bool_ else int(np.iinfo(dtype.np).min)


def _most(dtype: DType) -> Any:
    if dtype.category == dt.FLOAT:
        return math.inf
    return True if dtype is dt.bool_ else int(np.iinfo(dtype.np).max)


def _kept(input: Tensor, mask: Any, identity: Any) -> Tensor:
    """`input` with `identity` where the mask is false."""
    mask = _checked(input, mask)
    return input if mask is None else F.masked_fill(input, F.logical_not(mask), identity)


def _typed(input: Tensor, dtype: DType | None, floating: bool = False) -> Tensor:
    made = dtype
    if made is None and input.dtype.is_integer:
        made = dt.Default.dtype if floating else dt.int64
    return input if made is None else F.to_dtype(input, made)


def _count(input: Tensor, dim: Any, keepdim: bool, mask: Any) -> Tensor:
    mask = _checked(input, mask)
    ones = F.full(tuple(input.shape), 1, dtype=dt.int64, device=input.device)
    return F.sum(ones if mask is None else F.to_dtype(mask, dt.int64), dim, keepdim)


def sum(input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: DType | None = None,
        mask: Any = None) -> Tensor:
    """The sum over `dim` of the elements that count."""
    return F.sum(_kept(_typed(input, dtype), mask, 0), dim, keepdim)


def prod(input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: DType | None = None,
         mask: Any = None) -> Tensor:
    """The product over `dim` of the elements that count."""
    return F.prod(_kept(_typed(input, dtype), mask, 1), dim, keepdim)


def cumsum(input: Tensor, dim: int, *, dtype: DType | None = None, mask: Any = None) -> Tensor:
    """Running sums along `dim` of the elements that count."""
    return F.cumsum(_kept(_typed(input, dtype), mask, 0), dim)


def cumprod(input: Tensor, dim: int, *, dtype: DType | None = None, mask: Any = None) -> Tensor:
    """Running products along `dim` of the elements that count."""
    return F.cumprod(_kept(_typed(input, dtype), mask, 1), dim)


def amax(input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: DType | None = None,
         mask: Any = None) -> Tensor:
    """The greatest element over `dim` that counts."""
    x = input if dtype is None else F.to_dtype(input, dtype)
    return F.amax(_kept(x, mask, _least(x.dtype)), () if dim is None else dim, keepdim)


def amin(input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: DType | None = None,
         mask: Any = None) -> Tensor:
    """The least element over `dim` that counts."""
    x = input if dtype is None else F.to_dtype(input, dtype)
    return F.amin(_kept(x, mask, _most(x.dtype)), () if dim is None else dim, keepdim)


def argmax(input: Tensor, dim: int | None = None, *, keepdim: bool = False,
           dtype: DType | None = None, mask: Any = None) -> Tensor:
    """Where the greatest element that counts is along `dim`, in the input's dtype as in PyTorch."""
    x = input if dtype is None else F.to_dtype(input, dtype)
    return F.to_dtype(F.argmax(_kept(x, mask, _least(x.dtype)), dim, keepdim), x.dtype)


def argmin(input: Tensor, dim: int | None = None, *, keepdim: bool = False,
           dtype: DType | None = None, mask: Any = None) -> Tensor:
    """Where the least element that counts is along `dim`, in the input's dtype as in PyTorch."""
    x = input if dtype is None else F.to_dtype(input, dtype)
    return F.to_dtype(F.argmin(_kept(x, mask, _most(x.dtype)), dim, keepdim), x.dtype)


def mean(input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: DType | None = None,
         mask: Any = None) -> Tensor:
    """The mean over `dim` of the elements that count."""
    x = _typed(input, dtype, True)
    count = _count(x, dim, keepdim, mask)
    total = F.sum(_kept(x, mask, 0), dim, keepdim, dtype=x.dtype.wide)
    return F.to_dtype(F.div(total, count), x.dtype)


def median(input: Tensor, dim: int = -1, *, keepdim: bool = False, dtype: DType | None = None,
           mask: Any = None) -> Tensor:
    """The lower median along `dim` of the elements that count, of which each row needs one."""
    x = input if dtype is None else F.to_dtype(input, dtype)
    if x.dtype.category != dt.FLOAT:
        raise ValueError(f"masked median expects floating point dtype, got {x.dtype}")
    return F.nanmedian_dim(_kept(x, mask, math.nan), dim, keepdim)[0]


def logsumexp(input: Tensor, dim: Any = None, *, keepdim: bool = False,
              dtype: DType | None = None, mask: Any = None) -> Tensor:
    """log of the sum over `dim` of exp of the elements that count."""
    x = _typed(input, dtype, True)
    dims = tuple(range(len(x.shape))) if dim is None else dim
    made = F.logsumexp(_kept(x, mask, -math.inf), dims, keepdim)
    return F.to_dtype(made, dtype or input.dtype)


def logaddexp(input: Tensor, other: Tensor, *, dtype: DType | None = None, input_mask: Any = None,
              other_mask: Any = None) -> Tensor:
    """log(exp(input) + exp(other)) of the elements that count."""
    a, b = (x if dtype is None else F.to_dtype(x, dtype) for x in (input, other))
    return F.logaddexp(_kept(a, input_mask, -math.inf), _kept(b, other_mask, -math.inf))


def norm(input: Tensor, ord: float = 2.0, dim: Any = None, *, keepdim: bool = False,
         dtype: DType | None = None, mask: Any = None) -> Tensor:
    """The vector norm of order `ord` over `dim` of the elements that count."""
    x = _typed(input, dtype, True)
    identity = math.inf if ord == -math.inf else 0
    return F.linalg_vector_norm(_kept(x, mask, identity), ord, dim, keepdim)


def var(input: Tensor, dim: Any = None, unbiased: bool | None = None, *,
        correction: int | None = None, keepdim: bool = False, dtype: DType | None = None,
        mask: Any = None) -> Tensor:
    """The variance over `dim` of the elements that count, over their number - correction."""
    if correction is None:
        correction = 0 if unbiased is False else 1
    x = _typed(input, dtype, True)
    wide = F.to_dtype(x, x.dtype.wide)
    count = F.to_dtype(_count(x, dim, True, mask), wide.dtype)
    center = F.div(F.sum(_kept(wide, mask, 0), dim, True), count)
    gap = _kept(F.sub(wide, center), mask, 0)
    total = F.sum(F.mul(gap, gap), dim, keepdim)
    if not keepdim:
        count = F.reshape(count, tuple(total.shape))
    return F.to_dtype(F.div(total, F.clamp_min(F.sub(count, correction), 0)), x.dtype)


def std(input: Tensor, dim: Any = None, unbiased: bool | None = None, *,
        correction: int | None = None, keepdim: bool = False, dtype: DType | None = None,
        mask: Any = None) -> Tensor:
    """The square root of `var`."""
    x = _typed(input, dtype, True)
    wide = var(F.to_dtype(x, x.dtype.wide), dim, unbiased, correction=correction, keepdim=keepdim,
               mask=mask)
    return F.to_dtype(F.sqrt(wide), x.dtype)


def softmax(input: Tensor, dim: int, *, dtype: DType | None = None, mask: Any = None) -> Tensor:
    """exp over its sum along `dim`, both of the elements that count; NaN where none does."""
    x = _typed(input, dtype, True)
    return F.softmax(_kept(x, mask, -math.inf), dim)


def log_softmax(input: Tensor, dim: int, *, dtype: DType | None = None,
                mask: Any = None) -> Tensor:
    """The logarithm of `softmax`."""
    x = _typed(input, dtype, True)
    return F.log_softmax(_kept(x, mask, -math.inf), dim)


def softmin(input: Tensor, dim: int, *, dtype: DType | None = None, mask: Any = None) -> Tensor:
    """`softmax` of the negative."""
    x = _typed(input, dtype, True)
    return F.softmax(F.neg(_kept(x, mask, math.inf)), dim)


def normalize(input: Tensor, ord: float, dim: int, *, eps: float = 1e-12,
              dtype: DType | None = None, mask: Any = None) -> Tensor:
    """Elements that count over their norm along `dim`, which counts as at least `eps`."""
    x = _typed(input, dtype, True)
    scale = norm(x, ord, dim, keepdim=True, mask=mask)
    return F.div(_kept(x, mask, 0), F.clamp_min(scale, eps))


__all__ = ["amax", "amin", "argmax", "argmin", "cumprod", "cumsum", "log_softmax", "logaddexp",
           "logsumexp", "mean", "median", "norm", "normalize", "prod", "softmax", "softmin", "std",
           "sum", "var"]
