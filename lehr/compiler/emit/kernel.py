"""A kernel as C: `static void NAME(void *const *p, int64_t from, int64_t to)` does the units
[from, to) of its work.

Where there are few units of much work, the function runs on one thread and gets the runtime: its
loop groups are tasks of their own, over fixed chunks, so that sums do not depend on the number of
threads.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from lehr.base import dtype as dt
from lehr.base import sym
from lehr.compiler.emit import fold, value
from lehr.compiler.emit import order as orders
from lehr.compiler.emit.body import LANES, Body, Frame, Loop
from lehr.compiler.emit.lines import Lines
from lehr.compiler.emit.nest import Nest, Root, inner_axes
from lehr.compiler.emit.order import Group, Order
from lehr.compiler.loop.ir import Axis, Buffer, Expr

STACK = 1 << 16  # bytes of one array on the stack
PARTS = 64  # tasks at most that a group is cut into
SHARE, ROWS = 4096, 256  # points of one row, or rows of a strip, that make a task at least


class Function(NamedTuple):
    """C text in which `@name@` stands for a pointer and `@@` for the function's name. `p` holds the
    `params` (buffer, whether it is written), then, where `sizes` and `fault` say so, the sizes; the
    fault record and the number of the first place that may fail. `total` units, each of `work`."""

    text: str
    params: tuple[tuple[Buffer, bool], ...]
    sizes: bool
    fault: bool
    phased: bool
    total: Any
    work: int


class Kernel(Body):
    """Writes one kernel."""

    def __init__(self, nest: Nest, order: Order, places: Callable[[str], int],
                 sizes: Sequence[Any]) -> None:
        super().__init__(nest, places, sizes)
        self.order = order
        self.tasks: list[Callable[[], str]] = []
        self.all: list[Frame] = [self.frame]
        self.runs: list[fold.Running] = []
        self.way = fold.strip(order.width) if order.strip is not None else fold.SINGLE
        self.heap: list[tuple[str, str, str]] = []
        self.low = "0"  # where the block of the strip begins

    def write(self) -> Function:
        body = self.frame
        self._units()
        out = Lines()
        head = "const lehr_runtime *rt, void *const *p" if self.order.phased else (
            "void *const *p, int64_t from, int64_t to")
        with out.block(f"static void @@({head})"):
            self._prologue(out, body)
            out.add(*(f"{kind} *{name} = __builtin_malloc(({size}) * sizeof({kind}));"
                      for kind, name, size in self.heap))
            out.lines += body.out.lines
            out.add(*(f"__builtin_free({name});" for _, name, _ in self.heap))
        text = "\n\n".join([*(task() for task in self.tasks), out.text()])
        return Function(text, tuple(self.buffers.items()), any(f.symbols for f in self.all),
                        any(f.fault for f in self.all), self.order.phased,
                        orders.total(self.order), orders.work(self.nest, self.order))

    def _prologue(self, out: Lines, frame: Frame) -> None:
        """The variables that a frame takes from `p`."""
        at = len(self.buffers)
        for n, (b, written) in enumerate(self.buffers.items()):
            if b in frame.buffers:
                const = "" if written else "const "
                out.add(f"{const}{value.memory(b.dtype)} *restrict @{b.name}@ = p[{n}];")
        if any(f.symbols for f in self.all):
            if frame.symbols:
                out.add(f"const int64_t *size = p[{at}];")
                out.add(*(f"const int64_t {self.names[s]} = size[{n}];"
                          for n, s in enumerate(self.sizes) if s in frame.symbols))
            at += 1
        if frame.fault:
            out.add(f"lehr_fault *fault = p[{at}];", f"const int64_t place = (int64_t)p[{at + 1}];")

    # Units

    def _units(self) -> None:
        """The loops over units, or, where groups are tasks, over all there is."""
        dims = [(self._unit_name(a, block), sym.ceildiv(a.extent, block))
                for a, block in orders.units(self.order)]
        if self.order.phased:
            loops = [(name, "0", self.index(count)) for name, count in dims]
        else:
            loops = [(dims[0][0] if len(dims) == 1 else "n", "from", "to")]
        with contextlib.ExitStack() as stack:
            for name, low, high in loops:
                stack.enter_context(self.out.block(
                    f"for (int64_t {name} = {low}; {name} < {high}; {name}++)"))
            if len(dims) > 1 and not self.order.phased:
                rest: Any = 1
                for n, (name, count) in reversed(list(enumerate(dims))):
                    text = "n" if rest == 1 else f"n / {value.atom(self.index(rest))}"
                    text += f" % {value.atom(self.index(count))}" if n else ""
                    self.out.add(f"const int64_t {name} = {text};")
                    rest = rest * count
            self._unit()

    def _unit_name(self, a: Axis, block: int) -> str:
        if block == 1:
            return self.axis(a.var, "i")
        name = f"block{'_' * (a is self.order.tile)}"
        self.declare(name, "const int64_t {}")
        return name

    def _unit(self) -> None:
        """One unit: the blocks of the strip, the serial axes, the rows."""
        with self.scope(), contextlib.ExitStack() as stack:
            serial = [(a, "0", self.index(a.extent)) for a in self.order.serial]
            if self.order.tile is not None:
                serial.append((self.order.tile, *self._block("block_", self.order.tile.extent,
                                                             orders.TILE, "tile")))
            if self.order.strip is not None:
                self._strip(stack)
            for a, low, high in serial:
                name = self.axis(a.var, "i")
                stack.enter_context(self.out.block(
                    f"for (int64_t {name} = {low}; {name} < {high}; {name}++)"))
            stack.enter_context(self.scope())
            self._locals()
            for g in self.order.groups:
                self._group(g)

    def _strip(self, stack: contextlib.ExitStack) -> None:
        """Where the strip's block begins, and its width."""
        strip = self.order.strip
        assert strip is not None
        if orders.whole(self.order):
            self.low, width = "0", str(strip.extent)
        else:
            if self.order.inside:
                count = sym.ceildiv(strip.extent, self.order.width)
                head = f"for (int64_t block = 0; block < {self.index(count)}; block++)"
                stack.enter_context(self.out.block(head))
                self.declare("block", "const int64_t {}")
            self.low, high = self._block("block", strip.extent, self.order.width, "low")
            width = f"{high} - {self.low}"
        self.out.add(f"const int64_t width = {width};")
        self.declare("width", "const int64_t {}")

    def _block(self, block: str, extent: Any, size: int, stem: str) -> tuple[str, str]:
        """Declares where a block begins and ends."""
        low, high = stem, f"{stem}_end"
        end = self.index(extent)
        if isinstance(extent, int) and extent % size == 0:
            self.out.add(f"const int64_t {low} = {block} * {size}, {high} = {low} + {size};")
        else:
            self.out.add(f"const int64_t {low} = {block} * {size};",
                         f"const int64_t {high} = {low} + {size} < {end} ? {low} + {size} : "
                         f"{end};")
        self.declare(low, "const int64_t {}")
        return low, high

    def _locals(self) -> None:
        """Arrays for rows that are stored and then loaded in another order."""
        for r in self.nest.roots:
            b = r.buffer
            if b.role == "local" and b not in self.locals:
                name = self.locals[b] = self.fresh("row")
                self._array(name, value.memory(b.dtype), sym.prod(b.shape), b.dtype.itemsize)

    def _array(self, name: str, kind: str, size: Any, itemsize: int) -> None:
        if isinstance(size, int) and size * itemsize <= STACK:
            self.out.add(f"{kind} {name}[{max(size, 1)}];")
        elif not any(known == name for _, known, _ in self.heap):
            self.heap.append((kind, name, self.index(size)))
        self.declare(name, f"{kind} *{{}}")

    # Groups

    def _loops(self, axes: Sequence[Axis], lanes: bool) -> list[Loop]:
        loops = [Loop(a.var, "0", self.index(a.extent),
                      points=a.extent if isinstance(a.extent, int) else None) for a in axes]
        if lanes:
            loops[-1] = loops[-1]._replace(kind="lanes")
        return loops

    def _order(self, g: Group, lanes: bool) -> list[Loop]:
        """The loops of a group."""
        loops = self._loops(g.axes, lanes)
        if self.order.strip is not None:
            loops.append(Loop(self.order.strip.var, self.low, "", "strip", self.order.width))
        return loops

    def _lanes(self, g: Group) -> bool:
        """Whether the row's last axis is worth lanes, and no value within needs a loop itself."""
        if not g.folds:
            return False
        n = g.axes[-1].extent
        within = {e for e in orders.needed(self.nest, g)
                  if isinstance(e, Expr) and e.kind == "Reduce"}
        return not within and not (isinstance(n, int) and n < LANES)

    def _group(self, g: Group) -> None:
        if self.order.strip is not None and g.folds:
            g = self._alone(g)
            if not (g.folds or g.roots):
                return
        if self.order.phased and g.axes:
            self._phase(g)
            return
        exprs = self._needs(g)
        if g.axes and self.order.strip is not None:
            self._columns(g, exprs)
        stages = {e: self._stage(g, e, n) for e, n in g.stages}
        lanes = self.order.strip is None and self._lanes(g)
        loops = self._order(g, lanes)

        def stores() -> None:
            for e, (place, _) in stages.items():
                self.out.add(f"{place()} = {self.spell(e)};")
            for n in g.roots:
                self._store(self.nest.roots[n])

        if g.folds:
            way = fold.LANE if lanes else self.way
            fold.Folding(self, g.folds, loops, way).run(exprs, stores)
        else:
            self._plain(g, loops, exprs, stores)
        for e, (place, names) in stages.items():
            self.let(e, place(), *names)

    def _stage(self, g: Group, e: Expr, root: int | None) -> tuple[Callable[[], str], list[str]]:
        """(the place of a kept value, spelled within the loops; what it names)."""
        if root is not None:
            r = self.nest.roots[root]
            return lambda: f"{self.pointer(r.buffer, True)}[{self.index(r.index)}]", []
        name = self.fresh("row")
        size = orders.count(g.axes) * (self.order.width or 1)
        self._array(name, value.register(e.dtype), size, e.dtype.itemsize)
        return lambda: f"{name}[{self._position(g)}]", [name]

    def _alone(self, g: Group) -> Group:
        """Folds the same for every column are done once; the group without them."""
        assert self.order.strip is not None
        var = self.order.strip.var
        once = tuple(e for e in g.folds if var not in self.nest.deps(e))
        if once:
            only = g._replace(folds=once, roots=(), stages=())
            lanes = self._lanes(only)
            loops = self._loops(only.axes, lanes)
            fold.Folding(self, once, loops, fold.LANE if lanes else fold.SINGLE).run(
                [], lambda: None)
        return g._replace(folds=tuple(e for e in g.folds if e not in once))

    # Groups as tasks

    def _phase(self, g: Group) -> None:
        """A group split over threads: chunks of its first axis, partial results in order."""
        if self.order.strip is not None:
            self._columns(g, self._needs(g))
        task = f"@@_{self.fresh('part')}"
        frame = Frame()
        self.all.append(frame)
        self.frames.append(frame)
        self.frame = frame
        if self.order.strip is not None:
            self.use("", self.low, "width")
        lanes = self.order.strip is None and self._lanes(g)
        loops = self._order(g, lanes)
        loops[0] = loops[0]._replace(low="from", high="to", points=None)
        way = fold.LANE if lanes else self.way
        folding = fold.Folding(self, g.folds, loops, way)
        partial = {name: self.fresh("partial") for f in folding.folds for name in f.state}

        def stores() -> None:
            for n in g.roots:
                self._store(self.nest.roots[n])

        with self.scope():
            folding.run(self._needs(g), stores, lambda: self._publish(folding, partial))
        self.frames.pop()
        self.frame = self.frames[-1]
        self._dispatch(task, frame, folding, partial, g.axes)

    def _publish(self, folding: fold.Folding, partial: dict[str, str]) -> None:
        """The end of a task: its partial results go where the caller finds them."""
        way = folding.way
        for f in folding.folds:
            kinds = ["double"] if f.total else f.kinds
            for name, kind in zip(f.state, kinds, strict=True):
                self.frame.captured[partial[name]] = f"{kind} *{{}}"
                done = f.total or name
                if way.size and way is not fold.LANE:
                    self.out.add(f"{way.each} {partial[name]}[chunk * {way.size} + c] = {done}[c];")
                else:
                    at = "[0]" if way is fold.LANE and not f.total else ""
                    self.out.add(f"{partial[name]}[chunk] = {done}{at};")

    def _dispatch(self, task: str, frame: Frame, folding: fold.Folding, partial: dict[str, str],
                  axes: Sequence[Axis]) -> None:
        """The call of a task over all chunks, and the combination of what they made."""
        out, way, count = self.out, folding.way, self.index(axes[0].extent)
        columns = bool(way.size) and way is not fold.LANE
        least = ROWS if columns else SHARE
        inner = sym.prod([a.extent for a in axes[1:]])
        step = max(1, least // inner) if isinstance(inner, int) and inner else (
            f"({least} / (1 + {value.atom(self.index(inner))}) + 1)")
        share = f"({value.atom(count)} / {PARTS} + {step}) / {step} * {step}"
        self.tasks.append(lambda: self._task(task, frame, count))
        for f in folding.folds:
            for name, first in zip(f.state, f.kinds, strict=True):
                kind = "double" if f.total else first
                out.add(f"{kind} {partial[name]}[{PARTS}{f' * {way.size}' if columns else ''}];",
                        f"{kind} {name}{f'[{way.size}]' if columns else ''};")
        with out.block(""):
            out.add(f"const int64_t share = {share}, parts = ({count} + share - 1) / share;")
            out.add(f"{task}_args args = {{{', '.join(['p', 'share', *frame.captured])}}};")
            out.add(f"if (parts == 1) {task}(&args, 0, 0);")
            out.add(f"else if (parts > 1) rt->parallel({task}, &args, parts);")
            for f in folding.folds:
                kept = f._replace(kinds=("double",)) if f.total else f
                for name, first in zip(f.state, f.identity, strict=True):
                    out.add(f"{way.each} {name}[c] = {first};" if columns else f"{name} = {first};")
                at = f"[n * {way.size} + c]" if columns else "[n]"
                with out.block("for (int64_t n = 0; n < parts; n++)"), \
                        out.block(way.each) if columns else contextlib.nullcontext():
                    fold.update(self, kept, "[c]" if columns else "",
                                [partial[name] + at for name in f.state])
        for f in folding.folds:
            for e in f.parts:
                name = f.state[e.fields[3]]
                if columns:
                    kind = "double" if f.total else f.kinds[e.fields[3]]
                    self.declare(name, f"const {kind} *{{}}")
                    self.let(e, f"(float){name}[c]" if f.total else f"{name}[c]", name)
                else:
                    self.assign(e, f"(float){name}" if f.total else name)

    def _task(self, task: str, frame: Frame, count: str) -> str:
        """The C function of a task."""
        out = Lines()
        with out.block("typedef struct", f"}} {task}_args;"):
            out.add("void *const *p;", "int64_t share;",
                    *(f"{kind.format(name)};" for name, kind in frame.captured.items()))
        with out.block(f"static void {task}(void *ctx, int64_t chunk, int64_t worker)"):
            out.add(f"const {task}_args *args = ctx;", "void *const *p = args->p;", "(void)worker;")
            self._prologue(out, frame)
            out.add(*(f"{kind.format(name)} = args->{name};"
                      for name, kind in frame.captured.items()))
            out.add("const int64_t from = chunk * args->share, more = from + args->share;",
                    f"const int64_t to = more < {count} ? more : {count};")
            out.lines += frame.out.lines
        return out.text()

    def _needs(self, g: Group) -> list[Any]:
        exprs: list[Any] = [e for n in g.roots for e in self.nest.uses(self.nest.roots[n])]
        return [*exprs, *(e for e, _ in g.stages)]

    def _plain(self, g: Group, loops: list[Loop], exprs: list[Any],
               stores: Callable[[], None]) -> None:
        scans = [e for e in self.nest.walk(exprs) if isinstance(e, Expr) and e.kind == "Scan"]
        if not scans:
            self.loops(loops, exprs, stores)
            return
        along = next(n for n, a in enumerate(g.axes) if a.role == "scan")
        if {e.fields[1].var for e in scans} != {g.axes[along].var}:
            raise value.Unsupported("running values along several axes in one kernel")
        run = fold.Running(self, scans, self.way)

        @contextlib.contextmanager
        def around(n: int) -> Iterator[None]:
            if n == along:
                run.begin()
            yield

        self.runs.append(run)
        self.loops(loops, exprs, stores, around)
        self.runs.pop()

    def running(self, e: Expr) -> None:
        self.runs[-1].advance(e)

    def _position(self, g: Group) -> str:
        """Where a point of the group is in the array of a kept value."""
        place: Any = 0
        for a in sorted(g.axes, key=lambda a: a.var.name):
            place = place * a.extent + a.var
        text = self.index(place)
        return f"({text}) * {self.order.width} + c" if self.order.strip is not None else text

    def _columns(self, g: Group, exprs: Sequence[Any]) -> None:
        """Values and checked indices of each column that a group over rows needs, computed once a
        column."""
        assert self.order.strip is not None
        roots = [*exprs, *(a for e in g.folds for a in e.fields[2])]

        inner = inner_axes(self.nest)

        def outside(e: Any) -> bool:
            return self.known(e) is not None or self.nest.deps(e).isdisjoint(inner)

        found = [e for e in self.nest.walk(roots, outside)
                 if e not in self.names and self.known(e) is None and outside(e)
                 and self.order.strip.var in self.nest.deps(e)
                 and not (isinstance(e, Expr) and e.kind in ("Load", "Index", "Const"))]
        if not found:
            return
        names = {e: self.fresh("column") for e in found}
        for e, name in names.items():
            kind = value.register(e.dtype) if isinstance(e, Expr) else "int64_t"
            self.out.add(f"{kind} {name}[{self.order.width}];")
            self.declare(name, f"const {kind} *{{}}")

        def body() -> None:
            self.out.add(*(f"{name}[c] = {self.spell(e) if isinstance(e, Expr) else self.names[e]};"
                           for e, name in names.items()))

        self.loops(self._order(g._replace(axes=()), False), found, body)
        for e, name in names.items():
            if isinstance(e, Expr):
                self.let(e, f"{name}[c]", name)
            else:
                self.names[e] = f"{name}[c]"

    def nested(self, e: Expr) -> None:
        if self.known(e) is not None:
            return
        axes = e.fields[1]
        n = axes[-1].extent
        inner = any(isinstance(x, Expr) and x.kind == "Reduce" for x in self.nest.walk(e.fields[2]))
        lanes = self.order.strip is None and not inner and not (isinstance(n, int) and n < LANES)
        loops = self._loops(axes, lanes)
        fold.Folding(self, [e], loops, fold.LANE if lanes else fold.SINGLE).run([], lambda: None)

    # Stores

    def _store(self, r: Root) -> None:
        b = r.buffer
        text = self.spell(r.value)
        place = f"{self.pointer(b, True)}[{self.index(r.index)}]"
        if r.mode != "set":
            text = _combined(r.mode, place, text, b.dtype)
        line = f"{place} = {text};"
        mask = self.guarded(r.mask, r.index)
        if mask:
            line = f"if ({mask}) {line}"
        self.out.add(line)


def _combined(mode: str, place: str, text: str, dtype: Any) -> str:
    """What a combining store writes."""
    if dtype.short in value.HALF:
        old, new = (value.cast(x, dtype, dt.float32) for x in (place, text))
        return value.cast(_combined(mode, old, new, dt.float32), dt.float32, dtype)
    if mode in ("max", "min"):
        return f"lehr_{mode}imum_{dtype.short}({place}, {text})"
    sign = {("add", False): "+", ("mul", False): "*", ("add", True): "|", ("mul", True): "&"}[
        mode, dtype is dt.bool_]
    return f"({value.memory(dtype)})({place} {sign} {value.atom(text)})"
