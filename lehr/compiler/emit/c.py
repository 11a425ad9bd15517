"""A program as C: one function per kernel, one entry function per segment.

A segment is a run of steps between two host calls: `void NAME(void **ptr)`. `ptr` holds the arena,
the runtime table, the sizes, the fault record, then params, outputs and constants (see `host`).
Kernels of the same text are one function.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from lehr.base import dtype as dt
from lehr.base import sym
from lehr.compiler.emit import (
    alike,
    attention,
    convolution,
    header,
    host,
    onednn,
    pointwise,
    product,
    value,
    weight,
)
from lehr.compiler.emit.kernel import Function, Kernel
from lehr.compiler.emit.lines import Lines
from lehr.compiler.emit.nest import prepare
from lehr.compiler.emit.order import order
from lehr.compiler.emit.signature import signature
from lehr.compiler.emit.template import Template
from lehr.compiler.loop.ir import Buffer, Extern, Group, HostCall, Operand, Program, Step
from lehr.compiler.loop.ir import Kernel as LoopKernel
from lehr.compiler.loop.text import row_major
from lehr.compiler.loop.traffic import traffic
from lehr.compiler.loop.verify import touched

FLAGS = ("-fwrapv", "-fno-strict-aliasing")  # of every generated source
GRAIN = 1 << 15  # the weight of work that is worth a task
MANY = 16  # functions in one source: several sources are compiled at once
ALIGN = 64
_HEADERS = ("lehr_task", "lehr_runtime", "lehr_convolution", "lehr_attention", "lehr_half",
            "lehr_product", "LEHR_F32", "LEHR_F64", "LEHR_ONEDNN", "LEHR_ALONG", "LEHR_TURNED",
            "lehr_onednn", "lehr_batch", "lehr_edge")
# kind of product -> the template that may do it
TEMPLATES = {"bf16": "half", "f32": "split", "onednn": "onednn", "onednn_bf16": "onednn"}
PACKING = ("bf16", "f32")   # those whose templates have `lehr_pack`
_CLOCKS = ("lehr_calls", "lehr_spent")
_TEMPLATES = (convolution, attention)
_EXTERNS = (product, *_TEMPLATES)
WHOLE = tuple(attention.TENSORS)  # composites that templates take as they are


class Code(NamedTuple):
    """C sources (without the runtime's header) and the record of the call."""

    sources: tuple[str, ...]
    record: dict[str, Any]


class Layout(NamedTuple):
    """Where arena buffers lie, in bytes, and how long the arena is."""

    offsets: Mapping[Buffer, Any]
    size: Any


def layout(program: Program) -> Layout:
    """Every arena buffer in a place of its own: for programs without a memory plan."""
    offsets: dict[Buffer, Any] = {}
    end: Any = 0
    for b in program.buffers:
        if b.role == "arena":
            offsets[b] = end
            span = 1 + sum(((n - 1) * s for n, s in zip(b.shape, b.strides, strict=True)), 0)
            end = end + sym.ceildiv(sym.maximum(span, 1) * b.dtype.itemsize, ALIGN) * ALIGN
    return Layout(offsets, end)


def emit(program: Program, plan: Any = None, header_text: str = "", timed: bool = False,
         other: onednn.Choice = onednn.never) -> Code:
    """The C of a program. `plan`: `offsets` and `size` of the arena; None: nothing shares memory.
    `header_text`: what every source begins with. `timed`: steps add up the time that they take in
    `lehr_spent` (`run.executable` reads it). `other`: which calls oneDNN does. Unsupported
    names what has no C."""
    return _Emitter(program, plan or layout(program), header_text, timed, other).code()


def supports(step: Step) -> bool:
    """Whether this back end can spell a step; others have to be host calls."""
    return not isinstance(step, Extern) or any(way.supported(step) for way in _EXTERNS)


class _Written(NamedTuple):
    """A kernel's function: `buffers` by number, and the `kinds` of places that may fail."""

    name: str
    made: Function
    buffers: tuple[Buffer, ...]
    kinds: list[str]


class _Emitter:
    def __init__(self, program: Program, plan: Any, header_text: str, timed: bool,
                 other: onednn.Choice) -> None:
        self.other = other
        self.program, self.plan, self.header, self.timed = program, plan, header_text, timed
        self.clocks: list[dict[str, Any]] = []
        constants = [b for b in program.buffers if b.role == "const"]
        fixed = [*program.params, *program.results, *constants]
        self.places = host.Places(fixed, plan.offsets)
        self.constants = constants
        self.functions: dict[str, alike.Text] = {}  # by text
        self.written: dict[Any, _Written] = {}  # by signature
        self.ranks = {b: n for n, b in enumerate(plan.offsets)}
        touches = [touched(s) for s in program.steps]
        self.users = Counter(b for t in touches for b in set().union(*t))
        self.stay = set(program.params).difference(*(writes for _, writes in touches))
        self.weights: dict[weight.Weight, int] = {}     # their slots, behind all others
        self.names: set[str] = set()
        self.faults: list[list[str]] = []
        self.entries: list[str] = []
        self.steps: list[dict[str, Any]] = []
        self.templates: set[str] = set()
        self.products: set[tuple[int, ...]] = set()     # sizes of those of float32
        # Scratch memory of one step lies behind the planned arena.
        self.views: dict[Buffer, Operand] = {}
        self.scratch: dict[Buffer, Any] = {}
        self.end = self.used = plan.size

    def code(self) -> Code:
        segment: list[Step] = []
        for step in (*self.program.steps, None):
            if step is not None and not isinstance(step, HostCall):
                segment.append(step)
                continue
            if segment:
                self.segment(segment)
                segment = []
            if step is not None:
                self.steps.append(host.host_step(step, self.places))
        return Code(self.sources(), self.record())

    def record(self) -> dict[str, Any]:
        p = self.program
        return {"name": p.name, "symbols": [s.name for s in p.symbols],
                "params": [host.declared(b) for b in p.params],
                "outputs": [host.declared(b) for b in p.results],
                "constants": [host.constant(b) for b in self.constants],
                "arena": host.size(self.used), "templates": sorted(self.templates),
                "products": sorted(self.products),
                "weights": [weight.record(w, p.params.index(w.param), slot)
                            for w, slot in self.weights.items()],
                "steps": self.steps, "faults": self.faults, "clocks": self.clocks}

    # Functions

    def unique(self, name: str) -> str:
        """A function's name: with a prefix, since `exp` would take the place of the library's."""
        stem = f"k_{re.sub(r'[^A-Za-z0-9_]', '_', name)}"
        made, n = stem, 1
        while made in self.names:
            n += 1
            made = f"{stem}_{n}"
        self.names.add(made)
        return made

    def function(self, k: LoopKernel, rows: int = 0) -> tuple[str, Function, int]:
        """(name, function, number of the first place that may fail) of a kernel."""
        base = len(self.faults)
        at = ", ".join(str(x) for x in k.locations)
        reads, writes = touched(k)
        planned = sorted((b for b in reads | writes if b in self.ranks), key=self.ranks.__getitem__)
        alias = _shared(planned, self.plan.offsets)
        key, buffers = signature(k, rows, alias)
        found = self.written.get(key)
        if found is None:
            kinds: list[str] = []

            def place(kind: str) -> int:
                kinds.append(kind)
                return len(kinds) - 1

            nest = prepare(k.name, k.axes, k.stores, k.binds, rows, alias)
            made = Kernel(nest, order(nest, rows), place, self.program.symbols).write()
            found = self.written[key] = _Written(self.text(k, made), made, buffers, kinds)
        self.faults += [[kind, at] for kind in found.kinds]
        own = dict(zip(found.buffers, buffers, strict=True))
        params = tuple((own[b], written) for b, written in found.made.params)
        return found.name, found.made._replace(params=params), base

    def text(self, k: LoopKernel, made: Function) -> str:
        """The name under which a function's text is part of the source."""
        ids = {f"@{b.name}@": f"@{n}@" for n, (b, _) in enumerate(made.params)}
        key = re.sub(r"@\w+@", lambda m: ids[m[0]], made.text)
        if key not in self.functions:
            pointers = tuple(_safe(b.name) for b, _ in made.params)
            comments = tuple(dict.fromkeys(_line(x) for x in k.locations))
            self.functions[key] = alike.Text(self.unique(k.name), key, pointers, comments)
        return self.functions[key].name

    def pointers(self, made: Function, base: int) -> str:
        """The initializer of a kernel's `p`."""
        items = [self.pointer(b) for b, _ in made.params]
        items += ["(void *)size"] * made.sizes
        items += ["fault", f"(void *){base}LL"] * made.fault
        return ", ".join(items) or "0"

    def pointer(self, b: Buffer) -> str:
        if b in self.views:
            o = self.views[b]
            base = self.pointer(o.buffer)
            if o.offset == 0:
                return base
            return f"({value.memory(b.dtype)} *)({base}) + {value.atom(self.size(o.offset))}"
        if b in self.places.slots:
            return f"ptr[{self.places.slots[b]}]"
        at = self.scratch[b] if b in self.scratch else self.plan.offsets[b]
        return f"arena + {value.atom(self.size(at))}"

    def size(self, e: Any) -> str:
        return value.index(e, {s: f"size_{s.name}" for s in self.program.symbols})

    # Segments

    def segment(self, steps: Sequence[Step]) -> None:
        name = self.unique(f"{self.program.name}_{len(self.entries)}")
        out = Lines()
        with out.block(f"LEHR_ENTRY {name}(void **ptr)"):
            out.add("char *arena = ptr[0];", "const lehr_runtime *rt = ptr[1];",
                    "const int64_t *size = ptr[2];", "lehr_fault *fault = ptr[3];")
            out.add(*(f"const int64_t size_{s.name} = size[{n}];"
                      for n, s in enumerate(self.program.symbols)))
            out.add("(void)arena, (void)rt, (void)size, (void)fault;")
            if self.timed and not self.entries:
                # What the first call takes for memory that was never touched says nothing.
                out.add("if (lehr_calls++ == 1)",
                        "  for (unsigned n = 0; n < sizeof lehr_spent / 8; n++) lehr_spent[n] = 0;")
            for step in steps:
                (self.clocked if self.timed else self.step)(out, step)
        self.entries.append(out.text())
        self.steps.append({"segment": name})

    def step(self, out: Lines, step: Step) -> None:
        _STEPS[type(step)](self, out, step)

    def clocked(self, out: Lines, step: Step) -> None:
        """A step and the time that it takes."""
        parts = step.kernels if isinstance(step, Group) else (step,)
        lines = dict.fromkeys(str(x) for part in parts for x in part.locations)
        found = [t for p in parts if isinstance(p, LoopKernel) and (t := traffic(p))]
        self.clocks.append({
            "name": ", ".join(p.name for p in parts), "lines": list(lines),
            "least": sum(t.least for t in found), "moved": sum(t.moved for t in found),
            "why": list(dict.fromkeys(w for t in found for w in t.why))})
        with out.block(""):
            out.add("const int64_t began = lehr_now();")
            self.step(out, step)
            out.add(f"lehr_spent[{len(self.clocks) - 1}] += lehr_now() - began;")

    def kernel(self, out: Lines, k: LoopKernel) -> None:
        name, made, base = self.function(k)
        with out.block(""):
            out.add(f"void *const p[] = {{{self.pointers(made, base)}}};")
            if made.phased:
                out.add(f"{name}(rt, p);")
            else:
                out.add(f"lehr_spread(rt, {name}, p, {self.size(made.total)}, {_grain(made)});")
        if made.fault:
            out.add("if (fault->kind) return;")

    def group(self, out: Lines, g: Group) -> None:
        parts = [(*self.function(k), k) for k in g.kernels]
        rest = [k for _, made, _, k in parts if made.phased]
        jobs = [(name, made, base) for name, made, base, _ in parts if not made.phased]
        for k in rest:
            self.kernel(out, k)
        with out.block(""):
            for n, (_, made, base) in enumerate(jobs):
                out.add(f"void *const p{n}[] = {{{self.pointers(made, base)}}};")
            out.add("lehr_job jobs[] = {")
            out.add(*(f"  {{{name}, p{n}, {self.size(made.total)}, {_grain(made)}, 0, 0}},"
                      for n, (name, made, _) in enumerate(jobs)))
            out.add("};", f"lehr_spread_all(rt, jobs, {len(jobs)});")
        if any(made.fault for _, made, _ in jobs):
            out.add("if (fault->kind) return;")

    def extern(self, out: Lines, e: Extern) -> None:
        """A matrix product or a template, and what goes with it."""
        q: Any = onednn.call(e) if self.other(e) else None
        made = e.output.buffer
        alone = made.role == "arena" and self.users[made] == 1
        templates = (way.template(e, alone) for way in _TEMPLATES if way.supported(e))
        q = q or pointwise.call(e) or next(templates, None) or product.product(e)
        self.views.update(q.views)
        for b in q.scratch:
            span = sym.maximum(sym.prod(b.shape), 1) * b.dtype.itemsize
            self.scratch[b] = self.end
            self.end = self.end + sym.ceildiv(span, ALIGN) * ALIGN
        for k in q.before:
            self.kernel(out, k)
        if isinstance(q, Template):
            self.template(out, e, q)
        elif q.matrices:
            self.multiply(out, e, q)
        self.used = sym.maximum(self.used, self.end)
        self.end = self.plan.size

    def multiply(self, out: Lines, e: Extern, q: product.Product) -> None:
        """The call of one of the runtime's products."""
        a, b, result = q.matrices
        half = q.kind in ("bf16", "onednn_bf16")
        made = None
        if q.rows is not None:
            name, made, base = self.function(q.rows, q.outer or len(q.rows.axes) - 1)
        pad = (1,) * (product.MOST - len(q.batch))
        with out.block(""):
            if made is not None:
                out.add(f"void *const p[] = {{{self.pointers(made, base)}}};")
            out.add(f"{'lehr_half' if half else 'lehr_product'} q = {{")
            out.add(f"  .batch = {{{', '.join(map(self.size, (*pad, *q.batch)))}}},")
            for letter, x in zip("abc", q.matrices, strict=True):
                steps = ", ".join(map(self.size, (*[0] * len(pad), *x.step)))
                out.add(f"  .{letter} = {self.pointer(x.buffer)}, .{letter}_step = {{{steps}}}, "
                        f".ld{letter} = {self.size(x.leading)},")
            m, n, k = map(self.size, q.sizes)
            out.add(f"  .ta = {a.trans}, .tb = {b.trans}, .m = {m}, .n = {n}, .k = {k},")
            if half:
                wide = (int(x.buffer.dtype is dt.float32) for x in (a, b))
                out.add("  .a_wide = {}, .b_wide = {},".format(*wide))
                if q.packed is not None:
                    out.add(f"  .packed = {self.pointer(q.packed)},")
            else:
                out.add(f"  .kind = LEHR_{q.kind.upper()},")
            out.add(*self.ready(q))
            if made is not None:
                out.add(f"  .rows = {name}, .p = p,")
                if half:
                    out.add(f"  .many = sizeof p / sizeof *p, .lent = {self.lent(q, made)},")
            call = "rt->half(rt, &q);" if half else "rt->product(rt, &q);"
            if q.kind == "onednn_bf16":
                call = f"if (!rt->onednn_half(rt, &q)) {self.stop(e)}"
            out.add("};", *(f"/* {_line(x)} */" for x in e.locations), call)
        if q.kind in TEMPLATES:
            self.templates.add(TEMPLATES[q.kind])
        if q.kind == "f32":
            self.products.add(tuple(x if isinstance(x, int) else 0 for x in q.sizes))
        if product.thin(q):
            self.templates.add("thin")
        if made is not None and made.fault:
            out.add("if (fault->kind) return;")

    def ready(self, q: product.Product) -> list[str]:
        """The field for a weight that was packed before the call."""
        if q.kind not in PACKING:
            return []
        found = weight.weight(q, TEMPLATES[q.kind], self.views)
        if found is None or found.param not in self.stay:
            return []
        slot = self.weights.setdefault(found, len(self.places.slots) + host.FIRST
                                       + len(self.weights))
        return [f"  .ready = ptr[{slot}],"]

    def lent(self, q: product.Product, made: Function) -> int:
        """The number, from 1, of the product among the buffers of the kernel behind it, where it
        need not exist in memory; else 0."""
        c = q.matrices[2].buffer
        names = [b for b, _ in made.params]
        if c not in names or dict(made.params)[c] or c.strides != row_major(c.shape):
            return 0
        if c not in q.scratch:
            place = self.plan.offsets.get(c)
            alone = sum(self.plan.offsets.get(b) == place for b in names) == 1
            if c.role != "arena" or self.users[c] > 1 or not alone or c in self.views:
                return 0
        return names.index(c) + 1

    def template(self, out: Lines, e: Extern, q: Template) -> None:
        """The call of a template."""
        self.templates.add(q.name)
        with out.block(""):
            out.add(f"{q.record} q = {{")
            for name, value_ in q.fields:
                if isinstance(value_, Buffer):
                    text = f"(void *)({self.pointer(value_)})"
                elif isinstance(value_, tuple):
                    text = f"{{{', '.join(map(self.size, value_))}}}"
                elif isinstance(value_, str):
                    text = value_
                else:
                    text = self.size(value_)
                out.add(f"  .{name} = {text},")
            call = f"rt->{q.function}(rt, &q);"
            if q.fails:
                call = f"if (!{call[:-1]}) {self.stop(e)}"
            out.add("};", *(f"/* {_line(x)} */" for x in e.locations), call)
        for k in q.after:
            self.kernel(out, k)

    def stop(self, e: Extern) -> str:
        """The statement that stops a program whose call oneDNN left undone."""
        self.faults.append(["library", ", ".join(str(x) for x in e.locations)])
        return f"{{ lehr_fail(fault, 3, {len(self.faults) - 1}, 0, 0); return; }}"

    # Sources

    def sources(self) -> tuple[str, ...]:
        units = alike.units(self.functions.values())
        entries = "\n\n".join(self.entries)
        if self.clocks:
            seen = '__attribute__((visibility("default"))) int64_t '
            entries = f"{seen}lehr_calls, lehr_spent[{len(self.clocks)}];\n\n{entries}"
        if len(units) <= MANY:
            return (self.source([u.text for u in units], entries),)
        count = -(-len(units) // MANY)
        outside = '__attribute__((visibility("hidden"))) '
        declared, shared = [], []
        for u in units:
            heads = [re.search(rf"static (void {name}\(.*?\)) {{", u.text) for name in u.names]
            text = u.text
            for head in heads:
                assert head is not None
                text = text.replace(head[0], f"{outside}{head[1]} {{", 1)
                declared.append(f"{outside}{head[1]};")
            shared.append(text)
        parts = [shared[n::count] for n in range(count)]
        return (self.source(["\n".join(declared)], entries),
                *(self.source(part, "") for part in parts))

    def source(self, functions: Sequence[str], entries: str) -> str:
        texts = [*functions, entries]
        known = {*_HEADERS, *_CLOCKS}
        return "\n\n".join(filter(None, [self.header, header.prelude([*texts], known), *texts]))


def _line(location: Any) -> str:
    text = f"{location}: {location.text}" if location.text else str(location)
    return text.replace("*/", "* /")


def _grain(made: Function) -> int:
    return max(1, GRAIN // made.work)


def _shared(buffers: Sequence[Buffer], offsets: Mapping[Buffer, Any]) -> dict[Buffer, Buffer]:
    """Buffers that lie at the same place, by the first of them."""
    first: dict[Any, Buffer] = {}
    return {b: first.setdefault(offsets[b], b) for b in buffers}


_WORDS = (r"(?:[ukivnclhp]|acc|at|words|room|total|row|column|partial|part|block|low|low_end|tile|"
          r"tile_end|width|from|to|begin|end|more|rt|ptr|size|fault|place|args|share|parts|chunk|"
          r"worker|ctx|arena|jobs|numbers?|size_\w*|lehr_\w*)")
_KEYWORDS = frozenset(
    "auto break case char const continue default do double else enum extern float for goto if "
    "inline int long register restrict return short signed sizeof static struct switch typedef "
    "union unsigned void volatile while asm typeof main linux unix".split())

def _safe(name: str) -> str:
    """A buffer's name as a C variable that is none of the generator's own, nor another buffer's."""
    taken = name in _KEYWORDS or re.fullmatch(rf"{_WORDS}\d*_*", name) or name.endswith("_b")
    return f"{name}_b" if taken else name


_STEPS: dict[type, Any] = {LoopKernel: _Emitter.kernel, Group: _Emitter.group,
                           Extern: _Emitter.extern}
