"""Values in blocks: the statements of one Triton function, and which names its values have.

A program of a launch works on blocks: tensors with one dimension for each `position` (at most two
for outer axes, then one for the axes of rows). A value's *shape* is the set of positions along
which it varies (its other dimensions have length 1), or None where it is no tensor but a number.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from lehr.base import dtype as dt
from lehr.base import sym
from lehr.base.index import linearize
from lehr.base.sym import prod as numel
from lehr.compiler.emit import lane
from lehr.compiler.emit.nest import Nest, indices
from lehr.compiler.loop import expr
from lehr.compiler.loop.ir import MONOIDS, Axis, Buffer, Expr

LONGEST = 7  # nodes spelled in one expression before it gets a name
Shape = frozenset[int] | None
NAMED = ("Load", "Random", "Reduce", "Scan")


class Dim(NamedTuple):
    """One position: `axes`, outermost first, run through by the index variable `name`, `block`
    (the name of a constexpr) points at a time."""

    name: str
    axes: tuple[Axis, ...]
    block: str
    position: int

    @property
    def size(self) -> Any:
        return numel([a.extent for a in self.axes])


class Scope(NamedTuple):
    """Names given inside; `variables` of the loop, or of the row that is there as a whole."""

    names: dict[Any, str]
    variables: frozenset[Any]
    loop: bool


class Block:
    """A function being written.

    `rank`: positions of its blocks. `wide`: whether offsets may need 64 bits. What it uses from
    outside is collected: `pointers` (buffer -> name), `symbols`, `faults` (their kinds).
    """

    def __init__(self, nest: Nest, rank: int, wide: bool) -> None:
        self.nest, self.rank, self.wide = nest, rank, wide
        self.out: list[str] = []
        self.depth = 1
        self.names: dict[Any, str] = {}       # axes, sizes, checked indices
        self.places: dict[Any, int] = {}      # axis variable -> position; others are numbers
        self.blocks = ["1"] * rank
        self.masks = [""] * rank              # "" where every point exists
        self.scopes = [Scope({}, frozenset(), False)]
        self.pointers: dict[Buffer, str] = {}
        self.symbols: set[Any] = set()
        self.faults: list[str] = []
        self.folded: dict[Expr, Shape] = {}   # reductions that are computed by blocks
        self.shapes: dict[Any, Shape] = {}
        self.shared: frozenset[Any] = frozenset()  # values that get a name in any case
        self.serial = 0

    # Lines and names

    def add(self, *lines: str) -> None:
        self.out += ["    " * self.depth + line for line in lines]

    def fresh(self, stem: str = "t") -> str:
        self.serial += 1
        return f"{stem}{self.serial}"

    def let(self, text: str, stem: str = "t") -> str:
        name = self.fresh(stem)
        self.add(f"{name} = {text}")
        return name

    @contextlib.contextmanager
    def scope(self, scope: Scope) -> Iterator[None]:
        self.scopes.append(scope)
        yield
        self.scopes.pop()

    @contextlib.contextmanager
    def loop(self, head: str, variables: Iterable[Any]) -> Iterator[None]:
        """`for NAME in ...:` around what is written inside."""
        self.add(head)
        self.depth += 1
        kept = dict(self.names)
        with self.scope(Scope({}, frozenset(variables), True)):
            yield
        self.names = kept
        self.depth -= 1

    def known(self, e: Any) -> str | None:
        """The name of a value; one from outside a loop that it depends on has another meaning."""
        for scope in reversed(self.scopes):
            if e in scope.names:
                return scope.names[e]
            if scope.loop and not isinstance(e, tuple) and (
                    not self.nest.deps(e).isdisjoint(scope.variables)):
                return None
        return None

    def record(self, e: Any, name: str) -> None:
        """`name` stands for the value as long as what it depends on stays the same."""
        deps = self.nest.deps(e)
        for scope in reversed(self.scopes):
            if scope.loop or scope is self.scopes[0] or not deps.isdisjoint(scope.variables):
                scope.names[e] = name
                return

    # Shapes

    def shape(self, e: Any) -> Shape:
        """Of an Expr, an index expression or a checked index."""
        if isinstance(e, int):
            return None
        found = self.shapes.get(e, False)
        if found is False:
            found = self.shapes[e] = self._shape(e)
        return found  # type: ignore[return-value]

    def _shape(self, e: Any) -> Shape:
        if isinstance(e, Expr):
            if e in self.folded:
                return self.folded[e]
            parts: list[Any] = [*e.children, *indices(e)]
            made = join(map(self.shape, parts))
            if e.kind == "Load" and self.nest.state(e.fields[0])[0].role == "local":
                made = join((made, *(self.shape(a.var) for a in self.nest.outer)))
            # Triton 3.6 cannot compile scans of blocks that have length 1 along another position.
            return made if e.kind != "Scan" else frozenset(range(self.rank))
        if isinstance(e, sym.Var):
            if e in self.nest.bounds:
                b = self.nest.bounds[e]
                return join(map(self.shape, (*self.nest.parts(e), b.bound)))
            return frozenset((self.places[e],)) if e in self.places else None
        return join(map(self.shape, sym.free(e)))

    def lengths(self, shape: Shape) -> str:
        """A shape as Triton's list; of a number, the empty one."""
        if shape is None:
            return "[]"
        return f"[{', '.join(b if n in shape else '1' for n, b in enumerate(self.blocks))}]"

    def fit(self, text: str, have: Shape, want: Shape) -> str:
        """The value spread to a larger shape."""
        return text if have == want else f"tl.broadcast_to({text}, {self.lengths(want)})"

    def live(self, shape: Shape, *more: str) -> str:
        """The mask of a block: its points that exist, and all of `more` ("" where always)."""
        masks = [m for n, m in enumerate(self.masks) if m and shape is not None and n in shape]
        return " & ".join([*masks, *(lane.atom(m) for m in more if m)])

    # Spelling

    def index(self, e: Any) -> str:
        for v in ([] if isinstance(e, int) else sorted(sym.free(e), key=lambda v: v.name)):
            if v in self.nest.bounds:
                self.checked(v)
            elif v not in self.names:
                self.symbols.add(v)
                self.names[v] = f"size_{v.name}"
        names = self.names
        if self.nest.bounds:
            names = names | {v: n for s in self.scopes for v, n in s.names.items()
                             if not isinstance(v, Expr)}
        return lane.index(e, names)

    @property
    def integer(self) -> str:
        return "tl.int64" if self.wide else "tl.int32"

    def pointer(self, b: Buffer) -> str:
        b = self.nest.state(b)[0]
        if b not in self.pointers:
            self.pointers[b] = f"p{len(self.pointers)}"
        return self.pointers[b]

    def address(self, b: Buffer, place: Any) -> tuple[str, Shape]:
        """(pointer, its shape) of an element; every outer point has its own of a local buffer."""
        own = self.nest.state(b)[0]
        if own.role == "local" and self.nest.outer:
            at = linearize([a.var for a in self.nest.outer], [a.extent for a in self.nest.outer])
            place = at * numel(own.shape) + place
        text = self.pointer(b)
        if place != 0:
            text = f"{text} + {lane.atom(self.index(place))}"
        return text, self.shape(place)

    def spell(self, e: Expr) -> str:
        found = self.known(e)
        return found if found is not None else _SPELLINGS[e.kind](self, e, *e.fields)

    # Which values get names

    def inputs(self, e: Any) -> list[Any]:
        """What is computed before `e`: of a fold within loops, what does not depend on them."""
        if not isinstance(e, Expr) or e.kind != "Reduce":
            return self.nest.kids(e)
        return self.outside(e.fields[2], frozenset(a.var for a in e.fields[1]))

    def outside(self, exprs: Iterable[Any], own: frozenset[Any]) -> list[Any]:
        """The largest values inside `exprs` that do not depend on the variables `own`, nor on those
        of loops inside."""
        made: dict[Any, None] = {}
        seen: set[Any] = set()
        stack = list(exprs)[::-1]
        while stack:
            e = stack.pop()
            if e in seen:
                continue
            seen.add(e)
            if own.isdisjoint(self.nest.deps(e)):
                made[e] = None
            else:
                stack += reversed(self.inputs(e))
        return list(made)

    def define(self, exprs: Iterable[Any], forced: bool = False) -> None:
        """Gives names to what is used more than once, is long, or has to have one, children first.
        `forced`: to the expressions themselves too."""
        exprs = list(exprs)
        order = self._order(exprs)
        uses = Counter(e for e in exprs if e in order)
        for e in order:
            uses.update(c for c in self.inputs(e) if c in order)
        size: dict[Any, int] = {}
        roots = set(exprs) if forced else set()
        for e in order:
            if not isinstance(e, Expr):
                self.checked(e)
                continue
            size[e] = 1 + sum(size.get(c, 0) for c in self.inputs(e))
            plain = e.kind in ("Const", "Index") and not (e in roots and e.kind == "Index")
            if e.kind in NAMED or not plain and (
                    uses[e] > 1 or size[e] > LONGEST or e in roots or e in self.shared):
                self.name(e, order)
                size[e] = 0

    def _order(self, exprs: Sequence[Any]) -> dict[Any, None]:
        """Values without names below `exprs`, children first."""
        done: dict[Any, None] = {}
        seen: set[Any] = set()
        stack = [(e, False) for e in reversed(exprs)]
        while stack:
            e, ready = stack.pop()
            if ready:
                done[e] = None
            elif e not in seen and self.known(e) is None:
                seen.add(e)
                stack.append((e, True))
                stack += [(c, False) for c in reversed(self.inputs(e))]
        return done

    def name(self, e: Expr, near: Iterable[Any] = ()) -> None:
        """A statement for the value; reductions among `near` may share its loop."""
        if self.known(e) is not None:
            return
        if e.kind == "Reduce":
            _serial(self, self.beside(e, near))
        elif e.kind == "Scan":
            _running(self, e)
        else:
            self.record(e, self.let(_SPELLINGS[e.kind](self, e, *e.fields)))

    def beside(self, e: Expr, near: Iterable[Any]) -> list[Expr]:
        """Reductions over the same axes as `e`, itself first, that do not need one another."""
        made = [e]
        for x in near:
            if isinstance(x, Expr) and x.kind == "Reduce" and x.fields[1] == e.fields[1] and (
                    x not in made and self.known(x) is None):
                below = set(self.nest.walk(x.fields[2]))
                if all(y.kind != "Reduce" or self.known(y) for y in below if isinstance(y, Expr)):
                    made.append(x)
        return made

    # Checks

    def fail(self, kind: str, bad: str, shape: Shape, *more: str, note: Sequence[str] = ()
             ) -> None:
        """Notes a failure where `bad` holds at a point that exists, and what explains it."""
        place, mask = len(self.faults), self.live(shape, *more, bad)
        self.faults.append(kind)
        first = lane.typed(f"place + {place - (1 << 31)}", dt.int64)
        where = self.fit("fault", None, shape)
        self.add(f'tl.atomic_min({where}, {self.fit(first, None, shape)}, mask={mask}, '
                 'sem="relaxed")')
        for n, text in enumerate(note, 1):
            at = self.fit(f"fault + (2 * (place + {place}) + {n})", None, shape)
            self.add(f"tl.store({at}, {lane.typed(text, dt.int64)}, mask={mask})")

    def checked(self, var: Any) -> None:
        """Names a checked index; 0 where it is out of range."""
        if self.known(var) is not None:
            return
        b = self.nest.bounds[var]
        shape = self.shape(var)
        raw = name = self.let(lane.cast(self.spell(b.value), b.value.dtype, dt.int64)
                              if b.value.dtype is not dt.int64 else self.spell(b.value), "i")
        if expr.sure(b):
            self.record(var, name if self.wide else self.let(f"tl.cast({name}, tl.int32)", "i"))
            return
        bound = self.index(b.bound)
        if b.wrap:
            name = self.let(f"tl.where({name} < 0, {name} + {lane.atom(bound)}, {name})", "i")
        bad = self.let(f"({name} < 0) | ({name} >= {lane.atom(bound)})", "bad")
        self.fail("index", bad, shape, self.spell(b.mask) if b.mask is not None else "",
                  note=(raw, bound))
        inside = f"tl.where({bad}, 0, {name})"
        self.record(var, self.let(inside if self.wide else f"tl.cast({inside}, tl.int32)", "i"))

    def divisor(self, text: str, e: Expr) -> str:
        """Checks an integer divisor where all that it is loaded from is there."""
        masks = dict.fromkeys(x.fields[2] for x in self.nest.walk([e])
                              if isinstance(x, Expr) and x.kind == "Load" and x.fields[2])
        name = text if text.isidentifier() else self.let(text)
        self.fail("division", f"{name} == 0", self.shape(e), *map(self.spell, masks))
        return name

    # Reductions within a block

    def states(self, monoid: str, args: Sequence[Expr], shape: Shape) -> list[str]:
        """New variables that hold the monoid's identity."""
        made = []
        for i, a in zip(MONOIDS[monoid].identity, args, strict=True):
            text = lane.limit(i, a.dtype)
            made.append(self.let(f"tl.full({self.lengths(shape)}, {text}, "
                                 f"{lane.register(lane.state(a.dtype))})", "acc"))
        return made

    def arguments(self, args: Sequence[Expr], shape: Shape, mask: str = "",
                  monoid: str = "") -> list[str]:
        """The values of a fold in blocks of one shape; the identity where `mask` does not hold."""
        made = []
        for n, a in enumerate(args):
            text, have = self.spell(a), self.shape(a)
            kept = lane.state(a.dtype)
            if kept is not a.dtype:
                text = lane.typed(text, kept)
            if mask:
                rest = lane.limit(MONOIDS[monoid].identity[n], a.dtype)
                if have is None:  # two numbers would have no dtype
                    rest = f"tl.full([], {rest}, {lane.register(kept)})"
                text = f"tl.where({mask}, {text}, {rest})"
                have = join((have, frozenset((self.rank - 1,))))
            made.append(self.fit(text, have, shape))
        return made

    def update(self, monoid: str, state: Sequence[str], values: Sequence[str]) -> None:
        """Combines values into the state."""
        signs = {"sum": "+", "prod": "*"}
        if monoid in signs:
            self.add(f"{state[0]} = {state[0]} {signs[monoid]} {lane.atom(values[0])}")
        else:
            self.add(f"{', '.join(state)} = lehr_fold_{monoid}({', '.join((*state, *values))})")

    def across(self, monoid: str, values: Sequence[str]) -> list[str]:
        """Folds along the last position."""
        many = values[0] if len(values) == 1 else f"({', '.join(values)})"
        keep = ", keep_dims=True" if self.rank > 1 else ""
        names = [self.fresh() for _ in values]
        self.add(f"{', '.join(names)} = tl.reduce({many}, {self.rank - 1}, "
                 f"lehr_fold_{monoid}{keep})")
        return names

    def settle(self, e: Expr, names: Sequence[str]) -> None:
        """Records all parts of a fold of which `e` is one."""
        monoid, axes, args, _ = e.fields
        for part in range(MONOIDS[monoid].parts):
            kin = Expr(e.kind, args[part].dtype, monoid, axes, args, part)
            text = names[part]
            if lane.state(kin.dtype) is not kin.dtype:
                text = self.let(lane.cast(text, lane.state(kin.dtype), kin.dtype))
            self.record(kin, text)


