"""What tensors stand on: `data`, storages, resizing, sharing between processes."""

from __future__ import annotations

import gc
import mmap
from typing import Any

import numpy as np

from lehr.base import dtype as dt
from lehr.base.dtype import DType
from lehr.ops import layout, registry
from lehr.tensor import api, dispatch
from lehr.tensor.history import mould
from lehr.tensor.state import STATE
from lehr.tensor.storage import Storage
from lehr.tensor.tensor import Tensor

F = Tensor.F


def _get_data(self: Tensor) -> Tensor:
    """The same memory without history, whose writes autograd does not notice."""
    if STATE.tracer is not None:
        self = STATE.tracer.lift(None, (self,))[0]
    made = Tensor._make(self._storage.twin(), self.dtype, self._shape, self._strides, self._offset)
    made._key = self._key
    if self._view is not None:
        made._view = self._view.detached()
    return made


def _set_data(self: Tensor, new: Tensor) -> None:
    if not isinstance(new, Tensor):
        raise TypeError("Variable data has to be a tensor, but got " + type(new).__name__)
    if self.requires_grad and not (new.dtype.is_floating_point or new.dtype.is_complex):
        raise RuntimeError("data set to a tensor that requires gradients must be floating point or "
                           "complex dtype")
    if same(self, new):
        return      # the end of `x.data += 1`
    if STATE.tracer is not None:
        STATE.tracer.set_data(self, new)
        return
    move(self, new)


