"""Tensors from data: nested sequences, numbers, numpy arrays, buffers, other tensors."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from lehr.base import dtype as dt
from lehr.base.device import CPU
from lehr.base.dtype import DType
from lehr.ops import execute, layout
from lehr.tensor import convert, override
from lehr.tensor.state import STATE
from lehr.tensor.storage import Storage
from lehr.tensor.tensor import Tensor

OVERFLOW = "Overflow when unpacking long long"
NO_GRAD = "Only Tensors of floating point and complex dtype can require gradients"


def tensor(data: Any, *, dtype: DType | None = None, device: Any = None,
           requires_grad: bool = False, pin_memory: bool = False, names: Any = None) -> Tensor:
    """A new tensor with a copy of `data`, of an inferred dtype unless `dtype` is given."""
    if isinstance(data, Tensor):
        warnings.warn(
            "To copy construct from a tensor, it is recommended to use "
            "sourceTensor.detach().clone() or sourceTensor.detach().clone().requires_grad_(True), "
            "rather than torch.tensor(sourceTensor).", UserWarning, stacklevel=2)
        made = Tensor.F.detach(convert.to(data, device, dtype, copy=True))
    else:
        made = placed(from_data(data, dtype), device)
    return _finished(made, requires_grad)


def _finished(made: Tensor, requires_grad: bool) -> Tensor:
    if requires_grad:
        if not (made.dtype.is_floating_point or made.dtype.is_complex):
            raise RuntimeError(NO_GRAD)
        made.requires_grad = True
    return made


def as_tensor(data: Any, dtype: DType | None = None, device: Any = None) -> Tensor:
    """`data` as a tensor that shares its memory where dtype and device allow it."""
    if isinstance(data, Tensor):
        return convert.to(data, device, dtype)
    if isinstance(data, np.ndarray):
        return convert.to(from_numpy(data), STATE.device if device is None else device, dtype)
    return placed(from_data(data, dtype), device)


def from_numpy(ndarray: Any) -> Tensor:
    """A tensor on the memory of a numpy array."""
    if not isinstance(ndarray, np.ndarray):
        raise TypeError(f"expected np.ndarray (got {type(ndarray).__name__})")
    _check_order(ndarray)
    return lent(ndarray)


def lent(a: Any) -> Tensor:
    """A tensor on memory that others may write to."""
    made = marked(Tensor._from_array(a))
    made._storage.expose()
    return made


def _check_order(a: Any) -> None:
    if not a.dtype.isnative:
        raise ValueError("given numpy array has byte order different from the native byte order. "
                         "Conversion between byte orders is currently not supported.")


def marked(made: Tensor) -> Tensor:
    """A new tensor, as inference mode wants it."""
    if STATE.inference:
        made._storage.inference = True
    return made


def placed(made: Tensor, device: Any) -> Tensor:
    """A new tensor where `device` (without one: the default device) says."""
    if device is None:
        device = STATE.device
    return marked(made if device is None or device is CPU else convert.to(made, device))


def from_data(data: Any, dtype: DType | None) -> Tensor:
    """A CPU tensor with a copy of nested sequences, numbers, arrays or 0-d tensors."""
    if isinstance(data, np.ndarray):
        _check_order(data)
        return Tensor._from_array(_cast(data, dtype, True))
    leaf = first_leaf(data)
    if isinstance(leaf, Tensor) or hasattr(leaf, "scalar_category") or (
            isinstance(data, (list, tuple)) and any(isinstance(x, Tensor) for x in data)):
        return joined(data, dtype)
    try:
        made = np.array(data)
    except ValueError:
        check_even(data)
        raise
    except (TypeError, OverflowError) as error:
        raise RuntimeError(f"could not convert the data to a tensor: {error}") from None
    if made.dtype.kind == "O" and any(hasattr(x, "scalar_category") for x in made.flat):
        return joined(data, dtype)
    if made.dtype.kind not in "biufcV" or made.dtype.names is not None:
        refuse(data, leaf, made)
    if made.dtype == np.uint64 and not isinstance(leaf, np.generic):
        raise ValueError(OVERFLOW)
    if dtype is None:
        dtype = infer(made, leaf)
    elif dtype.category == dt.INT and dtype is not dt.int64:
        _check_range(made, dtype)
    return Tensor._from_array(_cast(made, dtype, False))


def _cast(a: Any, dtype: DType | None, copy: bool) -> Any:
    """A row-major array of `dtype`."""
    want = dt.of_numpy(a.dtype) if dtype is None else dtype
    if a.dtype != want.np:
        with np.errstate(all="ignore"):
            return np.array(execute.cast(a, want), order="C", copy=None)
    return np.array(a, order="C", copy=True if copy else None)


def infer(made: Any, leaf: Any) -> DType:
    """The dtype of Python numbers; numpy's keep theirs."""
    if isinstance(leaf, (np.generic, np.ndarray)):
        return dt.of_numpy(made.dtype)
    if made.size == 0 or made.dtype.kind == "f":
        return dt.Default.dtype
    return dt.of_category({"b": dt.BOOL, "i": dt.INT, "c": dt.COMPLEX}[made.dtype.kind])


