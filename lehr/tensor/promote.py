"""Questions about dtypes: promotion, casting, the default."""

from __future__ import annotations

from typing import Any

from lehr.base import dtype as dt
from lehr.base.dtype import DType
from lehr.tensor.tensor import Tensor


def result_type(tensor1: Any, tensor2: Any) -> DType:
    """The dtype of an arithmetic result of two tensors or numbers."""
    dims: list[DType] = []
    zeros: list[DType] = []
    numbers: list[int] = []
    for x in (tensor1, tensor2):
        if isinstance(x, Tensor):
            (dims if x._shape else zeros).append(x.dtype)
        else:
            numbers.append(dt.category_of(x))
    return dt.result_type(dims, zeros, numbers)


def promote_types(type1: DType, type2: DType) -> DType:
    """The smallest dtype that both convert to."""
    return dt.promote(type1, type2)


def can_cast(from_: DType, to: DType) -> bool:
    """Whether PyTorch's casting rules allow `from_` to `to`."""
    return dt.can_cast(from_, to)


def get_default_dtype() -> DType:
    """The floating dtype that numbers get."""
    return dt.Default.dtype


def set_default_dtype(d: DType) -> None:
    """Sets the floating dtype that numbers get."""
    if not isinstance(d, DType) or not d.is_floating_point:
        raise TypeError("only floating-point types are supported as the default type")
    dt.Default.dtype = d
