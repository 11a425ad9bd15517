"""A nest as one Triton function: indices, then loop groups in order, row by row or by blocks of it.

Within a program, threads see each other's stores only across a barrier: one stands before a load of
what the function stored, and before a store over what another value was loaded from.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from lehr.base import dtype as dt
from lehr.base.dtype import DType
from lehr.compiler.emit import lane
from lehr.compiler.emit.block import Block, Dim, Scope, Shape, join
from lehr.compiler.emit.nest import Nest, Root
from lehr.compiler.emit.order import Group
from lehr.compiler.emit.tile import Row, Tile, atomic, wide
from lehr.compiler.loop.ir import Axis, Buffer, Expr


class Written(NamedTuple):
    """A function without its head.

    body      lines; they know the program's number `pid`
    pointers  buffers, in the order of the arguments p0, p1, ...
    symbols   sizes, the next arguments
    extent    the argument `n`: how many points there are (None: no such argument)
    faults    kinds of checks, numbered from 0: with any, arguments `fault` and `place`
    constants lengths of blocks
    programs  how many programs to launch
    wide      whether sizes and offsets have 64 bits
    """

    body: tuple[str, ...]
    pointers: tuple[Buffer, ...]
    symbols: tuple[Any, ...]
    extent: Any
    faults: tuple[str, ...]
    constants: tuple[tuple[str, int], ...]
    programs: Any
    warps: int
    wide: bool
    stages: int = 1


def write(nest: Nest, tile: Tile, groups: Sequence[Group]) -> Written:
    """The function of a nest under a tile."""
    return Writer(nest, tile, groups).written()


class Writer(Block):
    """The function of a nest under a tile. `outer` may be replaced by another use of `pid`."""

    def __init__(self, nest: Nest, tile: Tile, groups: Sequence[Group]) -> None:
        size: Any = 1
        for a in nest.outer:
            size = size * a.extent
        super().__init__(nest, tile.rank, wide(nest, (*nest.places(), size)))
        self.tile, self.groups = tile, groups
        self.constants: dict[str, int] = {}
        self.extent: Any = None
        self.frames: dict[Row, Scope] = {}
        self.shared = self._shared()
        self.loaded: set[tuple[Buffer, Expr]] = set()  # since the last barrier
        self.stored: dict[Buffer, set[Any]] = {}

    def written(self) -> Written:
        self.places |= {a.var: self.rank - 1 for r in self.tile.rows for a in r.inner}
        self.outer()
        for g in self.groups:
            for f in g.folds:
                shape = join(map(self.shape, f.fields[2]))
                self.folded[f] = None if self.rank == 1 else (
                    (shape or frozenset()) - {self.rank - 1})
        with contextlib.ExitStack() as loops:
            for a in self.tile.serial:
                loops.enter_context(self.through(a))
            for g in self.groups:
                self.group(g)
            if self.tile.serial:
                self.barrier()
        symbols = tuple(sorted(self.symbols, key=lambda v: v.name))
        return Written(tuple(self.out), tuple(self.pointers), symbols, self.extent,
                       tuple(self.faults), tuple(self.constants.items()), self.tile.programs,
                       self.tile.warps, self.wide)

    # Indices

    @contextlib.contextmanager
    def through(self, a: Axis) -> Iterator[None]:
        """A loop over an axis."""
        name, extent = self.fresh("k"), self.index(a.extent)
        with self.loop(f"for {name} in range({extent}):", (a.var,)):
            self.names[a.var] = name
            yield

    def outer(self) -> None:
        """The indices of the outer axes."""
        t, at = self.tile, "pid"
        if self.wide:
            self.add("pid = tl.cast(pid, tl.int64)")
        if t.yb > 1:
            y, x = Dim("y", t.y, "YB", 0), Dim("x", t.x, "XB", 1)
            across = f"({self.index(x.size)} + {t.xb - 1}) // {t.xb}" if not isinstance(
                x.size, int) else str(-(-x.size // t.xb))
            self.add(f"across = {across}")
            self.dim(y, "(pid // across)", t.yb)
            self.dim(x, "(pid % across)", t.xb)
        elif t.x:
            self.dim(Dim("x", t.x, "XB", 0), at, t.xb)

    def dim(self, d: Dim, at: str, block: int) -> None:
        """The index of a position, the variables of its axes, its mask."""
        flat = not self.tile.rows and len(d.axes) == 1 and self.tile.yb == 1
        if block > 1:
            self.constants[d.block] = block
            self.blocks[d.position] = d.block
            self.add(f"{d.name} = {at} * {d.block} + {self.lanes(d)}")
            size = d.size
            if flat:
                self.extent, text = size, "n"
            else:
                text = self.index(size)
            if flat or not (isinstance(size, int) and size % block == 0):
                self.masks[d.position] = f"{d.name}_in"
                self.add(f"{d.name}_in = {d.name} < {lane.atom(text)}")
            self.places |= {a.var: d.position for a in d.axes}
        else:
            self.add(f"{d.name} = {at}")
        self.split(d)

    def lanes(self, d: Dim) -> str:
        many = ["None"] * self.rank
        many[d.position] = ":"
        return f"tl.arange(0, {d.block})" + (f"[{', '.join(many)}]" if self.rank > 1 else "")

    def split(self, d: Dim) -> None:
        """The variables of a position's axes."""
        step: Any = 1
        for n, a in reversed(list(enumerate(d.axes))):
            text = d.name
            if step != 1:
                text = f"{text} // {lane.atom(self.index(step))}"
            if n:
                text = f"{text} % {lane.atom(self.index(a.extent))}"
            self.names[a.var] = d.name if len(d.axes) == 1 else f"{d.name}{n}"
            if len(d.axes) > 1:
                self.add(f"{self.names[a.var]} = {text}")
            step = step * a.extent

    # Groups

    def needs(self, g: Group) -> list[Any]:
        """What a group's folds and stores are computed from."""
        return [a for f in g.folds for a in f.fields[2]] + [
            e for n in g.roots for e in self.nest.uses(self.nest.roots[n])]

    def _shared(self) -> frozenset[Any]:
        """Values that a group over a whole row leaves to a later one over the same row: each is
        what the later one begins with, not a part of it."""
        made: set[Any] = set()
        for row in self.tile.rows:
            seen: set[Any] = set()
            for g in self.groups if row.whole else ():
                if self.row(g) is not row:
                    continue
                below = set(self.nest.walk(self.needs(g)))
                again = below & seen
                made |= {e for e in self.nest.walk(self.needs(g), again.__contains__)
                         if e in again}
                seen |= below
        return frozenset(made)

    def row(self, g: Group) -> Row | None:
        own = {a.var for a in g.axes}
        return next((r for r in self.tile.rows if own == {a.var for a in r.axes}), None)

    def group(self, g: Group) -> None:
        roots = [self.nest.roots[n] for n in g.roots]
        row = self.row(g)
        self.before(self.needs(g))
        if row is None:
            self.points(roots)
            return
        with contextlib.ExitStack() as loops:
            for a in row.serial:
                loops.enter_context(self.through(a))
            if not row.inner:
                self.points(roots)
            elif row.whole:
                self.whole(row, g, roots)
            else:
                self.blocked(row, g, roots)
            if row.serial:
                self.barrier()

    def points(self, roots: Sequence[Root]) -> None:
        self.define(e for r in roots for e in self.nest.uses(r))
        self.stores(roots)

    def folds(self, g: Group) -> dict[Any, Expr]:
        """The folds of a group, each once whatever its parts."""
        return {f.fields[:3]: f for f in reversed(g.folds)}

    def along(self, row: Row) -> Dim:
        number = [r for r in self.tile.rows if r.inner].index(row)
        d = Dim(f"r{number}_", row.inner, f"RB{number}", self.rank - 1)
        self.constants[d.block] = row.block
        self.blocks[-1] = d.block
        size = d.size
        exact = isinstance(size, int) and size > 0 and size % row.block == 0
        self.masks[-1] = "" if exact else f"{d.name}in"
        return d

    def index_of(self, d: Dim, start: str = "") -> None:
        self.add(f"{d.name} = {start}{self.lanes(d)}")
        if self.masks[-1]:
            self.add(f"{self.masks[-1]} = {d.name} < {lane.atom(self.index(d.size))}")
        self.split(d)

    def whole(self, row: Row, g: Group, roots: Sequence[Root]) -> None:
        """A row that is there at once: what is computed stays for later groups."""
        d = self.along(row)
        if row not in self.frames:
            self.frames[row] = Scope({}, frozenset(a.var for a in row.inner), False)
            self.index_of(d)
        with self.scope(self.frames[row]):
            self.define(a for f in g.folds for a in f.fields[2])
            for (monoid, _, args), f in self.folds(g).items():
                values = self.arguments(args, self.full(args), self.masks[-1], monoid)
                self.settle(f, self.across(monoid, values))
            self.points(roots)

    def full(self, args: Iterable[Expr]) -> Shape:
        return join((*map(self.shape, args), frozenset((self.rank - 1,))))

    def blocked(self, row: Row, g: Group, roots: Sequence[Root]) -> None:
        """A row in blocks: folds are kept a lane and joined after."""
        d = self.along(row)
        own = frozenset(a.var for a in row.inner)
        folds = self.folds(g)
        exprs = [a for f in folds.values() for a in f.fields[2]]
        exprs += [e for r in roots for e in self.nest.uses(r)]
        outside = self.outside(exprs, own)
        self.define(outside, forced=True)
        states = {key: self.states(key[0], key[2], self.full(key[2])) for key in folds}
        carries = self.carries(exprs)
        name = f"{d.name}at"
        with self.loop(f"for {name} in range(0, {self.index(d.size)}, {d.block}):", own):
            self.scopes[-1].names.update(carries)
            self.index_of(d, f"{name} + ")
            self.define(exprs)
            for key in folds:
                values = self.arguments(key[2], self.full(key[2]), self.masks[-1], key[0])
                self.update(key[0], states[key], values)
            self.stores(roots)
        for key, f in folds.items():
            self.settle(f, self.across(key[0], states[key]))

    def carries(self, exprs: Sequence[Any]) -> dict[Any, str]:
        """Variables that running values are handed on in from block to block."""
        made = {}
        for e in self.nest.walk(exprs):
            if isinstance(e, Expr) and e.kind == "Scan" and ("carry", *e.fields[:3]) not in made:
                shape = (self.shape(e) or frozenset()) - {self.rank - 1}
                state = self.states(e.fields[0], e.fields[2], None if self.rank == 1 else shape)
                made["carry", *e.fields[:3]] = " ".join(state)
        return made

    # Order of memory

    def barrier(self) -> None:
        self.add("tl.debug_barrier()")
        self.loaded.clear()
        self.stored.clear()

    def before(self, exprs: Sequence[Any]) -> None:
        """Notes what a group loads, behind a barrier where the function stored it."""
        loads = [e for e in self.nest.walk(exprs) if isinstance(e, Expr) and e.kind == "Load"]
        pairs = {(self.nest.memory(self.nest.state(e.fields[0])[0]), e) for e in loads}
        if any(self.nest.state(e.fields[0])[1] and b in self.stored for b, e in pairs):
            self.barrier()
        self.loaded |= pairs

    def stores(self, roots: Sequence[Root]) -> None:
        for r in roots:
            b = self.nest.memory(r.buffer)
            own = {e for e in self.nest.walk(self.nest.uses(r))
                   if isinstance(e, Expr) and e.kind == "Load"}
            place = (r.index, tuple(a.var for a in r.axes))
            if any(m is b and e not in own for m, e in self.loaded) or not (
                    self.stored.get(b, {place}) <= {place}):
                self.barrier()
            self.store(r)
            self.stored.setdefault(b, set()).add(place)

    def store(self, r: Root) -> None:
        address, have = self.address(r.buffer, r.index)
        value = self.spell(r.value)
        mask = self.spell(r.mask) if r.mask is not None else ""
        want = join((have, self.shape(r.value), None if r.mask is None else self.shape(r.mask)))
        if r.mode != "set":  # every point takes part
            every = {self.places[a.var] for a in (*self.nest.outer, *r.axes)
                     if a.var in self.places}
            want = join((want, frozenset(every) if every else None))
        where = self.live(want, mask)
        tail = f", mask={where}" if where else ""
        if r.mode == "set":
            self.add(f"tl.store({self.fit(address, have, want)}, {value}{tail})")
            return
        if not atomic(r):
            p = self.let(self.fit(address, have, want), "at")
            old = self.let(f"tl.load({p}{tail})")
            self.add(f"tl.store({p}, {_combined(r.mode, old, value, r.buffer.dtype)}{tail})")
            return
        value = self.fit(value, self.shape(r.value), want)
        if r.mode == "add" or r.buffer.dtype.category == dt.INT and r.mode != "mul":
            self.add(f"tl.atomic_{r.mode}({self.fit(address, have, want)}, {value}{tail}, "
                     'sem="relaxed")')
            return
        self.swap(r, value, where, want)

    def swap(self, r: Root, value: str, where: str, want: Shape) -> None:
        """A combining store by compare and swap; lanes that take no part point at element 0."""
        place = self.index(r.index)
        if where:
            place = f"tl.where({where}, {place}, 0)"
        live = where or "True"
        lengths = self.lengths(want) if want is not None else "[1]"
        p, v = (f"tl.broadcast_to({x}, {lengths})" for x in (
            f"{self.pointer(r.buffer)} + {lane.atom(place)}", value))
        live = f"tl.broadcast_to({live}, {lengths})" if where else (
            f"tl.full({lengths}, True, tl.int1)")
        self.add(f"lehr_swap_{r.mode}({p}, {v}, {live})")


_SIGNS = {"add": ("|", "+"), "mul": ("&", "*"), "max": ("|", ""), "min": ("&", "")}


def _combined(mode: str, old: str, value: str, dtype: DType) -> str:
    wide = dtype.wide
    if wide is not dtype:
        a, b = (lane.cast(x, dtype, wide) for x in (old, value))
        return lane.cast(_combined(mode, a, b, wide), wide, dtype)
    sign = _SIGNS[mode][dtype is not dt.bool_]
    return f"{old} {sign} {lane.atom(value)}" if sign else f"lehr_{mode}imum({old}, {value})"
