"""Elementwise kernels that only continue a library call become its epilogue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lehr.base.index import linearize, reshape_index
from lehr.compiler.loop.expr import Rewriter
from lehr.compiler.loop.ir import Axis, Buffer, Expr, Extern, Kernel, Step, Store, axis
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
        if not isinstance(step, Extern) or step.others or step.output.buffer.role != "arena":
            continue
        of = users[step.output.buffer]
        if len(of) < 2 or of[0] != n:
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
        if taken is not None and len(of) == 2:
            taken = _inplace(taken, binds)
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


def _inplace(call: Extern, binds: Binds) -> Extern:
    """The product goes straight where the last store that needs it puts its result, if that has the
    same layout: the store then replaces the element that it reads."""
    out = call.output.buffer
    here = linearize([_own(a) for a in call.axes], out.shape, out.strides)
    users = [n for n, s in enumerate(call.epilogue)
             if any(e.kind == "Load" and e.fields[0] is out for e in walk(values_of((s,))))]
    if not users:
        return call
    s = call.epilogue[users[-1]]
    b = s.buffer
    alone = sum(x.buffer is b for x in call.epilogue) == 1
    if b.dtype is not out.dtype or linearize(s.idx, b.shape, b.strides) != here or not alone:
        return call
    if b in {o.buffer for o in call.inputs} or any(
            e.kind == "Load" and e.fields[0] is b for e in walk(values_of(call.epilogue))):
        return call

    def load(e: Expr) -> Expr | None:
        return Expr("Load", e.dtype, b, s.idx, *e.fields[2:]) if e.fields[0] is out else None

    rewrite = Rewriter({}, load, binds.of, binds.fresh)
    stores = tuple(x._replace(value=rewrite(x.value)) for x in call.epilogue)
    stores = tuple(x for x in stores if not _idle(x))
    return call._replace(output=call.output._replace(buffer=b), epilogue=stores)


def _idle(s: Store) -> bool:
    """A store of the element that is there already."""
    return s.value.kind == "Load" and s.value.fields[:2] == (s.buffer, s.idx)


def _own(a: Axis) -> Any:
    """The index of a dimension: 0 where there is only one."""
    return 0 if isinstance(a.extent, int) and a.extent == 1 else a.var
