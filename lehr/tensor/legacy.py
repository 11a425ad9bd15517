"""Old spellings: `torch.FloatTensor` and its like, default tensor types, function names as text."""

from __future__ import annotations

from typing import Any

import numpy as np

from lehr.base import dtype as dt
from lehr.base.device import CPU
from lehr.base.dtype import DType
from lehr.tensor import create
from lehr.tensor.convert import TYPES
from lehr.tensor.memory import TypedStorage
from lehr.tensor.tensor import Tensor


class TensorType(type):
    """The class of `FloatTensor` ...: tensors of its dtype on the CPU are its instances."""

    dtype: DType

    def __instancecheck__(cls, instance: Any) -> bool:
        return (isinstance(instance, Tensor) and instance.dtype is cls.dtype
                and instance.device is CPU)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return create.construct(cls.dtype, args, kwargs.get("device"))


class StorageType(type):
    """The class of `FloatStorage` ...: storages of its dtype are its instances."""

    dtype: DType

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, TypedStorage) and instance.dtype is cls.dtype

    def __call__(cls, size: Any = 0) -> Any:
        return TypedStorage(size, cls.dtype)

    def from_buffer(cls, buffer: Any, byte_order: str = "native", *, count: int = -1,
                    offset: int = 0) -> Any:
        """A storage with a copy of the numbers in an object with the buffer protocol; `byte_order`:
        "native", "big" or "little"."""
        orders = {"native": "=", "big": ">", "little": "<"}
        if byte_order not in orders:
            raise ValueError(f"invalid byte_order '{byte_order}' (expected 'big', 'little' or "
                             "'native')")
        kind = cls.dtype.np.newbyteorder(orders[byte_order])
        found = np.frombuffer(buffer, kind, count, offset).astype(cls.dtype.np)
        return TypedStorage(Tensor._from_array(found)._storage, cls.dtype)


for _name, _dtype in TYPES.items():
    globals()[_name] = TensorType(_name, (), {"dtype": _dtype, "__module__": "lehr",
                                              "__doc__": f"CPU tensors of {_dtype}."})
    _storage = _name.replace("Tensor", "Storage")
    globals()[_storage] = StorageType(_storage, (), {
        "dtype": _dtype, "__module__": "lehr", "__doc__": f"CPU storages of {_dtype}."})


def new_tensor(cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`torch.Tensor(...)`, also for subclasses."""
    data = kwargs.pop("data", None)
    if data is not None:
        args = (data, *args)
    made = create.construct(dt.Default.dtype, args, kwargs.get("device"))
    if cls is not Tensor:
        made.__class__ = cls
    return made


def set_default_tensor_type(t: Any) -> None:
    """Sets the default dtype by the old name of a tensor type."""
    name = t if isinstance(t, str) else f"torch.{t.__name__}"
    last = name.rpartition(".")[2]
    if last not in TYPES or not TYPES[last].is_floating_point:
        raise TypeError("only floating-point types are supported as the default type")
    if ".cuda." in name:
        raise TypeError(f"{name}: lehr has no eager CUDA tensors on this machine")
    dt.Default.dtype = TYPES[last]


def typename(obj: Any, /) -> str:
    """The name of an object's type, that of a tensor in its old form ("torch.FloatTensor")."""
    if isinstance(obj, Tensor):
        return obj.type()
    kind = obj if hasattr(obj, "__qualname__") else type(obj)
    module = getattr(kind, "__module__", "") or ""
    return kind.__qualname__ if module in ("", "builtins") else f"{module}.{kind.__qualname__}"
