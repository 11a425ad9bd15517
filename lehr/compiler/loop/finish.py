"""After merging: values flow through expressions instead of memory.

Inside one kernel a load of what an earlier store of the same point wrote becomes the stored value
itself, or, along a row, the value computed again where that is cheap; a row that is worth keeping
is staged in a local buffer. Stores that nobody reads any more go, and with them buffers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from lehr.base import sym
from lehr.compiler.graph.ir import Location
from lehr.compiler.loop.expr import Rewriter, weight
from lehr.compiler.loop.ir import Buffer, Expr, Group, Kernel, Program, Step, Store
from lehr.compiler.loop.merge import Binds, Entry, Nest
from lehr.compiler.loop.text import row_major, walk
from lehr.compiler.loop.verify import touched

# The work for one element up to which a row is computed again: instead of being staged, or, where
# it is stored anyway, instead of being loaded.
AGAIN, LOAD = 6, 2
# Expressions are not inlined into one another beyond this depth.
DEPTH = 100


def users(steps: Iterable[tuple[set[Buffer], set[Buffer]]]) -> dict[Buffer, int]:
    """How many steps touch each buffer."""
    count: dict[Buffer, int] = {}
    for reads, writes in steps:
        for b in reads | writes:
            count[b] = count.get(b, 0) + 1
    return count


def kernel(nest: Nest, name: str, locations: tuple[Location, ...], binds: Binds,
           used: dict[Buffer, int]) -> Kernel | None:
    """The kernel of merged stores; None where nothing of it is needed."""
    stores = _Forward(nest, binds, used, True).stores() or _Forward(
        nest, binds, used, False).stores()
    assert stores is not None
    outer = frozenset(a.var for a in nest.outer)
    keep = [s.buffer.role in ("output", "ref") or used[s.buffer] > 1 for s in stores]
    for n in range(len(stores) - 1, -1, -1):
        if keep[n]:
            for e in _loads(stores[n], binds):
                b = e.fields[0]
                for m in range(n):
                    keep[m] = keep[m] or stores[m].buffer is b
    stores = [s for s, k in zip(stores, keep, strict=True) if k]
    if not stores:
        return None
    private = {s.buffer for s in stores if s.buffer.role == "arena" and used[s.buffer] == 1}
    stores = _localised(stores, private, outer, binds)
    roots = [e for s in stores for e in ((s.value,) if s.mask is None else (s.value, s.mask))]
    needed = binds.needed(roots, [i for s in stores for i in s.idx])
    return Kernel(name, nest.outer, tuple(stores), needed, locations)


def _loads(s: Store, binds: Binds) -> Iterable[Expr]:
    roots = [s.value] if s.mask is None else [s.value, s.mask]
    for b in binds.needed(roots, s.idx):
        roots += [b.value] if b.mask is None else [b.value, b.mask]
    return (e for e in walk(roots) if e.kind == "Load")


class _Forward:
    """Replaces loads of what the kernel itself stores."""

    def __init__(self, nest: Nest, binds: Binds, used: dict[Buffer, int], move: bool) -> None:
        self.nest, self.binds, self.used, self.move = nest, binds, used, move
        self.first: dict[Buffer, int] = {}   # the first store into a buffer
        self.last: dict[Buffer, int] = {}    # the last one
        self.stale: dict[Buffer, set[Buffer]] = {}
        self.early: list[tuple[int, Buffer]] = []  # stores that go before those into a buffer
        self.late: set[tuple[int, Buffer]] = set()  # stores that load what an earlier one stored
        self.made: dict[Buffer, Store] = {}
        self.depth: dict[Expr, int] = {}
        self.again: dict[tuple[Store, Any], Expr | None] = {}
        self.phase: dict[Buffer, int] = {}
        self.now = self.at = 0
        self.into: Buffer | None = None  # the store at hand: its buffer and index
        self.place: tuple[Any, ...] = ()
        self.axes: tuple[Any, ...] = ()

    def stores(self) -> list[Store] | None:
        """The stores in order; None where `move` asked for an order that there is not."""
        entries = _phases(self.nest.entries)
        several = [e.store.buffer for e in entries]
        self.last = {b: n for n, b in enumerate(several)}
        self.first = {b: several.index(b) for b in several}
        done: list[Store] = []
        phases: list[int] = []
        for n, entry in enumerate(entries):
            s = entry.store
            self.at, self.into, self.place = n, s.buffer, s.idx
            self.inherited: set[Buffer] = set()
            self.now += s.axes != self.axes
            self.axes = s.axes
            rewrite = Rewriter({}, self.load, self.binds.of, self.binds.fresh)
            value = self.renamed(s) or rewrite(s.value)
            made = s._replace(value=value, idx=tuple(map(rewrite.index, s.idx)),
                              mask=None if s.mask is None else rewrite(s.mask))
            done.append(made)
            phases.append(self.now)
            if s.mask is None and several.count(s.buffer) == 1:
                self.made[s.buffer] = made
                self.phase[s.buffer] = self.now
                # What the value loads and a store from here on replaces: outside this place the
                # value may not be computed again.
                later = {e.fields[0] for e in walk((value,)) if e.kind == "Load"
                         and self.last.get(e.fields[0], -1) >= n}
                self.stale[s.buffer] = later | self.inherited
        if not self.late.isdisjoint(self.early):
            return None
        return _ordered(done, phases, self.early)

    def renamed(self, s: Store) -> Expr | None:
        """The whole value of another store, where this one only copies it and nobody else reads
        it."""
        e = s.value
        if e.kind != "Load" or e.fields[2] is not None:
            return None
        old = self.made.get(e.fields[0])
        if old is None or old.idx != e.fields[1] or old.axes != s.axes:
            return None
        if self.used[old.buffer] > 1 or old.buffer.role != "arena" or self.stale[old.buffer]:
            return None
        reads = sum(b is old.buffer for x in self.nest.entries for b, _ in x.loads)
        return old.value if reads == 1 else None

    def load(self, e: Expr) -> Expr | None:
        """The value that a load stands for, where there is one and it is better than the load."""
        found, buffer = self.forwarded(e), e.fields[0]
        if found is not None:
            source = self.last[buffer]
            self.late |= {(self.at, b) for n, b in self.late if n == source}
        elif self.first.get(buffer, self.at) < self.at:
            self.late.add((self.at, buffer))
        return found

    def forwarded(self, e: Expr) -> Expr | None:
        buffer, idx, mask, _ = e.fields
        s = self.made.get(buffer)
        if s is None or mask is not None:
            return None
        stale = self.stale[buffer]
        if idx == s.idx and self.phase[buffer] == self.now:  # one loop: computed once
            if not self.shallow(s.value) or (stale and not self.move):
                return None
            if self.into in stale and not self.in_place(s.value):
                return None
            self.early += [(self.at, b) for b in stale]
            self.inherited |= stale
            return s.value
        if stale:
            return None
        if not s.axes:
            return s.value if idx == s.idx and self.work(s.value, s) <= 1 else None
        key = (s, idx)
        if key not in self.again:
            self.again[key] = self.recomputed(s, idx)
        return self.again[key]

    def in_place(self, e: Expr) -> bool:
        """Whether what the store at hand replaces is loaded only at the very element replaced."""
        return all(x.fields[1] == self.place for x in walk((e,))
                   if x.kind == "Load" and x.fields[0] is self.into)

    def recomputed(self, s: Store, idx: Any) -> Expr | None:
        """The stored value at another place of the row, if that is cheap."""
        own = {a.var for a in s.axes}
        names: dict[Any, Any] = {}
        for w, r in zip(s.idx, idx, strict=True):
            if w in own and names.get(w, r) is r:
                names[w] = r
            elif w is not r and w != r:
                return None
        stored = s.buffer.role != "arena" or self.used[s.buffer] > 1
        if set(names) != own or not self.shallow(s.value) or (
                self.work(s.value, s) > (LOAD if stored else AGAIN)):
            return None
        return Rewriter(names, None, self.binds.of, self.binds.fresh)(s.value)

    def work(self, e: Expr, s: Store) -> int:
        """The cost of one element of a row: what varies along it."""
        own = frozenset(a.var for a in s.axes)
        if not own:
            return sum(weight(x) for x in walk((e,)))
        return sum(weight(x) for x in walk((e,)) if not x.free.isdisjoint(own)
                   or x.kind in ("Reduce", "Scan"))

    def shallow(self, e: Expr) -> bool:
        """Whether a value may stand inside others: no loops of its own, not too deep."""
        known = self.depth
        for x in walk((e,)):
            if x not in known:
                known[x] = 1000 if x.kind in ("Reduce", "Scan") else 1 + max(
                    (known[c] for c in x.children), default=0)
        return known[e] <= DEPTH


def _ordered(stores: list[Store], phases: Sequence[int], early: Sequence[tuple[int, Buffer]]
             ) -> list[Store] | None:
    """The stores, those named in `early` moved before the stores into the buffer beside them; None
    where that cannot be."""
    if not early:
        return stores
    count = len(stores)
    loads = [{e.fields[0] for e in walk((s.value,) if s.mask is None else (s.value, s.mask))
              if e.kind == "Load"} for s in stores]
    moved = set(early)
    before: list[set[int]] = [set() for _ in range(count)]
    for t in range(count):
        for w in range(count):
            x = stores[w].buffer
            if w != t and (t, x) in moved:
                before[w].add(t)
            elif w < t and (x in loads[t] or x is stores[t].buffer):
                before[t].add(w)
            elif t < w and x in loads[t]:
                before[w].add(t)
    order: list[int] = []
    while len(order) < count:
        free = [n for n in range(count) if n not in order and before[n] <= set(order)]
        if not free:
            return None
        order.append(free[0])
    if [phases[n] for n in order] != sorted(phases):
        return None
    return [stores[n] for n in order]


def _phases(entries: Sequence[Entry]) -> list[Entry]:
    """The stores in an order that keeps those over equal axes together, so that they share a
    loop."""
    waiting = list(entries)
    done: list[Entry] = []
    axes: Any = None
    while waiting:
        ready = [e for n, e in enumerate(waiting) if not any(_before(x, e) for x in waiting[:n])]
        e = next((e for e in ready if e.store.axes == axes), ready[0])
        axes = e.store.axes
        waiting.remove(e)
        done.append(e)
    return done


def _before(a: Entry, b: Entry) -> bool:
    """Whether a must stay before b."""
    x, y = a.store.buffer, b.store.buffer
    return x is y or any(l is x for l, _ in b.loads) or any(l is y for l, _ in a.loads)


def _localised(stores: Sequence[Store], private: set[Buffer], outer: frozenset[Any],
               binds: Binds) -> list[Store]:
    """Buffers that only this kernel touches keep the dimensions of a row alone."""
    places: dict[Buffer, tuple[Buffer, list[int]]] = {}
    for s in stores:
        b = s.buffer
        if b in private and b not in places:
            own = frozenset(a.var for a in s.axes)
            dims = [d for d, i in enumerate(s.idx) if sym.free(i) & own]
            if any(sym.free(s.idx[d]) & outer for d in dims):
                continue
            shape = tuple(b.shape[d] for d in dims)
            places[b] = Buffer(b.name, b.dtype, shape, row_major(shape), "local"), dims
    if not places:
        return list(stores)

    def load(e: Expr) -> Expr | None:
        found = places.get(e.fields[0])
        if found is None:
            return None
        idx = tuple(e.fields[1][d] for d in found[1])
        return Expr("Load", e.dtype, found[0], idx, *e.fields[2:])

    rewrite = Rewriter({}, load, binds.of, binds.fresh)
    made = []
    for s in stores:
        found = places.get(s.buffer)
        idx = s.idx if found is None else tuple(s.idx[d] for d in found[1])
        made.append(s._replace(buffer=found[0] if found else s.buffer, value=rewrite(s.value),
                               idx=tuple(map(rewrite.index, idx)),
                               mask=None if s.mask is None else rewrite(s.mask)))
    return made


def program(old: Program, steps: Sequence[Step]) -> Program:
    """The program with these steps, its results, and the buffers that the steps touch."""
    found: dict[Buffer, None] = dict.fromkeys(old.results)
    for step in steps:
        for k in step.kernels if isinstance(step, Group) else (step,):
            r, w = touched(k)
            found.update(dict.fromkeys(w))
            found.update(dict.fromkeys(r))
    # A buffer made local keeps its name, and so its place.
    order = {b.name: n for n, b in enumerate(old.buffers)}
    mine = sorted((b for b in found if b not in old.params), key=lambda b: order[b.name])
    return old._replace(steps=tuple(steps), buffers=tuple(mine))


