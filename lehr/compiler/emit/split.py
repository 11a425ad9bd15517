"""Kernels that few programs would run, taken apart: long sums in two stages, stores of their own.

Stages are nests like any other. A fold with few outer points gets a stage that folds parts of it
into a *partial* buffer; what follows folds those. Partial buffers have the role "partial": memory
of one launch's kernel for the next one's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lehr.base import sym
from lehr.base.index import linearize
from lehr.base.sym import prod as numel
from lehr.compiler.emit import lane
from lehr.compiler.emit.nest import Nest, Root, crossing, row_folds
from lehr.compiler.emit.tile import PROGRAMS, Replace, Tile, count, tile
from lehr.compiler.loop import expr
from lehr.compiler.loop.ir import MONOIDS, Axis, Buffer, Expr, axis, identity

# Terms of one part of a fold: where lanes lie along its rows, and across them.
PART = {False: 4096, True: 64}
LOADED = 8 * PROGRAMS  # programs that keep memory busy
AGAIN = 8  # outer points from which a fold that they share gets a stage of its own


def stages(nest: Nest) -> list[Nest]:
    """The nests that do what `nest` does, in order."""
    return [last for n in _apart(nest) for last in _Stages(n).nests()]


def _apart(nest: Nest) -> list[Nest]:
    """Stores over rows of different extents as kernels of their own, where none needs another."""
    if row_folds(nest) or nest.states or nest.unsafe or any(
            isinstance(e, Expr) and e.kind == "Scan" for e in nest.everything()):
        return [nest]
    by: dict[tuple[Any, ...], list[Root]] = {}
    for r in nest.roots:
        by.setdefault(tuple(a.var for a in r.axes), []).append(r)
    if len(by) < 2 or not _independent(nest):
        return [nest]
    made = []
    for n, roots in enumerate(by.values()):
        axes = tuple(a._replace(role="parallel") for a in roots[0].axes)
        made.append(nest.replace(name=f"{nest.name}_{n}" if n else nest.name,
                                 outer=(*nest.outer, *axes),
                                 roots=tuple(r._replace(axes=()) for r in roots)))
    return made


def _independent(nest: Nest) -> bool:
    """Whether no store touches memory that another store or its values touch."""
    written = [nest.memory(r.buffer) for r in nest.roots]
    for r in nest.roots:
        if any(a.role == "scan" for a in r.axes):
            return False
        for e in nest.walk(nest.uses(r)):
            if isinstance(e, Expr) and e.kind == "Load":
                b = nest.memory(nest.state(e.fields[0])[0])
                if b in written and not (b is nest.memory(r.buffer)
                                         and e.fields[1][0] is r.index):
                    return False
    return True


class _Stages:
    def __init__(self, nest: Nest) -> None:
        self.nest = nest
        self.before: list[Nest] = []
        self.made: dict[Expr, Expr] = {}  # fold -> what stands for it in later stages
        self.again: dict[Any, Axis] = {}  # axes over parts, by how many there are
        self.serial = 0

    def nests(self) -> list[Nest]:
        self.nest, plan, groups = tile(self.nest)
        folds = [f for g in groups for f in g.folds]
        if not folds or plan.serial or not self.early(folds):
            return [self.nest]
        levels: dict[int, list[Expr]] = {}
        for g in groups:
            levels.setdefault(g.time, []).extend(g.folds)
        for several in [levels[t] for t in sorted(levels) if levels[t]]:
            self.level(several, plan)
        if not self.before:
            return [self.nest]
        copy = Replace(self.nest.bounds, self.made)
        last = self.nest.replace(roots=tuple(map(copy.root, self.nest.roots)))
        return [*self.before, *_apart(_promoted(last))]

    def early(self, folds: Sequence[Expr]) -> bool:
        """Whether the folds read only what no store of the kernel changes before."""
        return not any(self.nest.state(e.fields[0])[1] for e in self.nest.walk(folds)
                       if isinstance(e, Expr) and e.kind == "Load")

    def level(self, folds: Sequence[Expr], plan: Tile) -> None:
        """Stages for the folds of one time, where they are worth it."""
        deps = frozenset().union(*map(self.nest.deps, folds))
        outer = tuple(a for a in self.nest.outer if a.var in deps)
        points, terms = count(outer), max(count(f.fields[1]) for f in folds)
        shared = points * AGAIN <= count(self.nest.outer) and terms > AGAIN
        programs = -(-points // max(plan.xb, 1))
        parts = min(LOADED // programs, terms // PART[plan.across]) if programs < PROGRAMS else 0
        if parts < 2 and not shared:
            return
        at = linearize([a.var for a in outer], [a.extent for a in outer]) if outer else 0
        size = numel([a.extent for a in outer])
        if parts >= 2:
            cut = {f: self.parts(f, parts) for f in folds}
            if any(c is None for c in cut.values()):
                if not shared:
                    return
            else:
                self.partial(folds, cut, outer, at, size)
        if shared or any(r.axes for r in self.nest.roots):
            self.settled(folds, outer, at, size)

    def parts(self, f: Expr, wanted: int) -> tuple[Axis, Axis, Any] | None:
        """(the axis that is cut, the axis of parts, the length of one); None where it cannot be."""
        cut = max(f.fields[1], key=lambda a: count([a]))
        n = cut.extent
        even = [s for s in range(wanted, 2 * wanted) if isinstance(n, int) and n % s == 0]
        s = even[0] if even else wanted
        length = sym.ceildiv(n, s)
        bound = any(self.nest.loose(e.fields[1][0]) for e in self.nest.walk(f.fields[2])
                    if isinstance(e, Expr) and e.kind == "Load")
        if not even and bound:
            return None  # an index would have to be checked in part
        self.serial += 1
        return cut, axis(f"s{self.serial}", s), length

    def buffer(self, dtype: Any, size: Any) -> Buffer:
        self.serial += 1
        return Buffer(f"partial{self.serial}", dtype, (size,), (1,), "partial")

    def partial(self, folds: Sequence[Expr], cut: Mapping[Expr, Any], outer: tuple[Axis, ...],
                at: Any, size: Any) -> None:
        """The stage that folds parts; later ones fold its results."""
        by: dict[Any, list[Root]] = {}
        stages: dict[Any, tuple[Axis, ...]] = {}
        for monoid, axes, args in dict.fromkeys(f.fields[:3] for f in folds):
            f = next(f for f in folds if f.fields[:3] == (monoid, axes, args))
            old, s, length = cut[f]
            inner = Axis(sym.Var(f"c{self.serial}", 0, length - 1), length, "reduce")
            # Folds over equal axes share those of the stage.
            key = (tuple(a.var for a in axes), s.extent)
            s, inner = stages.setdefault(key, (s, inner))
            copy = self.chunk(old, s, inner, length)
            values = tuple(copy.argument(a, monoid, n) for n, a in enumerate(args))
            rest = tuple(inner if a is old else a for a in axes)
            loads = []
            for part, a in enumerate(args):
                b = self.buffer(lane.state(a.dtype) if len(args) > 1 else a.dtype, s.extent * size)
                place = s.var * size + at
                fold = Expr("Reduce", a.dtype, monoid, rest, values, part)
                roots = by.setdefault(key, [])
                roots.append(Root(b, place, expr.cast(fold, b.dtype), (), "set", None, 0,
                                  len(roots)))
                loads.append((b, a.dtype))
            j = self.again.setdefault(s.extent, axis(f"j{self.serial}", s.extent, "reduce"))
            again = tuple(expr.cast(Expr("Load", b.dtype, b, (j.var * size + at,), None, None), d)
                          for b, d in loads)
            for part in range(MONOIDS[monoid].parts):
                kin = Expr("Reduce", args[part].dtype, monoid, axes, args, part)
                self.made[kin] = Expr("Reduce", kin.dtype, monoid, (j,), again, part)
        for key, roots in by.items():
            s = stages[key][0]
            self.before.append(self.nest.replace(
                name=f"{self.nest.name}_part{len(self.before)}", outer=(s, *outer),
                roots=tuple(roots), unsafe=frozenset()))

    def chunk(self, old: Axis, s: Axis, inner: Axis, length: Any) -> _Chunk:
        return _Chunk(self.nest, self.made, old, s, inner, length)

    def settled(self, folds: Sequence[Expr], outer: tuple[Axis, ...], at: Any, size: Any) -> None:
        """A stage that stores the folds themselves; later ones load them."""
        copy = Replace(self.nest.bounds, self.made)
        roots: list[Root] = []
        for f in dict.fromkeys(folds):
            b = self.buffer(f.dtype, size)
            roots.append(Root(b, at, copy(f), (), "set", None, 0, len(roots)))
            self.made[f] = Expr("Load", f.dtype, b, (at,), None, None)
        self.before.append(self.nest.replace(
            name=f"{self.nest.name}_fold{len(self.before)}", outer=outer, roots=tuple(roots),
            unsafe=frozenset()))


class _Chunk(Replace):
    """The values of one part of a cut axis; past the axis' end, the monoid's identity."""

    def __init__(self, nest: Nest, made: Mapping[Expr, Expr], old: Axis, s: Axis, inner: Axis,
                 length: Any) -> None:
        k = s.var * length + inner.var
        self.inside = expr.inside([(k, 0, old.extent)])
        exact = isinstance(old.extent, int) and isinstance(length, int) and (
            s.extent * length == old.extent)
        if exact:
            self.inside = expr.const(True, self.inside.dtype)
        super().__init__(nest.bounds, made, {old.var: k}, {old.var: (inner,)}, self.masked)

    def masked(self, e: Expr) -> Expr:
        b, idx, mask, other = e.fields
        return expr.load(b, idx, expr.both(mask, self.inside), other)

    def argument(self, e: Expr, monoid: str, part: int) -> Expr:
        value = self(e)
        rest = identity(MONOIDS[monoid].identity[part], e.dtype)
        return expr.select(self.inside, value, expr.const(rest, e.dtype))


def _promoted(nest: Nest) -> Nest:
    """Rows that all stores share become outer axes where nothing spans them any more."""
    axes = {tuple(a.var for a in r.axes) for r in nest.roots}
    if len(axes) != 1 or not nest.roots[0].axes or row_folds(nest) or nest.states or any(
            a.role == "scan" for r in nest.roots for a in r.axes):
        return nest
    more = tuple(a._replace(role="parallel") for a in nest.roots[0].axes)
    made = nest.replace(outer=(*nest.outer, *more),
                        roots=tuple(r._replace(axes=()) for r in nest.roots))
    return nest if crossing(made) else made
