"""Host memory that is used again: leases of aligned buffers, and arenas leased per call.

Fresh pages are slow (the kernel clears each one at its first touch), so released buffers are kept
for the next lease of about their size. What is kept follows the use: never more than the most
that was in use lately and a quarter, or 64 MiB; the buffers unused for longest go back to the
system.

A buffer that somebody still sees through a numpy view or a memoryview when it is released is
never leased again: its memory lives as long as the view.
"""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from sys import getrefcount
from typing import Any

import numpy as np

from lehr.base import log

ALIGNMENT = 64  # bytes: a cache line, and the widest vector
_MAPPED = 1 << 20  # from this size on, memory comes from the system and returns to it at once
# A process's own: shared pages would be a forked child's, too, and never huge.
_OWN: dict[str, int] = {} if os.name == "nt" else {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS}
_FLOOR = 64 << 20  # bytes that may always be kept
_WINDOW = 256  # leases after which the most in use is measured anew

_tell = log.channel("memory")


class Buffer:
    """`size` bytes at `address`, as `array` (uint8). `asked`: what the lease asked for."""

    __slots__ = ("_generation", "_owner", "_refs", "_used", "address", "array", "asked", "size")

    def __init__(self, size: int, generation: int) -> None:
        if size >= _MAPPED:
            pages = mmap.mmap(-1, size, **_OWN)
            if hasattr(mmap, "MADV_HUGEPAGE"):
                try:
                    pages.madvise(mmap.MADV_HUGEPAGE)
                except OSError as error:  # a kernel without them
                    _tell("no huge pages: %s", error)
            self._owner = np.frombuffer(pages, np.uint8)
            self.array = self._owner[:]
        else:
            self._owner = np.empty(size + ALIGNMENT, np.uint8)
            start = -self._owner.ctypes.data % ALIGNMENT
            self.array = self._owner[start : start + size]
        self.address: int = self.array.ctypes.data
        self.size = size
        self.asked = -1  # not leased
        self._generation = generation
        self._used = 0
        self._refs = getrefcount(self._owner) + getrefcount(self.array)


