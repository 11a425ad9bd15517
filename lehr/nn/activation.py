"""Nonlinearities as modules."""

from __future__ import annotations

from typing import Any

from lehr.nn import functional as F
from lehr.nn.init import constant_
from lehr.nn.linear import empty
from lehr.nn.module import Module
from lehr.tensor.tensor import Tensor


class _Inplace(Module):
    """An activation whose only setting is whether it writes into its input."""

    inplace: bool

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


class ReLU(_Inplace):
    """max(x, 0)."""

    def forward(self, input: Tensor) -> Tensor:
        """[*] -> [*]."""
        return F.relu(input, self.inplace)


class SELU(_Inplace):
    """Scaled ELU (Klambauer et al., 2017)."""

    def forward(self, input: Tensor) -> Tensor:
        """[*] -> [*]."""
        return F.selu(input, self.inplace)


class SiLU(_Inplace):
    """x sigmoid(x)."""

    def forward(self, input: Tensor) -> Tensor:
        """[*] -> [*]."""
        return F.silu(input, self.inplace)


class Mish(_Inplace):
    """x tanh(softplus(x)) (Misra, 2019)."""

    def forward(self, input: Tensor) -> Tensor:
        """[*] -> [*]."""
        return F.mish(input, self.inplace)


class Hardsigmoid(_Inplace):
    """relu6(x + 3) / 6."""

    def forward(self, input: Tensor) -> Tensor:
        """[*] -> [*]."""
        return F.hardsigmoid(input, self.inplace)

    def extra_repr(self) -> str:
        return ""


class Hardswish(_Inplace):
    """x relu6(x + 3) / 6 (Howard et al., 2019)."""

    def forward(self, input: Tensor) -> Tensor:
        """[*] -> [*]."""
        return F.hardswish(input, self.inplace)

    def extra_repr(self) -> str:
        return ""


class Hardtanh(Module):
    """x limited to [min_val, max_val]."""

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False,
                 min_value: float | None = None, max_value: float | None = None) -> None:
        super().__init__()
        self.min_val = min_val if min_value is None else min_value
        self.max_val = max_val if max_value is None else max_value
        self.inplace = inplace
        if self.max_val <= self.min_val:
            raise AssertionError(f"max_val must be larger than min_val, but got {self.min_val} and "
                                 f"{self.max_val}")

    def forward(self, input: Tensor) -> Tensor:
        """[*] -> [*]."""
        return F.hardtanh(input, self.min_val, self.max_val, self.inplace)

    def extra_repr(self) -> str:
        return (f"min_val={self.min_val}, max_val={self.max_val}" +
                (", inplace=True" if self.inplace else ""))


class ReLU6(Hardtanh):
    """min(max(x, 0), 6)."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0.0, 6.0, inplace)

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


class Threshold(Module):
    """x where x > threshold, else `value`."""

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__()
        self.threshold, self.value, self.inplace = threshold, value, inplace

    def forward(self, input: Tensor) -> Tensor:
        """[*] -> [*]."""
        return F.threshold(input, self.threshold, self.value, self.inplace)

    def extra_repr(self) -> str:
        return (f"threshold={self.threshold}, value={self.value}" +
                (", inplace=True" if self.inplace else ""))


class RReLU(Module):
    """Leaky ReLU with a slope drawn from [lower, upper) when training, their mean otherwise."""

    def __init__(self, lower: float = 1.0 / 8, upper: float = 1.0 / 3,
                 inplace: bool = False) -> None:
        super().__init__()
        self.lower, self.upper, self.inplace = lower, upper, inplace

    def forward(self, input: Tensor) -> Tensor:
        """[*] -> [*]."""
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"lower={self.lower}, upper={self.upper}" + (", inplace=True" if self.inplace
                                                            else "")


class ELU(Module):
    """x for x > 0, else alpha (exp(x) - 1) (Clevert et al., 2015)."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha, self.inplace = alpha, inplace

    def forward(self, input: Tensor) -> Tensor:
        """[*] -> [*]."""
        return F.elu(input, self.alpha, self.inplace)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}" + (", inplace=True" if self.inplace else "")


class CELU(ELU):
    """max(x, 0) + min(0, alpha (exp(x / alpha) - 1)) (Barron, 2017)."""

    def forward(self, input: Tensor) -> Tensor:
        """[*] -> [*]."""
        return F.celu(input, self.alpha, self.inplace)


