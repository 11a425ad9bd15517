"""Where data may stop a program: checked indices and divisors, and calls of the host.

An index that was checked before cannot fail again. A check covers a later one where both look at
the same elements of unchanged memory in the same way: the earlier at all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lehr.base import sym
from lehr.compiler.loop import expr
from lehr.compiler.loop.ir import Bind, Buffer, Expr, Extern, Group, HostCall, Kernel, Step
from lehr.compiler.loop.text import values_of, walk
from lehr.compiler.loop.verify import injective, touched
from lehr.ops.rule import numel


def halting(steps: Sequence[Step]) -> list[bool]:
    """For each step, whether data may end the program within it, or another process waits for
    it."""
    written: set[Buffer] = set()
    known: set[Any] = set()
    found = []
    for step in steps:
        checks = [_check(b) for b in _binds(step)]
        found.append(_calls(step) or any(
            key is None or key not in known or not written.isdisjoint(read)
            for key, read, _ in checks))
        known.update(key for key, _, whole in checks if whole)
        written |= touched(step)[1]
    return found


def _binds(step: Step) -> Iterator[Bind]:
    if isinstance(step, Group):
        for k in step.kernels:
            yield from k.binds
    elif isinstance(step, Kernel | Extern):
        yield from step.binds


def _calls(step: Step) -> bool:
    if isinstance(step, Group):
        return any(map(_calls, step.kernels))
    if isinstance(step, HostCall):
        return True
    stores = step.stores if isinstance(step, Kernel) else step.epilogue
    return any(expr.divides(e) for e in walk(values_of(stores, step.binds)))


def _check(b: Bind) -> tuple[Any, set[Buffer], bool]:
    """(what is checked about elements, of which buffers, whether about all of them)."""
    loads = [e for e in walk((b.value,)) if e.kind == "Load"]
    read = {e.fields[0] for e in loads}
    places = {e.fields[1] for e in loads}
    same = len(places) == 1 and len({x.shape for x in read}) == 1
    if b.mask is not None or not same or any(e.fields[2] is not None for e in loads) or any(
            e.kind not in ("Load", "Const", "Alu", "Cast", "Select") for e in walk((b.value,))):
        return None, read, False
    (idx,), x = places, loads[0].fields[0]
    axes = frozenset().union(*map(sym.free, idx))
    last = [sym.interval(v)[1] for v in axes]  # None where a size is symbolic: not known to be all
    points = numel([n + 1 for n in last if n is not None])
    whole = None not in last and points == numel(x.shape) and injective(x, idx, axes) is True
    return (_shape(b.value), b.bound, b.wrap), read, whole


def _shape(e: Expr) -> Any:
    """A value without the place of what it loads."""
    if e.kind == "Load":
        return e.fields[0]
    return e.kind, e.dtype, tuple(_shape(f) if isinstance(f, Expr) else repr(f) if isinstance(
        f, float) else f for f in e.fields)
