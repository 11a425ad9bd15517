"""`autograd.Variable`, the old name of a tensor that may require gradients."""

from __future__ import annotations

from typing import Any

from lehr.tensor import create
from lehr.tensor.tensor import Tensor


class VariableClass(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Tensor)


class Variable(metaclass=VariableClass):
    """`Variable(data, requires_grad)` is a tensor on the memory of `data`."""

    def __new__(cls, data: Any = None, requires_grad: bool = False, volatile: bool = False) -> Any:
        if data is None:
            data = create.tensor([])
        made = data.detach()
        return made.requires_grad_() if requires_grad else made
