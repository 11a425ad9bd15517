"""A kernel made ready for loops: flat indices, few axes, values that know what they depend on.

`prepare` turns every index into one offset into its buffer, replaces loads of what the kernel
itself stored before by the stored value, gives rows of equal shape the same axes, splits axes that
index expressions divide, and joins axes that walk memory as one. All of it keeps the kernel's
meaning; nothing here knows C.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from lehr.base import sym
from lehr.base.index import linearize
from lehr.base.proof import prove_le, prove_lt
from lehr.compiler.loop.expr import weight
from lehr.compiler.loop.ir import Axis, Bind, Buffer, Expr, Store
from lehr.compiler.loop.text import row_major
from lehr.compiler.loop.verify import injective

AGAIN = 16  # the weight from which values are kept rather than computed for each point of a row


class Root(NamedTuple):
    """A store: `buffer[index] (mode)= value` over the inner axes `axes`. It turns state `version`
    of the buffer's memory into the next one. `store` numbers the kernel's stores."""

    buffer: Buffer
    index: Any
    value: Expr
    axes: tuple[Axis, ...]
    mode: str
    mask: Expr | None
    version: int
    store: int

    @property
    def values(self) -> tuple[Expr, ...]:
        return (self.value,) if self.mask is None else (self.value, self.mask)


class Bounds(dict[Any, Bind]):
    """Checked indices by variable; equal ones share a variable."""

    def enter(self, new: Bind) -> Any:
        for var, known in self.items():
            if known[1:] == new[1:]:
                return var
        name = new.var.name
        while (fresh := sym.Var(name, 0, new.bound - 1)) in self:
            name += "_"
        self[fresh] = new._replace(var=fresh)
        return fresh


class Nest:
    """A kernel: `outer` axes, `roots` in order, checked indices in `bounds`.

    `states` maps a stand-in to (buffer, number): the buffer's memory after so many stores of this
    kernel; the buffer itself stands for its memory before. `unsafe`: outer axes along which
    combining stores may meet.
    """

    def __init__(self, name: str, outer: Sequence[Axis], roots: Sequence[Root], bounds: Bounds,
                 states: Mapping[Buffer, tuple[Buffer, int]], unsafe: frozenset[Any],
                 alias: Mapping[Buffer, Buffer]) -> None:
        self.name, self.alias = name, alias
        self.outer, self.roots = tuple(outer), tuple(roots)
        self.bounds, self.states, self.unsafe = bounds, states, unsafe
        self._deps: dict[Any, frozenset[Any]] = {}
        self._all: list[Any] | None = None
        self.inner: dict[Any, Axis] | None = None

    def replace(self, **fields: Any) -> Nest:
        names = ("name", "outer", "roots", "bounds", "states", "unsafe", "alias")
        return Nest(*(fields.get(n, getattr(self, n)) for n in names))

    def deps(self, e: Any) -> frozenset[Any]:
        """The axis variables and sizes that an Expr or an index needs, through checked indices."""
        found = self._deps.get(e)
        if found is None:
            found = e.free if isinstance(e, Expr) else sym.free(e)
            if any(v in self.bounds for v in found):
                found = self._through(e)
            self._deps[e] = found
        return found

    def _through(self, e: Any) -> frozenset[Any]:
        """`deps` of what checked indices are used in; a reduction's own axes end at it."""
        if not isinstance(e, Expr):
            return frozenset().union(*(
                self.deps(p) for v in sym.free(e) if v in self.bounds for p in self.parts(v)),
                (v for v in sym.free(e) if v not in self.bounds))
        made = frozenset().union(*map(self.deps, (*e.children, *indices(e))))
        if e.kind == "Scan":
            return made | {e.fields[1].var}
        if e.kind != "Reduce":
            return made
        sizes = frozenset().union(*(sym.free(a.extent) for a in e.fields[1]))
        return made.difference(a.var for a in e.fields[1]) | sizes

    def parts(self, var: Any) -> list[Expr]:
        """What a checked index is computed from."""
        b = self.bounds[var]
        return [b.value] if b.mask is None else [b.value, b.mask]

    def kids(self, e: Any) -> list[Any]:
        """The Exprs, and the variables of checked indices, that an Expr or such a variable uses."""
        if not isinstance(e, Expr):
            return [*self.parts(e), *self.loose(self.bounds[e].bound)]
        found: list[Any] = list(e.children)
        for i in indices(e):
            found += self.loose(i)
        return found

    def loose(self, i: Any) -> list[Any]:
        """The checked indices in an index expression."""
        if not self.bounds or isinstance(i, int):
            return []
        return sorted((v for v in sym.free(i) if v in self.bounds), key=lambda v: v.name)

    def walk(self, roots: Iterable[Any], stop: Callable[[Any], bool] = lambda _: False
             ) -> Iterator[Any]:
        """Every distinct Expr and checked index once, children first; not below `stop`."""
        seen: set[Any] = set()
        stack = [(e, False) for e in reversed(list(roots))]
        while stack:
            e, ready = stack.pop()
            if ready:
                yield e
            elif e not in seen:
                seen.add(e)
                stack.append((e, True))
                if not stop(e):
                    stack += [(c, False) for c in reversed(self.kids(e))]

    def uses(self, root: Root) -> list[Any]:
        """What a store needs: its value and mask, and the checked indices of its place."""
        return [*root.values, *self.loose(root.index)]

    def everything(self) -> list[Any]:
        """All that the stores need, children first."""
        if self._all is None:
            self._all = list(self.walk([e for r in self.roots for e in self.uses(r)]))
        return self._all

    def places(self) -> set[Any]:
        """Every index expression that is not a number."""
        found = {i for e in self.everything()
                 for i in (indices(e) if isinstance(e, Expr) else (self.bounds[e].bound,))}
        found |= {r.index for r in self.roots}
        return {i for i in found if not isinstance(i, int)}

    def stride(self, place: Any, var: Any) -> Any:
        """How far an index moves where an axis moves by one; None where that is no fixed number."""
        if isinstance(place, int):
            return 0
        if any(var in self.deps(p) for v in self.loose(place) for p in self.parts(v)):
            return None
        split = sym.affine(place, (var,))
        return None if split is None else split[0].get(var, 0)

    def state(self, b: Buffer) -> tuple[Buffer, int]:
        """(the buffer that `b` is or stands for, how many stores went into its memory before)."""
        return self.states.get(b, (b, 0))

    def memory(self, b: Buffer) -> Buffer:
        """The buffer that stands for all that share its memory."""
        return self.alias.get(b, b)


