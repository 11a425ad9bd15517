"""Normalization with statistics of the batch or the sample, and running ones for evaluation."""

from __future__ import annotations

from typing import Any

from lehr.base import dtype as dt
from lehr.nn import functional as F
from lehr.nn import init
from lehr.nn.linear import empty
from lehr.nn.module import Module
from lehr.tensor.state import STATE
from lehr.tensor.tensor import Tensor


class _NormBase(Module):
    """Affine parameters and running statistics of `num_features` channels."""

    _version = 2
    num_features: int
    eps: float
    momentum: float | None
    affine: bool
    track_running_stats: bool

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1,
                 affine: bool = True, track_running_stats: bool = True, device: Any = None,
                 dtype: Any = None, *, bias: bool = True) -> None:
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        for name, wanted in (("weight", affine), ("bias", affine and bias)):
            made = empty((num_features,), device, dtype) if wanted else None
            self.register_parameter(name, made)
        make = Tensor.F.full
        place = STATE.device if device is None else device
        for name, size, value, kind in (("running_mean", (num_features,), 0.0, dtype),
                                        ("running_var", (num_features,), 1.0, dtype),
                                        ("num_batches_tracked", (), 0, dt.int64)):
            stat = None
            if track_running_stats:
                stat = make(size, value, dtype=kind, device=place)
            self.register_buffer(name, stat)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Mean 0, variance 1, no batches seen."""
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Running statistics as at the start, weight 1, bias 0."""
        self.reset_running_stats()
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def _check_input_dim(self, input: Tensor) -> None:
        raise NotImplementedError

    def extra_repr(self) -> str:
        return (f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, "
                f"affine={self.affine}, bias={self.bias is not None}, "
                f"track_running_stats={self.track_running_stats}")

    def _load_from_state_dict(self, state_dict: Any, prefix: str, local_metadata: Any,
                              *rest: Any) -> None:
        version = local_metadata.get("version", None)
        key = prefix + "num_batches_tracked"
        if (version is None or version < 2) and self.track_running_stats and key not in state_dict:
            seen = self.num_batches_tracked
            state_dict[key] = seen if seen is not None and seen.device.type != "meta" else (
                Tensor.F.full((), 0, dtype=dt.int64))
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


class _BatchNorm(_NormBase):
    """Standardises channels over the batch and the positions."""

    def forward(self, input: Tensor) -> Tensor:
        """[n, num_features, *] -> the same."""
        self._check_input_dim(input)
        factor: Any = 0.0 if self.momentum is None else self.momentum
        if self.training and self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:  # a cumulative average
                factor = 1.0 / self.num_batches_tracked
        no_stats = self.running_mean is None and self.running_var is None
        keep = not self.training or self.track_running_stats
        return F.batch_norm(input, self.running_mean if keep else None,
                            self.running_var if keep else None, self.weight, self.bias,
                            self.training or no_stats, factor, self.eps)


class _InstanceNorm(_NormBase):
    """Standardises channels of every sample over the positions."""

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1,
                 affine: bool = False, track_running_stats: bool = False, device: Any = None,
                 dtype: Any = None, *, bias: bool = True) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype,
                         bias=bias)

    def _get_no_batch_dim(self) -> int:
        raise NotImplementedError

    def forward(self, input: Tensor) -> Tensor:
        """[n, num_features, *] or [num_features, *] -> the same."""
        self._check_input_dim(input)
        alone = input.dim() == self._get_no_batch_dim()
        channels = 0 if alone else 1
        if input.size(channels) != self.num_features:
            if self.affine:
                raise ValueError(f"expected input's size at dim={channels} to match num_features "
                                 f"({self.num_features}), but got: {input.size(channels)}.")
        x = input.unsqueeze(0) if alone else input
        out = F.instance_norm(x, self.running_mean, self.running_var, self.weight, self.bias,
                              self.training or not self.track_running_stats,
                              0.0 if self.momentum is None else self.momentum, self.eps)
        return out.squeeze(0) if alone else out

    def _load_from_state_dict(self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool,
                              missing_keys: Any, unexpected_keys: Any, error_msgs: Any) -> None:
        version = local_metadata.get("version", None)
        if version is None and not self.track_running_stats:
            found = [prefix + name for name in ("running_mean", "running_var")
                     if prefix + name in state_dict]
            if found:
                error_msgs.append(
                    f"Unexpected running stats buffer(s) {' and '.join(map(repr, found))} for "
                    f"{type(self).__name__} with track_running_stats=False: the checkpoint is from "
                    "a time when they were kept without being used; remove these keys to load it.")
                for key in found:
                    state_dict.pop(key)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing_keys,
                                      unexpected_keys, error_msgs)


