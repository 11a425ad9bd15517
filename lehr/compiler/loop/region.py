"""Horizontal fusion: neighbouring kernels that do not depend on each other share one region."""

from __future__ import annotations

from collections.abc import Sequence

from lehr.compiler.loop.halt import halting
from lehr.compiler.loop.ir import Buffer, Group, Kernel, Step
from lehr.compiler.loop.verify import touched
from lehr.ops.rule import numel

# Kernels whose results are larger stay alone, unless they are written to the caller's memory
# anyway: a region keeps what all its kernels touch alive together.
BYTES = 1 << 18
KERNELS = 256


def group(steps: Sequence[Step]) -> list[Step]:
    """The steps, in order, with runs of independent small kernels (and of updates) as one
    `Group`. What data may stop and what the caller sees written are not in one."""
    made: list[Step] = []
    run: list[Kernel] = []
    reads: set[Buffer] = set()
    writes: set[Buffer] = set()
    halted: set[bool] = set()       # whether kernels of the run may stop the program

    def close() -> None:
        if len(run) > 1:
            made.append(Group(f"region{len(made)}", tuple(run)))
        else:
            made.extend(run)
        run.clear()
        reads.clear()
        writes.clear()
        halted.clear()

    for step, halts in zip(steps, halting(steps), strict=True):
        if not isinstance(step, Kernel) or not _joins(step):
            close()
            made.append(step)
            continue
        r, w = touched(step)
        torn = (halts and _seen(writes)) or (True in halted and _seen(w))
        if len(run) == KERNELS or w & (reads | writes) or r & writes or torn:
            close()
        halted.add(halts)
        run.append(step)
        reads |= r
        writes |= w
    close()
    return made


def _seen(buffers: set[Buffer]) -> bool:
    return any(b.role == "ref" for b in buffers)


def _joins(k: Kernel) -> bool:
    for s in k.stores:
        b = s.buffer
        n = numel(b.shape)
        large = not isinstance(n, int) or n * b.dtype.itemsize > BYTES
        if b.role == "arena" and large:
            return False
    return True
