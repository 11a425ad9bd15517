"""Memory plan: where every temporary lies in one arena, from lifetimes and in-place reuse.

A temporary lives from the step that first writes it to the last that reads it; temporaries that do
not live together may share memory. A kernel may also write its result over an input that dies
there, where every element is read for the last time no later than it is replaced. Sizes known only
at run time get slots behind the fixed part; their offsets are `Sym`s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from lehr.base import sym
from lehr.base.index import linearize
from lehr.compiler.loop.ir import Buffer, Extern, Group, HostCall, Kernel, Program, Step, Store
from lehr.compiler.loop.text import walk
from lehr.compiler.loop.traffic import traffic
from lehr.compiler.loop.verify import same_row, touched
from lehr.ops.rule import numel

ALIGN = 64


class Plan(NamedTuple):
    """The arena of a program.

    offsets   arena buffer -> bytes from the arena's start (int or Sym), a multiple of `ALIGN`
    nbytes    the arena's size in bytes (int or Sym)
    peak      bytes that are alive at once at worst, fixed sizes only: what no plan can go below
    reused    (result, input whose memory it takes over) pairs
    """

    offsets: Mapping[Buffer, Any]
    nbytes: Any
    peak: int
    reused: tuple[tuple[Buffer, Buffer], ...]


class Measure(NamedTuple):
    """Counts of a program: kernels (those of groups one by one), launches (a group is one), library
    and host calls, and bytes that steps read and write, each buffer once a step (fixed sizes only).
    """

    kernels: int
    launches: int
    externs: int
    hosts: int
    moved: int


def plan(program: Program) -> Plan:
    """Places for the "arena" buffers of a program, in the order of its steps."""
    life = lifetimes(program)
    reused = _reuse(program, life)
    blocks = _blocks(life, dict(reused))
    fixed = [b for b in blocks if isinstance(b.nbytes, int)]
    offsets, end = _pack(fixed)
    peak = max((sum(b.nbytes for b in fixed if b.start <= n <= b.end)
                for n in {b.start for b in fixed}), default=0)
    nbytes = _slots([b for b in blocks if not isinstance(b.nbytes, int)], end, offsets)
    return Plan(offsets, nbytes, peak, tuple(reused))


def kernels_of(step: Step) -> tuple[Step, ...]:
    return step.kernels if isinstance(step, Group) else (step,)


def lifetimes(program: Program) -> dict[Buffer, tuple[int, int]]:
    """Arena buffer -> (first step that touches it, last one)."""
    found: dict[Buffer, tuple[int, int]] = {}
    for n, step in enumerate(program.steps):
        reads, writes = touched(step)
        for b in sorted(reads | writes, key=lambda b: b.name):
            if b.role == "arena":
                found[b] = (found.get(b, (n, n))[0], n)
    return found


def span(b: Buffer) -> Any:
    """Elements from the first to the last one of a buffer: a Ref's shadow has its gaps."""
    count = numel(b.shape)
    reach = 1 + sum((n - 1) * s for n, s in zip(b.shape, b.strides, strict=True))
    return count if count == 0 or reach == count else sym.maximum(reach, count)


def size_of(b: Buffer) -> Any:
    """Bytes of a buffer's memory, rounded up to the alignment."""
    raw = span(b) * b.dtype.itemsize
    return sym.ceildiv(raw, ALIGN) * ALIGN


def _reuse(program: Program, life: Mapping[Buffer, tuple[int, int]]
           ) -> list[tuple[Buffer, Buffer]]:
    """(result, dying input) pairs, each buffer once on each side."""
    made: list[tuple[Buffer, Buffer]] = []
    taken: set[Buffer] = set()
    for n, step in enumerate(program.steps):
        parts = kernels_of(step)
        touches = [touched(k) for k in parts]
        for i, k in enumerate(parts):
            if isinstance(k, HostCall | Group):
                continue
            stores, fresh = (k.stores, None) if isinstance(k, Kernel) else (
                k.epilogue, k.output.buffer)
            reads = touches[i][0]
            others: set[Buffer] = set().union(
                *(t[0] | t[1] for j, t in enumerate(touches) if j != i))
            dying = [b for b in reads if b in life and life[b] == (life[b][0], n)
                     and (life[b][0] < n or b is fresh) and b not in others]
            for s in stores:
                b = s.buffer
                if b not in life or life[b][0] != n or any(b is r for r, _ in made):
                    continue
                for a in sorted(dying, key=lambda x: x.name):
                    if a is not b and a not in taken and _inplace(k, stores, s, a):
                        made.append((b, a))
                        taken.add(a)
                        break
    return made