def _check_range(made: Any, dtype: DType) -> None:
    """Numbers beyond an integer dtype are refused; an unsigned one wraps negative numbers."""
    if made.dtype.kind not in "iuf" or not made.size:
        return
    info = np.iinfo(dtype.np)
    low = info.min if dtype.signed else -int(info.max)
    if not ((made >= low) & (made <= info.max)).all():
        raise RuntimeError(f"value cannot be converted to type {dtype.name} without overflow")


def first_leaf(data: Any) -> Any:
    """The first element that is no sequence; None of an empty one."""
    while isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        if len(data) == 0:
            return None
        data = data[0]
    return data


def check_even(data: Any) -> None:
    """Raises for a ragged nested sequence, naming the place as PyTorch does."""
    want: list[int] = []
    probe = data
    while isinstance(probe, Sequence) and not isinstance(probe, (str, bytes)):
        want.append(len(probe))
        probe = probe[0] if len(probe) else None

    def walk(part: Any, depth: int) -> None:
        is_sequence = isinstance(part, Sequence)
        if depth == len(want):
            if is_sequence:
                raise TypeError(f"'{type(part).__name__}' object cannot be interpreted as an "
                                "integer")
            return
        if not is_sequence:
            raise TypeError("not a sequence")
        if len(part) != want[depth]:
            raise ValueError(f"expected sequence of length {want[depth]} at dim {depth} (got "
                             f"{len(part)})")
        for item in part:
            walk(item, depth + 1)
    walk(data, 0)


def refuse(data: Any, leaf: Any, made: Any) -> None:
    """Raises for data that are no numbers."""
    if isinstance(leaf, (str, bytes)):
        if made.ndim == 0:
            raise TypeError(f"new(): invalid data type '{type(leaf).__name__}'")
        raise ValueError(f"too many dimensions '{type(leaf).__name__}'")
    if isinstance(leaf, int):
        check_even(data)
        raise ValueError(OVERFLOW)
    raise RuntimeError(f"Could not infer dtype of {type(leaf).__name__}")


def joined(data: Any, dtype: DType | None) -> Tensor:
    """Nested sequences of 0-d tensors and (symbolic) numbers, as stacks of them."""
    F = Tensor.F
    if isinstance(data, Tensor):
        if data.numel() != 1:
            raise ValueError("only one element tensors can be converted to Python scalars")
        made = F.detach(F.reshape(data, ()) if data._shape else data)
    elif isinstance(data, (list, tuple)):
        wide = dtype if dtype is not None and dtype.category >= dt.FLOAT else None
        parts = [joined(x, wide) for x in data]
        made = F.stack(parts) if parts else F.zeros((0,))
    elif isinstance(data, np.ndarray):
        made = from_data(data, None)
    else:
        wide = dtype if dtype is not None and dtype.category >= dt.FLOAT else None
        made = F.scalar_tensor(data, dtype=wide or dt.of_category(dt.category_of(data)))
    return made if dtype is None or dtype is made.dtype else F.to_dtype(made, dtype)


