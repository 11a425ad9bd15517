"""Whether two kernels can be one, and the kernel they make.

A kernel is a set of outer points that each run some stores. Two kernels fit when leading axes of
both have the same number of points; the other axes become inner axes of their stores. What one
writes and the other touches must then stay within one outer point (`verify.same_row`). So
elementwise kernels of one size merge whole, and a reduction merges with what reads its result along
the same rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from lehr.base import sym
from lehr.base.index import reshape_index
from lehr.compiler.loop.expr import Rewriter
from lehr.compiler.loop.ir import Axis, Bind, Buffer, Expr, Kernel, Store, axis, last
from lehr.compiler.loop.text import walk
from lehr.compiler.loop.verify import same_row
from lehr.ops.rule import numel

# Stores and buffers of one kernel: beyond these, registers and compile time suffer.
STORES, BUFFERS = 32, 40
# Elements of a row that one outer point may loop over, and of a whole tensor that may be one point.
ROW, SMALL = 1 << 18, 1 << 12
# Elements of a column that is read several times by blocks of columns.
COLUMN = 1 << 9
# Outer points that a kernel of more than a few elements must keep: they are what runs in parallel.
POINTS = 16


class Entry:
    """A store with its place in the program's order and what its values load."""

    __slots__ = ("loads", "order", "store")

    def __init__(self, order: int, store: Store, loads: tuple[tuple[Buffer, Any], ...]) -> None:
        self.order, self.store, self.loads = order, store, loads


class Nest(NamedTuple):
    """A kernel on its way to being fused."""

    outer: tuple[Axis, ...]
    entries: tuple[Entry, ...]
    reads: frozenset[Buffer]
    writes: frozenset[Buffer]

    @property
    def inner(self) -> bool:
        return any(e.store.axes for e in self.entries)


class Binds:
    """The bind variables of a program; equal binds get one variable."""

    def __init__(self, known: Mapping[Any, Bind]) -> None:
        self.of = dict(known)
        self._made = {b[1:]: v for v, b in self.of.items()}

    def fresh(self, b: Bind) -> Any:
        found = self._made.get(b[1:])
        if found is None:
            n = len(self.of)
            while (found := sym.Var(f"g{n}", 0, last(b.bound))) in self.of:
                n += 1
            self._made[b[1:]] = found
            self.of[found] = b._replace(var=found)
        return found

    def needed(self, roots: Sequence[Expr], idx: Sequence[Any]) -> tuple[Bind, ...]:
        """The binds that values and indices need, those first that others need."""
        found: dict[Any, Bind] = {}

        def visit(v: Any) -> None:
            b = self.of.get(v)
            if b is not None and v not in found:
                for free in _sorted(b.value.free | (b.mask.free if b.mask else frozenset())):
                    visit(free)
                found[v] = b

        for v in _sorted(frozenset().union(*(e.free for e in roots), *map(sym.free, idx))):
            visit(v)
        return tuple(found.values())


def _sorted(variables: Any) -> list[Any]:
    return sorted(variables, key=lambda v: (len(v.name), v.name))


def nest_of(kernel: Kernel, order: int) -> Nest:
    bound = {b.var: b for b in kernel.binds}
    entries = tuple(Entry(order, s, loads_of(s, bound)) for s in kernel.stores)
    return _nest(kernel.axes, entries)


def _nest(outer: tuple[Axis, ...], entries: tuple[Entry, ...]) -> Nest:
    return Nest(outer, entries, frozenset(b for e in entries for b, _ in e.loads),
                frozenset(e.store.buffer for e in entries))


def loads_of(s: Store, binds: Mapping[Any, Bind]) -> tuple[tuple[Buffer, Any], ...]:
    """Every distinct (buffer, index) that a store loads, through binds too."""
    roots = [s.value] if s.mask is None else [s.value, s.mask]
    seen: set[Any] = set()
    variables = [v for e in roots for v in e.free] + [v for i in s.idx for v in sym.free(i)]
    while variables:
        v = variables.pop()
        b = binds.get(v)
        if b is not None and v not in seen:
            seen.add(v)
            roots += [b.value] if b.mask is None else [b.value, b.mask]
            variables += [*b.value.free, *(b.mask.free if b.mask else ())]
    return tuple(dict.fromkeys((e.fields[0], e.fields[1]) for e in walk(roots) if e.kind == "Load"))


