"""How a nest runs on a GPU: which axes a program's block has, how many points of each, how many
warps.

A `Tile` is a record that tuning can vary; `tile` makes the default one, from extents and strides
alone, so that the order of sums does not depend on the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from lehr.base import sym
from lehr.base.sym import prod as numel
from lehr.compiler.emit.nest import Bounds, Copy, Nest, Root, in_order, row_folds
from lehr.compiler.emit.order import Group, groups_of
from lehr.compiler.loop.ir import Axis, Expr

PROGRAMS = 264  # twice the multiprocessors of the largest devices: what a launch should have
FLAT = 1024  # points of a block of elementwise work
POINTS = 2048  # points of a block that folds
WHOLE = 1 << 15  # points of rows that are there as a whole, in all that is loaded of a row
WARPS = 32  # of a program, at most
FEW = 8  # terms of a sum that one lane adds up alone
MANY = 64  # the same, where there are lanes enough
GUESS = 1024  # a size that is not known
SEGMENT = 256  # bytes of memory that lanes across rows load together
FAR = 8.0  # cost of a lane that uses a sector of memory alone


class Row(NamedTuple):
    """The axes of rows: `serial` ones in loops, the others flattened, `block` points at a time
    (0: all axes are serial), all at once where `whole`."""

    axes: tuple[Axis, ...]
    serial: tuple[Axis, ...]
    block: int
    whole: bool

    @property
    def inner(self) -> tuple[Axis, ...]:
        return self.axes[len(self.serial):]


class Tile(NamedTuple):
    """`y` and `x`: outer axes of a block's positions, flattened, `yb` and `xb` points of them (1:
    no position); `serial`: outer axes in loops; `rows`: by axes; `inline`: folds that each lane
    computes alone; `across`: lanes lie along `x` though there are rows."""

    y: tuple[Axis, ...]
    x: tuple[Axis, ...]
    yb: int
    xb: int
    serial: tuple[Axis, ...]
    rows: tuple[Row, ...]
    inline: frozenset[Expr]
    warps: int
    across: bool = False

    @property
    def rank(self) -> int:
        return (self.yb > 1) + (self.xb > 1) + any(r.block for r in self.rows)

    @property
    def programs(self) -> Any:
        """How many programs there are."""
        return (sym.ceildiv(numel([a.extent for a in self.x]), self.xb)
                * sym.ceildiv(numel([a.extent for a in self.y]), self.yb))


def count(axes: Iterable[Axis], guess: int = GUESS) -> int:
    n = 1
    for a in axes:
        n *= max(a.extent, 1) if isinstance(a.extent, int) else guess
    return n


def pow2(n: int) -> int:
    """The least power of two that is not below n."""
    return 1 << max(n - 1, 0).bit_length()


# Stores for which there is an instruction, or a loop around one: other stores that combine run one
# after another.
_WIDE = ("f32", "f64", "i32", "i64")
ATOMIC = {"add": _WIDE, "max": _WIDE, "min": _WIDE, "mul": _WIDE}


def atomic(r: Root) -> bool:
    return r.mode == "set" or r.buffer.dtype.short in ATOMIC[r.mode]


def tile(nest: Nest, points: int = 0) -> tuple[Nest, Tile, list[Group]]:
    """(the nest with axes renamed where that is needed, its default tile, its loop groups).
    `points`: how many there are in all the kernels that may share a launch with this one."""
    serial = () if all(map(atomic, nest.roots)) else tuple(
        a for a in nest.outer if a.var in nest.unsafe)
    outer = tuple(a for a in nest.outer if a not in serial)
    groups = groups_of(nest)
    alone = _alone(nest, groups)
    clash = [f for g in groups for f in g.folds if alone & {a.var for a in f.fields[1]}]
    if clash:
        return tile(_renamed(nest, clash), points)
    inline = frozenset(_inline(nest, outer))
    groups = [g._replace(folds=tuple(f for f in g.folds if f not in inline)) for g in groups]
    groups = [g for g in groups if g.folds or g.roots]
    rows = _rows(groups, alone)
    costs = {a: _cost(nest, a.var) for a in outer}
    if any(r.inner for r in rows):
        return nest, _folding(nest, outer, costs, serial, rows, inline), groups
    return nest, _flat(nest, outer, costs, serial, rows, inline, points), groups


def _alone(nest: Nest, groups: Sequence[Group]) -> frozenset[Any]:
    """The inner axes whose points run one after another."""
    found: set[Any] = set()
    for g in groups:
        if g.axes and g.axes[-1].role == "scan":
            found |= {a.var for a in g.axes[:-1]}
        if any(_meets(nest, nest.roots[n]) for n in g.roots):
            found |= {a.var for a in g.axes}
    return frozenset(found)


def _inline(nest: Nest, outer: Sequence[Axis]) -> Iterator[Expr]:
    """Folds of few terms whose axes are no store's."""
    most = MANY if count(outer) >= PROGRAMS * FLAT // 4 else FEW
    folds = row_folds(nest)
    long = [e for e in folds if not all(isinstance(a.extent, int) for a in e.fields[1])
            or count(e.fields[1]) > most]
    used = {a.var for r in nest.roots for a in r.axes} | {a.var for e in long for a in e.fields[1]}
    for e in folds:
        if used.isdisjoint(a.var for a in e.fields[1]):
            yield e


