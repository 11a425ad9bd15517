"""Functions of `nn.functional` that keep running statistics: batch and instance normalization."""

from __future__ import annotations

from typing import Any

from lehr.tensor.mode import no_grad
from lehr.tensor.tensor import Tensor


def _count(shape: Any, dims: Any) -> Any:
    n = 1
    for d in dims:
        n = n * shape[d]
    return n


def track(mean: Any, var: Any, new_mean: Tensor, new_var: Tensor, count: Any,
          momentum: Any) -> None:
    """Moves running statistics towards new ones by `momentum`; the variance, of `count` values, is
    made unbiased first. Nothing happens for no values."""
    if isinstance(count, int) and count == 0:
        return
    with no_grad():
        if mean is not None:
            mean.copy_(mean * (1 - momentum) + new_mean * momentum)
        if var is not None:
            var.copy_(var * (1 - momentum) + new_var * (count / (count - 1)) * momentum)


def batch_norm(input: Tensor, running_mean: Any, running_var: Any, weight: Any = None,
               bias: Any = None, training: bool = False, momentum: Any = 0.1,
               eps: float = 1e-5) -> Tensor:
    """Standardises every channel of [n, c, ..] (Ioffe & Szegedy, 2015).

    When training, with the batch's mean and variance, and `running_mean` and `running_var` [c] move
    towards these by `momentum`; otherwise with the running ones.
    """
    F = Tensor.F
    if not training:
        if running_mean is None or running_var is None:
            raise RuntimeError("Expected running_mean and running_var to be defined when "
                               "training=False")
        if tuple(input._shape) == (0,):  # nothing, which PyTorch takes for any number of channels
            return F.clone(input)  # type: ignore[no-any-return]
        made: Any = F.batch_norm_eval(input, running_mean, running_var, weight, bias, eps)
        return made
    out, mean, var = F.batch_norm_train(input, weight, bias, eps)
    if running_mean is not None or running_var is not None:
        count = _count(input._shape, [0, *range(2, input.dim())])
        track(running_mean, running_var, mean, var, count, momentum)
    return out  # type: ignore[no-any-return]


def instance_norm(input: Tensor, running_mean: Any = None, running_var: Any = None,
                  weight: Any = None, bias: Any = None, use_input_stats: bool = True,
                  momentum: float = 0.1, eps: float = 1e-5) -> Tensor:
    """Standardises every channel of every sample of [n, c, ..] (Ulyanov et al., 2016).

    `use_input_stats` False uses the running statistics [c] as `batch_norm` does.
    """
    F = Tensor.F
    if not use_input_stats:
        if running_mean is None or running_var is None:
            raise RuntimeError("Expected running_mean and running_var to be defined when "
                               "use_input_stats=False")
        made: Any = F.batch_norm_eval(input, running_mean, running_var, weight, bias, eps)
        return made
    out, mean, var = F.instance_norm_train(input, weight, bias, eps)
    if running_mean is not None or running_var is not None:
        count = _count(input._shape, range(2, input.dim()))
        track(running_mean, running_var, F.mean(mean, [0]), F.mean(var, [0]), count, momentum)
    return out  # type: ignore[no-any-return]
