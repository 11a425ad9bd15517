"""Tensors from data: nested sequences, numbers, numpy arrays, other tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lehr.base import dtype as dt
from lehr.base.device import CPU, Device
from lehr.base.dtype import DType
from lehr.ops import execute
from lehr.tensor import convert
from lehr.tensor.state import STATE
from lehr.tensor.tensor import Tensor


def tensor(data: Any, *, dtype: DType | None = None, device: Any = None, requires_grad: bool = False,
           pin_memory: bool = False) -> Tensor:
    """A new tensor with a copy of `data`, of an inferred dtype unless `dtype` is given."""
    if isinstance(data, Tensor):
        import warnings
        warnings.warn("To copy construct from a tensor, it is recommended to use sourceTensor.detach().clone() "
                      "or sourceTensor.detach().clone().requires_grad_(True), rather than "
                      "torch.tensor(sourceTensor).", UserWarning, stacklevel=2)
        made = Tensor.F.detach(convert.to(data, device, dtype, copy=True))
    else:
        made = placed(from_data(data, dtype), device)
    return made.requires_grad_() if requires_grad else made


def as_tensor(data: Any, dtype: DType | None = None, device: Any = None) -> Tensor:
    """`data` as a tensor that shares its memory where dtype and device allow it."""
    if isinstance(data, Tensor):
        return convert.to(data, device, dtype)
    if isinstance(data, np.ndarray):
        return convert.to(from_numpy(data), device, dtype)
    return placed(from_data(data, dtype), device)


def from_numpy(ndarray: Any) -> Tensor:
    """A tensor on the memory of a numpy array."""
    if not isinstance(ndarray, np.ndarray):
        raise TypeError(f"expected np.ndarray (got {type(ndarray).__name__})")
    return finish(Tensor._from_array(ndarray))


def finish(made: Tensor) -> Tensor:
    """Marks a new tensor as inference mode asks."""
    if STATE.inference:
        made._storage.inference = True
    return made


def placed(made: Tensor, device: Any) -> Tensor:
    """A new tensor where `device` (default: the default device) says."""
    if device is None:
        device = STATE.device
    return finish(made if device is None or device is CPU else convert.to(made, device))


def from_data(data: Any, dtype: DType | None) -> Tensor:
    """A CPU tensor with a copy of nested sequences, numbers, arrays or 0-d tensors."""
    if isinstance(data, np.ndarray):
        return Tensor._from_array(array_of(data, dtype))
    leaf = first_leaf(data)
    if isinstance(leaf, Tensor):
        return joined(data, dtype)
    if hasattr(leaf, "scalar_category"):
        return joined(data, dtype)
    try:
        made = np.array(data)
    except ValueError:
        check_even(data, data)
        raise
    except (TypeError, OverflowError) as error:
        raise RuntimeError(f"could not convert the data to a tensor: {error}") from None
    if made.dtype.kind not in "biufcV":
        refuse(leaf, made)
    if dtype is None:
        dtype = infer(made, leaf)
    return Tensor._from_array(array_of(made, dtype, copy=False))


def array_of(a: Any, dtype: DType | None, copy: bool = True) -> Any:
    """A native-endian array of `dtype`, row-major."""
    want = dt.of_numpy(a.dtype.newbyteorder("=")) if dtype is None else dtype
    if a.dtype != want.np:
        with np.errstate(all="ignore"):
            return np.ascontiguousarray(execute.cast(a, want)).reshape(a.shape)
    return np.array(a, order="C") if copy or not a.flags.c_contiguous else a


def infer(made: Any, leaf: Any) -> DType:
    """The dtype of Python numbers; numpy scalars keep theirs."""
    kind = made.dtype.kind
    if isinstance(leaf, np.generic) and not isinstance(leaf, float):
        return dt.of_numpy(made.dtype)
    if made.size == 0 and not isinstance(leaf, np.generic):
        return dt.Default.dtype
    if kind == "f":
        return dt.Default.dtype
    if kind == "u" and made.dtype.itemsize == 8:
        raise RuntimeError("Overflow when unpacking long long")
    return dt.of_category("bi.c".index(kind) if kind != "i" else dt.INT)


def first_leaf(data: Any) -> Any:
    """The first element that is no sequence; None of an empty one."""
    while True:
        if isinstance(data, (str, bytes)) or not hasattr(data, "__getitem__"):
            return data
        if isinstance(data, (Tensor, np.generic, np.ndarray)):
            return data
        if not hasattr(data, "__len__"):
            return data
        if len(data) == 0:
            return None
        data = data[0]


def check_even(data: Any, whole: Any) -> None:
    """Raises for a ragged nested sequence, naming the place as PyTorch does."""
    want = []
    probe = whole
    while isinstance(probe, Sequence) and not isinstance(probe, str):
        want.append(len(probe))
        if not len(probe):
            break
        probe = probe[0]

    def walk(part: Any, depth: int) -> None:
        if depth == len(want):
            if isinstance(part, Sequence):
                raise TypeError(f"must be real number, not {type(part).__name__}")
            return
        if not isinstance(part, Sequence):
            raise TypeError(f"expected a sequence at dim {depth} (got {type(part).__name__})")
        if len(part) != want[depth]:
            raise ValueError(f"expected sequence of length {want[depth]} at dim {depth} (got {len(part)})")
        for item in part:
            walk(item, depth + 1)
    walk(data, 0)


def refuse(leaf: Any, made: Any) -> None:
    """Raises for data that are no numbers."""
    if isinstance(leaf, str):
        raise TypeError(f"new(): invalid data type '{type(leaf).__name__}'" if made.ndim == 0
                        else f"too many dimensions '{type(leaf).__name__}'")
    if isinstance(leaf, int):
        raise RuntimeError("Overflow when unpacking long long")
    raise RuntimeError(f"Could not infer dtype of {type(leaf).__name__}")


def joined(data: Any, dtype: DType | None) -> Tensor:
    """Nested sequences of 0-d tensors and (symbolic) numbers, as stacks of them."""
    F = Tensor.F
    if isinstance(data, Tensor):
        if data.numel() != 1:
            raise ValueError("only one element tensors can be converted to Python scalars")
        return F.detach(F.reshape(data, []) if data.ndim else data)  # type: ignore[no-any-return]
    if isinstance(data, (list, tuple)):
        parts = [joined(x, dtype) for x in data]
        made = F.stack(parts) if parts else F.zeros([0])
    else:
        made = F.scalar_tensor(data, dtype=dt.of_category(dt.category_of(data)))
    return made if dtype is None else F.to_dtype(made, dtype)  # type: ignore[no-any-return]


def asarray(obj: Any, *, dtype: DType | None = None, device: Any = None, copy: bool | None = None,
            requires_grad: bool = False) -> Tensor:
    """`obj` as a tensor; copy: True always copies, False never, None where needed."""
    before = as_tensor(obj, dtype, device) if not isinstance(obj, (memoryview, bytes, bytearray)) \
        else convert.to(from_numpy(np.frombuffer(obj, dt.Default.dtype.np if dtype is None else dtype.np)),
                        device, dtype)
    shares = isinstance(obj, (Tensor, np.ndarray)) and np.may_share_memory(
        before._array, obj._array if isinstance(obj, Tensor) else obj)
    if copy is False and not shares:
        raise ValueError("can't alias this object: copy=False was given, but a copy is needed")
    made = Tensor.F.clone(before) if copy and shares else before
    if isinstance(obj, Tensor) and not requires_grad and not made is obj:
        made = Tensor.F.detach(made)
    return made.requires_grad_() if requires_grad else made


__all__ = ["Device", "as_tensor", "asarray", "from_numpy", "tensor"]