def indices(e: Expr) -> tuple[Any, ...]:
    """The index expressions of a node."""
    if e.kind == "Load":
        return e.fields[1]  # type: ignore[no-any-return]
    return (e.fields[-1],) if e.kind in ("Index", "Random") else ()


class Copy:
    """Copies expressions with axes replaced: `index` maps variables to index expressions, `axes` an
    axis variable of a reduction or scan to axes. `load` sees every load, its index replaced, and
    returns what stands for it."""

    def __init__(self, bounds: Bounds, index: Mapping[Any, Any],
                 axes: Mapping[Any, tuple[Axis, ...]] | None = None,
                 load: Callable[[Expr], Expr] | None = None) -> None:
        self.bounds, self.map, self.axes, self.load = bounds, dict(index), axes or {}, load
        self.memo: dict[Expr, Expr] = {}

    def at(self, i: Any) -> Any:
        """An index expression."""
        if isinstance(i, int):
            return i
        free = sym.free(i)
        for v in free:
            if v in self.bounds and v not in self.map:
                b = self.bounds[v]
                new = b._replace(value=self(b.value), bound=self.at(b.bound),
                                 mask=None if b.mask is None else self(b.mask))
                self.map[v] = v if new == b else self.bounds.enter(new)
        change = {v: self.map[v] for v in free if self.map.get(v, v) is not v}
        return sym.substitute(i, change) if change else i

    def __call__(self, root: Expr) -> Expr:
        memo = self.memo
        stack = [root]
        while stack:
            e = stack[-1]
            if e in memo:
                stack.pop()
                continue
            waiting = [c for c in e.children if c not in memo]
            if waiting:
                stack += waiting
            else:
                memo[stack.pop()] = self.copied(e)
        return memo[root]

    def copied(self, e: Expr) -> Expr:
        """`e` over its copied children."""
        f: list[Any] = [self.memo[a] if isinstance(a, Expr) else a for a in e.fields]
        if e.kind == "Load":
            made = Expr("Load", e.dtype, f[0], tuple(map(self.at, f[1])), *f[2:])
            return made if self.load is None else self.load(made)
        if e.kind == "Index":
            i = self.at(f[0])
            return Expr("Const" if isinstance(i, int) else "Index", e.dtype, i)
        if e.kind == "Random":
            return Expr("Random", e.dtype, f[0], f[1], self.at(f[2]))
        if e.kind in ("Reduce", "Scan"):
            args = tuple(self.memo[a] for a in f[2])
            old = f[1] if e.kind == "Reduce" else (f[1],)
            axes: tuple[Any, ...] = tuple(x for a in old for x in self.axes.get(a.var, (a,)))
            if not axes:
                return args[f[3]]
            return Expr(e.kind, e.dtype, f[0], axes if e.kind == "Reduce" else axes[0], args, f[3])
        return e if e.kind == "Const" else Expr(e.kind, e.dtype, *f)

    def root(self, r: Root) -> Root:
        axes = tuple(x._replace(role=a.role) for a in r.axes for x in self.axes.get(a.var, (a,)))
        return r._replace(index=self.at(r.index), value=self(r.value), axes=axes,
                          mask=None if r.mask is None else self(r.mask))


