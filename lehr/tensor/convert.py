"""Between tensors and everything else: dtypes, devices, numbers, lists, arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from lehr.base import dtype as dt
from lehr.base.device import CPU, Device
from lehr.base.dtype import DType
from lehr.ops import layout, registry
from lehr.tensor.format import plain
from lehr.tensor.state import STATE
from lehr.tensor.tensor import Tensor

# -- other dtypes and devices ----------------------------------------------------------------------


def to(input: Tensor, device: Any = None, dtype: DType | None = None, copy: bool = False,
       memory_format: Any = None) -> Tensor:
    """`input` itself where it already is what is asked for, else a converted copy."""
    F = Tensor.F
    made = input
    if device is not None and (where := Device(device)) is not input.device:
        made = moved(made, where)
    if dtype is not None and dtype is not input.dtype:
        made = F.to_dtype(made, dtype)
    order = plain(memory_format)
    if order is not None and order != "preserve_format" and not is_contiguous(made, order):
        return F.clone(made, memory_format=order)
    return F.clone(made) if copy and made is input else made


def moved(input: Tensor, device: Device) -> Tensor:
    """A copy on another device."""
    if device.type == input.device.type and (device.index or 0) == (input.device.index or 0):
        return input
    if device.type == "meta":
        return Tensor.F.empty_like(input, device=device)
    if input.device.type == "meta":
        raise NotImplementedError("Cannot copy out of meta tensor; no data!")
    if "to_device" not in registry.OPS:
        raise RuntimeError(f"cannot move a tensor to {device}: lehr has no eager "
                           f"{device.type.upper()} kernels on this machine; keep the tensor on "
                           "the CPU")
    return Tensor.F.to_device(input, device)


def tensor_to(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """`Tensor.to`: (dtype), (device, dtype) or (other), then non_blocking, copy, memory_format."""
    device, dtype, rest = target(args, kwargs)
    return to(self, device, dtype, rest[1], kwargs.get("memory_format"))


def target(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, DType | None, list[bool]]:
    """The device, dtype, and [non_blocking, copy] of a call of `to`."""
    unknown = kwargs.keys() - {"device", "dtype", "other", "non_blocking", "copy", "memory_format"}
    if unknown:
        raise TypeError(f"to() received an invalid combination of arguments: unexpected "
                        f"{', '.join(sorted(unknown))}")
    device, dtype = kwargs.get("device"), kwargs.get("dtype")
    rest = list(args)
    if "other" in kwargs:
        rest.insert(0, kwargs["other"])
    if rest:
        first = rest.pop(0)
        if isinstance(first, Tensor):
            device, dtype = first.device, first.dtype
        elif isinstance(first, DType):
            dtype = first
        elif first is None or isinstance(first, (str, int, Device)) and not isinstance(first, bool):
            device = first
            if rest and (rest[0] is None or isinstance(rest[0], DType)):
                dtype = rest.pop(0)
        else:
            raise TypeError(f"to() received an invalid combination of arguments - got "
                            f"({type(first).__name__}), but expected a dtype, a device or a tensor")
    if dtype is not None and not isinstance(dtype, DType):
        raise TypeError(f"to(): argument 'dtype' must be torch.dtype, not {type(dtype).__name__}")
    flags = [kwargs.get("non_blocking", False), kwargs.get("copy", False)]
    flags[: len(rest)] = rest
    return device, dtype, flags


def is_contiguous(self: Tensor, memory_format: Any = None) -> bool:
    """Whether the memory is dense in the order of `memory_format` (row-major by default)."""
    name = plain(memory_format) or "contiguous_format"
    if name == "contiguous_format":
        return layout.is_contiguous(self._shape, self._strides)
    rank = {"channels_last": 4, "channels_last_3d": 5}.get(name)
    if rank is None:
        raise RuntimeError("preserve memory format is unsupported by is_contiguous")
    return len(self._shape) == rank and layout.is_channels_last(self._shape, self._strides)


def contiguous(self: Tensor, memory_format: Any = None) -> Tensor:
    """The tensor itself where its memory is in that order, else a copy."""
    if is_contiguous(self, memory_format):
        return self
    return Tensor.F.clone(self, memory_format=plain(memory_format) or "contiguous_format")


TYPES = {"FloatTensor": dt.float32, "DoubleTensor": dt.float64, "HalfTensor": dt.float16,
         "BFloat16Tensor": dt.bfloat16, "ByteTensor": dt.uint8, "CharTensor": dt.int8,
         "ShortTensor": dt.int16, "IntTensor": dt.int32, "LongTensor": dt.int64,
         "BoolTensor": dt.bool_, "ComplexFloatTensor": dt.complex64,
         "ComplexDoubleTensor": dt.complex128}
LABELS = {v: k for k, v in TYPES.items()}


def type_(self: Tensor, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
    """The old name of the dtype ("torch.FloatTensor"), or a conversion to the one named."""
    if dtype is None:
        front = "torch." if self.device.type == "cpu" else f"torch.{self.device.type}."
        return front + LABELS[self.dtype]
    if isinstance(dtype, DType):
        return to(self, None, dtype)
    name = dtype if isinstance(dtype, str) else f"torch.{dtype.__name__}"
    front, _, last = name.rpartition(".")
    if last not in TYPES or front not in ("torch", "torch.cuda"):
        raise ValueError(f"invalid type: {name!r}")
    return to(self, "cuda" if front == "torch.cuda" else "cpu", TYPES[last])


def type_as(self: Tensor, other: Tensor) -> Tensor:
    """Converted to the dtype and device of `other`."""
    return to(self, other.device, other.dtype)


def _converter(name: str, dtype: DType) -> Any:
    def method(self: Tensor, memory_format: Any = None) -> Tensor:
        return to(self, None, dtype, False, memory_format)
    method.__name__ = name
    method.__qualname__ = f"Tensor.{name}"
    method.__doc__ = f"Converted to {dtype}."
    return method


float_, double, half = (_converter(n, dt.ALIASES[n]) for n in ("float", "double", "half"))
int_, long, short = (_converter(n, dt.ALIASES[n]) for n in ("int", "long", "short"))
char, byte = _converter("char", dt.int8), _converter("byte", dt.uint8)
bool_, bfloat16 = _converter("bool", dt.bool_), _converter("bfloat16", dt.bfloat16)
cfloat, cdouble = _converter("cfloat", dt.complex64), _converter("cdouble", dt.complex128)


def cpu(self: Tensor, memory_format: Any = None) -> Tensor:
    """The tensor in host memory."""
    return to(self, CPU, None, False, memory_format)


def cuda(self: Tensor, device: Any = None, non_blocking: bool = False,
         memory_format: Any = None) -> Tensor:
    """The tensor on a CUDA device (the current one unless named)."""
    return to(self, "cuda" if device is None else device, None, False, memory_format)


# -- numbers and arrays ----------------------------------------------------------------------------


def read(what: str, t: Tensor) -> Any:
    """The tensor's memory as a numpy array, for the reader `what`; a capture breaks here."""
    if STATE.tracer is not None:
        return STATE.tracer.concretize(what, t)._array
    if t.device is not CPU:
        if t.device.type == "meta":
            raise RuntimeError(f"Tensor.{what}() cannot be called on meta tensors")
        return moved(t, CPU)._array
    return t._array


