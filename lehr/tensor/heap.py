"""The C library's heap, where numpy's arrays come from, keeps memory that was freed.

By itself glibc gives memory at the heap's end back as soon as some 10 MB of it are free, and the
next array takes new pages, which the system clears one by one: a fifth of the time of an eager
training step. Up to `KEPT` bytes now stay. Who sets `MALLOC_TRIM_THRESHOLD_` or
`MALLOC_MMAP_THRESHOLD_` decides instead.
"""

from __future__ import annotations

import ctypes
import os

KEPT = 128 << 20
LARGE = 32 << 20  # arrays from this size on are mapped, and given back, by themselves
_TRIM, _MAP = -1, -3  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD of malloc.h


def keep() -> bool:
    """Whether the heap was told so: not where the user decided, or by another C library."""
    if any(f"MALLOC_{name}_THRESHOLD_" in os.environ for name in ("TRIM", "MMAP")):
        return False
    try:
        library = ctypes.CDLL(None)
        library.gnu_get_libc_version  # noqa: B018  (others have mallopt, with other meanings)
        tell = library.mallopt
    except (AttributeError, OSError, TypeError):  # another C library, or no way to ask for it
        return False
    return bool(tell(_TRIM, KEPT) and tell(_MAP, LARGE))


keep()
