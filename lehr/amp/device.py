"""The older names of mixed precision, one set for each kind of device: `torch.cuda.amp`."""

from __future__ import annotations

import functools
from typing import Any

from lehr.amp import custom
from lehr.amp.scaler import GradScaler as Scaler
from lehr.base import dtype as dt
from lehr.tensor.autocast import autocast


class cuda_autocast(autocast):
    """`autocast("cuda", ...)`."""

    def __init__(self, enabled: bool = True, dtype: Any = dt.float16,
                 cache_enabled: bool = True) -> None:
        super().__init__("cuda", dtype, enabled, cache_enabled)


class cpu_autocast(autocast):
    """`autocast("cpu", ...)`."""

    def __init__(self, enabled: bool = True, dtype: Any = dt.bfloat16,
                 cache_enabled: bool = True) -> None:
        super().__init__("cpu", dtype, enabled, cache_enabled)


class CudaScaler(Scaler):
    """`GradScaler("cuda", ...)`."""

    def __init__(self, init_scale: float = 2.0 ** 16, growth_factor: float = 2.0,
                 backoff_factor: float = 0.5, growth_interval: int = 2000,
                 enabled: bool = True) -> None:
        super().__init__("cuda", init_scale, growth_factor, backoff_factor, growth_interval,
                         enabled)


custom_fwd = functools.partial(custom.custom_fwd, device_type="cuda")
custom_bwd = functools.partial(custom.custom_bwd, device_type="cuda")
