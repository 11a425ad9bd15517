"""How a nest runs: which axes threads share, which one vectors run along, what goes in one loop.

A nest runs as *units* (points of some outer axes, split over threads). Within a unit, `serial` axes
run in order, then row by row: values of the row, then loop *groups*, each a loop nest over the axes
of a row that folds and stores at once. Where memory is contiguous along an outer axis rather than
along the rows, that axis is the *strip*: all loops get it as innermost loop, over a block of it at
a time, and the values of a row are arrays of the block's width.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from lehr.base import sym
from lehr.compiler.emit.nest import Nest, Root, inner_axes, row_folds
from lehr.compiler.loop.expr import weight
from lehr.compiler.loop.ir import Axis, Expr

ROW = 16384  # elements of a row that may be kept on the stack for later loops
NEAR = 4096  # elements of a row that are in the first cache when a later loop comes to them
STAGE = 8  # the weight from which a value is kept rather than computed again
WIDTH = 512  # elements of a strip whose rows have values
LONG = 4096  # elements of a strip that is all there is
TILE = 32  # points of each axis of a tile
BUSY = 1 << 20  # the weight of work from which few units are not enough
FEW = 4  # units
BLOCKS = 8  # blocks that a strip is cut into where it is long enough


class Group(NamedTuple):
    """One loop nest: `axes` (outermost first), what it folds, which roots it stores, which values
    it keeps for later groups: (value, the root in whose place it is kept until that root replaces
    it, or None: in an array of its own). `time` orders groups."""

    time: int
    axes: tuple[Axis, ...]
    folds: tuple[Expr, ...]
    roots: tuple[int, ...]
    stages: tuple[tuple[Expr, int | None], ...] = ()


class Order(NamedTuple):
    """`inside`: the blocks of the strip are run by each unit, not units of their own. `tile`: an
    outer axis that is blocked together with the strip. `phased`: the groups themselves are split
    over threads, since there are few units of much work."""

    units: tuple[Axis, ...]
    serial: tuple[Axis, ...]
    strip: Axis | None
    width: int
    inside: bool
    tile: Axis | None
    groups: tuple[Group, ...]
    phased: bool = False


def order(nest: Nest, rows: int = 0) -> Order:
    """The order of a nest whose first `rows` outer axes are to be the units (0: as it fits)."""
    groups = _staged(nest, groups_of(nest), None)
    fixed, free = nest.outer[:rows], nest.outer[rows:]
    safe = [a for a in free if a.var not in nest.unsafe]
    strip = _strip(nest, groups, safe)
    if rows:
        units, serial = fixed, tuple(a for a in free if a is not strip)
    else:
        units = tuple(a for a in safe if a is not strip)
        serial = tuple(a for a in free if a.var in nest.unsafe)
    tile = _tile(nest, groups, strip, units) if strip is not None and not rows else None
    width = TILE if tile is not None else _width(nest, groups, strip)
    units = tuple(a for a in units if a is not tile)
    if strip is not None:
        groups = _staged(nest, groups_of(nest), width)
    made = Order(units, serial, strip, width, bool(rows), tile, groups)
    if rows or not _phased(nest, made):
        return made
    return made._replace(phased=True, groups=tuple(g._replace(stages=()) for g in groups))


def size_of(extent: Any, guess: int = 64) -> int:
    """An extent as a number; sizes that are not known count as `guess`."""
    return extent if isinstance(extent, int) else guess


def count(axes: Iterable[Axis]) -> int:
    n = 1
    for a in axes:
        n *= max(size_of(a.extent), 1)
    return n


# Time: what has to be done before what


class _Clock:
    """Assigns each fold and store the earliest time at which all it needs is there."""

    def __init__(self, nest: Nest) -> None:
        self.nest = nest
        self.folds = set(row_folds(nest))
        self.time: dict[Any, int] = {}
        self.reads: dict[Any, list[tuple[Any, tuple[Any, ...], int]]] = {}
        self.writes: dict[Any, list[tuple[Root, int]]] = {}

    def item(self, item: Any, exprs: Sequence[Any], axes: Sequence[Axis]) -> int:
        """The time of a fold (an Expr) or of root number `item`."""
        nest, time = self.nest, 0
        loads = []
        for e in nest.walk(exprs, lambda e: e in self.folds):
            if e in self.folds:
                time = max(time, self.fold(e) + 1)
            elif isinstance(e, Expr) and e.kind == "Load":
                loads.append(e)
        for e in loads:
            b, version = nest.state(e.fields[0])
            if version:
                time = max(time, self.writes[nest.memory(b)][version - 1][1] + 1)
        self.time[item] = time
        for e in loads:
            b, version = nest.state(e.fields[0])
            place = e.fields[1][0]
            self.reads.setdefault((nest.memory(b), version), []).append(
                (place, tuple(a.var for a in axes), item))
        return time

    def fold(self, e: Expr) -> int:
        if e not in self.time:
            self.item(e, e.fields[2], e.fields[1])
        return self.time[e]

    def root(self, n: int, r: Root) -> None:
        self.item(n, self.nest.uses(r), r.axes)
        axes = tuple(a.var for a in r.axes)
        time, b = self.time[n], self.nest.memory(r.buffer)
        for place, over, item in self.reads.get((b, r.version), ()):
            together = item == n or (place is r.index and over == axes)
            time = max(time, self.time[item] + (not together))
        for before, when in self.writes.get(b, ()):
            together = before.store == r.store or (
                before.index is r.index and before.axes == r.axes)
            time = max(time, when + (not together))
        self.time[n] = time
        self.writes.setdefault(b, []).append((r, time))


def groups_of(nest: Nest) -> list[Group]:
    """The loop nests of a nest, in an order in which they may run."""
    clock = _Clock(nest)
    for n, r in enumerate(nest.roots):
        clock.root(n, r)
    found: dict[Any, tuple[list[Expr], list[int], tuple[Axis, ...]]] = {}
    for item, time in clock.time.items():
        axes = nest.roots[item].axes if isinstance(item, int) else item.fields[1]
        running = tuple(a.var for a in axes if a.role == "scan")
        # Loops come before the stores of their row's own values.
        key = (time, not axes, tuple(a.var for a in axes), running)
        folds, roots, _ = found.setdefault(key, ([], [], _inner(nest, axes)))
        (roots if isinstance(item, int) else folds).append(item)
    return [Group(key[0], axes, tuple(folds), tuple(sorted(roots)))
            for key, (folds, roots, axes) in sorted(found.items(), key=lambda x: x[0][:2])]


def _inner(nest: Nest, axes: Sequence[Axis]) -> tuple[Axis, ...]:
    """The axes of a row, the one that vectors like best last; a running axis is always last."""
    last = [a for a in axes if a.role == "scan"]
    rest = [a._replace(role="parallel") for a in axes if a.role != "scan"]
    if len(rest) > 1:
        best = min(rest, key=lambda a: _score(nest, a))
        rest = [*(a for a in rest if a is not best), best]
    return (*rest, *last)


# Memory: along which axis


def _steps(nest: Nest) -> list[tuple[Any, Any, frozenset[Any]]]:
    """(index, what it depends on) of every access to memory."""
    found: list[tuple[Any, Any, frozenset[Any]]] = []
    for e in nest.everything():
        if isinstance(e, Expr) and e.kind == "Load":
            found.append((e, e.fields[1][0], nest.deps(e)))
    for r in nest.roots:
        i = r.index
        deps = frozenset() if isinstance(i, int) else nest.deps(i)
        found.append((r, i, deps | {a.var for a in r.axes}))
    return found


_COSTS = ((0, 0.25), (1, 1.0), (2, 1.5), (4, 2.5))
FAR = 8.0


def _cost(step: Any) -> float:
    if isinstance(step, int):
        for most, cost in _COSTS:
            if abs(step) <= most:
                return cost
    return FAR


def _score(nest: Nest, axis: Axis) -> float:
    """What memory costs where vectors run along an axis."""
    extents = {a.var: max(size_of(a.extent), 1)
               for a in (*nest.outer, *inner_axes(nest).values())}
    total = 0.0
    for _, place, deps in _steps(nest):
        trips = 1.0
        for v in deps:
            trips *= extents.get(v, 1)
        total += trips * _cost(nest.stride(place, axis.var))
    n = size_of(axis.extent)
    return total * (1 if n >= 16 else 16 / max(n, 1))


def _strip(nest: Nest, groups: Sequence[Group], safe: Sequence[Axis]) -> Axis | None:
    """The outer axis for vectors, None where rows are better."""
    if not safe or any(r.buffer.role == "local" for r in nest.roots):
        return None
    scores = {a: _score(nest, a) for a in safe}
    best = min(reversed(safe), key=lambda a: scores[a])
    inner = [g.axes[-1] for g in groups if g.axes]
    if not inner:
        # Stores that may meet go through memory one by one: better where it is contiguous.
        serial = [_score(nest, a) for a in nest.outer if a.var in nest.unsafe]
        return best if scores[best] <= min(serial, default=scores[best]) else None
    rows = min(_score(nest, a) * (FAR if a.role == "scan" else 1) for a in inner)
    return best if scores[best] * 1.2 < rows else None


def _width(nest: Nest, groups: Sequence[Group], strip: Axis | None) -> int:
    if strip is None:
        return 0
    n = strip.extent
    if any(g.axes for g in groups) or row_folds(nest):
        if not isinstance(n, int):
            return WIDTH // 2
        return min(max(-(-n // BLOCKS // 64) * 64, 64), WIDTH)
    random = any(isinstance(e, Expr) and e.kind == "Random" for e in nest.everything())
    most = 1024 if random else LONG
    return n if isinstance(n, int) and n <= 2 * most else most


def _tile(nest: Nest, groups: Sequence[Group], strip: Axis, units: Sequence[Axis]) -> Axis | None:
    """The axis along which memory is contiguous that is far along the strip."""
    if any(g.axes for g in groups) or size_of(strip.extent) < 8:
        return None
    for _, place, _ in _steps(nest):
        if _cost(nest.stride(place, strip.var)) == FAR:
            for a in units:
                if nest.stride(place, a.var) == 1 and size_of(a.extent) >= 8:
                    return a
    return None


# Values that several loops need


def needed(nest: Nest, group: Group) -> list[Any]:
    """What the group's loops compute: all that depends on their axes, children first."""
    own = {a.var for a in group.axes}
    exprs = [a for e in group.folds for a in e.fields[2]]
    exprs += [e for n in group.roots for e in nest.uses(nest.roots[n])]
    found = nest.walk(exprs, lambda e: own.isdisjoint(nest.deps(e)))
    return [e for e in found if not own.isdisjoint(nest.deps(e))]


