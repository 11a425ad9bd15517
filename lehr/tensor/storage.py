"""Storages: memory that tensors view, with one version counter."""

from __future__ import annotations

from typing import Any

import numpy as np

from lehr.base.device import CPU, Device

NEVER = float("nan")    # is not equal to any count, nor to itself


class Storage:
    """Memory shared by a tensor and its views.

    owner      the numpy array that keeps the memory alive; None for captured and meta storages
    version    counts in-place writes; autograd compares it with the count at saving time
    writes     of an origin: counts writes to its memory, through whichever storage; NEVER once
               somebody may write without telling
    origin     the storage whose memory this one shares under a version of its own (`x.data`)
    inference  made in inference mode: never recorded, written only there
    trace      what a capture knows of it (None: real memory)
    """

    __slots__ = ("__weakref__", "_flat", "_origin", "_ptr", "device", "inference", "owner", "trace",
                 "version", "writes")

    def __init__(self, owner: Any, device: Device = CPU, trace: Any = None) -> None:
        self.owner, self.device, self.trace = owner, device, trace
        self.version = 0
        self.writes: float = 0
        self.inference = False
        self._origin: Storage | None = None
        self._flat: Any = None
        self._ptr = 0

    @property
    def origin(self) -> Storage:
        return self if self._origin is None else self._origin

    def twin(self) -> Storage:
        """Another storage on the same memory, with its own version."""
        made = Storage(self.owner, self.device, self.trace)
        made._flat, made._ptr, made._origin = self._flat, self._ptr, self.origin
        return made

    def written(self, times: int = 1) -> None:
        """Counts writes, after they are done: what was made of the memory before is old. No times:
        it was written through storages of other versions."""
        self.version += times
        (self._origin or self).writes += times or 1

    def unsure(self) -> None:
        """A write was interrupted: something may be written."""
        self.origin.writes += 1

    def expose(self) -> None:
        """From here on somebody else may write to the memory without telling."""
        self.origin.writes = NEVER

    @property
    def private(self) -> bool:
        """Whether all writes to the memory are counted: nothing but storages stands on it."""
        owner = self.owner
        while type(owner) is np.ndarray and owner.base is not None:
            owner = owner.base
        return type(owner) is np.ndarray and self.origin.writes == self.origin.writes

    def copy(self) -> Storage:
        """A storage with a copy of the memory."""
        return Storage(None if self.owner is None else self.flat.copy(), self.device)

    def __reduce__(self) -> tuple[Any, ...]:
        self.expose()       # a pickler may hand over the memory itself
        return _loaded, (None if self.owner is None else self.flat, self.device)

    @property
    def flat(self) -> Any:
        """The memory as a 1-d uint8 array."""
        if self._flat is None:
            owner = self.owner
            if owner is None:
                raise RuntimeError("this tensor has no memory: it is on the meta device or belongs "
                                   "to a capture that is over")
            dense = owner if owner.flags.c_contiguous else owner.transpose(
                sorted(range(owner.ndim), key=lambda d: -owner.strides[d]))
            self._flat = dense.reshape(-1).view(np.uint8)
        return self._flat

    @property
    def ptr(self) -> int:
        """The address of element 0, 0 where there is none."""
        if self._ptr == 0 and self.owner is not None:
            self._ptr = self.owner.__array_interface__["data"][0]
        return self._ptr

    @property
    def nbytes(self) -> int:
        return int(self.flat.size)

    def array(self, shape: tuple[int, ...], dtype: Any, strides: tuple[int, ...],
              offset: int) -> Any:
        """A numpy view. `strides` and `offset` count elements of `dtype` (a numpy dtype)."""
        size = dtype.itemsize
        if 0 in shape:
            return np.empty(shape, dtype)
        flat = self.flat
        return np.ndarray(shape, dtype, flat, offset * size, tuple([s * size for s in strides]))


def _loaded(flat: Any, device: Device) -> Storage:
    """A storage from a pickle, whose memory may be somebody's buffer."""
    made = Storage(flat, device)
    if flat is not None and not flat.flags.owndata:
        made.expose()
    return made