def capacity(size: int) -> int:
    """The size class of a lease: at most an eighth more than asked, a multiple of 64."""
    step = max(ALIGNMENT, 1 << max(0, (size - 1).bit_length() - 4))
    return max(-(-size // step) * step, ALIGNMENT)


class Pool:
    """Leases host memory. All methods may be called from any thread, and from finalizers."""

    def __init__(self) -> None:
        self._generation = 0
        self._start()
        _pools.add(self)

    def _start(self) -> None:
        self._lock = threading.RLock()  # a finalizer may release while this thread leases
        self._free: dict[int, list[Buffer]] = {}  # by capacity, the longest unused first
        self._stacks: dict[int, list[Buffer]] = {}  # the same lists by size asked for
        self._allocated = self._peak = 0  # bytes asked for
        self._leased = self._reserved = 0  # bytes of the buffers that are out; and of all
        self._most = self._before = 0  # the most leased in this window and in the last one
        self._leases = self._fresh = self._clock = 0

    def lease(self, size: int) -> Buffer:
        """A buffer of at least `size` bytes with any content; 64-byte aligned. MemoryError."""
        with self._lock:
            stack = self._stacks.get(size)
            if stack is None:
                stack = self._stack(size)
            found = stack.pop() if stack else None
            generation = self._generation
            if found is not None:
                self._count(found, size)
                return found
        rounded = capacity(size)
        found = self._next(rounded) or self._make(rounded, generation)
        with self._lock:
            self._count(found, size)
        return found

    def _count(self, buffer: Buffer, size: int) -> None:
        buffer.asked = size
        self._leases += 1
        self._leased += buffer.size
        self._allocated += size
        if self._allocated > self._peak:
            self._peak = self._allocated
        if self._leased > self._most:
            self._most = self._leased

    def _stack(self, size: int) -> list[Buffer]:
        """The kept buffers for leases of `size`; remembered by size, for this is the hot path."""
        if len(self._stacks) > 4096:
            self._stacks.clear()
        stack = self._stacks[size] = self._free.setdefault(capacity(size), [])
        return stack

    def _next(self, rounded: int) -> Buffer | None:
        """A kept buffer of the next class up: it wastes an eighth, a new one would waste it all."""
        with self._lock:
            stack = self._free.get(capacity(rounded + 1))
            return stack.pop() if stack else None

    def _make(self, size: int, generation: int) -> Buffer:
        try:
            made = Buffer(size, generation)
        except (MemoryError, OSError):
            _tell("%d bytes are not to be had; giving back what is kept", size)
            self.trim()
            try:
                made = Buffer(size, generation)
            except OSError as error:
                raise MemoryError(f"the system has no {size} bytes: {error.strerror}") from error
        with self._lock:
            self._reserved += size
            self._fresh += 1
            self._free.setdefault(size, [])
        return made

    def release(self, buffer: Buffer) -> None:
        """Give a buffer back. RuntimeError if it is not out on lease."""
        if buffer._generation != self._generation:
            return  # leased before a fork: the parent's
        refs = getrefcount(buffer._owner) + getrefcount(buffer.array)
        with self._lock:
            size, asked = buffer.size, buffer.asked
            if asked < 0:
                raise RuntimeError("this buffer was released before")
            buffer.asked = -1
            self._allocated -= asked
            self._leased -= size
            if refs > buffer._refs:
                self._reserved -= size
                return
            self._clock = buffer._used = self._clock + 1
            self._free[size].append(buffer)
            if self._clock % _WINDOW == 0:
                self._before, self._most = self._most, self._leased
            if self._reserved <= _FLOOR:
                return
            most = max(self._most, self._before)
            bound = most + max(_FLOOR, most // 4)
        if self._reserved > bound:
            self.trim(bound)

    def trim(self, bound: int = 0) -> int:
        """Return kept buffers to the system until `bound` bytes are reserved; the bytes returned.

        The longest unused go first; buffers on lease stay.
        """
        dropped: list[Buffer] = []
        with self._lock:
            while self._reserved > bound:
                stacks = [stack for stack in list(self._free.values()) if stack]
                if not stacks:
                    break
                oldest = min(stacks, key=lambda stack: stack[0]._used).pop(0)
                self._reserved -= oldest.size
                dropped.append(oldest)
        return sum(buffer.size for buffer in dropped)

    def stats(self) -> dict[str, int]:
        """Bytes: allocated (asked for, now), peak (of that), reserved (from the system).

        Counts: leases, fresh (leases that needed new memory).
        """
        with self._lock:
            return {
                "allocated": self._allocated,
                "peak": self._peak,
                "reserved": self._reserved,
                "leases": self._leases,
                "fresh": self._fresh,
            }

    def reset_peak(self) -> None:
        """Measure the peak from now on."""
        with self._lock:
            self._peak = self._allocated

    def summary(self) -> str:
        """`stats` for people."""
        stats = self.stats()
        mib = {name: stats[name] / (1 << 20) for name in ("allocated", "peak", "reserved")}
        lines = [f"host {name:<9} {value:10.2f} MiB" for name, value in mib.items()]
        lines.append(f"host leases    {stats['leases']} ({stats['fresh']} needed new memory)")
        return "\n".join(lines)


class Frame:
    """What one call of an executable works with: its pointer array and its arena's buffer."""

    __slots__ = ("buffer", "pointers")

    def __init__(self, pointers: Any) -> None:
        self.pointers = pointers
        self.buffer: Buffer | None = None


class Arena:
    """The scratch memory of one executable, leased per call: threads and re-entrance are safe.

    Pointer arrays (`slots` pointers, ctypes) are kept here; the memory (`size` bytes, its address
    in slot `base`) is leased from `pool` only for the time of a call, so that executables share it.
    """

    __slots__ = ("_frames", "_kind", "base", "pool", "size")

    def __init__(self, pool: Pool, size: int, slots: int, base: int = 0) -> None:
        import ctypes

        self.pool, self.size, self.base = pool, size, base
        self._kind = ctypes.c_void_p * slots
        self._frames: list[Frame] = []

    def lease(self) -> Frame:
        """A frame for one call; its pointers but the arena's are what an earlier call left."""
        try:
            frame = self._frames.pop()
        except IndexError:
            frame = Frame(self._kind())
        if self.size:
            frame.buffer = self.pool.lease(self.size)
            frame.pointers[self.base] = frame.buffer.address
        return frame

    def release(self, frame: Frame) -> None:
        """Give a frame back after its call."""
        if frame.buffer is not None:
            self.pool.release(frame.buffer)
            frame.buffer = None
        self._frames.append(frame)


_pools: weakref.WeakSet[Pool] = weakref.WeakSet()


def _after_fork() -> None:
    """Another thread may have been within a pool: the child starts with empty ones."""
    for pool in list(_pools):
        pool._generation += 1
        pool._start()


os.register_at_fork(after_in_child=_after_fork)

host = Pool()