def asarray(obj: Any, *, dtype: DType | None = None, device: Any = None, copy: bool | None = None,
            requires_grad: bool = False) -> Tensor:
    """`obj` as a tensor; copy: True always copies, False never, None where needed."""
    if isinstance(obj, Tensor):
        source = obj
    elif isinstance(obj, np.ndarray):
        source = from_numpy(obj)
    elif hasattr(obj, "__dlpack__"):
        source = from_dlpack(obj)
    elif isinstance(obj, (bytes, bytearray, memoryview)):
        source = frombuffer(obj, dtype=dt.Default.dtype if dtype is None else dtype)
    else:
        if copy is False:
            raise ValueError("can't alias arbitrary sequence")
        made = placed(from_data(obj, dtype), device)
        return made.requires_grad_() if requires_grad else made
    made = convert.to(source, device, dtype)
    if made is not source:
        if copy is False:
            raise ValueError(f"can't alias tensor with dtype '{source.dtype}' into dtype '{dtype}' "
                             "or onto another device")
    elif copy:
        made = Tensor.F.clone(made)
    if requires_grad and not made.requires_grad:
        made = made.detach().requires_grad_()
    elif not requires_grad and made.requires_grad:
        made = made.detach()
    return made


def frombuffer(buffer: Any, *, dtype: DType, count: int = -1, offset: int = 0,
               requires_grad: bool = False) -> Tensor:
    """A 1-d tensor on the memory of an object with the buffer protocol."""
    size = memoryview(buffer).nbytes
    if size == 0:
        raise ValueError("both buffer length (0) and count (-1) must not be 0")
    if not 0 <= offset < size:
        raise ValueError(f"offset ({offset} bytes) must be non-negative and no greater than buffer "
                         f"length ({size} bytes) minus 1")
    if count == -1 and (size - offset) % dtype.itemsize:
        raise ValueError(f"buffer length ({size - offset} bytes) after offset ({offset} bytes) "
                         f"must be a multiple of element size ({dtype.itemsize})")
    if count != -1 and (count <= 0 or offset + count * dtype.itemsize > size):
        raise ValueError(f"requested buffer length ({count} * {dtype.itemsize} bytes) after offset "
                         f"({offset} bytes) must not be greater than actual buffer length ({size} "
                         "bytes)")
    return _finished(lent(np.frombuffer(buffer, dtype.np, count, offset)), requires_grad)


def from_file(filename: str, shared: bool | None = None, size: int | None = 0, *,
              dtype: DType | None = None, layout: Any = None, device: Any = None,
              pin_memory: bool = False, requires_grad: bool = False) -> Tensor:
    """A 1-d tensor of `size` elements on a mapped file. `shared`: writes go into the file, which
    is made as large as need be."""
    kind, count = dtype or dt.Default.dtype, size or 0
    if shared:
        with open(filename, "a+b") as file:
            file.truncate(max(file.tell(), count * kind.itemsize))
    if not count:
        return placed(Tensor.F.zeros((0,), dtype=kind), device)
    made = np.memmap(filename, kind.np, "r+" if shared else "c", 0, (count,))
    return _finished(placed(lent(np.asarray(made)), device), requires_grad)


def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor on the memory of any object with the DLPack protocol."""
    if isinstance(ext_tensor, Tensor):
        made = ext_tensor.detach()
    else:
        made = lent(np.from_dlpack(ext_tensor))
    return convert.to(made, device, None, bool(copy))


def to_dlpack(tensor: Tensor) -> Any:
    """The tensor as a DLPack capsule."""
    return tensor.__dlpack__()


def new_tensor(self: Tensor, data: Any, *, dtype: DType | None = None, device: Any = None,
               requires_grad: bool = False, layout: Any = None, pin_memory: bool = False) -> Tensor:
    """A copy of `data` with this tensor's dtype and device unless others are named."""
    want = self.dtype if dtype is None else dtype
    where = self.device if device is None else device
    made = (data.detach().clone() if isinstance(data, Tensor) else from_data(data, want))
    return _finished(convert.to(made, where, want), requires_grad)


