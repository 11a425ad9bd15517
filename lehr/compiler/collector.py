"""Python's garbage collector while a program is compiled: rarely, since almost all that is made
then stays, and looking through it takes a twelfth of the time."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

_RARE = 200_000  # objects made before the collector looks again


@contextlib.contextmanager
def rare() -> Iterator[None]:
    """Fewer collections inside. What others set meanwhile stays; threads share the first's."""
    before = gc.get_threshold()
    if not 0 < before[0] < _RARE:
        yield
        return
    ours = (_RARE, *before[1:])
    gc.set_threshold(*ours)
    try:
        yield
    finally:
        if gc.get_threshold() == ours:
            gc.set_threshold(*before)
