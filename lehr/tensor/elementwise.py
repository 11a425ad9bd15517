"""Python functions on every element, and writes to a diagonal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lehr.ops import registry
from lehr.tensor import convert, dispatch, node
from lehr.tensor.random import write
from lehr.tensor.tensor import Tensor

F = Tensor.F


_COPY = registry.get("copy")


def copy_(self: Tensor, src: Any, non_blocking: bool = False) -> Tensor:
    """Overwrites the elements with `src` (a tensor or a number), broadcast and converted."""
    if not isinstance(src, Tensor):
        if not isinstance(src, (int, float, complex)):
            raise TypeError("copy_(): argument 'other' (position 1) must be Tensor, not "
                            f"{type(src).__name__}")
        return self.fill_(src)
    return dispatch.inplace(_COPY, (self, src, non_blocking))


def _calculated(self: Tensor, function: Callable[..., Any], *others: Any) -> Tensor:
    a = convert.read("apply_", self)
    more = [convert.read("map_", F.expand(o, self._shape)) for o in others]
    values = [function(*xs) for xs in zip(a.reshape(-1).tolist(), *(
        m.reshape(-1).tolist() for m in more), strict=True)]
    made = np.array(values, dtype=a.dtype).reshape(a.shape)
    return write(self, Tensor._from_array(made))


def apply_(self: Tensor, callable: Callable[[Any], Any]) -> Tensor:
    """Replaces every element by `callable(element)`; slow."""
    if self.requires_grad:
        raise RuntimeError("Can't call apply_() on Variable that requires grad. Use "
                           "var.detach().apply_() instead.")
    return _calculated(self, callable)


def map_(self: Tensor, tensor: Tensor, callable: Callable[[Any, Any], Any]) -> Tensor:
    """Replaces every element by `callable(element, element of tensor)`; slow."""
    if self.requires_grad or tensor.requires_grad:
        raise RuntimeError("Can't call map_() on Variable that requires grad. Use "
                           "var.detach().map_() instead.")
    return _calculated(self, callable, tensor)


def map2_(self: Tensor, x: Tensor, y: Tensor, callable: Callable[..., Any]) -> Tensor:
    """`map_` with two more tensors."""
    return _calculated(self, callable, x, y)


def fill_diagonal_(self: Any, fill_value: Any, wrap: bool = False) -> Tensor:
    """Writes a number on the main diagonal; with `wrap`, again after each block of rows."""
    shape = self._shape
    if len(shape) < 2:
        raise RuntimeError("dimensions must larger than 1")
    if len(shape) > 2 and any(n != shape[0] for n in shape):
        raise RuntimeError("all dimensions of input must be of equal length")
    if len(shape) > 2:
        step = sum(self._strides)
        self.as_strided((shape[0],), (step,), self._offset).fill_(fill_value)
        return self
    self.diagonal().fill_(fill_value)
    rows, columns = shape
    start = columns + 1
    while wrap and start < rows:
        self[start:].diagonal().fill_(fill_value)
        start += columns + 1
    return self


def sum_to_size(self: Tensor, *size: Any) -> Tensor:
    """The sum over the dimensions that broadcasting from `size` would add or widen."""
    want = tuple(size[0]) if len(size) == 1 and isinstance(size[0], (tuple, list)) else tuple(size)
    gap = len(self._shape) - len(want)
    if gap < 0 or any(n not in (1, m) for n, m in zip(want, self._shape[gap:], strict=True)):
        raise RuntimeError(f"size {list(want)} is not expandable to size {list(self._shape)}.")
    if not want:
        return F.sum(self)  # type: ignore[no-any-return]
    return self if want == self._shape else node.sum_to(self, want)


def polygamma(self: Tensor, n: int) -> Tensor:
    """The n-th derivative of the digamma function."""
    return F.polygamma(n, self)


def polygamma_(self: Tensor, n: int) -> Tensor:
    """`polygamma`, written into the tensor."""
    return self.copy_(F.polygamma(n, self))


def conj_physical_(self: Tensor) -> Tensor:
    """Complex numbers conjugated in place."""
    return self.copy_(F.conj(self)) if self.dtype.is_complex else self