def same(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are the same elements of one memory."""
    return a._storage.origin is b._storage.origin and (
        (a._offset, a._shape, a._strides, a.dtype) == (b._offset, b._shape, b._strides, b.dtype))


def move(self: Tensor, new: Tensor) -> None:
    """`self` becomes a tensor on the memory of `new`, with its own history and version."""
    meta = self._meta
    if meta is not None and (new.dtype is not self.dtype or new._shape != self._shape):
        meta.accumulate = None
    storage = new._storage.twin()
    storage.version = self._storage.version
    shape, dtype = self._shape, self.dtype
    self._storage, self.dtype = storage, new.dtype
    self._shape, self._strides, self._offset = new._shape, new._strides, new._offset
    mould(self, shape, dtype)
    self._np, self._key = None, new._key
    self._view = None if new._view is None else new._view.detached()


# On the class from the start: an assignment does not look for methods that could be made.
Tensor.data = property(_get_data, _set_data, doc=_get_data.__doc__)


def refresh(storage: Storage) -> None:
    """After a storage got other memory: its tensors look at it anew."""
    for t in gc.get_referrers(storage):
        if isinstance(t, Tensor):
            t._np = None


def replace(storage: Storage, owner: Any) -> None:
    """Gives a storage other memory (1-d uint8)."""
    storage.owner, storage._flat, storage._ptr = owner, None, 0
    storage.origin.writes += 1
    refresh(storage)


def grow(storage: Storage, nbytes: int) -> None:
    """Memory of another size with the same beginning."""
    if storage._origin is not None:
        raise RuntimeError("cannot resize the memory of `x.data`; resize the tensor itself")
    old = storage.flat
    new = np.zeros(nbytes, np.uint8)
    keep = min(old.size, nbytes)
    new[:keep] = old[:keep]
    replace(storage, new)


def resize_(self: Tensor, *sizes: Any, memory_format: Any = None) -> Tensor:
    """Another shape; memory that is missing is added (zeros, so that no run depends on chance)."""
    if self.requires_grad:
        raise RuntimeError("cannot resize variables that require grad")
    shape = tuple(api.listed(sizes))
    if any(n < 0 for n in shape):
        raise RuntimeError("requested resize to a negative size: " + str(list(shape)))
    if shape == self._shape and memory_format is None:
        return self     # as it lies
    strides = layout.contiguous(shape)
    if memory_format is not None and "channels_last" in str(memory_format):
        strides = layout.channels_last(shape)
    return _resized(self, shape, strides)


def resize_as_(self: Tensor, the_template: Tensor, memory_format: Any = None) -> Tensor:
    """The shape of another tensor."""
    return resize_(self, the_template._shape, memory_format=memory_format)


def _extent(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    if 0 in shape:
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))


def _resized(self: Tensor, shape: tuple[int, ...], strides: tuple[int, ...]) -> Tensor:
    if STATE.tracer is not None:
        STATE.tracer.changes(self, "resize_()", True)
    need = (self._offset + _extent(shape, strides)) * self.dtype.itemsize
    storage = self._storage
    if storage.owner is not None and need > storage.nbytes:
        grow(storage, need)
    self._shape, self._strides = shape, strides
    self._np = self._key = None
    self._view = None
    return self


def set_(self: Tensor, source: Any = None, storage_offset: int = 0, size: Any = None,
         stride: Any = None) -> Tensor:
    """Makes this tensor look at another storage, or at that of another tensor."""
    if self.requires_grad and STATE.grad and not self.is_leaf:
        raise RuntimeError("set_() of a tensor that is not a leaf")
    if source is None:
        new = F.empty((0,), dtype=self.dtype)
    elif isinstance(source, Tensor) and size is None:
        new = source
    else:
        storage = source._storage if not isinstance(source, Storage) else source
        count = storage.nbytes // self.dtype.itemsize
        shape = tuple(size) if size is not None else (count,)
        strides = tuple(stride) if stride is not None else layout.contiguous(shape)
        if (storage_offset + _extent(shape, strides)) > count:
            raise RuntimeError(f"setStorage: sizes {list(shape)}, strides {list(strides)}, storage "
                               f"offset {storage_offset} are out of bounds for storage of size "
                               f"{storage.nbytes}")
        new = Tensor._make(storage, self.dtype, shape, strides, storage_offset)
    if new.dtype is not self.dtype:
        raise RuntimeError(f"Could not set tensor of type {new.dtype} to a tensor of type "
                           f"{self.dtype}")
    if STATE.tracer is not None:
        STATE.tracer.changes(self, "set_()", True)
    move(self, new)
    self._storage = new._storage
    new._storage.written()
    return self


def as_strided(input: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
    """A view of any shape and strides (in elements) on the storage.

    It is taken of the base, which the op reads in row-major order: gradients and later writes then
    find the elements that the memory has.
    """
    size, stride = tuple(size), tuple(stride)
    offset = input._offset if storage_offset is None else storage_offset
    _within(input, size, stride, offset)
    view = input._view
    base = input if view is None or view.base is None else view.base
    if input.requires_grad and (not base.requires_grad or input.grad_fn is None):
        base = input  # a leaf of its own, or older than the flag of what it shows
    if STATE.tracer is not None and input.requires_grad and STATE.tracer.is_view(base):
        STATE.tracer.changes(input, "as_strided() of a view that was made outside,", True)
    if layout.is_dense(base._shape, base._strides) and base.dtype is input.dtype \
            and base._offset in (0, offset):
        if not layout.is_contiguous(base._shape, base._strides):
            base = F.permute(base, sorted(range(len(base._shape)), key=lambda d: (
                base._strides[d], base._shape[d]), reverse=True))
        # Without an offset both the memory and the row-major elements count from the base's first.
        return F.as_strided(base, size, stride, offset if base._offset == 0 else None)
    if STATE.grad and input.requires_grad:
        if STATE.tracer is not None:    # where sizes are symbols, the order is not known
            STATE.tracer.changes(input, "as_strided() of memory in an unknown order,", True)
        raise NotImplementedError("as_strided with gradients of a tensor that does not cover its "
                                  "memory from the start; clone() it first")
    return F.as_strided(input, size, stride, offset)


def _within(t: Tensor, size: Any, stride: Any, offset: int) -> None:
    """RuntimeError where a strided view would reach beyond the storage."""
    if 0 in size or len(size) != len(stride):
        return
    last = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    trace = t._storage.trace
    count = (t._storage.nbytes // t.dtype.itemsize if trace is None
             else trace.tracer.memory(t, last))
    if last >= count:
        raise RuntimeError(
            f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {offset} "
            f"require {last + 1} elements and are out of bounds for storage of {count}")


def as_strided_(self: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
    """Another shape and strides on the same storage, in place."""
    _within(self, size, stride, self._offset if storage_offset is None else storage_offset)
    return dispatch.relayout(registry.get("as_strided"),
                             (self, tuple(size), tuple(stride), storage_offset))


# -- sharing ---------------------------------------------------------------------------------------


def share_memory_(self: Tensor) -> Tensor:
    """Moves the memory to where forked processes see each other's writes."""
    storage = self._storage
    if not is_shared(self) and storage.nbytes:
        shared = np.frombuffer(mmap.mmap(-1, storage.nbytes), np.uint8)
        shared[:] = storage.flat
        replace(storage, shared)
    return self


def is_shared(self: Tensor) -> bool:
    """Whether forked processes share the memory."""
    owner = self._storage.owner
    while isinstance(owner, np.ndarray):
        owner = owner.base
    return isinstance(getattr(owner, "obj", owner), mmap.mmap)


def pin_memory(self: Tensor, device: Any = None) -> Tensor:
    """The tensor itself: only copies to a GPU are faster from pinned memory, and there is none."""
    return self


def is_pinned(self: Tensor, device: Any = None) -> bool:
    return False


# -- storage objects -------------------------------------------------------------------------------


class UntypedStorage:
    """The bytes that a tensor and its views stand on."""

    def __init__(self, source: Any = 0) -> None:
        self._storage = (source if isinstance(source, Storage)
                         else Storage(np.zeros(int(source), np.uint8)))

    def nbytes(self) -> int:
        return self._storage.nbytes

    size = __len__ = nbytes

    def data_ptr(self) -> int:
        self._storage.expose()
        return self._storage.ptr

    @property
    def device(self) -> Any:
        return self._storage.device

    def element_size(self) -> int:
        return 1

    def resize_(self, nbytes: int) -> UntypedStorage:
        """Memory of `nbytes` with the same beginning; 0 frees it."""
        grow(self._storage, nbytes)
        return self

    def clone(self) -> UntypedStorage:
        return UntypedStorage(self._storage.copy())

    def copy_(self, source: UntypedStorage, non_blocking: bool = False) -> UntypedStorage:
        self._storage.flat[:] = source._storage.flat
        self._storage.written()
        return self

    def fill_(self, value: int) -> UntypedStorage:
        self._storage.flat[:] = value
        self._storage.written()
        return self

    def cpu(self) -> UntypedStorage:
        return self

    def tolist(self) -> list[int]:
        return self._storage.flat.tolist()

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            made = Storage(self._storage.flat[i])
            made.expose()       # each has counts of its own
            self._storage.expose()
            return UntypedStorage(made)
        return int(self._storage.flat[i])

    def __setitem__(self, i: Any, value: Any) -> None:
        self._storage.flat[i] = value
        self._storage.written()

    def __iter__(self) -> Any:
        return iter(self.tolist())

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, UntypedStorage) and other._storage.origin is self._storage.origin

    def __hash__(self) -> int:
        return id(self._storage.origin)

    @property
    def _cdata(self) -> int:
        return id(self._storage.origin)

    @property
    def is_cuda(self) -> bool:
        return self.device.type == "cuda"

    def is_shared(self) -> bool:
        return is_shared(Tensor._make(self._storage, dt.uint8, (0,), (1,)))

    def share_memory_(self) -> UntypedStorage:
        share_memory_(Tensor._make(self._storage, dt.uint8, (self.nbytes(),), (1,)))
        return self

    def __repr__(self) -> str:
        return f"<torch.storage.UntypedStorage of {self.nbytes()} bytes>"