def _staged(nest: Nest, groups: Sequence[Group], width: int | None) -> tuple[Group, ...]:
    """Groups with the values that a later one over the same axes would compute again."""
    made = list(groups)
    rows: dict[frozenset[Any], list[int]] = {}
    for n, g in enumerate(groups):
        if g.axes:
            rows.setdefault(frozenset(a.var for a in g.axes), []).append(n)
    for several in rows.values():
        if len(several) < 2:
            continue
        axes = groups[several[0]].axes
        own = {a.var for a in axes}
        known = all(isinstance(a.extent, int) for a in axes)
        points = count(axes) * (width or 1) if known else None
        sets = [set(needed(nest, groups[n])) for n in several]
        taken: set[int] = set()
        for k in range(len(several) - 1):
            before, after = set().union(*sets[:k]), set().union(*sets[k + 1:])
            shared = [e for e in needed(nest, groups[several[k]]) if isinstance(e, Expr)
                      and e in after and e not in before and _heavy(nest, e)
                      and own <= nest.deps(e)]      # others are used outside the innermost loop
            kept = []
            for e in _outermost(nest, shared, groups, several[k:]):
                place = None if points is not None and points <= NEAR else _place(
                    nest, e, [groups[n] for n in several[k + 1:]], taken)
                if place is not None or points is not None and points <= ROW:
                    kept.append((e, place))
                    taken |= set() if place is None else {place}
            made[several[k]] = made[several[k]]._replace(stages=tuple(kept))
    return tuple(made)


