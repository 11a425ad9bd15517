"""Kinds of devices that lehr has no eager tensors for beside CUDA: `torch.xpu`, `torch.mps`, ...

Asking answers no and 0; what concerns all devices does nothing; the rest raises.
"""

from __future__ import annotations

from typing import Any, NoReturn

from lehr.accelerator import refuse

KINDS = ("xpu", "mps", "mtia")


def is_available() -> bool:
    """False: no eager tensor can live on such a device."""
    return False


def device_count() -> int:
    """0."""
    return 0


def is_initialized() -> bool:
    """False."""
    return False


def _is_in_bad_fork() -> bool:
    return False


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """False: there is no device."""
    return False


def empty_cache() -> None:
    """Nothing is held."""


def manual_seed(seed: int) -> None:
    """There is no generator to seed."""
    int(seed)


def manual_seed_all(seed: int) -> None:
    """There is no generator to seed."""
    int(seed)


def memory_allocated(device: Any = None) -> int:
    """0 bytes."""
    return 0


max_memory_allocated = memory_reserved = max_memory_reserved = memory_allocated
current_allocated_memory = driver_allocated_memory = memory_allocated

NEEDING = ("synchronize current_device set_device get_device_name get_device_properties "
           "get_device_capability current_stream set_stream Stream Event device stream "
           "get_rng_state set_rng_state reset_peak_memory_stats memory_stats mem_get_info "
           "recommended_max_memory set_per_process_memory_fraction seed init").split()


def __getattr__(name: str) -> Any:
    if name not in NEEDING:
        raise AttributeError(name)

    def needs(*args: Any, **kwargs: Any) -> NoReturn:
        refuse(f"{name} of torch.{'/'.join(KINDS)}", "/".join(KINDS))
    needs.__name__ = needs.__qualname__ = name
    return needs
