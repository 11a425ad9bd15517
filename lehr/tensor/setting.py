"""Settings of the process: default device, determinism, threads, precision."""

from __future__ import annotations

import warnings
from typing import Any

from lehr.base.device import CPU, Device
from lehr.tensor.state import STATE


class Settings:
    """deterministic: 0 off, 1 warn, 2 raise; precision: of float32 matmul ("highest" | "high" |
    "medium"); interop: threads between ops; warn_always: do not suppress repeats"""

    deterministic = 0
    fill_uninitialized = True
    precision = "highest"
    interop = 1
    warn_always = False


def set_default_device(device: Any) -> None:
    """Where new tensors go when no device is named; None: the CPU."""
    STATE.device = None if device is None else Device(device)


def get_default_device() -> Device:
    """Where new tensors go when no device is named."""
    return CPU if STATE.device is None else STATE.device


class _Entered:
    """Devices that are in force as context managers, in this thread."""

    stack: list[Any] = []


def _enter(self: Device) -> Device:
    _Entered.stack.append(STATE.device)
    STATE.device = self
    return self


def _exit(self: Device, *exc: Any) -> None:
    STATE.device = _Entered.stack.pop()


# `with torch.device("meta"):` makes it the default device.
Device.__enter__ = _enter  # type: ignore[attr-defined]
Device.__exit__ = _exit  # type: ignore[attr-defined]


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Accepted: lehr's ops are deterministic as they are."""
    Settings.deterministic = (1 if warn_only else 2) if mode else 0


def are_deterministic_algorithms_enabled() -> bool:
    """Whether `use_deterministic_algorithms` is on."""
    return Settings.deterministic > 0


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Whether it is on with warn_only."""
    return Settings.deterministic == 1


def set_deterministic_debug_mode(debug_mode: Any) -> None:
    """"default", "warn" or "error", or 0, 1, 2."""
    names = {"default": 0, "warn": 1, "error": 2}
    level = names.get(debug_mode, debug_mode)
    if level not in (0, 1, 2):
        raise RuntimeError("invalid value of debug_mode, expected `default`, `warn`, `error`, 0, 1 "
                           f"or 2, but got {debug_mode!r}")
    Settings.deterministic = level


def get_deterministic_debug_mode() -> int:
    """0, 1 or 2."""
    return Settings.deterministic


def set_num_threads(n: int) -> None:
    """How many threads compiled code uses."""
    if not isinstance(n, int) or n <= 0:
        raise RuntimeError("set_num_threads expects a positive integer")
    from lehr.compiler.run import pool

    pool.set_num_threads(n)


def get_num_threads() -> int:
    """How many threads compiled code uses."""
    from lehr.compiler.run import pool

    return pool.get_num_threads()


def set_num_interop_threads(n: int) -> None:
    """Accepted: ops run one after the other."""
    if n <= 0:
        raise RuntimeError("set_num_interop_threads expects a positive integer")
    Settings.interop = n


def get_num_interop_threads() -> int:
    """What `set_num_interop_threads` was given."""
    return Settings.interop


def set_float32_matmul_precision(precision: str) -> None:
    """"highest", "high" or "medium": how exact products of float32 matrices are on a GPU."""
    if precision not in ("highest", "high", "medium"):
        warnings.warn(f"{precision} is not one of 'highest', 'high', or 'medium'; the current "
                      "setting is kept", stacklevel=2)
        return
    Settings.precision = precision


def get_float32_matmul_precision() -> str:
    """How exact products of float32 matrices are on a GPU."""
    return Settings.precision


def set_flush_denormal(mode: bool) -> bool:
    """False: numpy's kernels keep denormal numbers, there is no such mode."""
    return False


def set_warn_always(b: bool) -> None:
    """Whether repeated warnings are shown."""
    Settings.warn_always = bool(b)


def is_warn_always_enabled() -> bool:
    """Whether repeated warnings are shown."""
    return Settings.warn_always


def compiled_with_cxx11_abi() -> bool:
    """True, as every current build of PyTorch says."""
    return True