def item(self: Tensor) -> Any:
    """The one element as a Python number."""
    if self.numel() != 1:
        raise RuntimeError(f"a Tensor with {self.numel()} elements cannot be converted to Scalar")
    if STATE.tracer is not None:
        return STATE.tracer.concretize("item", self)
    return read("item", self).item()


def tolist(self: Tensor) -> Any:
    """The elements as nested lists of Python numbers; a number for a 0-d tensor."""
    a = read("tolist", self)
    return (a.astype(np.float32) if a.dtype.kind == "V" else a).tolist()


def numpy(self: Tensor, *, force: bool = False) -> Any:
    """A numpy array on the same memory (with `force`, a copy where that is impossible)."""
    if force:
        return shown(self)
    if self.requires_grad:
        raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use "
                           "tensor.detach().numpy() instead.")
    if self.device is not CPU:
        raise TypeError(f"can't convert {self.device} device type tensor to numpy. Use "
                        "Tensor.cpu() to copy the tensor to host memory first.")
    if self.dtype is dt.bfloat16:
        raise TypeError("Got unsupported ScalarType BFloat16")
    return shown(self)


def shown(t: Tensor) -> Any:
    """The memory as a numpy array for somebody who may keep it, and write to it."""
    made = read("numpy", t)
    t._storage.expose()
    return made.view()      # an object of its own: its shape may be set