# Stores that feed loads


class _Memory:
    """What the kernel stored so far, to stand for the loads of it."""

    def __init__(self, binds: Sequence[Bind], alias: Mapping[Buffer, Buffer]) -> None:
        self.bounds = Bounds({b.var: b for b in binds})
        self.alias = alias
        self.stores: dict[Buffer, list[Store]] = {}
        self.stand: dict[tuple[Buffer, int], Buffer] = {}
        self.real: dict[Buffer, Buffer] = {}
        self.target: Any = None, 0  # memory and element of the store that is being read
        self.inner: set[Any] = set()  # its own axes

    def standing(self, b: Buffer) -> Buffer:
        """The stand-in for the memory of `b` as it is now."""
        version = len(self.stores.get(self.alias.get(b, b), ()))
        if version and (b, version) not in self.stand:
            made = Buffer(b.name, b.dtype, b.shape, b.strides, b.role, b.data)
            self.stand[b, version], self.real[made] = made, b
        return self.stand.get((b, version), b)

    def load(self, e: Expr) -> Expr:
        b, idx, mask, other = e.fields
        before = self.stores.get(self.alias.get(b, b))
        if before and mask is None and before[-1].buffer is b:
            value = self.forward(before[-1], idx)
            if value is not None:
                return value
        return Expr("Load", e.dtype, self.standing(b), (flat(b, idx),), mask, other)

    def forward(self, s: Store, idx: Sequence[Any]) -> Expr | None:
        """The value that store `s` put at `idx`, where that is plain to see."""
        if s.mode != "set" or s.mask is not None or self.stale(s.value):
            return None
        own = {a.var for a in s.axes}
        change: dict[Any, Any] = {}
        for w, r in zip(s.idx, idx, strict=True):
            if w in own and w not in change:
                change[w] = r
            elif w != r or not own.isdisjoint(sym.free(w)):
                return None
        if own - change.keys() or not all(
                prove_le(0, change[a.var]) and prove_lt(change[a.var], a.extent) for a in s.axes):
            return None     # an element that it may not have stored
        axes = _renamed(s.value, own)
        if axes and set(change.values()) != self.inner:
            return None     # several points would each compute the same reduction
        change |= {v: new.var for v, (new,) in axes.items()}
        made = Copy(self.bounds, change, axes)(s.value)
        return None if self.torn(made) else made

    def torn(self, value: Expr) -> bool:
        """Whether a value loads other elements of the memory that it will be stored into; a
        reduction that is the same for the whole row is done before any of it is stored."""
        stack, seen = [value], {value}
        while stack:
            e = stack.pop()
            if e.kind == "Reduce" and not any(v in self.inner or v in self.bounds for v in e.free):
                continue
            if e.kind == "Load":
                b = self.real.get(e.fields[0], e.fields[0])
                memory, at = self.target
                if self.alias.get(b, b) is memory and e.fields[1] != (at,):
                    return True
            new = [c for c in e.children if c not in seen]
            seen.update(new)
            stack += new
        return False

    def stale(self, value: Expr) -> bool:
        """Whether a stored value cannot be computed again: it loads what was replaced since, or is
        a running value, whose place in its loop is its meaning."""
        stack, seen = [value], {value}
        while stack:
            e = stack.pop()
            if e.kind == "Scan":
                return True
            if e.kind == "Load" and self.current(e.fields[0]) is not e.fields[0]:
                return True
            below = list(e.children)
            checked = [self.bounds[v] for i in indices(e) if not isinstance(i, int)
                       for v in sym.free(i) if v in self.bounds]
            below += [p for b in checked for p in (b.value, b.mask) if p is not None]
            new = [c for c in below if c not in seen]
            seen.update(new)
            stack += new
        return False

    def current(self, b: Buffer) -> Buffer:
        """The stand-in now of the buffer that `b` is or stands for."""
        return self.standing(self.real.get(b, b))

    def root(self, s: Store) -> Root:
        copy = Copy(self.bounds, {}, load=self.load)
        self.target = self.alias.get(s.buffer, s.buffer), flat(s.buffer, s.idx)
        self.inner = {a.var for a in s.axes}
        done = s._replace(value=copy(s.value), idx=tuple(map(copy.at, s.idx)),
                          mask=None if s.mask is None else copy(s.mask))
        before = self.stores.setdefault(self.alias.get(s.buffer, s.buffer), [])
        made = Root(s.buffer, flat(s.buffer, done.idx), done.value, s.axes, s.mode, done.mask,
                    len(before), sum(map(len, self.stores.values())))
        before.append(done)
        return made


