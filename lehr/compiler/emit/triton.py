"""A program as Triton: `@triton.jit` functions, and launches of them as data.

Every kernel becomes one launch or a few (`split`). Functions of the same text are one, and kernels
of a group that run the same function become one launch (a *bundle*), whose programs choose their
arguments by their number.

The record is that of `host`, with these steps besides host calls:

    {"launch": function, "programs": size, "args": [place | {"size": text} | "fault", ...],
     "at": "model.py:12"}

and for each function {"types": ["*fp32", ..., "i32"], "constants": {"XB": 1024}, "aligned":
[argument numbers], "warps": 4, "stages": 1}. `types` and `aligned` number the arguments without the
constants; "aligned" ones are multiples of 16 (pointers: in bytes), which the caller has to check
for memory that is not lehr's own. The fault record holds 1 + twice as many int64 as "faults" has
entries: the first is 0, or p - 2**31 where p is the number of the first check that failed; of a
checked index, numbers 2p + 1 and 2p + 2 then are a value that is out of bounds, and its bound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from lehr.base import sym
from lehr.base.sym import prod as numel
from lehr.compiler.emit import dot, host, lane
from lehr.compiler.emit.c import layout
from lehr.compiler.emit.nest import prepare
from lehr.compiler.emit.rows import Written, write
from lehr.compiler.emit.split import stages
from lehr.compiler.emit.tile import count, tile
from lehr.compiler.emit.value import Unsupported
from lehr.compiler.loop.ir import Buffer, Extern, Group, HostCall, Kernel, Program, Step
from lehr.compiler.loop.verify import touched

ALIGN = 64  # bytes
BUNDLE = 16  # launches in one
LINES = 4  # locations shown above a function


class Code(NamedTuple):
    """One Triton module and the record of the call."""

    source: str
    record: dict[str, Any]


def emit(program: Program, plan: Any = None, precision: str = "ieee") -> Code:
    """The Triton of a program. `plan`: `offsets` and `size` of the arena; None: nothing shares
    memory. `precision`: how float32 matrices are multiplied, one of `dot.PRECISIONS`. Unsupported
    names what has no Triton."""
    if precision not in dot.PRECISIONS:
        raise ValueError(f"precision {precision!r} is none of {', '.join(dot.PRECISIONS)}")
    return _Emitter(program, plan or layout(program), precision).code()


def supports(step: Step) -> bool:
    """Whether this back end can spell a step; others have to be host calls."""
    return dot.supports(step) if isinstance(step, Extern) else True


class Launch(NamedTuple):
    """A function with its arguments; `base` numbers its first check."""

    name: str
    made: Written
    locations: tuple[Any, ...]
    base: int = 0
    more: tuple[tuple[str, Any], ...] = ()


class _Emitter:
    def __init__(self, program: Program, plan: Any, precision: str) -> None:
        self.program, self.plan, self.precision = program, plan, precision
        self.constants = [b for b in program.buffers if b.role == "const"]
        fixed = [*program.params, *program.results, *self.constants]
        self.offsets = dict(plan.offsets)
        self.places = host.Places(fixed, self.offsets)
        self.alias = _shared(plan.offsets)
        self.scratch: Any = 0
        self.functions: dict[Any, str] = {}
        self.texts: list[str] = []
        self.facts: dict[str, dict[str, Any]] = {}
        self.faults: list[list[str]] = []
        self.steps: list[dict[str, Any]] = []

    def code(self) -> Code:
        for step in self.program.steps:
            _STEPS[type(step)](self, step)
        p = self.program
        record = {"name": p.name, "symbols": [s.name for s in p.symbols],
                  "params": [host.declared(b) for b in p.params],
                  "outputs": [host.declared(b) for b in p.results],
                  "constants": [host.constant(b) for b in self.constants],
                  "arena": host.size(self.plan.size + self.scratch), "steps": self.steps,
                  "faults": self.faults, "functions": self.facts}
        return Code(self.source(), record)

    def source(self) -> str:
        helpers = lane.prelude(self.texts)
        head = ["import triton", "import triton.language as tl"]
        if any("libdevice." in text for text in (*helpers, *self.texts)):
            head.append("from triton.language.extra.cuda import libdevice")
        return "\n\n\n".join(["\n".join(head), *helpers, *self.texts]) + "\n"

    # Steps

    def kernel(self, k: Kernel) -> None:
        for launch in self.launches(k):
            self.launch(launch)

    def group(self, g: Group) -> None:
        alike: dict[Any, list[Launch]] = {}
        points = sum(count(k.axes) for k in g.kernels)
        for k in g.kernels:
            several = self.launches(k, points)
            if len(several) > 1 or several[0].made.faults:
                for launch in several:
                    self.launch(launch)
            else:
                made = several[0].made
                types = tuple(b.dtype for b in made.pointers)
                key = (made.body, types, made.symbols, made.constants, made.warps)
                alike.setdefault(key, []).append(several[0])
        for several in alike.values():
            for at in range(0, len(several), BUNDLE):
                self.bundle(several[at:at + BUNDLE])

    def extern(self, e: Extern) -> None:
        if not dot.supports(e):
            raise Unsupported(f"op {e.op.name} has no Triton")
        made, product = dot.write(e, self.needed(e), self.alias, self.precision)
        for key in ("a", "b", "out"):
            product[key] = self.places.view(product[key])
        self.launch(self.checked(e.name, made, e.locations)._replace(
            more=(("product", product),)))

    def host(self, h: HostCall) -> None:
        self.steps.append(host.host_step(h, self.places))

    def needed(self, e: Extern) -> bool:
        """Whether the output itself has to be stored: something but the epilogue reads it."""
        b = e.output.buffer
        if b.role != "arena":
            return True
        return any(b in _touched(s) for s in self.program.steps if s is not e)

    def launches(self, k: Kernel, points: int = 0) -> list[Launch]:
        nest = prepare(k.name, k.axes, k.stores, k.binds, 0, self.alias)
        made: list[Launch] = []
        end: Any = self.plan.size
        for n in stages(nest):
            one = write(*tile(n, points))
            for b in one.pointers:
                if b.role in ("partial", "local") and b not in self.offsets:
                    own: Any = numel([a.extent for a in n.outer]) if b.role == "local" else 1
                    self.offsets[b] = end
                    size = numel(b.shape) * own * b.dtype.itemsize
                    end = end + sym.ceildiv(size, ALIGN) * ALIGN
            made.append(self.checked(n.name, one, k.locations))
        self.scratch = sym.maximum(self.scratch, end - self.plan.size)
        return made

    def checked(self, name: str, made: Written, locations: Sequence[Any]) -> Launch:
        base = len(self.faults)
        at = ", ".join(map(str, locations))
        self.faults += [[kind, at] for kind in made.faults]
        return Launch(name, made, tuple(locations), base)

    # Launches

    def launch(self, one: Launch) -> None:
        made = one.made
        args = [*self.pointers(made), *({"size": host.size(s)} for s in made.symbols)]
        if made.extent is not None:
            args.append({"size": host.size(made.extent)})
        if made.faults:
            args += ["fault", {"size": one.base}]
        names, types = arguments(made)
        aligned = self.aligned(made, (*made.pointers, *made.symbols, *(
            [made.extent] if made.extent is not None else [])))
        body = ["    pid = tl.program_id(0)", *made.body]
        name = self.function(one, names, types, aligned, body)
        self.steps.append({"launch": name, "programs": host.size(made.programs), "args": args,
                           "at": ", ".join(map(str, one.locations)), **dict(one.more)})

    def bundle(self, several: Sequence[Launch]) -> None:
        """Launches of one function as one: a program's number says whose arguments it takes."""
        if len(several) == 1:
            self.launch(several[0])
            return
        first = several[0].made
        names, types = arguments(first)
        own = [n for n, name in enumerate(names) if not name.startswith("size_")]
        common = [n for n in range(len(names)) if n not in own]
        heads = [names[n] for n in common]
        kinds = [types[n] for n in common]
        args: list[Any] = [{"size": host.size(s)} for s in first.symbols]
        values: list[Any] = list(first.symbols)
        lines = ["    pid = tl.program_id(0)"]
        start: Any = 0
        for m, one in enumerate(several):
            given = [*one.made.pointers, *([one.made.extent] if first.extent is not None else [])]
            heads += [f"{names[n]}_{m}" for n in own]
            kinds += [types[n] for n in own]
            args += [*self.pointers(one.made), *({"size": host.size(e)} for e in given
                                                 if not isinstance(e, Buffer))]
            values += given
            if m:
                heads.append(f"from_{m}")
                kinds.append("i32")
                args.append({"size": host.size(start)})
                values.append(1)
            start = start + one.made.programs
        for n in own:
            text = f"{names[n]}_0"
            for m in range(1, len(several)):
                text = f"tl.where(pid < from_{m}, {text}, {names[n]}_{m})" if m == 1 else (
                    f"tl.where(pid < from_{m}, {names[n]}, {names[n]}_{m})")
                lines.append(f"    {names[n]} = {text}")
                text = names[n]
        lines.append("    start = tl.where(pid < from_1, 0, from_1)")
        lines += [f"    start = tl.where(pid < from_{m}, start, from_{m})"
                  for m in range(2, len(several))]
        lines.append("    pid = pid - start")
        lines += first.body
        locations = tuple(dict.fromkeys(at for one in several for at in one.locations))
        name = self.function(several[0]._replace(locations=locations), heads, kinds,
                             self.aligned(first, values), lines)
        self.steps.append({"launch": name, "programs": host.size(start), "args": args,
                           "at": ", ".join(map(str, locations))})

    def pointers(self, made: Written) -> list[Any]:
        return [self.places.of(b) for b in made.pointers]

    def aligned(self, made: Written, values: Sequence[Any]) -> tuple[int, ...]:
        return tuple(n for n, v in enumerate(values) if isinstance(v, Buffer)
                     or sym.divisor(v) % 16 == 0)

    def function(self, one: Launch, names: Sequence[str], types: Sequence[str],
                 aligned: tuple[int, ...], body: Sequence[str]) -> str:
        """The name of the function with this text, made where there is none."""
        made = one.made
        key = (tuple(body), tuple(names), tuple(types), made.constants, aligned, made.warps,
               made.stages)
        if key in self.functions:
            return self.functions[key]
        stem = "".join(c if c.isalnum() else "_" for c in one.name).strip("_") or "kernel"
        stem = stem if stem[0].isalpha() else f"k_{stem}"
        name, n = stem, 1
        while name in self.facts or name.startswith("lehr_"):
            n += 1
            name = f"{stem}_{n}"
        self.functions[key] = name
        heads = [*names, *(f"{c}: tl.constexpr" for c, _ in made.constants)]
        comments = [f"    # {_line(at)}" for at in dict.fromkeys(one.locations)][:LINES]
        self.texts.append("\n".join(["@triton.jit", *_head(name, heads), *comments, *body]))
        self.facts[name] = {"types": list(types), "constants": dict(made.constants),
                            "aligned": list(aligned), "warps": made.warps, "stages": made.stages}
        return name


