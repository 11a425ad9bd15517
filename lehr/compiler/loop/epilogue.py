"""Elementwise kernels that only continue a library call become its epilogue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lehr.base.index import reshape_index
from lehr.compiler.loop.expr import Rewriter
from lehr.compiler.loop.ir import Axis, Buffer, Extern, Kernel, Step, axis
from lehr.compiler.loop.merge import Binds, products
from lehr.compiler.loop.text import values_of, walk
from lehr.compiler.loop.verify import touched


def attach(steps: Sequence[Step], binds: Binds) -> list[Step]:
    """The steps with every such kernel moved into the call that it follows."""
    touches = [touched(s) for s in steps]
    first: dict[Buffer, int] = {}
    users: dict[Buffer, list[int]] = {}
    for n, (reads, writes) in enumerate(touches):
        for b in reads | writes:
            users.setdefault(b, []).append(n)
        for b in writes:
            first.setdefault(b, n)
    made: list[Step | None] = list(steps)
    for n, step in enumerate(steps):
        if not isinstance(step, Extern) or step.output.buffer.role != "arena":
            continue
        of = users[step.output.buffer]
        if len(of) != 2 or of[0] != n:
            continue
        m = of[1]
        kernel = made[m]
        if not isinstance(kernel, Kernel):
            continue
        reads, writes = touches[m]
        # What the kernel needs must be there when the call runs, and nobody in between may use
        # what it overwrites.
        between = [touches[k] for k in range(n, m)]
        if any(w & (reads | writes) - {step.output.buffer} or r & writes for r, w in between):
            continue
        taken = _epilogue(step, kernel, binds)
        if taken is not None:
            made[n], made[m] = taken, None
    return [s for s in made if s is not None]


def _epilogue(call: Extern, k: Kernel, binds: Binds) -> Extern | None:
    """The call with the kernel behind it; None where an element needs more than its own product."""
    shape = call.output.shape
    out = call.output.buffer
    if k.binds or any(s.axes or s.mask is not None or s.mode != "set" for s in k.stores):
        return None
    if tuple(out.shape) != tuple(shape):
        return None
    axes = tuple(axis(f"i{d}", n) for d, n in enumerate(shape))
    there = products(k.axes)[-1]
    if there != products(axes)[-1]:
        return None
    extents = [a.extent for a in k.axes]
    at = reshape_index([a.var for a in axes], list(shape), extents)
    names = {a.var: e for a, e in zip(k.axes, at, strict=True)}
    rewrite = Rewriter(names, None, binds.of, binds.fresh)
    stores = tuple(s._replace(idx=tuple(map(rewrite.index, s.idx)), value=rewrite(s.value))
                   for s in k.stores)
    own = tuple(_own(a) for a in axes)
    for e in walk(values_of(stores)):
        if e.kind in ("Reduce", "Scan"):
            return None
        if e.kind == "Load" and e.fields[0] is out and tuple(e.fields[1]) != own:
            return None
    lines = tuple(dict.fromkeys(call.locations + k.locations))[:8]
    return call._replace(epilogue=stores, axes=axes, locations=lines)


def _own(a: Axis) -> Any:
    """The index of a dimension: 0 where there is only one."""
    return 0 if isinstance(a.extent, int) and a.extent == 1 else a.var