def products(axes: Sequence[Axis]) -> list[Any]:
    """The number of points of the first 0, 1, ... axes."""
    made: list[Any] = [1]
    for a in axes:
        made.append(made[-1] * a.extent)
    return made


def prefixes(a: Nest, b: Nest) -> Iterator[tuple[int, int]]:
    """(axes of a, axes of b) that have equally many points, longest first."""
    there = {n: j for j, n in enumerate(products(b.outer))}
    for i, n in reversed(list(enumerate(products(a.outer)))):
        j = there.get(n)
        if j is not None and (i or j or not (a.outer or b.outer)):
            yield i, j


class Fit(NamedTuple):
    """Two kernels, their common outer axes (how many of each kernel's they are), and per kernel how
    its axes read in terms of them (None: as they are)."""

    nests: tuple[Nest, Nest]
    outer: tuple[Axis, ...]
    cuts: tuple[int, int]
    maps: tuple[Mapping[Any, Any] | None, Mapping[Any, Any] | None]


def fit(a: Nest, b: Nest, i: int, j: int) -> Fit | None:
    """The first i axes of a and j of b as common outer axes; None where they cut the points in ways
    that do not nest."""
    heads = a.outer[:i], b.outer[:j]
    if heads[0] == heads[1]:
        return Fit((a, b), heads[0], (i, j), (None, None))
    fine = 0 if i >= j else 1
    outer = heads[fine]
    other = (a, b)[1 - fine]
    made = _mapped(outer, other, (i, j)[1 - fine])
    if made is None:
        return None
    return Fit((a, b), outer, (i, j), (None, made) if fine == 0 else (made, None))


def _mapped(outer: tuple[Axis, ...], nest: Nest, cut: int) -> dict[Any, Any] | None:
    """The first `cut` axes as functions of `outer`; inner axes renamed so that none is in the
    way."""
    head = nest.outer[:cut]
    at = reshape_index([x.var for x in outer], [x.extent for x in outer], [x.extent for x in head])
    if not all(_tame(e, {x.var for x in outer}) for e in at):
        return None
    made = {x.var: e for x, e in zip(head, at, strict=True)}
    for k, x in enumerate(nest.outer[cut:]):
        made[x.var] = axis(f"i{len(outer) + k}", x.extent).var
    first = len(outer) + len(nest.outer) - cut
    for e in nest.entries:
        for k, x in enumerate(e.store.axes):
            made[x.var] = axis(f"i{first + k}", x.extent).var
    return {v: e for v, e in made.items() if v is not e}


def _tame(e: Any, axes: set[Any]) -> bool:
    """Whether divisions are of single axes: others would be neither cheap nor provable."""
    if isinstance(e, sym.FloorDiv | sym.Mod):
        return len(sym.free(e.num) & axes) <= 1
    parts = [f for f, _ in e.terms] if isinstance(e, sym.Sum) else (
        e.factors if isinstance(e, sym.Product) else ())
    return all(_tame(p, axes) for p in parts)


def legal(a: Nest, b: Nest) -> Fit | str:
    """How the two fit, or why they cannot be one kernel."""
    if len(a.entries) + len(b.entries) > STORES:
        return "too many stores"
    if len(a.reads | a.writes | b.reads | b.writes) > BUFFERS:
        return "too many buffers"
    found = _rows(a, b)
    turned = _turned(a, b) if isinstance(found, str) else None
    if turned is not None:
        again = _rows(a, turned)
        return found if isinstance(again, str) else again
    return found


def _turned(a: Nest, b: Nest) -> Nest | None:
    """b with those axes first that pick what it reads of a's results, where its order of axes is
    free and another: so a channel's statistics meet the elements of the channel."""
    if b.inner or not a.writes & b.reads:
        return None
    points = {e.store.buffer for e in a.entries if not e.store.axes}
    picked = [v for e in b.entries for x, idx in e.loads if x in points
              for i in idx for v in sym.free(i)]
    first = [x for x in b.outer if x.var in picked]
    rest = [x for x in b.outer if x not in first]
    if b.outer and b.outer[-1] in first:    # columns: as many as are a block have to be near
        length = numel(x.extent for x in rest)
        if not isinstance(length, int) or length > COLUMN:
            return None
    order = (*first, *rest)
    return None if order == b.outer else b._replace(outer=order)