def join(shapes: Iterable[Shape]) -> Shape:
    """The shape of a value made of values of these shapes."""
    made: Shape = None
    for s in shapes:
        made = s if made is None else made if s is None else made | s
    return made


def _load(b: Block, e: Expr, buffer: Buffer, idx: Any, mask: Expr | None, other: Expr | None
          ) -> str:
    address, have = b.address(buffer, idx[0])
    want = b.shape(e)
    text = b.fit(address, have, want)
    where = b.live(want, b.spell(mask) if mask is not None else "")
    if not where:
        return f"tl.load({text})"
    if mask is None:
        return f"tl.load({text}, mask={where})"
    rest = lane.literal(0, e.dtype) if other is None else (
        lane.literal(other.fields[0], e.dtype) if other.kind == "Const" else b.spell(other))
    return f"tl.load({text}, mask={where}, other={rest})"


# Comparisons of index values need no 64 bits.
_TESTS = ("eq", "ne", "lt", "le", "gt", "ge")


def _alu(b: Block, e: Expr, op: Any, *args: Any) -> str:
    values = [a for a in args if isinstance(a, Expr)]
    kinds = {a.kind for a in values}
    if op.name in _TESTS and kinds <= {"Index", "Const"} and "Index" in kinds:
        texts = [b.index(a.fields[0]) for a in values]
    else:
        texts = [b.spell(a) for a in values]
    return lane.operator(e, texts, b.divisor)