def _renamed(nest: Nest, folds: Sequence[Expr]) -> Nest:
    """Folds with axes of their own, which stores do not have."""
    taken = {a.var.name for f in folds for a in f.fields[1]}
    made: dict[Expr, Expr] = {}
    for f in folds:
        axes = [a._replace(var=sym.Var(f"{a.var.name}_{len(taken)}", 0, a.extent - 1))
                for a in f.fields[1]]
        taken |= {a.var.name for a in axes}
        pairs = list(zip(f.fields[1], axes, strict=True))
        copy = Replace(nest.bounds, {}, {a.var: x.var for a, x in pairs},
                       {a.var: (x,) for a, x in pairs})
        made[f] = copy(f)
    copy = Replace(nest.bounds, made)
    return nest.replace(roots=tuple(map(copy.root, nest.roots)))


class Replace(Copy):
    """Copies with some expressions replaced by others."""

    def __init__(self, bounds: Bounds, made: Mapping[Expr, Expr],
                 index: Mapping[Any, Any] | None = None,
                 axes: Mapping[Any, tuple[Axis, ...]] | None = None,
                 load: Callable[[Expr], Expr] | None = None) -> None:
        super().__init__(bounds, index or {}, axes, load)
        self.made = made

    def copied(self, e: Expr) -> Expr:
        found = self.made.get(e)
        return super().copied(e) if found is None else found


def _rows(groups: Sequence[Group], alone: frozenset[Any]) -> list[Row]:
    """The distinct rows; their blocks are chosen later."""
    found: dict[tuple[Any, ...], Row] = {}
    for g in groups:
        serial = tuple(a for a in g.axes if a.var in alone)
        inner = tuple(a for a in g.axes if a.var not in alone)
        if g.axes:
            found.setdefault(tuple(a.var for a in g.axes), Row((*serial, *inner), serial, 0, False))
    return list(found.values())


def _meets(nest: Nest, r: Root) -> bool:
    """Whether a store's values of a row have to go one after another."""
    return bool(r.axes) and (not atomic(r) or in_order(r, nest.bounds))


# Memory


def accesses(nest: Nest) -> list[tuple[Any, frozenset[Any], int]]:
    """(index, what it depends on, bytes) of every element loaded or stored, each once."""
    found: dict[Any, tuple[Any, frozenset[Any], int]] = {}
    for e in nest.everything():
        if isinstance(e, Expr) and e.kind == "Load":
            b, i = nest.state(e.fields[0])[0], e.fields[1][0]
            found.setdefault((b, i), (i, nest.deps(e), b.dtype.itemsize))
    for r in nest.roots:
        free = frozenset() if isinstance(r.index, int) else nest.deps(r.index)
        found.setdefault((r.buffer, r.index),
                         (r.index, free | {a.var for a in r.axes}, r.buffer.dtype.itemsize))
    return list(found.values())


def _cost(nest: Nest, var: Any) -> float:
    """What memory costs where lanes lie along an axis."""
    extents = _extents(nest)
    total = 0.0
    for place, deps, size in accesses(nest):
        trips = float(size)
        for v in deps:
            trips *= extents.get(v, 1)
        total += trips * _factor(nest.stride(place, var))
    return total


def _factor(step: Any) -> float:
    return min(max(abs(step), 0.25), FAR) if isinstance(step, int) else FAR


def _extents(nest: Nest) -> dict[Any, int]:
    found = {a.var: count([a]) for a in nest.outer}
    for r in nest.roots:
        found |= {a.var: count([a]) for a in r.axes}
    for e in nest.everything():
        if isinstance(e, Expr) and e.kind in ("Reduce", "Scan"):
            axes = e.fields[1] if e.kind == "Reduce" else (e.fields[1],)
            found |= {a.var: count([a]) for a in axes}
    return found