def _renamed(value: Expr, own: set[Any]) -> dict[Any, tuple[Axis, ...]]:
    """New axes for the reductions inside that depend on `own`: where the value goes, their old ones
    may be in use."""
    stack, seen = [value], {value}
    made: dict[Any, tuple[Axis, ...]] = {}
    while stack:
        e = stack.pop()
        if e.kind == "Reduce" and not own.isdisjoint(e.free):
            for a in e.fields[1]:
                made[a.var] = (a._replace(var=sym.Var(f"{a.var.name}_", 0, a.extent - 1)),)
        new = [c for c in e.children if c not in seen]
        seen.update(new)
        stack += new
    return made


def flat(b: Buffer, idx: Sequence[Any]) -> Any:
    """The offset of an element, in elements; local buffers are row-major."""
    return linearize(idx, b.shape, row_major(b.shape) if b.role == "local" else b.strides)


def prepare(name: str, axes: Sequence[Axis], stores: Sequence[Store], binds: Sequence[Bind],
            rows: int = 0, alias: Mapping[Buffer, Buffer] | None = None) -> Nest:
    """The nest of a kernel. The first `rows` outer axes stay as they are. `alias` maps buffers that
    share memory with another one to that."""
    memory = _Memory(binds, alias or {})
    roots = [memory.root(s) for s in stores]
    states = {stand: key for key, stand in memory.stand.items()}
    nest = Nest(name, axes, roots, memory.bounds, states, _unsafe(axes, stores), alias or {})
    nest = _rows(_promoted(_running(_read(nest))))
    for step in (_split, _units, _joined, _unrolled):
        nest = step(nest, nest.outer[:rows])
    return _rows(nest)


def _unsafe(axes: Sequence[Axis], stores: Sequence[Store]) -> frozenset[Any]:
    """The outer axes that do not give each point an index of its own in some combining store."""
    found: set[Any] = set()
    for s in stores:
        if s.mode == "set":
            continue
        for a in axes:
            inside = [sym.affine(i, (a.var,)) for i in s.idx if a.var in sym.free(i)]
            plain = any(split is not None and split[0][a.var] in (1, -1)
                        and not sym.free(split[1]) for split in inside)
            if not plain:
                found.add(a.var)
    return frozenset(found)


def _read(nest: Nest) -> Nest:
    """Without the stores into local buffers that nothing loads."""
    while True:
        read = {nest.state(e.fields[0])[0] for e in nest.everything()
                if isinstance(e, Expr) and e.kind == "Load"}
        kept = [r for r in nest.roots if r.buffer in read or r.buffer.role != "local"]
        if len(kept) == len(nest.roots):
            return nest
        nest = nest.replace(roots=tuple(kept))


