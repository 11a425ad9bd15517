"""Fusion: merges a program's kernels, then takes back the memory that this made superfluous.

Candidates for a kernel are the kernels that made what it reads and those that read the same, latest
and largest first, a bounded number. A merge must be legal (`merge.legal` says why not; channel
"fusion" prints it) and must not make a cycle, for which every kernel knows its ancestors as a
bitset.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import Any

from lehr.base import log, sym
from lehr.compiler.loop import epilogue, finish, halt, region, schedule
from lehr.compiler.loop.ir import Buffer, Kernel, Program, Step
from lehr.compiler.loop.merge import Binds, Nest, legal, merged, nest_of
from lehr.compiler.loop.text import walk
from lehr.compiler.loop.verify import touched
from lehr.ops.rule import numel

# Kernels tried for one, and readers of one buffer remembered.
TRIES, READERS = 8, 6
# Kernels merge if what both touch is at least this fraction (one in ...) of what the smaller
# touches.
SHARE = 8

# Steps between two kernels from which on it counts what one kernel of both would keep alive, if
# that is more than this many bytes.
FAR, LITTLE = 16, 1 << 18

_say = log.channel("fusion")


class Unit:
    """A step, or kernels merged so far."""

    __slots__ = ("ancestors", "deps", "locations", "name", "nest", "order", "reads", "step",
                 "writes")

    def __init__(self, order: int, step: Step, nest: Nest | None, reads: set[Buffer],
                 writes: set[Buffer]) -> None:
        self.order, self.step, self.nest = order, step, nest
        self.reads, self.writes = reads, writes
        self.deps: set[int] = set()
        self.ancestors = 0
        self.locations = tuple(getattr(step, "locations", ()))
        self.name = step.name

    def shown(self) -> str:
        """The name, with the user's line."""
        return f"{self.name} ({self.locations[0]})" if self.locations else self.name


def fuse(program: Program) -> Program:
    """The same program with fewer kernels and less memory traffic."""
    binds = Binds({b.var: b for s in program.steps if isinstance(s, Kernel) for b in s.binds})
    search = _Search(program.steps, binds)
    ordered = search.run()
    used = finish.users((u.reads, u.writes) for u in ordered)
    steps: list[Step] = []
    for u in ordered:
        if u.nest is None or len(u.nest.entries) == 1:
            steps.append(u.step)
            continue
        made = finish.kernel(u.nest, u.name, u.locations, binds, used)
        if made is not None:
            steps.append(made)
    steps = halt.needed(epilogue.attach(steps, binds), used)
    steps = region.group(schedule.schedule(steps))
    return finish.program(program, steps)


