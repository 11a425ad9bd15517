"""Autocast: ops choose their precision inside a region (Micikevicius et al., 2018).

`Op.amp` says which: "lower" ops (products) take the region's dtype, "float32" ops (exponentials,
sums, losses) float32, "promote" ops the widest of what they get. float64 is left alone. What an op
is made of runs outside the region.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

from lehr.base import dtype as dt
from lehr.base.dtype import DType
from lehr.ops.registry import Op
from lehr.tensor import dispatch
from lehr.tensor.mode import Mode
from lehr.tensor.state import STATE
from lehr.tensor.tensor import Tensor

# Device type -> the dtypes a region may have, the default first.
LOWER: dict[str, tuple[DType, ...]] = {
    "cpu": (dt.bfloat16, dt.float16), "cuda": (dt.float16, dt.bfloat16, dt.float32)}
# Other device types that PyTorch knows, of which no machine here has any.
ABSENT = ("xpu", "mps", "hpu", "ipu", "xla", "mtia", "privateuseone")
DEFAULT: dict[str, DType] = {kind: dtypes[0] for kind, dtypes in LOWER.items()}


def has_cuda() -> bool:
    """Whether `lehr.cuda` finds a GPU."""
    cuda = getattr(sys.modules.get("lehr"), "cuda", None)
    return cuda is not None and bool(cuda.is_available())


class Policy:
    """The regions in force.

    devices  device type -> dtype, for those that are enabled
    caching  casts of weights are kept until the outermost region ends
    casts    these casts
    """

    __slots__ = ("caching", "casts", "devices")

    def __init__(self, devices: dict[str, DType], caching: bool, casts: dict[Any, Any]) -> None:
        self.devices, self.caching, self.casts = devices, caching, casts

    @property
    def key(self) -> tuple[Any, ...]:
        """What a guard compares."""
        return tuple(sorted((k, v.name) for k, v in self.devices.items())), self.caching

    def run(self, op: Op, args: tuple[Any, ...]) -> Any:
        """The op on arguments cast as its policy says, its parts outside the region."""
        found = _floating(op, args)
        low = self.devices.get(found[0].device.type) if found else None
        if low is not None:
            want = low
            if op.amp == "float32" or (op.amp == "promote" and any(
                    t.dtype is dt.float32 for t in found)):
                want = dt.float32
            if op.amp != "promote" or any(t.dtype is not want for t in found):
                args = self._cast(op, args, want, low)
        STATE.autocast = None
        try:
            return dispatch.call(op, args)
        finally:
            STATE.autocast = self

    def _cast(self, op: Op, args: tuple[Any, ...], want: DType, low: DType) -> tuple[Any, ...]:
        out = list(args)
        for i in op.signature.tensor_slots:
            a = out[i]
            if isinstance(a, Tensor):
                out[i] = self._one(a, want, low)
            elif type(a) in (list, tuple):
                out[i] = type(a)([self._one(x, want, low) for x in a])
        return tuple(out)

    def _one(self, t: Any, want: DType, low: DType) -> Any:
        if not isinstance(t, Tensor) or t.dtype is want or not _eligible(t):
            return t
        keep = (self.caching and want is low and t.dtype is dt.float32 and t._view is None
                and t.is_leaf and t.requires_grad)
        if not keep:
            return _converted(t, want)
        key = (id(t), STATE.grad, STATE.tracer)
        found = self.casts.get(key)
        if found is None or found[1] is not t or found[2] != t._version:
            found = self.casts[key] = (_converted(t, want), t, t._version)
        return found[0]


def _converted(t: Tensor, dtype: DType) -> Any:
    before, STATE.autocast = STATE.autocast, None
    try:
        return Tensor.F.to_dtype(t, dtype)
    finally:
        STATE.autocast = before


def _eligible(t: Any) -> bool:
    return isinstance(t, Tensor) and t.dtype.is_floating_point and t.dtype is not dt.float64 and (
        t.dtype.itemsize > 1)


def _floating(op: Op, args: tuple[Any, ...]) -> list[Tensor]:
    """The tensor arguments that autocast may cast."""
    out = []
    for i in op.signature.tensor_slots:
        a = args[i]
        if type(a) in (list, tuple):
            out += [x for x in a if _eligible(x)]
        elif _eligible(a):
            out.append(a)
    return out


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
        self._enabled = enabled and self._supported()
        self.before: list[Any] = []

    def _supported(self) -> bool:
        """Whether the region can be: a warning says why not."""
        if self.device == "cpu" and self.fast_dtype not in LOWER["cpu"]:
            warnings.warn("In CPU autocast, but the target dtype is not supported. Disabling "
                          "autocast.\nCPU Autocast only supports dtype of torch.bfloat16, "
                          "torch.float16 currently.", stacklevel=3)
            return False
        if self.device in ABSENT or (self.device == "cuda" and not has_cuda()):
            warnings.warn(f"User provided device_type of '{self.device}', but "
                          f"{self.device.upper()} is not available. Disabling", stacklevel=3)
            return False
        return True

    def fresh(self) -> autocast:
        return autocast(self.device, self.fast_dtype, self._enabled, self._cache_enabled)

    def __enter__(self) -> autocast:
        now = STATE.autocast
        self.before.append(now)
        devices = {} if now is None else dict(now.devices)
        devices.pop(self.device, None)
        if self._enabled:
            devices[self.device] = self.fast_dtype
        # A region that is switched off stays a policy, so that casts live until the outermost ends.
        STATE.autocast = (Policy(devices, self._cache_enabled, {} if now is None else now.casts)
                          if devices or now is not None else None)
        return self

    def __exit__(self, *exc: Any) -> None:
        now, STATE.autocast = STATE.autocast, self.before.pop()
        if STATE.autocast is None and now is not None:
            now.casts.clear()


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
    devices = {} if now is None else dict(now.devices)
    devices.pop(device_type, None)
    if enabled:
        devices[device_type] = get_autocast_dtype(device_type)
    STATE.autocast = Policy(devices, Settings.caching, {}) if devices else None


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
        STATE.autocast.casts.clear()


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