def _copied(nest: Nest, copy: Copy, **fields: Any) -> Nest:
    return nest.replace(roots=tuple(map(copy.root, nest.roots)), **fields)


# Rows


def inner_axes(nest: Nest) -> dict[Any, Axis]:
    """The axes of stores, reductions and scans by variable."""
    if nest.inner is None:
        nest.inner = _inner_axes(nest)
    return nest.inner


def _inner_axes(nest: Nest) -> dict[Any, Axis]:
    found: dict[Any, Axis] = {a.var: a for r in nest.roots for a in r.axes}
    for e in nest.everything():
        if isinstance(e, Expr) and e.kind in ("Reduce", "Scan"):
            found |= {a.var: a for a in (e.fields[1] if e.kind == "Reduce" else (e.fields[1],))}
    for a in nest.outer:
        found.pop(a.var, None)
    return found


def row_folds(nest: Nest) -> list[Expr]:
    """The reductions that depend on outer axes alone, children first."""
    inner = inner_axes(nest)
    return [e for e in nest.everything() if isinstance(e, Expr) and e.kind == "Reduce"
            and nest.deps(e).isdisjoint(inner)]


def _running(nest: Nest) -> Nest:
    """Axes that values run along become inner axes: they cannot be outermost."""
    along = {e.fields[1].var for e in nest.everything()
             if isinstance(e, Expr) and e.kind == "Scan"}
    moved = tuple(a._replace(role="scan") for a in nest.outer if a.var in along)
    if not moved:
        return nest
    return nest.replace(outer=tuple(a for a in nest.outer if a.var not in along),
                        roots=tuple(r._replace(axes=(*r.axes, *moved)) for r in nest.roots))


def _promoted(nest: Nest) -> Nest:
    """Inner axes become outer ones where every store has the same and no value spans a row."""
    extents = {tuple(a.extent for a in r.axes) for r in nest.roots}
    scans = any(a.role == "scan" for r in nest.roots for a in r.axes)
    if len(extents) != 1 or not nest.roots[0].axes or scans or nest.states or row_folds(nest):
        return nest
    if any(in_order(r, nest.bounds) or _again(nest, r) for r in nest.roots):
        return nest
    axes = tuple(a._replace(role="parallel") for a in nest.roots[0].axes)
    roots = []
    for r in nest.roots:
        pairs = list(zip(r.axes, axes, strict=True))
        roots.append(Copy(nest.bounds, {old.var: new.var for old, new in pairs},
                          {old.var: () for old, _ in pairs}).root(r))
    made = nest.replace(outer=(*nest.outer, *axes), roots=tuple(roots))
    return nest if crossing(made) else made


def _again(nest: Nest, r: Root) -> bool:
    """Whether a reduction in a store, or much else, is the same along some of its axes: as a unit
    of its own, each point would compute it."""
    own = {a.var for a in r.axes}
    part = [e for e in nest.walk(r.values) if isinstance(e, Expr) and not own <= nest.deps(e)]
    return any(e.kind == "Reduce" for e in part) or AGAIN <= sum(
        weight(e) for e in part if e.kind not in ("Load", "Index", "Const"))


def crossing(nest: Nest) -> bool:
    """Whether a point would touch an element that another one of its row stores: what a store reads
    elsewhere in the row is as it was before a later store, or several stores go to it."""
    stored: dict[Buffer, Any] = {}
    for r in nest.roots:
        if stored.setdefault(nest.memory(r.buffer), r.index) is not r.index:
            return True
    for e in nest.everything():
        if isinstance(e, Expr) and e.kind == "Load":
            b = nest.memory(nest.state(e.fields[0])[0])
            if stored.get(b, e.fields[1][0]) is not e.fields[1][0]:
                return True
    return False


def in_order(r: Root, bounds: Bounds) -> bool:
    """Whether a store may put several values of a row into one element: the last one wins."""
    if r.mode != "set" or not r.axes:
        return False
    place = r.index
    if not isinstance(place, int):
        if any(v in bounds for v in sym.free(place)):
            return False
        split = sym.affine(place, [a.var for a in r.axes])
        back = [a for a in r.axes if split is not None and _falls(split[0].get(a.var, 0))]
        place = sym.substitute(place, {a.var: a.extent - 1 - a.var for a in back})
    whole = Buffer("", r.buffer.dtype, (1 << 62,), (1,), "arena")
    return not injective(whole, (place,), frozenset(a.var for a in r.axes))