def new(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """The old constructor: sizes, or data, in this tensor's dtype."""
    return construct(self.dtype, args, kwargs.get("device", self.device))


def construct(dtype: DType, args: tuple[Any, ...], device: Any = None) -> Tensor:
    """`torch.Tensor(2, 3)`, `torch.Tensor([1, 2])`, `torch.Tensor(other)`, `torch.Tensor()`."""
    F = Tensor.F
    if not args:
        return F.empty((0,), dtype=dtype, device=device)
    first = args[0]
    if len(args) == 1:
        if isinstance(first, Tensor):
            if first.dtype is not dtype:
                raise TypeError(f"expected {dtype} (got {first.dtype})")
            return F.alias(first)
        if isinstance(first, Storage) or hasattr(first, "_storage"):
            return F.empty((0,), dtype=dtype).set_(first)
        if isinstance(first, tuple) and type(first) is not tuple:  # a Size
            return F.empty(tuple(first), dtype=dtype, device=device)
        if isinstance(first, (Sequence, np.ndarray)) and not isinstance(first, str):
            return placed(from_data(first, dtype), device)
    if all(hasattr(a, "__index__") or hasattr(a, "scalar_category") for a in args):
        return F.empty(tuple(args), dtype=dtype, device=device)
    if len(args) == 1 and isinstance(first, float):
        raise TypeError("new(): data must be a sequence (got float)")
    raise TypeError("new() received an invalid combination of arguments - got ("
                    + ", ".join(type(a).__name__ for a in args) + ")")


def empty_strided(size: Sequence[int], stride: Sequence[int], *, dtype: DType | None = None,
                  layout: Any = None, device: Any = None, requires_grad: bool = False,
                  pin_memory: bool = False) -> Tensor:
    """A tensor of these strides (in elements), to be written to; zeros here."""
    F = Tensor.F
    size, stride = tuple(size), tuple(stride)
    if len(size) != len(stride):
        raise RuntimeError(f"mismatch in length of strides and shape: {len(stride)}, {len(size)}")
    if any(n < 0 for n in stride):
        raise RuntimeError(f"as_strided: Negative strides are not supported at the moment, got "
                           f"strides: {list(stride)}")
    extent: Any = 1
    for n, s in zip(size, stride, strict=True):
        extent = extent + (n - 1) * s
    if any(isinstance(n, int) and n == 0 for n in size):
        extent = 0
    if device is None:
        device = STATE.device
    flat = F.zeros((extent,), dtype=dtype, device=device)
    made = Tensor._make(flat._storage, flat.dtype, size, stride)
    if flat._storage.trace is not None:
        made = F.as_strided(flat, size, stride, 0)
    return _finished(marked(made), requires_grad)


def range(start: Any = 0, end: Any = None, step: Any = 1, *, dtype: DType | None = None,
          out: Any = None, layout: Any = None, device: Any = None,
          requires_grad: bool = False) -> Tensor:
    """start, start + step, ... up to and including `end` (deprecated: use arange)."""
    if end is None:
        start, end = 0, start
    count = int((end - start) / step) + 1
    kind = dt.Default.dtype if dtype is None else dtype
    made = Tensor.F.arange_start(0, count, 1, dtype=dt.float64, device=device) * step + start
    return _finished(convert.to(made, None, kind), requires_grad)


for _name in ("tensor as_tensor from_numpy asarray frombuffer empty_strided").split():
    globals()[_name] = override.public(globals()[_name])


__all__ = ["as_tensor", "asarray", "from_dlpack", "from_numpy", "frombuffer", "layout", "tensor"]