def _place(nest: Nest, e: Expr, later: Sequence[Group], taken: set[int]) -> int | None:
    """The root that a value may wait in the place of: the only one to use it, last of all."""
    users = [g for g in later if e in needed(nest, g)]
    roots = [n for g in users for n in g.roots if e in nest.walk(nest.uses(nest.roots[n]))]
    if len(users) != 1 or len(roots) != 1 or roots[0] in taken:
        return None
    if any(e in nest.walk(f.fields[2]) for f in users[0].folds):
        return None
    r = nest.roots[roots[0]]
    if r.mode != "set" or r.mask is not None or r.buffer.dtype is not e.dtype:
        return None
    own = nest.memory(r.buffer)
    loads = (x for x in nest.everything() if isinstance(x, Expr) and x.kind == "Load")
    if any(nest.memory(nest.state(x.fields[0])[0]) is own for x in loads):
        return None
    alone = [x for x in nest.roots if nest.memory(x.buffer) is own]
    return roots[0] if len(alone) == 1 and not nest.loose(r.index) else None


def _heavy(nest: Nest, e: Expr) -> bool:
    if e.kind in ("Const", "Index", "Load", "Scan"):
        return False
    return sum(weight(x) for x in nest.walk([e]) if isinstance(x, Expr)) >= STAGE


