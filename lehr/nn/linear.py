"""Linear maps."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lehr.nn import functional as F
from lehr.nn import init
from lehr.nn.module import Module
from lehr.nn.parameter import Parameter
from lehr.tensor.state import STATE
from lehr.tensor.tensor import Tensor


def empty(size: tuple[int, ...], device: Any = None, dtype: Any = None) -> Parameter:
    """A parameter without values yet, on the default device where none is named."""
    place = STATE.device if device is None else device
    size = tuple([int(n) if isinstance(n, np.integer) else n for n in size])
    return Parameter(Tensor.F.empty(size, dtype=dtype, device=place))


class Identity(Module):
    """Returns its input; arguments of the constructor are ignored."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Any) -> Any:
        """`input`."""
        return input


class Linear(Module):
    """y = x W^T + b: [*, in_features] -> [*, out_features].

    weight [out_features, in_features] and bias [out_features], both uniform in
    +-1/sqrt(in_features).
    """

    in_features: int
    out_features: int

    def __init__(self, in_features: int, out_features: int, bias: bool = True, device: Any = None,
                 dtype: Any = None) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = empty((out_features, in_features), device, dtype)
        if bias:
            self.bias = empty((out_features,), device, dtype)
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws new values."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan = self.weight._shape[1]
            bound = 1 / math.sqrt(fan) if fan > 0 else 0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        """[*, in_features] -> [*, out_features]."""
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (f"in_features={self.in_features}, out_features={self.out_features}, "
                f"bias={self.bias is not None}")


class NonDynamicallyQuantizableLinear(Linear):
    """A `Linear` that dynamic quantization leaves alone."""


class Bilinear(Module):
    """y_k = x1^T A_k x2 + b_k: [*, in1_features], [*, in2_features] -> [*, out_features]."""

    def __init__(self, in1_features: int, in2_features: int, out_features: int, bias: bool = True,
                 device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        if in1_features <= 0:
            raise ValueError(f"in1_features must be > 0, but got {in1_features}")
        self.in1_features, self.in2_features = in1_features, in2_features
        self.out_features = out_features
        self.weight = empty((out_features, in1_features, in2_features), device, dtype)
        if bias:
            self.bias = empty((out_features,), device, dtype)
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws new values."""
        bound = 1 / math.sqrt(self.weight._shape[1])
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        """[*, in1_features], [*, in2_features] -> [*, out_features]."""
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (f"in1_features={self.in1_features}, in2_features={self.in2_features}, "
                f"out_features={self.out_features}, bias={self.bias is not None}")


__all__ = ["Bilinear", "Identity", "Linear", "NonDynamicallyQuantizableLinear"]