def _falls(coefficient: Any) -> bool:
    high = sym.interval(coefficient)[1]
    return high is not None and high < 0


class _Rows(Copy):
    """Gives rows of equal extents the same axes, whatever the kernel called them."""

    def __init__(self, nest: Nest) -> None:
        super().__init__(nest.bounds, {})
        self.nest, self.inner = nest, inner_axes(nest)
        taken = {v.name for v in self.inner} | {a.var.name for a in nest.outer}
        self.fresh = (name for n in range(1 << 30) if (name := f"r{n}") not in taken)
        self.known: dict[tuple[Any, ...], tuple[Axis, ...]] = {}

    def axes_of(self, old: Sequence[Axis]) -> tuple[Axis, ...]:
        extents = tuple(a.extent for a in old)
        if extents not in self.known:
            self.known[extents] = tuple(Axis(sym.Var(next(self.fresh), 0, n - 1), n)
                                        for n in extents)
        return self.known[extents]

    def renaming(self, old: Sequence[Axis]) -> Copy:
        pairs = list(zip(old, self.axes_of(old), strict=True))
        return Copy(self.bounds, {a.var: x.var for a, x in pairs},
                    {a.var: (x._replace(role=a.role),) for a, x in pairs})

    def copied(self, e: Expr) -> Expr:
        made = super().copied(e)
        if e.kind != "Reduce" or not self.nest.deps(made).isdisjoint(self.inner):
            return made
        monoid, axes, args, part = made.fields
        new = tuple(x._replace(role="reduce") for x in self.axes_of(axes))
        return Expr("Reduce", e.dtype, monoid, new, tuple(map(self.renaming(axes), args)), part)

    def root(self, r: Root) -> Root:
        done = super().root(r)
        return self.renaming(r.axes).root(done) if r.axes else done


def _rows(nest: Nest) -> Nest:
    return _copied(nest, _Rows(nest))


# Axes


def _axes(nest: Nest) -> list[Axis]:
    return [*nest.outer, *inner_axes(nest).values()]


