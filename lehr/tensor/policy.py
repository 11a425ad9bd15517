"""The autocast regions in force, and what an op's policy makes of its arguments.

(Micikevicius et al., 2018, Mixed Precision Training.)

The table in `lehr.ops.precision` says which ops, for every device type. float64 is left alone. What
a listed op is made of runs outside the region.
"""

from __future__ import annotations

import functools
import sys
import warnings
from typing import Any

from lehr.base import dtype as dt
from lehr.base.dtype import DType
from lehr.ops.precision import PRECISION, precision_of
from lehr.ops.registry import Op
from lehr.tensor import dispatch
from lehr.tensor.state import STATE
from lehr.tensor.tensor import Tensor

# Device type -> the dtypes a region may have, the default first.
LOWER: dict[str, tuple[DType, ...]] = {
    "cpu": (dt.bfloat16, dt.float16), "cuda": (dt.float16, dt.bfloat16, dt.float32)}
# Other device types that PyTorch knows, of which no machine here has any.
ABSENT = ("xpu", "mps", "hpu", "ipu", "xla", "mtia", "privateuseone")
# Precisions that compute in float32.
WIDE = frozenset(("float32", "rounded"))
DEFAULT: dict[str, DType] = {kind: dtypes[0] for kind, dtypes in LOWER.items()}


def has_cuda() -> bool:
    """Whether `lehr.cuda` finds a GPU."""
    cuda = getattr(sys.modules.get("lehr"), "cuda", None)
    return cuda is not None and bool(cuda.is_available())


@functools.cache
def _listed(devices: tuple[str, ...]) -> frozenset[str]:
    return frozenset(name for device in devices for name in PRECISION.get(device, ()))


class Policy:
    """The regions in force.

    devices  device type -> dtype, for those that are enabled
    caching  casts of weights are kept until the outermost region ends
    casts    these casts
    listed   the ops that any of these device types has in the table
    """

    __slots__ = ("caching", "casts", "devices", "listed")
    __lehr_constant__ = True    # captured programs may leave one behind

    def __init__(self, devices: dict[str, DType], caching: bool, casts: dict[Any, Any]) -> None:
        self.devices, self.caching, self.casts = devices, caching, casts
        self.listed = _listed(tuple(devices))

    @property
    def key(self) -> tuple[Any, ...]:
        """What a guard compares."""
        return tuple(sorted((k, v.name) for k, v in self.devices.items())), self.caching

    def changed(self, device: str, dtype: DType | None, caching: bool) -> Policy:
        """The policy inside a region of this one, with which it shares the casts; a device type
        without a dtype is switched off.
        """
        devices = {k: v for k, v in self.devices.items() if k != device}
        if dtype is not None:
            devices[device] = dtype
        return Policy(devices, caching, self.casts)

    def forget(self) -> None:
        """Drops the casts."""
        self.casts.clear()

    def run(self, op: Op, args: tuple[Any, ...]) -> Any:
        """The op on arguments cast as the table says, its parts outside the region; NotImplemented
        where the table says nothing of this call.
        """
        found = _floating(op, args)
        if not found:
            return NotImplemented
        device = found[0].device.type
        low, named = self.devices.get(device), precision_of(op.name, device, args)
        if low is None or named is None:
            return NotImplemented
        if named == "parts":
            return op.decomp(dispatch.F, *args)  # type: ignore[misc]
        wide = named in WIDE or (named == "promote" and any(t.dtype is dt.float32 for t in found))
        want = dt.float32 if wide else low
        if any(t.dtype is not want for t in found):
            args = self._cast(op, args, want, low)
        STATE.autocast = None
        try:
            out = dispatch.call(op, args)
            return Tensor.F.to_dtype(out, low) if named == "rounded" else out
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
        keep = (self.caching and want is low and t.dtype is dt.float32 and t.is_leaf
                and t.requires_grad and not t._is_view())
        if not keep:
            return _converted(t, want)
        key = (id(t), STATE.grad, STATE.tracer)     # a captured program sees no cast of another
        # Neither `t.data = other`, which gives it elements elsewhere, nor writes through `t.data`
        # count as its versions.
        storage = t._storage
        writes = storage.origin.writes
        now = (id(storage), writes, t._offset, t._shape, t._strides)
        kept = self.casts.get(key)
        if kept is None or kept[1] != now or writes != writes:  # somebody may write without telling
            kept = self.casts[key] = (_converted(t, want), now, t, storage)
        return kept[0]


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


def given(name: str, t: Tensor) -> Tensor:
    """What a listed function that is no op computes with: the argument, cast as the table says."""
    now = STATE.autocast
    if now is None or name not in now.listed or not _eligible(t):
        return t
    low, named = now.devices.get(t.device.type), precision_of(name, t.device.type, (t,))
    if low is None or named is None:
        return t
    return now._one(t, dt.float32 if named in WIDE else low, low)  # type: ignore[no-any-return]


def supported(device: str, dtype: DType) -> bool:
    """Whether there can be a region: a warning says why not."""
    if device == "cpu" and dtype not in LOWER["cpu"]:
        warnings.warn("In CPU autocast, but the target dtype is not supported. Disabling "
                      "autocast.\nCPU Autocast only supports dtype of torch.bfloat16, "
                      "torch.float16 currently.", stacklevel=4)
        return False
    if device in ABSENT or (device == "cuda" and not has_cuda()):
        warnings.warn(f"User provided device_type of '{device}', but "
                      f"{device.upper()} is not available. Disabling", stacklevel=4)
        return False
    return True
