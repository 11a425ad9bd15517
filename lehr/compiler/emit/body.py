"""Values in loops: which are computed where, under which names.

A `Body` writes statements into the C function at hand. `loops` opens a loop nest and computes each
value at the outermost level at which all it depends on is known, once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from lehr.base import dtype as dt
from lehr.base import sym
from lehr.compiler.emit import value
from lehr.compiler.emit.lines import Lines
from lehr.compiler.emit.nest import Nest
from lehr.compiler.loop.expr import sure
from lehr.compiler.loop.ir import Buffer, Expr

LONGEST = 9  # nodes spelled in one expression before it gets a name
LANES = 32  # partial results of a fold: fixed, so that sums do not depend on the machine
LINE = 64  # bytes of a cache line
AHEAD = 4096  # bytes by which what a loop reads is asked for before it gets there
LARGE = 1 << 20  # bytes of a buffer of which that is worth while
WORDS = 64  # more random words than a loop asks for, see lehr_words


class Loop(NamedTuple):
    """`for (var = low; var < high; var++)`. kind: "plain", "lanes" (LANES points at a time, with
    the lane's number in `lane`) or "strip" (the variable is `low` plus the place c)."""

    var: Any
    low: str
    high: str
    kind: str = "plain"
    points: Any = None  # how many, at most, where that is known



class Words(NamedTuple):
    """Random words made before a loop: `name` points to the one of index `first` at its start, and
    each point moves on by `step`."""

    key: Expr
    counter: Expr
    first: Any
    loop: Loop
    step: int
    name: str


class Frame:
    """One C function being written, and what it uses from outside."""

    def __init__(self, depth: int = 1) -> None:
        self.out = Lines(depth)
        self.buffers: set[Buffer] = set()
        self.captured: dict[str, str] = {}  # name -> declaration
        self.own: dict[str, str] = {}
        self.symbols: set[Any] = set()  # sizes
        self.fault = False


class Body:
    """The statements of one kernel. `names`: C names of axes, sizes, checked indices."""

    def __init__(self, nest: Nest, places: Callable[[str], int], sizes: Sequence[Any]) -> None:
        self.nest, self.place_of, self.sizes = nest, places, tuple(sizes)
        self.names: dict[Any, str] = {s: f"size_{s.name}" for s in sizes}
        self.scopes: list[dict[Any, str]] = [{}]
        self.frame = Frame()
        self.frames: list[Frame] = [self.frame]  # those being written, innermost last
        self.serials: dict[str, int] = {}
        self.buffers: dict[Buffer, bool] = {}  # -> written
        self.locals: dict[Buffer, str] = {}
        self.parts: dict[str, tuple[str, ...]] = {}
        self.words: list[Words] = []
        self.streams: dict[Buffer, Any] = {}  # loaded by the loop at hand -> the first place
        self.asked: set[Buffer] = set()  # asked for ahead by a loop before

    # Names

    @property
    def out(self) -> Lines:
        return self.frame.out

    def fresh(self, stem: str = "u") -> str:
        n = self.serials[stem] = self.serials.get(stem, -1) + 1
        return f"{stem}{n}"

    def axis(self, var: Any, stem: str) -> str:
        """The C name of an axis variable that a loop here begins."""
        if var not in self.names:
            self.names[var] = self.fresh(stem)
        self.declare(self.names[var], "const int64_t {}")
        return self.names[var]

    def declare(self, name: str, declaration: str) -> None:
        """`declaration` has a slot for the name: how a function gets it that is called with it."""
        self.frame.own[name] = declaration

    def use(self, text: str, *names: str) -> str:
        """`text`, which names values: those of an outer function have to be handed in."""
        for name in names:
            if name in self.frame.own:
                continue
            for frame in reversed(self.frames[:-1]):
                if name in frame.own:
                    self.frame.captured[name] = frame.own[name]
                    break
        return text

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """Names given inside are forgotten after."""
        self.scopes.append({})
        kept = dict(self.names)
        yield
        self.scopes.pop()
        for var in [v for v in self.names if v not in kept and v in self.nest.bounds]:
            del self.names[var]

    def known(self, e: Any) -> str | None:
        for scope in reversed(self.scopes):
            if e in scope:
                return scope[e]
        return None

    def let(self, e: Any, text: str, *names: str) -> None:
        """From here on `text`, made of `names`, stands for the value."""
        self.scopes[-1][e] = text
        self.parts[text] = names

    # Spelling

    def index(self, e: Any) -> str:
        for v in ([] if isinstance(e, int) else sym.free(e)):
            name = self.names[v]
            if v in self.sizes:
                self.frame.symbols.add(v)
            else:
                self.use(name, name.partition("[")[0])
        return value.index(e, self.names)

    def pointer(self, b: Buffer, written: bool = False) -> str:
        """The pointer to a buffer; buffers that share memory share the pointer, so that a compiler
        sees that they do."""
        b = self.nest.state(b)[0]
        if b.role == "local":
            return self.use(self.locals[b], self.locals[b])
        one = self.nest.memory(b)
        self.buffers[one] = self.buffers.get(one, False) or written
        self.frame.buffers.add(one)
        if one.dtype is b.dtype:
            return f"@{one.name}@"
        return f"(({value.memory(b.dtype)} *)@{one.name}@)"

    def spell(self, e: Expr) -> str:
        found = self.known(e)
        if found is not None:
            return self.use(found, *self.parts[found])
        return _SPELLINGS[e.kind](self, e, *e.fields)

    # Levels

    def inputs(self, e: Any) -> list[Any]:
        """What has to be known before `e`: of a fold within loops, what does not depend on it."""
        if not isinstance(e, Expr) or e.kind != "Reduce":
            return self.nest.kids(e)
        own = {a.var for a in e.fields[1]}
        seen = list(self.nest.walk(e.fields[2], lambda x: own.isdisjoint(self.nest.deps(x))))
        inner = {a.var for x in seen if isinstance(x, Expr) and x.kind == "Reduce"
                 for a in x.fields[1]}      # what a fold within this one goes over is not known yet
        return [x for x in seen if own.isdisjoint(self.nest.deps(x))
                and inner.isdisjoint(self.nest.deps(x))]

    def levels(self, order: Sequence[Any], exprs: Iterable[Any]) -> list[list[Any]]:
        """The values to name at each level (0: before the loops), children first."""
        exprs = list(exprs)
        place = {var: n for n, var in enumerate(order, 1)}
        topo = self._topological(exprs)
        level: dict[Any, int] = {}
        late: set[Any] = set()  # running values, and what uses them, belong into the last loop
        for e in topo:
            level[e] = max((place[v] for v in self.nest.deps(e) if v in place), default=0)
            if isinstance(e, Expr) and e.kind == "Scan" or not late.isdisjoint(self.inputs(e)):
                late.add(e)
                level[e] = len(order)
        uses: dict[Any, int] = dict.fromkeys(topo, 0)
        highest = dict(level)
        for e in exprs:
            if e in uses:
                uses[e] += 1
                highest[e] = len(order)
        for e in topo:
            for c in self.inputs(e):
                if c in uses:
                    uses[c] += 1
                    highest[c] = max(highest[c], level[e])
        # Compilers make branches of a selection within one, and no vectors of a loop with branches.
        chosen = {c for e in topo if isinstance(e, Expr) and e.kind == "Select"
                  for c in e.fields if c.kind == "Select"}
        found: list[list[Any]] = [[] for _ in range(len(order) + 1)]
        size: dict[Any, int] = {}
        for e in topo:
            size[e] = 1 + sum(size.get(c, 0) for c in self.inputs(e) if c in size)
            if e in chosen or self._named(e, uses[e], highest[e] > level[e], size[e]):
                found[level[e]].append(e)
                size[e] = 0
        return found

    def _topological(self, exprs: Sequence[Any]) -> list[Any]:
        seen: set[Any] = set()
        found = []
        stack = [(e, False) for e in reversed(exprs)]
        while stack:
            e, ready = stack.pop()
            if ready:
                found.append(e)
            elif e not in seen and self.known(e) is None and e not in self.names:
                seen.add(e)
                stack.append((e, True))
                stack += [(c, False) for c in reversed(self.inputs(e))]
        return found

    def _named(self, e: Any, uses: int, hoisted: bool, size: int) -> bool:
        if not isinstance(e, Expr) or e.kind in ("Reduce", "Scan"):
            return True
        if e.kind == "Const" or (e.kind == "Index" and not hoisted):
            return False
        return hoisted or uses > 1 or size > LONGEST or (e.kind == "Random")

    def define(self, items: Iterable[Any]) -> None:
        """Computes values here."""
        for e in items:
            if self.known(e) is not None or e in self.names:
                continue
            if not isinstance(e, Expr):
                self._checked(e)
            elif e.kind == "Reduce":
                self.nested(e)
            elif e.kind == "Scan":
                self.running(e)
            else:
                self.assign(e, self.spell(e))

    def nested(self, e: Expr) -> None:
        """Computes a fold that depends on the loops around it."""
        raise NotImplementedError

    def running(self, e: Expr) -> None:
        """Moves a running value on by one point."""
        raise NotImplementedError

    def assign(self, e: Expr, text: str) -> str:
        name = self.fresh()
        kind = value.register(e.dtype)
        self.out.add(f"const {kind} {name} = {text};")
        self.declare(name, f"const {kind} {{}}")
        self.let(e, name, name)
        return name

    def _checked(self, var: Any) -> None:
        b = self.nest.bounds[var]
        name = self.fresh("at")
        text = self.spell(b.value)
        text = text if b.value.dtype is dt.int64 else value.cast(text, b.value.dtype, dt.int64)
        if not sure(b):
            self.frame.fault = True
            place = self.place_of("index")
            text = (f"lehr_index({text}, {self.index(b.bound)}, {int(b.wrap)}, fault, "
                    f"place + {place})")
        if b.mask is not None:
            text = f"{value.atom(self.spell(b.mask))} ? {text} : 0"
        self.out.add(f"const int64_t {name} = {text};")
        self.declare(name, "const int64_t {}")
        self.names[var] = name

    def guarded(self, mask: Expr | None, place: Any) -> str:
        """The condition for an access: its mask, and that there is an element at all where a wrong
        index was replaced by 0."""
        parts = [] if mask is None else [self.spell(mask)]
        bounds = dict.fromkeys(self.nest.bounds[v].bound for v in self.nest.loose(place))
        parts += [f"{self.index(n)} > 0" for n in bounds if not isinstance(n, int)
                  and sym.interval(n)[0] in (0, None)]
        return parts[0] if len(parts) == 1 else " & ".join(f"({p})" for p in parts)

    def divisor(self, text: str) -> str:
        self.frame.fault = True
        return f"lehr_divisor({text}, fault, place + {self.place_of('division')})"

    # Loops

    def loops(self, order: Sequence[Loop], exprs: Iterable[Any], body: Callable[[], None],
              around: Callable[[int], contextlib.AbstractContextManager[None]] | None = None
              ) -> None:
        """A loop nest with `body` innermost, which needs `exprs`. `around(n)` wraps loop n."""
        levels = self.levels([loop.var for loop in order], exprs)
        self.define(levels[0])
        self._loop(order, 0, levels, body, around)

    def _loop(self, order: Sequence[Loop], n: int, levels: list[list[Any]],
              body: Callable[[], None], around: Any) -> None:
        if n == len(order):
            body()
            return
        loop = order[n]
        with around(n) if around else contextlib.nullcontext(), self.scope():
            def inside() -> None:
                self.define(levels[n + 1])
                self._loop(order, n + 1, levels, body, around)
            words = len(self.words)
            if isinstance(loop.points, int) and n + 1 == len(order):
                self.words_for(loop, loop.points, levels[n + 1])
            _LOOPS[loop.kind](self, loop, inside)
            del self.words[words:]

    def words_for(self, loop: Loop, points: Any, items: Iterable[Any]) -> None:
        """Makes the random words of a loop before it, four at a time."""
        calls: dict[Any, list[Any]] = {}
        for e in items:
            if isinstance(e, Expr) and e.kind == "Random":
                step = self.nest.stride(e.fields[2], loop.var)
                if isinstance(step, int) and 1 <= step <= 4:
                    calls.setdefault((e.fields[0], e.fields[1], step), []).append(e.fields[2])
        for (key, counter, step), places in calls.items():
            first = places[0]
            gaps = [g for g in (i - first for i in places) if isinstance(g, int) and abs(g) < 16]
            first, count = first + min(gaps), step * (points - 1) + max(gaps) - min(gaps) + 1
            room, words = self.fresh("room"), self.fresh("words")
            start = value.index(first, {**self.names, loop.var: value.atom(loop.low)})
            self.index(sym.substitute(first, {loop.var: 0}))
            self.out.add(f"uint32_t {room}[{count + WORDS + 3}];",
                         f"const uint32_t *{words} = lehr_words({self.spell(key)}, "
                         f"{self.spell(counter)}, {start}, {count}, {room});")
            self.declare(words, "const uint32_t *{}")
            self.words.append(Words(key, counter, first, loop, step, words))

    def ahead(self, var: Any, first: str) -> list[str]:
        """Lines that ask for what the lanes of a loop over `var` will read: long computations wait
        for memory otherwise, and rows read a second time are in the cache."""
        made = []
        for b, place in self.streams.items():
            if b in self.asked or self.nest.stride(place, var) != 1:
                continue
            self.asked.add(b)
            at = f"{self.pointer(b)} + {value.index(place, {**self.names, var: first})}"
            for line in range(0, LANES * b.dtype.itemsize, LINE):
                made.append(f"LEHR_AHEAD({at} + {(AHEAD + line) // b.dtype.itemsize});")
        return made

    def captured(self, body: Callable[[], None]) -> list[str]:
        """The lines that `body` adds, taken out."""
        start = len(self.out.lines)
        body()
        lines = self.out.lines[start:]
        del self.out.lines[start:]
        return lines


def _plain(b: Body, loop: Loop, inside: Callable[[], None]) -> None:
    name = b.axis(loop.var, "k")
    with b.out.block(f"for (int64_t {name} = {loop.low}; {name} < {loop.high}; {name}++)"):
        inside()


def _strip(b: Body, loop: Loop, inside: Callable[[], None]) -> None:
    name = b.axis(loop.var, "i")
    with b.out.block("for (int64_t c = 0; c < width; c++)"):
        b.out.add(f"const int64_t {name} = {'c' if loop.low == '0' else f'{loop.low} + c'};")
        inside()


def _lanes(b: Body, loop: Loop, inside: Callable[[], None]) -> None:
    """LANES points at a time, then the rest: the same lines twice."""
    name = b.axis(loop.var, "k")
    first = f"{name}_"
    heads = [(f"for (; {first} + {LANES} <= {loop.high}; {first} += {LANES})", f"l < {LANES}")]
    if loop.points is None or loop.points % LANES:
        heads.append(("", f"l < {loop.high} - {first}"))
    b.out.depth += 2
    b.streams.clear()
    lines = b.captured(inside)
    ahead = b.ahead(loop.var, first)
    b.out.depth -= 2
    with b.out.block(""):
        b.out.add(f"int64_t {first} = {loop.low};")
        for outer, test in heads:
            if outer:
                b.out.add(f"{outer} {{", *(f"  {line}" for line in ahead))
            pad = "  " * bool(outer)
            b.out.add(f"{pad}for (int l = 0; {test}; l++) {{",
                      f"{pad}  const int64_t {name} = {first} + l;")
            b.out.lines += [pad + line for line in lines]
            b.out.add(*(f"{pad}}}", "}")[: 2 if outer else 1])


_LOOPS = {"plain": _plain, "strip": _strip, "lanes": _lanes}


def _load(b: Body, e: Expr, buffer: Buffer, idx: Any, mask: Expr | None, other: Expr | None) -> str:
    text = f"{b.pointer(buffer)}[{b.index(idx[0])}]"
    test = b.guarded(mask, idx[0])
    if not test:
        if buffer.role != "local" and _large(buffer):
            b.streams.setdefault(b.nest.memory(b.nest.state(buffer)[0]), idx[0])
        return text
    rest = value.number(0, e.dtype) if other is None else value.atom(b.spell(other))
    return f"{value.atom(test)} ? {text} : {rest}"


def _large(b: Buffer) -> bool:
    count = sym.prod(b.shape)
    return not isinstance(count, int) or count * b.dtype.itemsize >= LARGE


def _random(b: Body, e: Expr, key: Expr, counter: Expr, index: Any) -> str:
    for w in b.words:
        gap = index - w.first
        if w.key is key and w.counter is counter and isinstance(gap, int) and 0 <= gap < 16:
            name = b.names[w.loop.var]
            at = "c" if w.loop.kind == "strip" else value.atom(f"{name} - {w.loop.low}"
                                                               if w.loop.low != "0" else name)
            at = at if w.step == 1 else f"{w.step} * {at}"
            return f"(int64_t){b.use(w.name, w.name)}[{at}{f' + {gap}' if gap else ''}]"
    return f"lehr_word({b.spell(key)}, {b.spell(counter)}, {b.index(index)})"


def _alu(b: Body, e: Expr, *fields: Any) -> str:
    return value.operator(e, [b.spell(a) for a in fields[1:] if isinstance(a, Expr)], b.divisor)


def _select(b: Body, e: Expr, cond: Expr, yes: Expr, no: Expr) -> str:
    return " ? ".join((value.atom(b.spell(cond)), " : ".join(
        value.atom(b.spell(x)) for x in (yes, no))))


def _unnamed(b: Body, e: Expr, *fields: Any) -> str:
    raise value.Unsupported(f"a {e.kind.lower()} in this place: {e!r}")


_SPELLINGS: dict[str, Callable[..., str]] = {
    "Const": lambda b, e, v: value.number(v, e.dtype),
    "Index": lambda b, e, i: b.index(i),
    "Load": _load,
    "Alu": _alu,
    "Cast": lambda b, e, a: value.cast(b.spell(a), a.dtype, e.dtype),
    "Select": _select,
    "Random": _random,
    "Reduce": _unnamed,
    "Scan": _unnamed,
}