class TypedStorage(UntypedStorage):
    """A storage that counts in elements of one dtype (deprecated by PyTorch)."""

    def __init__(self, source: Any = 0, dtype: DType = dt.float32) -> None:
        super().__init__(source if isinstance(source, Storage) else int(source) * dtype.itemsize)
        self.dtype = dtype

    def size(self) -> int:
        return self._storage.nbytes // self.dtype.itemsize

    __len__ = size

    def element_size(self) -> int:
        return self.dtype.itemsize

    @property
    def _flat(self) -> Any:
        return self._storage.flat.view(self.dtype.np)

    def tolist(self) -> list[Any]:
        return self._flat.tolist()

    def __getitem__(self, i: Any) -> Any:
        return self._flat[i].item()

    def __setitem__(self, i: Any, value: Any) -> None:
        self._flat[i] = value
        self._storage.written()

    def untyped(self) -> UntypedStorage:
        return UntypedStorage(self._storage)

    _untyped_storage = property(untyped)


def untyped_storage(self: Tensor) -> UntypedStorage:
    """The storage, in bytes."""
    return UntypedStorage(real(self, "untyped_storage"))


def storage(self: Tensor) -> TypedStorage:
    """The storage, in elements."""
    return TypedStorage(real(self, "storage"), self.dtype)


def real(t: Tensor, what: str) -> Storage:
    """The memory of a tensor, which none has that is being captured: a graph break."""
    trace = t._storage.trace
    return t._storage if trace is None else trace.tracer.concretize(what, t)._storage


def is_storage(obj: Any) -> bool:
    """Whether `obj` is a storage."""
    return isinstance(obj, UntypedStorage)


def is_set_to(self: Tensor, tensor: Tensor) -> bool:
    """Whether both look at the same elements of the same storage."""
    return (self._storage.origin is tensor._storage.origin and self._shape == tensor._shape
            and self._strides == tensor._strides and self._offset == tensor._offset)


def storage_type(self: Tensor) -> type:
    return TypedStorage
