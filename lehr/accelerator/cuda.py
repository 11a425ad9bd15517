"""`torch.cuda` where no eager tensor can live on a CUDA device.

As in PyTorch's builds without CUDA: asking whether there is a device answers no, what concerns all
devices does nothing, what needs a device raises AssertionError.
"""

from __future__ import annotations

import collections
from typing import Any, NoReturn

from lehr import accelerator
from lehr.accelerator import refuse
from lehr.base.device import Device
from lehr.tensor.convert import TYPES
from lehr.tensor.tensor import Tensor

default_generators: tuple[Any, ...] = ()
has_half = False


class OutOfMemoryError(RuntimeError):
    """A device's memory is used up."""


def is_available() -> bool:
    """Whether eager tensors can live on a CUDA device."""
    return device_count() > 0


def device_count() -> int:
    """How many CUDA devices eager tensors can live on."""
    return accelerator.device_count()


def is_initialized() -> bool:
    """Whether CUDA is in use."""
    return False


def _is_in_bad_fork() -> bool:
    return False


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether the device in use computes in bfloat16."""
    return False


def is_tf32_supported() -> bool:
    """Whether the device in use computes in TF32."""
    return False


def get_arch_list() -> list[str]:
    """The architectures that kernels were built for."""
    return []


# For all devices: there are none.


def empty_cache() -> None:
    """Gives unused memory of every device back."""


def manual_seed(seed: int) -> None:
    """Seeds the device's generator; `torch.manual_seed` seeds every one."""
    int(seed)


def manual_seed_all(seed: int) -> None:
    """Seeds the generators of every device."""
    int(seed)


def seed_all() -> None:
    """Seeds the generators of every device with a number at random."""


def get_rng_state_all() -> list[Tensor]:
    """The state of every device's generator."""
    return []


def set_rng_state_all(new_states: Any) -> None:
    """Sets the state of every device's generator."""
    if len(list(new_states)):
        refuse("torch.cuda.set_rng_state_all", "cuda")


def memory_stats(device: Any = None) -> dict[str, Any]:
    """Counters of the device's memory: empty without one."""
    return collections.OrderedDict()


def _nothing(device: Any = None) -> int:
    """0: no memory of a CUDA device is in use."""
    return 0


memory_allocated = max_memory_allocated = memory_reserved = max_memory_reserved = _nothing
memory_cached = max_memory_cached = _nothing


class device:
    """Makes a device the one in use inside; None or a negative index leaves it as it is."""

    def __init__(self, device: Any) -> None:
        made = Device(device) if isinstance(device, str) else device
        if isinstance(made, Device):
            made = (made.index or 0) if made.type == "cuda" else -1
        self.idx = -1 if made is None else int(made)

    def __enter__(self) -> None:
        if self.idx >= 0:
            refuse("torch.cuda.device", "cuda")

    def __exit__(self, *exc: Any) -> None:
        return None


class device_of(device):
    """Makes the device of a tensor the one in use inside, where that is a CUDA device."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.get_device() if obj.is_cuda else -1)


class stream:
    """Makes a stream the one in use inside; None leaves it as it is."""

    def __init__(self, stream: Any) -> None:
        if stream is not None:
            refuse("torch.cuda.stream", "cuda")

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exc: Any) -> None:
        return None


StreamContext = stream

# What needs a device: functions and classes whose call raises.
NEEDING = (
    "Stream ExternalStream Event CUDAGraph graph graph_pool_handle make_graphed_callables MemPool "
    "caching_allocator_alloc caching_allocator_delete can_device_access_peer clock_rate "
    "current_blas_handle current_device current_stream cudart default_stream device_memory_used "
    "get_allocator_backend get_device_capability get_device_name get_device_properties "
    "get_rng_state init initial_seed ipc_collect list_gpu_processes mem_get_info memory_snapshot "
    "memory_summary memory_usage power_draw reset_accumulated_memory_stats "
    "reset_max_memory_allocated reset_max_memory_cached reset_peak_memory_stats seed set_device "
    "set_per_process_memory_fraction set_rng_state set_stream set_sync_debug_mode synchronize "
    "temperature utilization get_sync_debug_mode _record_memory_history _dump_snapshot _lazy_init"
).split()


class Needing(type):
    """The class of classes that need a device: calling one raises."""

    def __call__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        refuse(f"torch.cuda.{cls.__name__}", "cuda")


def _needing(name: str) -> Any:
    if name[0].isupper():
        return Needing(name, (), {"__module__": "torch.cuda"})

    def needs(*args: Any, **kwargs: Any) -> NoReturn:
        refuse(f"torch.cuda.{name}", "cuda")
    needs.__name__ = needs.__qualname__ = name
    return needs


class Absent(type):
    """The class of `torch.cuda.FloatTensor` ...: nothing is an instance, calling one raises."""

    def __call__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(f"type torch.cuda.{cls.__name__} not available. {accelerator.REMEDY}")


def __getattr__(name: str) -> Any:
    if name in NEEDING:
        made = _needing(name)
    elif name in TYPES:
        made = Absent(name, (), {"__module__": "torch.cuda"})
    else:
        raise AttributeError(f"module 'torch.cuda' has no attribute {name!r}")
    globals()[name] = made
    return made