def _outermost(nest: Nest, exprs: Sequence[Expr], groups: Sequence[Group], where: Sequence[int]
               ) -> list[Expr]:
    """Those that a later loop uses other than through another of them."""
    chosen = set(exprs)
    found: set[Any] = set()
    for n in where[1:]:
        g = groups[n]
        roots = [a for e in g.folds for a in e.fields[2]]
        roots += [e for m in g.roots for e in nest.uses(nest.roots[m])]
        found |= {e for e in nest.walk(roots, lambda e: e in chosen) if e in chosen}
    return [e for e in exprs if e in found]


# Work


def units(made: Order) -> tuple[tuple[Axis, int], ...]:
    """(axis, how many of its points belong to one unit)."""
    found = [(a, 1) for a in made.units]
    if made.tile is not None:
        found.append((made.tile, TILE))
    if made.strip is not None and not made.inside and not whole(made):
        found.append((made.strip, made.width))
    return tuple(found)


def whole(made: Order) -> bool:
    """Whether the strip is one block."""
    assert made.strip is not None
    return isinstance(made.strip.extent, int) and made.strip.extent <= made.width


def total(made: Order) -> Any:
    """The number of units."""
    return sym.prod([sym.ceildiv(a.extent, block) for a, block in units(made)])


def work(nest: Nest, made: Order) -> int:
    """The weight of one unit, sizes not known counting as 64."""
    extents = {a.var: max(size_of(a.extent), 1)
               for a in (*nest.outer, *inner_axes(nest).values())}
    for a, block in units(made):
        extents[a.var] = min(block, size_of(a.extent, block))
    sums = 0.0
    for e in nest.everything():
        trips = 1.0
        for v in nest.deps(e):
            trips *= extents.get(v, 1)
        if isinstance(e, Expr):
            sums += trips * (weight(e) if e.kind not in ("Reduce", "Scan") else 1)
    for _, _, deps in _steps(nest):
        trips = 1.0
        for v in deps:
            trips *= extents.get(v, 1)
        sums += trips
    return max(int(sums), 1)


def _phased(nest: Nest, made: Order) -> bool:
    """Whether there are so few units, of so much work (or of nobody knows how much), that the loops
    of each are split."""
    axes = [a for g in made.groups for a in g.axes]
    if made.serial or not axes or any(a.role == "scan" for a in axes):
        return False
    several = total(made)
    unknown = any(not isinstance(a.extent, int) for a in axes)
    return isinstance(several, int) and several < FEW and (
        unknown or work(nest, made) * several >= BUSY)
