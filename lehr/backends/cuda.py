"""Switches of PyTorch's CUDA libraries: matrix products and attention."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from lehr.tensor.setting import get_float32_matmul_precision, set_float32_matmul_precision


class Matmul:
    """Precision of matrix products on a GPU. `allow_tf32` is `set_float32_matmul_precision`: True
    below "highest"."""

    allow_fp16_reduced_precision_reduction = True
    allow_bf16_reduced_precision_reduction = True
    allow_fp16_accumulation = False

    @property
    def allow_tf32(self) -> bool:
        return get_float32_matmul_precision() != "highest"

    @allow_tf32.setter
    def allow_tf32(self, value: bool) -> None:
        set_float32_matmul_precision("high" if value else "highest")

    @property
    def fp32_precision(self) -> str:
        return "tf32" if self.allow_tf32 else "ieee"

    @fp32_precision.setter
    def fp32_precision(self, value: str) -> None:
        if value not in ("ieee", "tf32", "none"):
            raise RuntimeError(f"fp32_precision {value!r} is not one of 'ieee', 'tf32', 'none'")
        self.allow_tf32 = value == "tf32"


class Plans(list):  # type: ignore[type-arg]
    """The cache of FFT plans, which lehr does not need."""

    max_size = 0
    size = 0


matmul = Matmul()
cufft_plan_cache = Plans()

# Ways to compute attention -> whether programs allow them. lehr has one way; see `sdp_kernel`.
_ALLOWED = {"flash": True, "mem_efficient": True, "math": True, "cudnn": True}


def is_built() -> bool:
    """False: eager tensors do not live on CUDA devices here."""
    return False


def is_flash_attention_available() -> bool:
    """False: attention is lehr's own kernel."""
    return False


def _switch(kind: str) -> tuple[Any, Any]:
    def enabled() -> bool:
        return _ALLOWED[kind]

    def enable(enabled: bool) -> None:
        _ALLOWED[kind] = bool(enabled)
    enabled.__name__, enable.__name__ = f"{kind}_sdp_enabled", f"enable_{kind}_sdp"
    enabled.__doc__ = f"Whether {kind} attention is allowed."
    enable.__doc__ = f"Allows {kind} attention or not: lehr's results are the same."
    return enabled, enable


flash_sdp_enabled, enable_flash_sdp = _switch("flash")
mem_efficient_sdp_enabled, enable_mem_efficient_sdp = _switch("mem_efficient")
math_sdp_enabled, enable_math_sdp = _switch("math")
cudnn_sdp_enabled, enable_cudnn_sdp = _switch("cudnn")


def allow_fp16_bf16_reduction_math_sdp(enabled: bool) -> None:
    """Accepted: attention in half precision computes in float32 and rounds once."""


def preferred_linalg_library(backend: Any = None) -> str:
    """"default": linear algebra is LAPACK on the CPU."""
    return "default"


def preferred_blas_library(backend: Any = None) -> str:
    """"default": products are lehr's or OpenBLAS."""
    return "default"


def preferred_rocm_fa_library(backend: Any = None) -> str:
    """"default"."""
    return "default"


@contextlib.contextmanager
def sdp_kernel(enable_flash: bool = True, enable_math: bool = True,
               enable_mem_efficient: bool = True, enable_cudnn: bool = True) -> Iterator[None]:
    """The allowed ways to compute attention inside. RuntimeError where none is left."""
    if not (enable_flash or enable_math or enable_mem_efficient or enable_cudnn):
        raise RuntimeError("No available kernel. Aborting execution.")
    before = dict(_ALLOWED)
    _ALLOWED.update(flash=enable_flash, math=enable_math, mem_efficient=enable_mem_efficient,
                    cudnn=enable_cudnn)
    try:
        yield
    finally:
        _ALLOWED.update(before)