class _Search:
    def __init__(self, steps: Sequence[Step], binds: Binds) -> None:
        self.binds = binds
        self.steps = steps
        self.touches = [touched(step) for step in steps]
        self.users = finish.users(self.touches)
        self.units: list[Unit] = []
        self.root: list[int] = []               # unit -> the unit it was merged into
        self.last: dict[int, int] = {}          # unit that took others -> the latest of them
        self.writers: dict[Buffer, list[int]] = {}
        self.readers: dict[Buffer, list[int]] = {}

    def find(self, u: int) -> int:
        while self.root[u] != u:
            self.root[u] = self.root[self.root[u]]
            u = self.root[u]
        return u

    def run(self) -> list[Unit]:
        for order, step in enumerate(self.steps):
            self.add(order, step)
        return self.sorted()

    def add(self, order: int, step: Step) -> None:
        reads, writes = map(set, self.touches[order])
        nest = nest_of(step, order) if isinstance(step, Kernel) and not any(
            halt.unread(b, self.users) for b in writes) else None
        u = Unit(order, step, nest, reads, writes)
        number = len(self.units)
        self.units.append(u)
        self.root.append(number)
        makers = [self.find(w) for b in reads for w in self.writers.get(b, ())]
        u.deps = set(makers)
        for b in writes:
            u.deps.update(self.find(x) for x in self.writers.get(b, ()))
            u.deps.update(self.find(x) for x in self.readers.get(b, ()))
        u.deps.discard(number)
        for d in u.deps:
            u.ancestors |= self.units[d].ancestors | 1 << d
        self.neighbours(number, makers)
        place = self.find(number)
        for b in writes:
            self.writers.setdefault(b, []).append(place)
        for b in reads:
            self.readers.setdefault(b, []).append(place)

    def neighbours(self, number: int, makers: Iterable[int]) -> None:
        """Merges a new kernel with those that suit it best."""
        u = self.units[number]
        if u.nest is None or not self.plain(u.nest):
            return
        near = set(makers)
        for w in u.writes:
            near.update(self.find(x) for x in self.writers.get(w, ())[-READERS:])
        for r in u.reads:
            near.update(self.find(x) for x in self.readers.get(r, ())[-READERS:])
        if not u.nest.outer and not near:
            near.update(self.scalars())
        near.discard(number)
        ranked = heapq.nlargest(TRIES, (n for n in near if self.units[n].nest is not None),
                                key=lambda n: (self.shared(number, n), n))
        for other in ranked:
            a, b = self.find(other), self.find(number)
            if a != b:
                self.attempt(a, b)

    def plain(self, nest: Nest) -> bool:
        """Whether the kernel may merge at all: scatters stay alone."""
        return all(e.store.mode == "set" and not any(
            v in self.binds.of for i in e.store.idx for v in sym.free(i)) for e in nest.entries)

    def scalars(self) -> list[int]:
        """The latest kernel of a single point, if there is one nearby."""
        for n in range(len(self.units) - 2, max(-1, len(self.units) - 2 - READERS), -1):
            r = self.find(n)
            nest = self.units[r].nest
            if nest is not None and not nest.outer:
                return [r]
        return []

    def shared(self, a: int, b: int) -> int:
        """Bytes of the buffers that both touch."""
        x, y = self.units[a], self.units[b]
        return sum(bytes_of(s) for s in (x.reads | x.writes) & (y.reads | y.writes))

    def attempt(self, a: int, b: int) -> None:
        x, y = self.units[a], self.units[b]
        assert x.nest is not None and y.nest is not None
        if not self.plain(x.nest):
            return
        why: Any = (self.apart(a, b) or self.distant(a, b) or self.cycle(a, b)
                    or legal(x.nest, y.nest))
        if isinstance(why, str):
            if _say:
                _say("%s and %s stay apart: %s", x.shown(), y.shown(), why)
            return
        if _say:
            _say("%s takes %s", x.shown(), y.shown())
        x.nest = merged(why, self.binds)
        self.join(a, b)

    def apart(self, a: int, b: int) -> str:
        """Whether too little is shared for it to be worth one kernel."""
        x, y = self.units[a], self.units[b]
        if x.writes & y.reads or y.writes & x.reads:
            return ""
        least = min(sum(bytes_of(s) for s in u.reads | u.writes) for u in (x, y))
        single = x.nest is not None and y.nest is not None and not (x.nest.outer or y.nest.outer)
        return "" if single or self.shared(a, b) * SHARE >= least else "little is shared"

    def distant(self, a: int, b: int) -> str:
        """Whether one kernel would keep temporaries alive from where the first is to where the
        second is, for more bytes than it saves of those that lead from one to the other."""
        x, y = sorted((self.units[a], self.units[b]), key=lambda u: u.order)
        assert x.nest is not None and y.nest is not None
        near = y.nest.entries[0].order - x.nest.entries[-1].order <= FAR
        if near or _folded(x.nest) & _folded(y.nest):
            return ""
        flow = x.writes & y.reads
        if flow:
            longer = {b for b in y.writes if b.role == "arena"}
        else:
            longer = {b for b in (x.reads | x.writes) ^ (y.reads | y.writes) if b.role == "arena"}
        over = sum(map(bytes_of, longer)) - sum(bytes_of(b) for b in flow if self.users[b] == 2)
        return "far apart" if over > LITTLE else ""

    def cycle(self, a: int, b: int) -> str:
        """Whether a path leads from one to the other through a third."""
        for x, y in ((a, b), (b, a)):
            for d in map(self.find, self.units[x].deps):
                if d != y and self.units[d].ancestors >> y & 1:
                    return f"{self.units[d].name} lies between"
        return ""

    def join(self, a: int, b: int) -> None:
        """Unit b becomes part of a."""
        x, y = self.units[a], self.units[b]
        self.root[b] = a
        x.reads |= y.reads
        x.writes |= y.writes
        x.locations = tuple(dict.fromkeys(x.locations + y.locations))[:8]
        x.deps = {d for d in map(self.find, x.deps | y.deps) if d != a}
        x.ancestors = (x.ancestors | y.ancestors) & ~(1 << a | 1 << b)
        both = 1 << a | 1 << b
        add = x.ancestors | 1 << a
        first = min(a, b)
        # An earlier unit that took a later kernel may rest on what lies behind it.
        earlier = [n for n, last in self.last.items() if n <= first < last]
        self.last[a] = max(self.last.pop(b, b), self.last.get(a, a))
        for n in (*earlier, *range(first + 1, len(self.units))):
            u = self.units[n]
            if u.ancestors & both and self.root[n] == n and n != a:
                u.ancestors |= add

    def sorted(self) -> list[Unit]:
        """Units in an order that respects dependencies, otherwise as they were."""
        alive = [n for n in range(len(self.units)) if self.root[n] == n]
        waiting = {n: {d for d in map(self.find, self.units[n].deps) if d != n} for n in alive}
        after: dict[int, list[int]] = {}
        for n, deps in waiting.items():
            for d in deps:
                after.setdefault(d, []).append(n)
        ready = [(self.place(n), n) for n in alive if not waiting[n]]
        heapq.heapify(ready)
        order: list[Unit] = []
        while ready:
            _, n = heapq.heappop(ready)
            order.append(self.units[n])
            for m in after.get(n, ()):
                waiting[m].discard(n)
                if not waiting[m]:
                    heapq.heappush(ready, (self.place(m), m))
        assert len(order) == len(alive), "fusion made a cycle"
        return order

    def place(self, n: int) -> int:
        """Where a unit wants to be: where its last part was."""
        nest = self.units[n].nest
        return self.units[n].order if nest is None else nest.entries[-1].order


def _folded(nest: Nest) -> set[Buffer]:
    """What a kernel's reductions load: too dear to be loaded twice for memory's sake."""
    return {x.fields[0] for e in nest.entries for r in walk((e.store.value,)) if r.kind == "Reduce"
            for x in walk((r,)) if x.kind == "Load"}


def bytes_of(b: Buffer) -> int:
    n = numel(b.shape)
    return n * b.dtype.itemsize if isinstance(n, int) else 1 << 20
