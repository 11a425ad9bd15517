"""`torch.cuda.nvtx`: marks for NVIDIA's profiler, which need a CUDA device."""

from __future__ import annotations

from typing import Any, NoReturn

from lehr.accelerator import refuse


def _refuse(*args: Any, **kwargs: Any) -> NoReturn:
    refuse("torch.cuda.nvtx", "cuda")


range = range_push = range_pop = range_start = range_end = mark = _refuse
