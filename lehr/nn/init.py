"""Initial values of parameters, written in place and without recording."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

from lehr.tensor import random
from lehr.tensor.mode import no_grad
from lehr.tensor.tensor import Tensor

# Gain of a layer in front of each nonlinearity (LeCun et al. 1998; He et al. 2015).
GAINS: dict[str, float] = {
    "linear": 1.0, "conv1d": 1.0, "conv2d": 1.0, "conv3d": 1.0, "conv_transpose1d": 1.0,
    "conv_transpose2d": 1.0, "conv_transpose3d": 1.0, "sigmoid": 1.0, "tanh": 5.0 / 3,
    "relu": math.sqrt(2.0), "selu": 3.0 / 4}


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor that keeps the variance through a nonlinearity; `param`: leaky_relu's slope."""
    if nonlinearity == "leaky_relu":
        if param is not None and (isinstance(param, bool) or not isinstance(param, (int, float))):
            raise ValueError(f"negative_slope {param} not a valid number")
        return math.sqrt(2.0 / (1 + (0.01 if param is None else param) ** 2))
    if nonlinearity not in GAINS:
        raise ValueError(f"Unsupported nonlinearity {nonlinearity}")
    return GAINS[nonlinearity]


def _written(tensor: Tensor, made: Tensor) -> Tensor:
    with no_grad():
        return tensor.copy_(made)


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Tensor:
    """Uniform in [a, b)."""
    return _written(tensor, Tensor.F.uniform(tuple(tensor._shape), a, b, *random.take(generator),
                                             dtype=tensor.dtype, device=tensor.device))


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Tensor:
    """Normal with this mean and standard deviation."""
    return _written(tensor,
                    Tensor.F.normal(tuple(tensor._shape), mean, std, *random.take(generator),
                                            dtype=tensor.dtype, device=tensor.device))


def trunc_normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0,
                  b: float = 2.0, generator: Any = None) -> Tensor:
    """Normal values limited to [a, b], by inversion of the distribution function."""
    if mean < a - 2 * std or mean > b + 2 * std:
        warnings.warn("mean is more than 2 std from [a, b] in nn.init.trunc_normal_. The "
                      "distribution of values may be incorrect.", stacklevel=2)

    def cdf(x: float) -> float:
        return (1.0 + math.erf(x / math.sqrt(2.0))) / 2.0
    low, high = cdf((a - mean) / std), cdf((b - mean) / std)
    F = Tensor.F
    with no_grad():
        u = F.uniform(tuple(tensor._shape), 2 * low - 1, 2 * high - 1, *random.take(generator),
                      dtype=tensor.dtype.wide, device=tensor.device)
        made = F.add(F.mul(F.erfinv(u), std * math.sqrt(2.0)), mean)
        return tensor.copy_(F.clamp(made, a, b))


def constant_(tensor: Tensor, val: float) -> Tensor:
    """One value everywhere."""
    with no_grad():
        return tensor.fill_(val)


def ones_(tensor: Tensor) -> Tensor:
    """1 everywhere."""
    return constant_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """0 everywhere."""
    return constant_(tensor, 0.0)


