"""The bytes that a kernel moves to and from memory, and the least that it must.

At least it reads each element that it needs once and writes each result once. More it moves where a
pass over a row follows another and the row does not stay in a cache, and where rows read the same
operand again and that does not stay there. Both are read off the loops: which axes an index depends
on, and how many bytes lie between two uses.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from lehr.base import sym
from lehr.compiler.loop.ir import Axis, Buffer, Expr, Kernel
from lehr.compiler.loop.text import walk

CACHE = 1 << 20  # bytes that stay with a thread between two uses


class Access(NamedTuple):
    """A load or a store: `axes` are those in scope, `level` numbers the pass over the row."""

    buffer: Buffer
    idx: tuple[Any, ...]
    axes: tuple[Axis, ...]
    level: int
    writes: bool


class Traffic(NamedTuple):
    """Bytes; `why` says what is moved more than once, empty where nothing is."""

    least: int
    moved: int
    why: tuple[str, ...]


def traffic(kernel: Kernel) -> Traffic | None:
    """What a kernel moves; None where sizes are not known."""
    found = list(accesses(kernel))
    axes = {a for x in found for a in x.axes}
    if not all(isinstance(a.extent, int) for a in axes):
        return None
    buffers = list(dict.fromkeys(x.buffer for x in found))
    if not all(isinstance(n, int) for b in buffers for n in b.shape):
        return None
    row = sum(_image(b, some, len(kernel.axes)) for b in buffers
              if (some := [x for x in found if x.buffer is b and x.level]))
    least, moved, why = 0, 0, []
    for b in buffers:
        if b.role == "local":
            continue
        mine = [x for x in found if x.buffer is b]
        reads, writes = ([x for x in mine if x.writes is w] for w in (False, True))
        for some, verb in ((reads, "reads"), (writes, "writes")):
            # What the kernel wrote itself it finds in a cache, or waits for as in any other pass.
            if not some or (verb == "reads" and writes and b.role != "ref"):
                continue
            once = _image(b, some)
            times = _times(some, kernel, row)
            least += once
            moved += once * times
            if times > 1:
                why.append(f"{verb} {b} {times} times: {_reason(some, kernel, row)}")
    return Traffic(least, moved, tuple(why))


def accesses(kernel: Kernel) -> Iterator[Access]:
    """All loads and stores. The level of what is outside of inner loops is 0."""
    written: dict[Buffer, int] = {}
    for bind in kernel.binds:
        yield from _loads([bind.value], kernel.axes, 0, {})
    for s in kernel.stores:
        axes = (*kernel.axes, *s.axes)
        values = [s.value] if s.mask is None else [s.value, s.mask]
        levels = _levels(values, written)
        level = max(levels[v] for v in values) + bool(s.axes)
        yield from _loads(values, axes, level, levels)
        written[s.buffer] = level
        yield Access(s.buffer, s.idx, axes, level, True)
        if s.mode != "set":
            yield Access(s.buffer, s.idx, axes, level, False)


def _levels(values: Sequence[Expr], written: dict[Buffer, int]) -> dict[Expr, int]:
    """The pass after which each value is known."""
    found: dict[Expr, int] = {}
    for e in walk(values):      # what is inside comes first
        level = max((found[c] for c in e.children), default=0)
        if e.kind == "Load":
            level = max(level, written.get(e.fields[0], 0))
        found[e] = level + (e.kind in ("Reduce", "Scan"))
    return found


def _loads(values: Sequence[Expr], axes: tuple[Axis, ...], level: int, levels: dict[Expr, int]
           ) -> Iterator[Access]:
    stack = [(v, axes, level) for v in values]
    seen = set(stack)
    while stack:
        e, axes, level = stack.pop()
        if e.kind == "Load":
            yield Access(e.fields[0], e.fields[1], axes, level, False)
        if e.kind == "Reduce":
            axes, level = (*axes, *e.fields[1]), levels.get(e, level)
        new = [at for c in e.children if (at := (c, axes, level)) not in seen]
        seen.update(new)
        stack += new


def _used(x: Access) -> list[Axis]:
    free = set().union(*(sym.free(i) for i in x.idx)) if x.idx else set()
    known = {a.var for a in x.axes}
    # An index that is data may be any: it depends on all that it could.
    return [a for a in x.axes if a.var in free or free - known]


def _bytes(x: Access, inner: int = 0) -> int:
    """Bytes that an access touches, of one outer point where `inner` is their number."""
    used = [a for a in _used(x) if a in x.axes[inner:]]
    whole = math.prod(x.buffer.shape)
    return min(math.prod(a.extent for a in used), whole) * x.buffer.dtype.itemsize


def _image(b: Buffer, some: Sequence[Access], inner: int = 0) -> int:
    """Bytes of the elements that accesses touch, as `_bytes`. Passes that go over the same elements
    with loops of their own have the same text but for the loops' names."""
    places: dict[Any, int] = {}
    for x in some:
        names = {a.var: n for n, a in enumerate(_used(x))}
        key = tuple(repr(sym.substitute(i, names)) if not isinstance(i, int) else i for i in x.idx)
        places[key] = _bytes(x, inner)
    whole = math.prod(b.shape) * b.dtype.itemsize
    return min(sum(places.values()), whole)


def _times(some: Sequence[Access], kernel: Kernel, row: int) -> int:
    passes = len({x.level for x in some}) if row > CACHE else 1
    return max(passes, max(_again(x, kernel) for x in some))


def _again(x: Access, kernel: Kernel) -> int:
    """How often outer points ask for the same bytes after the cache has lost them."""
    if _bytes(x) <= CACHE:
        return 1
    used = _used(x)
    times, below = 1, len(kernel.axes)
    for n, a in enumerate(kernel.axes[:below]):
        if a not in used and any(u in used for u in x.axes[n + 1:]):
            times *= a.extent
    return times


def _reason(some: Sequence[Access], kernel: Kernel, row: int) -> str:
    if max(_again(x, kernel) for x in some) > 1:
        return f"its {_size(max(map(_bytes, some)))} do not stay in a cache between rows"
    return f"rows of {_size(row)} do not stay in a cache between passes"


def _size(n: int) -> str:
    return f"{n / (1 << 20):.3g} MiB" if n >= 1 << 20 else f"{n / 1024:.3g} KiB"
