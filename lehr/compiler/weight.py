"""Weights of inference, packed once for the products that read them.

A product on tiles packs its operands at every call. A weight is the same each time: what the first
call after a change has packed is dropped as ever, the second one keeps it. How often the memory was
written (`Storage.writes`) tells whether it is still true; memory that somebody else may write to is
never kept. A packed weight is freed with the last bound call that uses it, and when the weight is
written.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from lehr.compiler.counters import COUNTERS
from lehr.compiler.run import memory, template
from lehr.ops import registry
from lehr.tensor.storage import Storage
from lehr.tensor.tensor import Tensor

_T = TypeVar("_T")
_Int = ctypes.c_int64
MANY = 384      # rows, where their number is not known: as many as it is worth while for
_known: weakref.WeakValueDictionary[tuple[Any, ...], Packed] = weakref.WeakValueDictionary()


class Packed:
    """A weight as its template packs it. `writes`: of `origin`, when it was read."""

    def __init__(self, origin: Storage, writes: float, buffer: memory.Buffer) -> None:
        self.origin, self.writes, self.buffer = origin, writes, buffer

    def __del__(self, release: Any = memory.host.release) -> None:  # modules may be gone by then
        release(self.buffer)


class Packs(list[_T], Generic[_T]):
    """Frames of calls for which certain weights are packed; none is used for others.

    slots    (number, address) of the packed weights, which `held` keeps
    seen     (origin, its writes) of all weights that may be packed
    pending  whether the next call may pack more
    """

    __slots__ = ("held", "pending", "seen", "slots")

    def __init__(self) -> None:
        super().__init__()
        self.slots: list[tuple[int, int]] = []
        self.held: list[Packed] = []
        self.seen: list[tuple[Storage, float]] = []
        self.pending = False


class Weight:
    """A weight of a bound call, see `lehr.compiler.emit.weight`; `packed`: as it was at `writes`,
    None where it is not packed, or cannot be."""

    def __init__(self, entry: Mapping[str, Any], tensor: Tensor) -> None:
        self.entry, storage = entry, tensor._storage
        self.storage, self.origin = storage, storage.origin
        self.address = storage.ptr + tensor._offset * tensor.dtype.itemsize + entry["offset"]
        self.key = (self.address, *(entry[n] for n in "template wide tb ld n k".split()))
        now = self.origin.writes
        self.packed = self.other(now)
        self.writes = None if self.packed is None else now

    def look(self) -> bool:
        """Takes note of writes, or packs the weight where there were none since the last call;
        whether it may be packed at the next call."""
        writes = self.origin.writes     # before the numbers are read: later writes are noticed
        before, self.writes = self.writes, writes
        if before != writes:
            self.packed = None
        self.packed = self.packed or self.other(writes)
        if self.packed is None and before == writes:
            self.packed = self.pack(writes)
        return self.packed is None and before != writes

    def other(self, writes: float) -> Packed | None:
        """What another bound call has packed."""
        found = _known.get(self.key)
        fits = found is not None and found.origin is self.origin and found.writes == writes
        return found if fits else None

    def pack(self, writes: float) -> Packed | None:
        e = self.entry
        library = template.need(e["template"])
        if library is None:
            return None
        size = library.function("lehr_packed", _Int, _Int, _Int)(e["n"], e["k"])
        worth = library.function("lehr_worth", *[_Int] * 4)
        if not size or not worth(e["rows"] or MANY, e["n"], e["k"]):
            return None
        made = Packed(self.origin, writes, memory.host.lease(size))
        pack = library.function("lehr_pack", _Int, ctypes.c_void_p, *[_Int] * 5, ctypes.c_void_p)
        if not pack(self.address, e["ld"], e["wide"], e["tb"], e["n"], e["k"], made.buffer.address):
            return None
        COUNTERS.add("weights_packed")
        _known[self.key] = made
        return made


class Weights:
    """The weights of a bound call."""

    def __init__(self, weights: list[Weight]) -> None:
        self.weights = weights
        self.lock = threading.Lock()
        self.packs: Packs[Any] = Packs()
        self.packs.pending = True

    @classmethod
    def of(cls, record: Mapping[str, Any], bound: Mapping[int, Tensor]) -> Weights | None:
        """Those that a record names, of tensors that stay; None where none of them may be kept:
        the user's own ops may write to anything in the middle of a call."""
        ops = [registry.get(s["host"]) for s in record["steps"] if "host" in s]
        if not all(op.module.startswith("lehr.ops.") for op in ops):
            return None
        found = [Weight(e, bound[e["param"]]) for e in record.get("weights", ())
                 if e["param"] in bound and bound[e["param"]]._storage.private]
        return cls(found) if found else None

    def now(self) -> Packs[Any]:
        """Frames for a call that begins now."""
        packs = self.packs
        if packs.pending:
            return self.renew()
        for origin, writes in packs.seen:
            if origin.writes != writes:
                return self.renew()
        if packs.slots:
            COUNTERS.tick("packed_calls")
        return packs

    def renew(self) -> Packs[Any]:
        """New frames, after a look at every weight."""
        if not self.lock.acquire(blocking=False):       # another thread packs
            return Packs()
        try:
            made: Packs[Any] = Packs()
            # What was exposed meanwhile has no count any more.
            self.weights = [w for w in self.weights if w.origin.writes == w.origin.writes]
            looks = [w.look() for w in self.weights]
            made.pending = any(looks)
            for w in self.weights:
                assert w.writes is not None
                made.seen.append((w.origin, w.writes))
                if w.packed is not None:
                    made.held.append(w.packed)
                    made.slots.append((w.entry["slot"], w.packed.buffer.address))
            self.packs = made
            return made
        finally:
            self.lock.release()
