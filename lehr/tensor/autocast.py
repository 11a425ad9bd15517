"""Autocast regions: ops inside choose their precision (see `policy`).

Capture interprets this module like the user's own code.
"""

from __future__ import annotations

from typing import Any

from lehr.base import dtype as dt
from lehr.base.dtype import DType
from lehr.tensor.mode import Mode
from lehr.tensor.policy import ABSENT, DEFAULT, LOWER, Policy, supported
from lehr.tensor.state import STATE


class autocast(Mode):
    """Ops inside run in the precision that suits them; also a decorator.

    device_type    the device the region is for: "cpu", "cuda"
    dtype          of the ops that may be imprecise (bfloat16 on the CPU, float16 on a GPU)
    enabled        False switches an outer region off
    cache_enabled  casts of weights are kept until the outermost region ends
    """

    def __init__(self, device_type: str, dtype: Any = None, enabled: bool = True,
                 cache_enabled: bool | None = None) -> None:
        if not isinstance(device_type, str):
            raise ValueError("Expected `device_type` of type `str`, got: "
                             f"`{type(device_type)}`")
        if device_type not in LOWER and device_type not in ABSENT:
            raise RuntimeError("User specified an unsupported autocast device_type "
                               f"'{device_type}'")
        self.device = device_type
        self.fast_dtype = get_autocast_dtype(device_type) if dtype is None else dtype
        self._cache_enabled = Settings.caching if cache_enabled is None else cache_enabled
        self._enabled = enabled and supported(device_type, self.fast_dtype)
        self.before: list[Any] = []

    def fresh(self) -> autocast:
        return autocast(self.device, self.fast_dtype, self._enabled, self._cache_enabled)

    def __enter__(self) -> autocast:
        now = STATE.autocast
        self.before.append(now)
        # A region that is switched off stays a policy, so that casts live until the outermost ends.
        if now is not None:
            STATE.autocast = now.changed(self.device, self.fast_dtype if self._enabled else None,
                                         self._cache_enabled)
        elif self._enabled:
            STATE.autocast = Policy({self.device: self.fast_dtype}, self._cache_enabled, {})
        return self

    def __exit__(self, *exc: Any) -> None:
        now, STATE.autocast = STATE.autocast, self.before.pop()
        if STATE.autocast is None and now is not None:
            now.forget()


class Settings:
    """What regions have that do not say."""

    dtypes = dict(DEFAULT)
    caching = True


def get_autocast_dtype(device_type: str) -> DType:
    """The dtype of a region of this device type that names none."""
    now = STATE.autocast
    if now is not None and device_type in now.devices:
        return now.devices[device_type]  # type: ignore[no-any-return]
    return Settings.dtypes.get(device_type, dt.bfloat16)


def set_autocast_dtype(device_type: str, dtype: DType) -> None:
    """Sets that dtype."""
    Settings.dtypes[device_type] = dtype


def is_autocast_enabled(device_type: str | None = None) -> bool:
    """Whether a region of this device type (cuda unless named) is in force."""
    now = STATE.autocast
    return now is not None and (device_type or "cuda") in now.devices


def set_autocast_enabled(device_type: Any, enabled: bool | None = None) -> None:
    """Switches autocast on or off for a device type (cuda where only the flag is given)."""
    if enabled is None:
        device_type, enabled = "cuda", device_type
    now = STATE.autocast
    dtype = get_autocast_dtype(device_type) if enabled else None
    if now is None:
        now = Policy({}, Settings.caching, {})
    now = now.changed(device_type, dtype, Settings.caching)
    STATE.autocast = now if now.devices else None


def is_autocast_cache_enabled() -> bool:
    """Whether casts of weights are kept."""
    now = STATE.autocast
    return Settings.caching if now is None else now.caching  # type: ignore[no-any-return]


def set_autocast_cache_enabled(enabled: bool) -> None:
    """Sets whether regions keep casts of weights."""
    Settings.caching = enabled


def clear_autocast_cache() -> None:
    """Forgets the casts of weights."""
    if STATE.autocast is not None:
        STATE.autocast.forget()


def is_autocast_available(device_type: str) -> bool:
    """Whether there can be regions of this device type."""
    return device_type in LOWER


def is_autocast_cpu_enabled() -> bool:
    """`is_autocast_enabled("cpu")`."""
    return is_autocast_enabled("cpu")


def get_autocast_cpu_dtype() -> DType:
    """`get_autocast_dtype("cpu")`."""
    return get_autocast_dtype("cpu")


def get_autocast_gpu_dtype() -> DType:
    """`get_autocast_dtype("cuda")`."""
    return get_autocast_dtype("cuda")