def arguments(made: Written) -> tuple[list[str], list[str]]:
    """Names and types of the arguments."""
    size = "i64" if made.wide else "i32"
    names = [f"p{n}" for n in range(len(made.pointers))] + [f"size_{s.name}" for s in made.symbols]
    types = [lane.pointer(b.dtype) for b in made.pointers] + [size] * len(made.symbols)
    if made.extent is not None:
        names.append("n")
        types.append(size)
    if made.faults:
        names += ["fault", "place"]
        types += ["*i64", "i32"]
    return names, types


def _head(name: str, arguments: Sequence[str]) -> list[str]:
    """`def name(...):` in lines of at most 100 columns."""
    lines, indent = [f"def {name}("], " " * (len(name) + 5)
    for n, a in enumerate(arguments):
        text = a + (", " if n + 1 < len(arguments) else "")
        if len(lines[-1]) + len(text) > 98:
            lines[-1] = lines[-1].rstrip()
            lines.append(indent)
        lines[-1] += text
    lines[-1] += "):"
    return lines


def _line(location: Any) -> str:
    text = f"{location}: {location.text}" if location.text else str(location)
    return text.replace("\n", " ")


def _touched(step: Step) -> set[Buffer]:
    reads, writes = touched(step)
    return reads | writes


def _shared(offsets: Any) -> dict[Buffer, Buffer]:
    """Arena buffers that lie at the same place, by the first of them."""
    first: dict[Any, Buffer] = {}
    return {b: first.setdefault(at, b) for b, at in offsets.items()}


_STEPS: dict[type, Callable[..., None]] = {
    Kernel: _Emitter.kernel, Group: _Emitter.group, Extern: _Emitter.extern,
    HostCall: _Emitter.host}
