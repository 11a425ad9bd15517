"""Storages of results of compiled programs: memory that goes back when nobody sees it.

Small results lie in a block of their own that dies with them; larger ones on memory leased from
the pool. The numpy array of such a storage is made when it is first asked for; it keeps the memory,
and so does every view of it, so memory never goes back while anything can read it.
"""

from __future__ import annotations

import ctypes
import os
import threading
from typing import Any

import numpy as np

from lehr.base.device import CPU
from lehr.base.dtype import DType
from lehr.compiler.run import memory
from lehr.tensor.storage import Storage
from lehr.tensor.tensor import Tensor

SMALL = 4096            # bytes up to which a block costs less than a lease
_ALIGNMENT = 16         # of a block
_lock = threading.RLock()  # a finalizer that runs meanwhile may ask for another array
_new = object.__new__


class Lease:
    """Memory of the pool, released when this object dies. `nbytes`: how much of it is in use."""

    __slots__ = ("buffer", "nbytes")

    def __init__(self, buffer: memory.Buffer, nbytes: int) -> None:
        self.buffer, self.nbytes = buffer, nbytes

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {"data": (self.buffer.address, False), "shape": (self.nbytes,), "typestr": "|u1",
                "version": 3}

    def __del__(self) -> None:
        memory.host.release(self.buffer)


class Result(Storage):
    """The memory of one result of a compiled call. `nbytes`: how much of it is in use."""

    __slots__ = ("_made", "held", "size")

    _made: Any
    held: Any       # the block, or the pool's buffer
    size: int

    @property
    def owner(self) -> Any:  # type: ignore[override]
        made = self._made
        if made is None:
            with _lock:
                made = self._made
                if made is None:
                    made = self._made = self._array()
        return made

    @owner.setter
    def owner(self, new: Any) -> None:
        """Other memory: an array takes over what was held, and dies."""
        assert self.owner is not None
        self._made = new

    def _array(self) -> Any:
        raise NotImplementedError


class BlockStorage(Result):
    """On a ctypes array of its own."""

    __slots__ = ()

    def _array(self) -> Any:
        return np.frombuffer(self.held, np.uint8, self.size)


class LeasedStorage(Result):
    """On memory of the pool, as a `Lease`, without an object for it until there is an array."""

    __slots__ = ()

    def _array(self) -> Any:
        return np.asarray(Lease(self.held, self.size))

    def __del__(self) -> None:
        if self._made is None:
            memory.host.release(self.held)


class Layout:
    """How one result of a program is made.

    dtype, shape, strides  of the tensor
    nbytes                 from its first to its last element
    """

    __slots__ = ("_block", "dtype", "nbytes", "shape", "strides")

    def __init__(self, dtype: DType, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
        self.dtype, self.shape, self.strides = dtype, shape, strides
        span = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        self.nbytes = 0 if 0 in shape else span * dtype.itemsize
        # A block of whole vectors: code may be told that results are long enough for them.
        self._block = None if self.nbytes > SMALL else ctypes.c_char * max(self.nbytes, _ALIGNMENT)

    def make(self) -> Tensor:
        """A tensor on memory with any content."""
        block = self._block
        if block is None:
            buffer = memory.host.lease(self.nbytes)
            s: Result = _new(LeasedStorage)
            s.held, s._ptr = buffer, buffer.address
        else:
            s = _new(BlockStorage)
            held = s.held = block()
            s._ptr = ctypes.addressof(held)
        s.size, s._made = self.nbytes, None
        s.device, s.trace = CPU, None
        s.version = s.writes = 0
        s.inference = False
        s._flat = s._origin = None
        t: Tensor = _new(Tensor)
        t._storage, t.dtype, t._offset = s, self.dtype, 0
        t._shape, t._strides = self.shape, self.strides
        t._np = t._key = t._meta = t._view = None
        return t


def _after_fork() -> None:
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)