def _select(b: Block, e: Expr, cond: Expr, yes: Expr, no: Expr) -> str:
    both = yes.kind == no.kind == "Const"
    texts = [lane.literal(x.fields[0], x.dtype) if x.kind == "Const" and not both else b.spell(x)
             for x in (yes, no)]
    return f"tl.where({b.spell(cond)}, {texts[0]}, {texts[1]})"


def _random(b: Block, e: Expr, key: Expr, counter: Expr, index: Any) -> str:
    return f"lehr_word({b.spell(key)}, {b.spell(counter)}, {lane.typed(b.index(index), dt.int64)})"


def _named(b: Block, e: Expr, *fields: Any) -> str:
    b.name(e)
    return b.spell(e)


def _index(b: Block, e: Expr, i: Any) -> str:
    return lane.typed(b.index(i), dt.int64)


_SPELLINGS: dict[str, Callable[..., str]] = {
    "Const": lambda b, e, v: lane.number(v, e.dtype),
    "Index": _index,
    "Load": _load,
    "Alu": _alu,
    "Cast": lambda b, e, a: lane.cast(b.spell(a), a.dtype, e.dtype),
    "Select": _select,
    "Random": _random,
    "Reduce": _named,
    "Scan": _named,
}


def _serial(b: Block, several: Sequence[Expr]) -> None:
    """Reductions over the same axes as loops over those, one point at a time."""
    folds = {e.fields[:3]: e for e in several}
    axes = several[0].fields[1]
    b.define([x for e in several for x in b.inputs(e)], forced=True)
    states = [b.states(key[0], key[2], join(map(b.shape, key[2]))) for key in folds]
    with contextlib.ExitStack() as loops:
        for a in axes:
            name, extent = b.fresh("k"), b.index(a.extent)
            loops.enter_context(b.loop(f"for {name} in range({extent}):", (a.var,)))
            b.names[a.var] = name
        b.define(a for key in folds for a in key[2])
        for (monoid, _, args), state in zip(folds, states, strict=True):
            b.update(monoid, state, b.arguments(args, join(map(b.shape, args))))
    for e, state in zip(folds.values(), states, strict=True):
        b.settle(e, state)


def _running(b: Block, e: Expr) -> None:
    """A running value along the block, and on from the blocks before where there are any."""
    monoid, _, args, _ = e.fields
    shape = b.shape(e)
    values = [b.let(v) for v in b.arguments(args, shape)]
    many = values[0] if len(values) == 1 else f"({', '.join(values)})"
    names = [b.fresh() for _ in values]
    b.add(f"{', '.join(names)} = tl.associative_scan({many}, {b.rank - 1}, lehr_fold_{monoid})")
    carry = b.known(("carry", *e.fields[:3]))
    if carry is not None:
        state = carry.split()
        here = b.masks[-1]
        whole = b.across(monoid, b.arguments(args, shape, here, monoid))
        made = [b.fresh() for _ in names]
        b.add(f"{', '.join(made)} = lehr_fold_{monoid}({', '.join((*state, *names))})")
        b.update(monoid, state, whole)
        names = made
    b.settle(e, names)
