"""Operands that are read as they were before they were rounded.

A kernel that only rounds float32 numbers to bfloat16, for matrix products alone, is not worth its
memory traffic: the products read the float32 numbers and round them (`Operand.rounded`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from lehr.base import dtype as dt
from lehr.base.index import linearize
from lehr.compiler.loop import finish
from lehr.compiler.loop.ir import Buffer, Extern, Group, Kernel, Program, Step, Store
from lehr.compiler.loop.text import values_of, walk
from lehr.compiler.loop.verify import touched

MOST = 2  # calls that may read the larger numbers instead


class _Rounding(NamedTuple):
    """A store of step `at` that rounds `source` into `target`."""

    at: int
    source: Buffer
    target: Buffer


def absorb(program: Program, supports: Callable[[Extern], bool]) -> Program:
    """The program without kernels that round what calls can read as it is; `supports`: whether a
    back end has a call with such an operand."""
    steps = list(program.steps)
    touches = [touched(s) for s in steps]
    users: dict[Buffer, list[int]] = {}
    for n, (reads, writes) in enumerate(touches):
        for b in reads | writes:
            users.setdefault(b, []).append(n)
    gone: set[Buffer] = set()
    for r in _roundings(steps):
        calls = [n for n in users[r.target] if n != r.at]
        if not 0 < len(calls) <= MOST or r.target in program.results:
            continue
        if any(r.source in writes for _, writes in touches[r.at:calls[-1] + 1]):
            continue
        made = [_reading(steps[n], r, supports) for n in calls]
        if all(made):
            steps = [made[calls.index(n)] or s if n in calls else s for n, s in enumerate(steps)]
            gone.add(r.target)
    if not gone:
        return program
    return finish.program(program, [s for s in (_without(s, gone) for s in steps) if s])


def _roundings(steps: Sequence[Step]) -> Iterator[_Rounding]:
    for n, step in enumerate(steps):
        kernels = step.kernels if isinstance(step, Group) else (step,)
        for k in kernels:
            if not isinstance(k, Kernel):
                continue
            loaded = [e.fields[0] for e in walk(values_of(k.stores, k.binds)) if e.kind == "Load"]
            for s in k.stores:
                source = _source(s)
                if source is not None and s.buffer not in loaded and sum(
                        x.buffer is s.buffer for x in k.stores) == 1:
                    yield _Rounding(n, source, s.buffer)


def _source(s: Store) -> Buffer | None:
    """The float32 memory of the same layout that a store rounds to bfloat16."""
    e, target = s.value, s.buffer
    if e.kind != "Cast" or s.mode != "set" or s.mask is not None or s.axes:
        return None
    load = e.fields[0]
    if (e.dtype, load.dtype, load.kind, target.role) != (dt.bfloat16, dt.float32, "Load", "arena"):
        return None
    source, idx, mask = load.fields[:3]
    if mask is not None or source.role == "local" or not idx:
        return None
    here = linearize(s.idx, target.shape, target.strides) if s.idx else 0
    return source if linearize(idx, source.shape, source.strides) == here else None


def _reading(step: Step, r: _Rounding, supports: Callable[[Extern], bool]) -> Extern | None:
    """A call that reads the source; None where it cannot."""
    if not isinstance(step, Extern) or any(
            e.kind == "Load" and e.fields[0] is r.target
            for e in walk(values_of(step.epilogue, step.binds))):
        return None
    inputs = tuple(o._replace(buffer=r.source, rounded=r.target.dtype)
                   if o.buffer is r.target else o for o in step.inputs)
    made = step._replace(inputs=inputs)
    return made if supports(made) else None


def _without(step: Step, gone: set[Buffer]) -> Step | None:
    """A step without its stores into memory that is gone."""
    if isinstance(step, Group):
        kernels = [k for k in (_without(k, gone) for k in step.kernels) if isinstance(k, Kernel)]
        if len(kernels) < 2:
            return kernels[0] if kernels else None
        return step._replace(kernels=tuple(kernels))
    if not isinstance(step, Kernel):
        return step
    stores = tuple(s for s in step.stores if s.buffer not in gone)
    return step._replace(stores=stores) if stores else None