def eye_(tensor: Tensor) -> Tensor:
    """The identity matrix."""
    if tensor.ndim != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    return _written(tensor, Tensor.F.eye(*tensor._shape, dtype=tensor.dtype, device=tensor.device))


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Convolution weights that pass the input's channels on (within each group)."""
    n = tensor.ndim
    if n not in (3, 4, 5):
        raise ValueError("Only tensors with 3, 4, or 5 dimensions are supported")
    out, inner = tensor._shape[0], tensor._shape[1]
    if out % groups:
        raise ValueError("dim 0 must be divisible by groups")
    size = out // groups
    with no_grad():
        tensor.zero_()
        for g in range(groups):
            for d in range(min(size, inner)):
                tensor[(g * size + d, d, *(s // 2 for s in tensor._shape[2:]))] = 1
    return tensor


def _calculate_fan_in_and_fan_out(tensor: Tensor) -> tuple[int, int]:
    if tensor.ndim < 2:
        raise ValueError("Fan in and fan out can not be computed for tensor with fewer than 2 "
                         "dimensions")
    field = math.prod(tensor._shape[2:])
    return tensor._shape[1] * field, tensor._shape[0] * field


def _fan(tensor: Tensor, mode: str) -> int:
    mode = mode.lower()
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"Mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
    return _calculate_fan_in_and_fan_out(tensor)[mode == "fan_out"]


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Uniform of variance 2 gain^2 / (fan_in + fan_out) (Glorot & Bengio, 2010)."""
    bound = gain * math.sqrt(6.0 / sum(_calculate_fan_in_and_fan_out(tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Normal of variance 2 gain^2 / (fan_in + fan_out) (Glorot & Bengio, 2010)."""
    std = gain * math.sqrt(2.0 / sum(_calculate_fan_in_and_fan_out(tensor)))
    return normal_(tensor, 0.0, std, generator)


def _kaiming(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    return calculate_gain(nonlinearity, a) / math.sqrt(_fan(tensor, mode))


def kaiming_uniform_(tensor: Tensor, a: float = 0, mode: str = "fan_in",
                     nonlinearity: str = "leaky_relu", generator: Any = None) -> Tensor:
    """Uniform of variance gain^2 / fan (He et al., 2015)."""
    if 0 in tensor._shape:
        warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=2)
        return tensor
    bound = math.sqrt(3.0) * _kaiming(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(tensor: Tensor, a: float = 0, mode: str = "fan_in",
                    nonlinearity: str = "leaky_relu", generator: Any = None) -> Tensor:
    """Normal of variance gain^2 / fan (He et al., 2015)."""
    if 0 in tensor._shape:
        warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=2)
        return tensor
    return normal_(tensor, 0.0, _kaiming(tensor, a, mode, nonlinearity), generator)


def orthogonal_(tensor: Tensor, gain: float = 1, generator: Any = None) -> Tensor:
    """A (semi-)orthogonal matrix of the flattened trailing dimensions (Saxe et al., 2013)."""
    if tensor.ndim < 2:
        raise ValueError("Only tensors with 2 or more dimensions are supported")
    if 0 in tensor._shape:
        return tensor
    F = Tensor.F
    rows = tensor._shape[0]
    cols = tensor.numel() // rows
    with no_grad():
        flat = F.normal((max(rows, cols), min(rows, cols)), 0.0, 1.0, *random.take(generator),
                        dtype=tensor.dtype.wide, device=tensor.device)
        q, r = F.linalg_qr(flat)
        q = F.mul(q, F.sign(F.diagonal(r)))
        q = F.t(q) if rows < cols else q
        return tensor.copy_(F.mul(F.reshape(q, tuple(tensor._shape)), gain))


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Any = None) -> Tensor:
    """A matrix of normal values with a share `sparsity` of each column 0 (Martens, 2010)."""
    if tensor.ndim != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    rows, cols = tensor._shape
    zeros = math.ceil(sparsity * rows)
    normal_(tensor, 0.0, std, generator)
    with no_grad():
        for c in range(cols):
            tensor[random.randperm(rows, generator=generator)[:zeros], c] = 0  # type: ignore[index]
    return tensor


def _old(name: str, new: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A name without the underscore, from before it was the rule."""
    def deprecated(*args: Any, **kwargs: Any) -> Tensor:
        warnings.warn(f"`nn.init.{name}` is now deprecated in favor of `nn.init.{name}_`.",
                      FutureWarning, stacklevel=2)
        return new(*args, **kwargs)
    deprecated.__name__ = name
    return deprecated


uniform = _old("uniform", uniform_)
normal = _old("normal", normal_)
constant = _old("constant", constant_)
eye = _old("eye", eye_)
dirac = _old("dirac", dirac_)
xavier_uniform = _old("xavier_uniform", xavier_uniform_)
xavier_normal = _old("xavier_normal", xavier_normal_)
kaiming_uniform = _old("kaiming_uniform", kaiming_uniform_)
kaiming_normal = _old("kaiming_normal", kaiming_normal_)
orthogonal = _old("orthogonal", orthogonal_)
sparse = _old("sparse", sparse_)
