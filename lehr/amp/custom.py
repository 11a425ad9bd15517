"""Autocast in one's own `autograd.Function`s, and the older names of regions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from lehr.base import dtype as dt
from lehr.tensor.autocast import autocast, get_autocast_dtype, is_autocast_enabled
from lehr.tensor.tensor import Tensor


def _cast(value: Any, device_type: str, dtype: Any) -> Any:
    """Floating tensors of the device in another dtype, within containers too; float64 stays."""
    if isinstance(value, Tensor):
        fits = (value.dtype.is_floating_point and value.device.type == device_type
                and value.dtype is not dt.float64)
        return value.to(dtype=dtype) if fits else value
    if isinstance(value, dict):
        return {_cast(k, device_type, dtype): _cast(v, device_type, dtype) for k,
                v in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_cast(v, device_type, dtype) for v in value)
    return value


def _usable(device_type: Any) -> str:
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
    return device_type


def custom_fwd(fwd: Callable[..., Any] | None = None, *, device_type: str,
               cast_inputs: Any = None) -> Any:
    """Decorates `forward`: the region in force is remembered for `custom_bwd`.

    With `cast_inputs` the floating tensors are cast to it and autocast is off inside.
    """
    _usable(device_type)
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        ctx = args[0]
        ctx._dtype = get_autocast_dtype(device_type)
        inside = is_autocast_enabled(device_type)
        ctx._fwd_used_autocast = inside and cast_inputs is None
        if cast_inputs is None or not inside:
            return fwd(*args, **kwargs)
        with autocast(device_type, enabled=False):
            return fwd(*_cast(args, device_type, cast_inputs),
                       **_cast(kwargs, device_type, cast_inputs))
    return decorated


def custom_bwd(bwd: Callable[..., Any] | None = None, *, device_type: str) -> Any:
    """Decorates `backward`: it runs in the region that `forward` ran in."""
    _usable(device_type)
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        ctx = args[0]
        with autocast(device_type, enabled=ctx._fwd_used_autocast, dtype=ctx._dtype):
            return bwd(*args, **kwargs)
    return decorated


class CudaAutocast(autocast):
    """`torch.cuda.amp.autocast`."""

    def __init__(self, enabled: bool = True, dtype: Any = dt.float16,
                 cache_enabled: bool = True) -> None:
        super().__init__("cuda", dtype, enabled, cache_enabled)


class CpuAutocast(autocast):
    """`torch.cpu.amp.autocast`."""

    def __init__(self, enabled: bool = True, dtype: Any = dt.bfloat16,
                 cache_enabled: bool = True) -> None:
        super().__init__("cpu", dtype, enabled, cache_enabled)


def cuda_custom_fwd(fwd: Any = None, *, cast_inputs: Any = None) -> Any:
    """`torch.cuda.amp.custom_fwd`."""
    return custom_fwd(fwd, device_type="cuda", cast_inputs=cast_inputs)


def cuda_custom_bwd(bwd: Any = None) -> Any:
    """`torch.cuda.amp.custom_bwd`."""
    return custom_bwd(bwd, device_type="cuda")