def _split(nest: Nest, fixed: Sequence[Axis]) -> Nest:
    """Splits axes where an index divides an axis variable, or that plus a number, by a divisor of
    its extent."""
    for _ in range(8):
        by = {a.var: a for a in _axes(nest) if a not in fixed and a.role != "scan"}
        cuts: dict[Any, int] = {}
        for place in nest.places():
            for v, d in _divisions(place):
                if v in by and sym.divisor(by[v].extent) % d == 0 and by[v].extent != d:
                    cuts[v] = min(d, cuts.get(v, d))
        if not cuts:
            return nest
        taken = {a.var.name for a in by.values()}
        index, axes = {}, {}
        for v, d in sorted(cuts.items(), key=lambda item: item[0].name):
            pair = []
            for tail, extent in (("a", by[v].extent // d), ("b", d)):
                name = v.name + tail
                while name in taken:
                    name += "_"
                taken.add(name)
                pair.append(Axis(sym.Var(name, 0, extent - 1), extent, by[v].role))
            index[v], axes[v] = pair[0].var * d + pair[1].var, tuple(pair)
        outer = tuple(x for a in nest.outer for x in axes.get(a.var, (a,)))
        unsafe = {x.var for v in nest.unsafe for x in axes.get(v, ())} | (nest.unsafe - set(axes))
        nest = _copied(nest, Copy(nest.bounds, index, axes), outer=outer, unsafe=frozenset(unsafe))
    return nest


def _divisions(e: Any) -> Iterator[tuple[Any, int]]:
    """(variable, divisor) of every `v // d` and `v % d`, and of those of v and a number."""
    stack = [e]
    while stack:
        top = stack.pop()
        if isinstance(top, int):
            continue
        if isinstance(top, sym.FloorDiv | sym.Mod) and isinstance(top.den, int):
            free = sym.free(top.num)
            if len(free) == 1:
                (v,) = free
                if isinstance(top.num, sym.Var) or isinstance(top.num - v, int):
                    yield v, top.den
                    continue
        stack += top.parts()


def _units(nest: Nest, fixed: Sequence[Axis]) -> Nest:
    """Without axes of one point."""
    single = [a.var for a in _axes(nest) if a.extent == 1 and a not in fixed]
    if not single:
        return nest
    copy = Copy(nest.bounds, dict.fromkeys(single, 0), dict.fromkeys(single, ()))
    return _copied(nest, copy, outer=tuple(a for a in nest.outer if a.var not in single))


def _joined(nest: Nest, fixed: Sequence[Axis]) -> Nest:
    """Joins two axes of a loop nest wherever all indices move through them as through one."""
    while True:
        for group in _groups(nest, fixed):
            pair = next(((a, b) for a in group for b in group
                         if a is not b and _as_one(nest, a, b)), None)
            if pair is not None:
                nest = _join(nest, *pair)
                break
        else:
            return nest


def _groups(nest: Nest, fixed: Sequence[Axis]) -> Iterator[list[Axis]]:
    """Axes that could be joined: those of one loop nest that no other one has."""
    yield [a for a in nest.outer if a not in fixed]
    seen = {tuple(a for a in r.axes if a.role != "scan") for r in nest.roots}
    for e in nest.everything():
        if isinstance(e, Expr) and e.kind == "Reduce":
            seen.add(tuple(a._replace(role="parallel") for a in e.fields[1]))
    groups = sorted(seen, key=lambda axes: [a.var.name for a in axes])
    for axes in groups:
        others = {a.var for more in groups if more is not axes for a in more}
        if others.isdisjoint(a.var for a in axes):
            yield list(axes)


def _as_one(nest: Nest, a: Axis, b: Axis) -> bool:
    """Whether index expressions see a and b only as a * extent of b + b."""
    if (a.var in nest.unsafe) != (b.var in nest.unsafe):
        return False
    pair = (a.var, b.var)
    for place in nest.places():
        if isinstance(place, int) or sym.free(place).isdisjoint(pair):
            continue
        split = sym.affine(place, pair)
        if split is None:
            return False
        coeffs = split[0]
        if coeffs.get(a.var, 0) != coeffs.get(b.var, 0) * b.extent:
            return False
    return True


def _join(nest: Nest, a: Axis, b: Axis) -> Nest:
    extent = a.extent * b.extent
    taken = {x.var.name for x in _axes(nest)}
    name = a.var.name
    while name in taken:
        name += "_"
    var = sym.Var(name, 0, extent - 1)
    joined = Axis(var, extent, a.role)
    copy = Copy(nest.bounds, {a.var: 0, b.var: var}, {a.var: (), b.var: (joined,)})
    outer = tuple(joined if x is b else x for x in nest.outer if x is not a)
    unsafe = nest.unsafe | {var} if a.var in nest.unsafe else nest.unsafe
    return _copied(nest, copy, outer=outer, unsafe=unsafe)


SMALL = 4  # points of an axis that may be written out
HEAVY = 12  # the weight of a value that is worth sharing


def _unrolled(nest: Nest, fixed: Sequence[Axis]) -> Nest:
    """Writes out a short outer axis where its points share an expensive value (two normal numbers
    of one pair of random words)."""
    if inner_axes(nest) or nest.states or len({r.buffer for r in nest.roots}) < len(nest.roots):
        return nest
    stored = {nest.memory(r.buffer) for r in nest.roots}
    for e in nest.everything():
        if isinstance(e, Expr) and e.kind == "Load" and nest.memory(e.fields[0]) in stored:
            return nest
    for a in nest.outer:
        if a in fixed or a.var in nest.unsafe or not isinstance(a.extent, int):
            continue
        if a.extent > SMALL or len(nest.outer) < 2 or not _shares(nest, a.var):
            continue
        roots = [Copy(nest.bounds, {a.var: k}).root(r)
                 for r in nest.roots for k in range(a.extent)]
        return nest.replace(outer=tuple(x for x in nest.outer if x is not a), roots=tuple(roots))
    return nest


def _shares(nest: Nest, var: Any) -> bool:
    """Whether a heavy value does not depend on the axis, but what uses it does."""
    for e in nest.everything():
        if isinstance(e, Expr) and var in nest.deps(e):
            for c in nest.kids(e):
                if isinstance(c, Expr) and nest.deps(c) and var not in nest.deps(c) and sum(
                        weight(x) for x in nest.walk([c]) if isinstance(x, Expr)) >= HEAVY:
                    return True
    return False