def _last(axes: Sequence[Axis], best: Axis) -> tuple[Axis, ...]:
    return (*(a for a in axes if a is not best), best)


# Tiles


def _flat(nest: Nest, outer: Sequence[Axis], costs: dict[Axis, float], serial: tuple[Axis, ...],
          rows: list[Row], inline: frozenset[Expr], points: int) -> Tile:
    """Of work without blocks of rows."""
    if not outer:
        return Tile((), (), 1, 1, serial, tuple(rows), inline, 1)
    best = min(reversed(outer), key=costs.__getitem__)
    other = _across(nest, outer, best)
    n = count(outer)
    if other is not None:
        rest = tuple(a for a in outer if a is not best)
        xb, yb = (min(32, pow2(count([a]))) for a in (best, other))
        return Tile(_last(rest, other), (best,), yb, xb, serial, tuple(rows), inline, 4)
    xb = min(max(pow2(max(points, n) // PROGRAMS), 128), FLAT)
    xb = xb if points else min(xb, max(pow2(n), 32))
    xb = 1 if n == 1 and not points and all(
        isinstance(a.extent, int) for a in outer) else xb
    return Tile((), _last(outer, best), 1, xb, serial, tuple(rows), inline, max(1, xb // 256))


def _across(nest: Nest, outer: Sequence[Axis], best: Axis) -> Axis | None:
    """The axis along which memory is contiguous that is far apart along `best`."""
    if count([best]) < 16:
        return None
    for place, _, _ in accesses(nest):
        if _factor(nest.stride(place, best.var)) == FAR:
            for a in outer:
                if a is not best and count([a]) >= 16 and nest.stride(place, a.var) == 1:
                    return a
    return None


def _folding(nest: Nest, outer: Sequence[Axis], costs: dict[Axis, float],
             serial: tuple[Axis, ...], rows: list[Row], inline: frozenset[Expr]) -> Tile:
    """Of work with rows: lanes lie along them, or along the outer axis that memory likes best."""
    n = count(outer)
    lanes = min(_cost(nest, r.inner[-1].var) for r in rows if r.inner)
    best = min(reversed(outer), key=costs.__getitem__) if outer else None
    aside = best is not None and costs[best] * 1.2 < lanes and count([best]) >= 16
    x = _last(outer, best) if aside and best is not None else tuple(outer)
    longest = max(count(r.inner) for r in rows if r.inner)
    known = all(isinstance(a.extent, int) for r in rows for a in r.inner)
    if aside and best is not None:
        xb = min(_segment(nest, best), pow2(n))
        xb = max(16, xb // 2) if n // xb < PROGRAMS // 2 else xb
        room = max(POINTS // xb, 16)
    else:
        room = WHOLE // max(_loads(nest, rows), 2)
        room = room if known and pow2(longest) <= room else POINTS
        xb = max(1, min(POINTS // 2 // min(pow2(longest), POINTS), pow2(n) // PROGRAMS, 64))
        xb = 1 << (xb.bit_length() - 1)
    made = []
    for r in rows:
        if not r.inner:
            made.append(r)
            continue
        fits = all(isinstance(a.extent, int) for a in r.inner) and pow2(count(r.inner)) <= room
        block = pow2(count(r.inner)) if fits else room
        made.append(r._replace(block=max(block, 2), whole=fits and not r.serial))
    points = xb * max(r.block for r in made)
    warps = min(max(points // 512, 1), WARPS)
    if points > 256:
        warps = max(warps, 2)
    return Tile((), x, 1, xb, serial, tuple(made), inline, warps, aside)


def _loads(nest: Nest, rows: Sequence[Row]) -> int:
    """How many loads go along rows: what registers have to hold."""
    own = frozenset(a.var for r in rows for a in r.inner)
    return sum(isinstance(e, Expr) and e.kind == "Load" and not own.isdisjoint(nest.deps(e))
               for e in nest.everything())


def _segment(nest: Nest, lane: Axis) -> int:
    """Points along an axis whose elements fill SEGMENT bytes."""
    sizes = [size for place, _, size in accesses(nest) if nest.stride(place, lane.var) == 1]
    return min(max(SEGMENT // min(sizes, default=4), 32), 128)


def wide(nest: Nest, places: Iterable[Any]) -> bool:
    """Whether an offset may not fit 32 bits."""
    for place in places:
        low, high = (place, place) if isinstance(place, int) else sym.interval(place)
        if low is None or high is None or low < -(1 << 31) or high >= 1 << 31:
            return True
    return False

