"""Storages on leased memory: results of compiled programs, given back to the pool when nobody sees them.

The numpy array of such a storage is made when it is first asked for; it keeps the lease alive, and so does
every view of it, so memory never goes back while anything can read it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lehr.base.device import CPU
from lehr.compiler.run import memory
from lehr.tensor.storage import Storage


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


class LeasedStorage(Storage):
    """The memory of one result of a compiled call."""

    __slots__ = ("_made", "lease")

    def __init__(self, lease: Lease) -> None:
        self.lease, self._made = lease, None
        self.device, self.trace = CPU, None
        self.version = 0
        self.inference = False
        self._flat = self._origin = None
        self._ptr = lease.buffer.address

    @property
    def owner(self) -> Any:  # type: ignore[override]
        made = self._made
        if made is None:
            made = self._made = np.asarray(self.lease)
        return made