def _inplace(step: Kernel | Extern, stores: Sequence[Store], s: Store, a: Buffer) -> bool:
    """Whether the store may go over `a`: its elements are read at the same place, by it or
    before."""
    b = s.buffer
    if a.dtype.itemsize != b.dtype.itemsize or size_of(a) != size_of(b) or s.mode != "set":
        return False
    if sum(x.buffer is b for x in stores) > 1 or step.binds:
        return False
    # The call writes its output before the epilogue reads anything.
    if isinstance(step, Extern) and (b is step.output.buffer
                                     or any(o.buffer is a for o in step.inputs)):
        return False
    here = linearize(s.idx, b.shape, b.strides) if s.idx else 0
    alike = a.shape == b.shape and a.strides == b.strides
    after = False
    for x in stores:
        roots = [x.value] if x.mask is None else [x.value, x.mask]
        inside = set(walk(r for r in walk(roots) if r.kind in ("Reduce", "Scan")))
        for e in walk(roots):
            # An emitter may compute what another store loads again, from the elements of `a`.
            if e.kind == "Load" and e.fields[0] is b and x is not s:
                return False
            if e.kind != "Load" or e.fields[0] is not a:
                continue
            at = linearize(e.fields[1], a.shape, a.strides) if e.fields[1] else 0
            same = at is here or at == here
            if after or (x is s and (not same or e in inside)):
                return False
            if not same and not (alike and same_row(s.idx, s.axes, e.fields[1])):
                return False
            if same and x is not s and x.axes != s.axes and not alike:
                return False
        after = after or x is s
    return True


class _Block(NamedTuple):
    """Buffers that follow each other in one place."""

    buffers: tuple[Buffer, ...]
    start: int
    end: int
    nbytes: Any


def _blocks(life: Mapping[Buffer, tuple[int, int]], before: Mapping[Buffer, Buffer]
            ) -> list[_Block]:
    after = {a: b for b, a in before.items()}
    made = []
    for b in life:
        if b in before:
            continue
        chain = [b]
        while chain[-1] in after:
            chain.append(after[chain[-1]])
        made.append(_Block(tuple(chain), life[b][0], life[chain[-1]][1], size_of(b)))
    return made


def _pack(blocks: Sequence[_Block]) -> tuple[dict[Buffer, Any], int]:
    """Offsets of blocks of fixed size: the largest first, each at the lowest place that is free
    while it lives."""
    placed: list[tuple[int, int, int, int]] = []  # (offset, end, first step, last step)
    offsets: dict[Buffer, Any] = {}
    top = 0
    for block in sorted(blocks, key=lambda b: (-b.nbytes, b.start)):
        at = 0
        for low, high, start, end in placed:
            if start <= block.end and block.start <= end:
                if at + block.nbytes <= low:
                    break
                at = max(at, high)
        entry = (at, at + block.nbytes, block.start, block.end)
        _insert(placed, entry)
        top = max(top, at + block.nbytes)
        offsets.update(dict.fromkeys(block.buffers, at))
    return offsets, top


def _insert(placed: list[tuple[int, int, int, int]], entry: tuple[int, int, int, int]) -> None:
    """Keeps the list in order of offsets."""
    low, high = 0, len(placed)
    while low < high:
        mid = (low + high) // 2
        if placed[mid] < entry:
            low = mid + 1
        else:
            high = mid
    placed.insert(low, entry)


def _slots(blocks: Sequence[_Block], start: int, offsets: dict[Buffer, Any]) -> Any:
    """Places for symbolic sizes: blocks of the same size that do not live together share one."""
    slots: dict[Any, list[list[int]]] = {}  # size -> per slot the last step that uses it
    where: list[tuple[_Block, int]] = []
    for block in sorted(blocks, key=lambda b: b.start):
        ends = slots.setdefault(block.nbytes, [])
        free = next((i for i, last in enumerate(ends) if last[0] < block.start), None)
        if free is None:
            free = len(ends)
            ends.append([block.end])
        ends[free][0] = block.end
        where.append((block, free))
    base: dict[Any, Any] = {}
    at: Any = start
    for size, ends in slots.items():
        base[size] = at
        at = at + size * len(ends)
    for block, slot in where:
        offsets.update(dict.fromkeys(block.buffers, base[block.nbytes] + block.nbytes * slot))
    return at


def measure(program: Program) -> Measure:
    """The counts that tests and reports show."""
    parts = [k for s in program.steps for k in kernels_of(s)]
    moved = 0
    for k in parts:
        found = traffic(k) if isinstance(k, Kernel) else None
        if found is not None:
            moved += found.moved
            continue
        reads, writes = touched(k)
        # A step finds what it wrote itself in cache; an update in place reads what was there
        # before.
        read = [b for b in reads if b not in writes or b.role == "ref"]
        for b in [b for b in (*read, *writes) if b.role != "local"]:
            n = numel(b.shape)
            moved += n * b.dtype.itemsize if isinstance(n, int) else 0
    return Measure(sum(isinstance(k, Kernel) for k in parts), len(program.steps),
                   sum(isinstance(k, Extern) for k in parts),
                   sum(isinstance(k, HostCall) for k in parts), moved)