class LeakyReLU(Module):
    """x for x > 0, else negative_slope x."""

    def __init__(self, negative_slope: float = 1e-2, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope, self.inplace = negative_slope, inplace

    def forward(self, input: Tensor) -> Tensor:
        """[*] -> [*]."""
        return F.leaky_relu(input, self.negative_slope, self.inplace)

    def extra_repr(self) -> str:
        return f"negative_slope={self.negative_slope}" + (", inplace=True" if self.inplace else "")


class PReLU(Module):
    """Leaky ReLU whose slopes, one or one a channel, are learnt (He et al., 2015)."""

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device: Any = None,
                 dtype: Any = None) -> None:
        super().__init__()
        self.num_parameters, self.init = num_parameters, init
        self.weight = empty((num_parameters,), device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Every slope `init`."""
        constant_(self.weight, self.init)

    def forward(self, input: Tensor) -> Tensor:
        """[n, c, *] -> the same."""
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


class GELU(Module):
    """x Phi(x) (Hendrycks & Gimpel, 2016); `approximate` "tanh" approximates Phi."""

    approximate: str

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        """[*] -> [*]."""
        return F.gelu(input, approximate=self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class GLU(Module):
    """a sigmoid(b) of the halves a and b along `dim` (Dauphin et al., 2016)."""

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        """[*, 2 n, *] -> [*, n, *]."""
        return F.glu(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softplus(Module):
    """log(1 + exp(beta x)) / beta, x above `threshold`."""

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta, self.threshold = beta, threshold

    def forward(self, input: Tensor) -> Tensor:
        """[*] -> [*]."""
        return F.softplus(input, self.beta, self.threshold)

    def extra_repr(self) -> str:
        return f"beta={self.beta}, threshold={self.threshold}"


class _Shrink(Module):
    """A threshold below which values vanish."""

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def extra_repr(self) -> str:
        return f"{self.lambd}"


class Hardshrink(_Shrink):
    """x where |x| > lambd, else 0."""

    def forward(self, input: Tensor) -> Tensor:
        """[*] -> [*]."""
        return F.hardshrink(input, self.lambd)


class Softshrink(_Shrink):
    """x moved towards 0 by lambd."""

    def forward(self, input: Tensor) -> Tensor:
        """[*] -> [*]."""
        return F.softshrink(input, self.lambd)


class Sigmoid(Module):
    """1 / (1 + exp(-x))."""

    def forward(self, input: Tensor) -> Tensor:
        """[*] -> [*]."""
        return F.sigmoid(input)


class Tanh(Module):
    """tanh(x)."""

    def forward(self, input: Tensor) -> Tensor:
        """[*] -> [*]."""
        return F.tanh(input)


class LogSigmoid(Module):
    """log(sigmoid(x))."""

    def forward(self, input: Tensor) -> Tensor:
        """[*] -> [*]."""
        return F.logsigmoid(input)


class Softsign(Module):
    """x / (1 + |x|)."""

    def forward(self, input: Tensor) -> Tensor:
        """[*] -> [*]."""
        return F.softsign(input)


class Tanhshrink(Module):
    """x - tanh(x)."""

    def forward(self, input: Tensor) -> Tensor:
        """[*] -> [*]."""
        return F.tanhshrink(input)


class _Along(Module):
    """A function along one dimension."""

    dim: int | None

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def __setstate__(self, state: Any) -> None:
        super().__setstate__(state)
        if not hasattr(self, "dim"):
            self.dim = None

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softmax(_Along):
    """exp(x) / sum(exp(x)) along `dim`."""

    def forward(self, input: Tensor) -> Tensor:
        """[*] -> [*]."""
        return F.softmax(input, self.dim, _stacklevel=5)


class LogSoftmax(_Along):
    """log(softmax(x)) along `dim`."""

    def forward(self, input: Tensor) -> Tensor:
        """[*] -> [*]."""
        return F.log_softmax(input, self.dim, _stacklevel=5)


class Softmin(_Along):
    """softmax(-x) along `dim`."""

    def forward(self, input: Tensor) -> Tensor:
        """[*] -> [*]."""
        return F.softmin(input, self.dim, _stacklevel=5)


class Softmax2d(Module):
    """Softmax over the channels of [n, c, h, w] or [c, h, w]."""

    def forward(self, input: Tensor) -> Tensor:
        """[n, c, h, w] -> the same."""
        if input.dim() not in (3, 4):
            raise ValueError(
                f"Softmax2d: expected input to be 3D or 4D, got {input.dim()}D instead")
        return F.softmax(input, -3, _stacklevel=5)


__all__ = ["CELU", "ELU", "GELU", "GLU", "SELU", "Hardshrink", "Hardsigmoid", "Hardswish",
           "Hardtanh",
           "LeakyReLU", "LogSigmoid", "LogSoftmax", "Mish", "PReLU", "RReLU", "ReLU", "ReLU6",
           "SiLU",
           "Sigmoid", "Softmax", "Softmax2d", "Softmin", "Softplus", "Softshrink", "Softsign",
           "Tanh",
           "Tanhshrink", "Threshold"]