def _expect(input: Tensor, ranks: tuple[int, ...]) -> None:
    if input.dim() not in ranks:
        wanted = " or ".join(f"{r}D" for r in ranks)
        raise ValueError(f"expected {wanted} input (got {input.dim()}D input)")


class BatchNorm1d(_BatchNorm):
    """Batch normalization of [n, c] or [n, c, l] (Ioffe & Szegedy, 2015)."""

    def _check_input_dim(self, input: Tensor) -> None:
        _expect(input, (2, 3))


class BatchNorm2d(_BatchNorm):
    """Batch normalization of [n, c, h, w] (Ioffe & Szegedy, 2015)."""

    def _check_input_dim(self, input: Tensor) -> None:
        _expect(input, (4,))


class BatchNorm3d(_BatchNorm):
    """Batch normalization of [n, c, d, h, w] (Ioffe & Szegedy, 2015)."""

    def _check_input_dim(self, input: Tensor) -> None:
        _expect(input, (5,))


class SyncBatchNorm(_BatchNorm):
    """Batch normalization over the batches of all processes of a group: of one, [n, c, *].

    `exchange(layer, input)` is set by `lehr.distributed`; over several processes it is lacking
    (NotImplementedError).
    """

    exchange: Any = None

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1,
                 affine: bool = True, track_running_stats: bool = True, process_group: Any = None,
                 device: Any = None, dtype: Any = None, *, bias: bool = True) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype,
                         bias=bias)
        self.process_group = process_group

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    def forward(self, input: Tensor) -> Tensor:
        """[n, num_features, *] -> the same."""
        if self.exchange is not None and self.training:
            return self.exchange(input)  # type: ignore[no-any-return]
        return super().forward(input)

    @classmethod
    def convert_sync_batchnorm(cls, module: Any, process_group: Any = None) -> Any:
        """`module` with every BatchNorm layer in it turned into a SyncBatchNorm."""
        made = module
        if isinstance(module, _BatchNorm):
            made = SyncBatchNorm(module.num_features, module.eps, module.momentum, module.affine,
                                 module.track_running_stats, process_group)
            made.weight, made.bias = module.weight, module.bias
            made.running_mean, made.running_var = module.running_mean, module.running_var
            made.num_batches_tracked = module.num_batches_tracked
            made.training = module.training
        for name, child in module.named_children():
            made.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return made


class InstanceNorm1d(_InstanceNorm):
    """Instance normalization of [n, c, l] or [c, l] (Ulyanov et al., 2016)."""

    def _get_no_batch_dim(self) -> int:
        return 2

    def _check_input_dim(self, input: Tensor) -> None:
        _expect(input, (2, 3))


class InstanceNorm2d(_InstanceNorm):
    """Instance normalization of [n, c, h, w] or [c, h, w] (Ulyanov et al., 2016)."""

    def _get_no_batch_dim(self) -> int:
        return 3

    def _check_input_dim(self, input: Tensor) -> None:
        _expect(input, (3, 4))


class InstanceNorm3d(_InstanceNorm):
    """Instance normalization of [n, c, d, h, w] or [c, d, h, w] (Ulyanov et al., 2016)."""

    def _get_no_batch_dim(self) -> int:
        return 4

    def _check_input_dim(self, input: Tensor) -> None:
        _expect(input, (4, 5))


__all__ = ["BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "InstanceNorm1d", "InstanceNorm2d",
           "InstanceNorm3d", "SyncBatchNorm"]