def _rows(a: Nest, b: Nest) -> Fit | str:
    reason = "no common rows"
    tried = 0
    for i, j in prefixes(a, b):
        found = fit(a, b, i, j)
        why = _costly(a, b, i, j) or _strided(a, i) or _strided(b, j) or (
            "axes do not nest" if found is None else _crossing(a, b, found))
        if not why:
            assert found is not None
            return found
        reason, tried = why, tried + 1
        if tried == 3:
            break
    return reason


def _costly(a: Nest, b: Nest, i: int, j: int) -> str:
    """Why rows of this length should not be loops of one outer point."""
    for n, cut in ((a, i), (b, j)):
        row = numel(x.extent for x in n.outer[cut:])
        if isinstance(row, int) and row == 1 and not n.inner:
            continue
        points = products(n.outer)[cut]
        if not (isinstance(row, int) and isinstance(points, int)):
            continue
        longest = max((row * _extent(e.store) for e in n.entries), default=row)
        if longest > ROW:
            return "rows too long"
        if points < POINTS and points * longest > SMALL:
            return "too few rows"
    return ""


def _strided(n: Nest, cut: int) -> str:
    """Why reductions should not be loops of one outer point: they go down columns, for which an
    outer axis has to be what vectors run along."""
    tail = {x.var for x in n.outer[cut:]}
    if not tail:
        return ""
    folds = (r for r in walk([e.store.value for e in n.entries]) if r.kind == "Reduce")
    last = (x.fields[1][-1] for r in folds for x in walk((r,)) if x.kind == "Load" and x.fields[1])
    columns = any(not tail.isdisjoint(sym.free(i)) for i in last)
    return "columns would be rows" if columns else ""


def _extent(s: Store) -> int:
    n = numel(x.extent for x in s.axes)
    return n if isinstance(n, int) else 1


def _crossing(a: Nest, b: Nest, found: Fit) -> str:
    """Why an outer point would touch what another writes."""
    shared = (a.writes & (b.reads | b.writes)) | (b.writes & a.reads)
    if not shared:
        return ""
    sides = [(n, cut, names) for n, cut, names in zip((a, b), found.cuts, found.maps, strict=True)]
    for buffer in shared:
        stores: list[tuple[Any, tuple[Axis, ...], Store]] = []
        touches: list[Any] = []
        for n, cut, names in sides:
            for e in n.entries:
                if e.store.buffer is buffer:
                    idx = moved(e.store.idx, names)
                    own = (*n.outer[cut:], *e.store.axes)
                    stores.append((idx, tuple(_axis(x, names) for x in own), e.store))
                    touches.append(idx)
                touches += [moved(idx, names) for x, idx in e.loads if x is buffer]
        for idx, own, s in stores:
            if s.mode != "set":
                return f"{buffer} is combined into"
            for other in touches:
                if other is not idx and not same_row(idx, own, other):
                    return f"rows of {buffer} cross"
    return ""


def _axis(a: Axis, names: Mapping[Any, Any] | None) -> Axis:
    return a if names is None else a._replace(var=names.get(a.var, a.var))


def moved(idx: Sequence[Any], names: Mapping[Any, Any] | None) -> tuple[Any, ...]:
    """An index in terms of other axes."""
    if names is None:
        return tuple(idx)
    return tuple(i if isinstance(i, int) else sym.substitute(i, names) for i in idx)


def merged(found: Fit, binds: Binds) -> Nest:
    """The kernel that both make, its stores in the program's order."""
    a, b = found.nests
    entries = [*_entries(a, found.cuts[0], found.maps[0], binds),
               *_entries(b, found.cuts[1], found.maps[1], binds)]
    entries.sort(key=lambda e: e.order)
    return Nest(found.outer, tuple(entries), a.reads | b.reads, a.writes | b.writes)


def _entries(n: Nest, cut: int, names: Mapping[Any, Any] | None, binds: Binds) -> Iterator[Entry]:
    tail = n.outer[cut:]
    rewrite = None if names is None else Rewriter(names, None, binds.of, binds.fresh)
    for e in n.entries:
        s = e.store
        axes = (*(x for x in tail), *s.axes)
        if rewrite is None:
            yield Entry(e.order, s._replace(axes=axes), e.loads) if tail else e
            continue
        made = s._replace(idx=tuple(map(rewrite.index, s.idx)), value=rewrite(s.value),
                          axes=tuple(_axis(x, names) for x in axes),
                          mask=None if s.mask is None else rewrite(s.mask))
        yield Entry(e.order, made, loads_of(made, binds.of))
