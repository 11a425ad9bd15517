"""`lehr.compiler.explain`: what the compiler made of a function, and why not more."""

from __future__ import annotations

import collections
import json
import linecache
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lehr.compiler.capture import guard
from lehr.compiler.capture.breaks import Place
from lehr.compiler.compile import CompiledFunction, compile
from lehr.compiler.graph.ir import Graph, Location
from lehr.compiler.graph.text import print_graph
from lehr.compiler.journal import Break, Fallback, Journal, Made, Recompile
from lehr.compiler.module import OptimizedModule
from lehr.compiler.run.executable import Spent

MOST = 12  # steps whose times are shown
LEAN = 1.3  # kernels that move more than this times the least say why


class Cost(NamedTuple):
    """What one compiled program does in a call.

    kernels, library_calls, host_calls   generated kernels, calls into libraries, ops run by their
    eager kernel
    moved    bytes that kernels and library calls read and write, each buffer once a step
    scratch  bytes of temporary memory
    """

    kernels: int
    library_calls: int
    host_calls: int
    moved: int
    scratch: int


@dataclass(frozen=True)
class GraphReport:
    """One graph.

    name, file, line   where capture began
    lines      the lines whose ops it holds, in order
    ops        how many tensor ops, without those of gradients; `kinds` by name, the commonest first
    inputs, outputs, gradients   how many
    guards     what it was compiled for, in the user's terms
    forward    its cost; None where no code is generated (an interpreter runs it)
    backward   of the gradients' program, None where there is none
    calls      how often it ran
    spent      what each step took, where compiled with `options={"profile": True}`
    seconds    of capture and compilation
    text       the graph as captured
    """

    name: str
    file: str
    line: int
    lines: tuple[tuple[str, int, str], ...]
    ops: int
    kinds: dict[str, int]
    inputs: int
    outputs: int
    gradients: int
    guards: tuple[str, ...]
    forward: Cost | None
    backward: Cost | None
    calls: int
    spent: tuple[Spent, ...]
    seconds: float
    text: str = field(repr=False)

    @property
    def longest(self) -> list[Spent]:
        """`spent` with equal steps of the same lines added up (those of a model's layers), the
        longest first."""
        found: dict[Any, Spent] = {}
        for s in self.spent:
            key = tuple(sorted(collections.Counter(re.findall("[a-z_]+", s.name)).items())), s.lines
            before = found.get(key)
            found[key] = s if before is None else before._replace(
                seconds=before.seconds + s.seconds, least=before.least + s.least,
                moved=before.moved + s.moved, why=tuple(dict.fromkeys((*before.why, *s.why))))
        return sorted(found.values(), key=lambda s: -s.seconds)


@dataclass(frozen=True)
class Explanation:
    """All that happened to the calls of a function. `str()` is a report for people.

    graphs, breaks, recompiles, fallbacks   in order, see `GraphReport` and `lehr.compiler.journal`;
    a break that later captures meet again is there once
    """

    name: str
    graphs: tuple[GraphReport, ...]
    breaks: tuple[Break, ...]
    recompiles: tuple[Recompile, ...]
    fallbacks: tuple[Fallback, ...]

    @property
    def graph_count(self) -> int:
        return len(self.graphs)

    @property
    def graph_break_count(self) -> int:
        return len(self.breaks)

    @property
    def break_reasons(self) -> tuple[Break, ...]:
        return self.breaks

    @property
    def op_count(self) -> int:
        return sum(g.ops for g in self.graphs)

    @property
    def ops_per_graph(self) -> list[list[str]]:
        return [[name for name, n in g.kinds.items() for _ in range(n)] for g in self.graphs]

    @property
    def out_guards(self) -> list[str]:
        return [text for g in self.graphs for text in g.guards]

    @property
    def compile_times(self) -> str:
        return "\n".join(f"{g.name}: {g.seconds:.3f} s" for g in self.graphs)

    def as_dict(self) -> dict[str, Any]:
        """Lists, dictionaries, texts and numbers alone."""
        return {
            "name": self.name, "graph_count": self.graph_count, "op_count": self.op_count,
            "graph_break_count": self.graph_break_count,
            "graphs": [{k: plain(v) for k, v in vars(g).items()} for g in self.graphs],
            "breaks": [{**plain(b), "file": b.file, "line": b.line, "text": b.text}
                       for b in self.breaks],
            "recompiles": [plain(r) for r in self.recompiles],
            "fallbacks": [plain(f) for f in self.fallbacks]}

    def to_json(self, indent: int | None = None) -> str:
        return json.dumps(self.as_dict(), indent=indent)

    def __str__(self) -> str:
        return "\n".join(report(self))


def explain(f: Callable[..., Any], *given: Any, **named: Any) -> Any:
    """A callable that runs `f` compiled and returns an `Explanation`: `explain(f)(*args)`.

    f: a function or Module, which is compiled for this; a compiled one is looked at as it is, with
    all that happened to it before. Calls of one explainer add up: a second call with other
    arguments shows what is compiled again, and why. Arguments given at once are called with.
    """
    explainer = Explainer(f)
    return explainer(*given, **named) if given or named else explainer


class Explainer:
    """What `explain` returns. `result`: what the last call of the function returned."""

    def __init__(self, f: Callable[..., Any]) -> None:
        if not isinstance(f, CompiledFunction | OptimizedModule):
            f = compile(f)
        self.function: Any = f
        self.result: Any = None

    def __call__(self, *args: Any, **kwargs: Any) -> Explanation:
        self.result = self.function(*args, **kwargs)
        return self.explanation()

    def explanation(self) -> Explanation:
        """What happened so far."""
        compiled = self.function
        if isinstance(compiled, OptimizedModule):
            compiled = compiled.compiled_call
            name = type(self.function).__qualname__
        else:
            name = compiled.name
        return explanation(name, compiled.family.journal)


def explanation(name: str, journal: Journal) -> Explanation:
    graphs = [graph_report(m) for m in journal.of(Made) if m.entry.request.graph.nodes]
    breaks = distinct(journal.of(Break))
    return Explanation(name, tuple(graphs), tuple(breaks), tuple(journal.of(Recompile)),
                       tuple(journal.of(Fallback)))


def distinct(breaks: Sequence[Break]) -> list[Break]:
    """Each break once: the functions on the way to it meet it, one after the other."""
    found: dict[Any, Break] = {}
    for b in breaks:
        found.setdefault((b.code, b.detail, b.places[-1:]), b)
    return list(found.values())


# Nodes that stand for no op of the user's.
SILENT = frozenset(("read", "write", "number"))


def graph_report(made: Made) -> GraphReport:
    entry = made.entry
    graph: Graph = entry.request.graph
    late = {t.name for t in entry.request.tangents}
    nodes = [n for n in graph.nodes[:entry.ahead] if n.op.name not in SILENT]
    kinds = collections.Counter(n.op.name for n in nodes)
    costs = [cost(p) for p in entry.compiled.report or ()]
    return GraphReport(
        made.name, made.place.file, made.place.line, tuple(lines(graph)), len(nodes),
        dict(kinds.most_common()), sum(p.name not in late for p in graph.params),
        len(graph.results["outputs"]), len(entry.request.usual),
        tuple(guard.told(f) for f in entry.facts), costs[0] if costs else None,
        costs[1] if len(costs) > 1 else None, entry.hits,
        tuple(s for p in entry.compiled.report or () for s in native(p).run.spent()),
        made.seconds, print_graph(graph))


def lines(graph: Graph) -> Iterator[tuple[str, int, str]]:
    """The places of a graph's ops, each line once, in order."""
    seen: set[Location] = set()
    for node in graph.nodes:
        at = node.location
        if at is not None and at not in seen:
            seen.add(at)
            yield at.path or at.file, at.line, linecache.getline(at.path, at.line).strip()


def native(program: Any) -> Any:
    """A program of `lehr.compiler.backend`, also where a check wraps it."""
    while not hasattr(program, "counts"):
        program = program.program
    return program


def cost(program: Any) -> Cost:
    counts = native(program).counts
    return Cost(*(counts.get(k, 0) for k in ("kernels", "externs", "host_calls", "moved", "arena")))


# -- text

def report(e: Explanation) -> Iterator[str]:
    yield (f"{e.name}: {count(len(e.graphs), 'graph')} with {count(e.op_count, 'op')}, "
           f"{count(len(e.breaks), 'graph break')}, {count(len(e.recompiles), 'recompile')}")
    for n, g in enumerate(e.graphs, 1):
        yield ""
        yield f"Graph {n}: {g.name}"
        yield from located(g.lines)
        kinds = ", ".join(f"{name} {k}" for name, k in list(g.kinds.items())[:8])
        more = f", and {len(g.kinds) - 8} more" if len(g.kinds) > 8 else ""
        yield f"  {count(g.ops, 'op')}: {kinds}{more}"
        passed = count(g.inputs, "input") + ", " + count(g.outputs, "output")
        passed += f", {count(len(g.guards), 'guard')}, {count(g.calls, 'call')}"
        yield f"  {passed}, compiled in {g.seconds:.2f} s"
        if g.forward is None:
            yield "  run by the interpreter: no code is generated"
        for label, c in (("forward", g.forward), ("backward", g.backward)):
            if c is not None:
                yield f"  {label}: {priced(c)}"
        yield from clocked(g.longest)
    for n, b in enumerate(e.breaks, 1):
        yield ""
        yield f"Graph break {n}: {b.reason} [{b.code}]"
        yield from shown(b.places)
        yield f"  Why: {b.why}"
        yield f"  What to do: {b.remedy}"
    for n, r in enumerate(e.recompiles, 1):
        yield ""
        yield f"Recompile {n}: {r.name}"
        yield from shown([r.place])
        for what, how in r.changes:
            yield f"  {what}: {how}" if what else f"  {how}"
    for f in e.fallbacks:
        yield ""
        yield f"Runs eagerly: {f.name}"
        yield from shown([f.place])
        yield f"  {f.why}"


def clocked(spent: Sequence[Spent]) -> Iterator[str]:
    """The steps that took longest, how long in a call, and the bytes that their kernels move; why,
    where that is much more than the least."""
    total = sum(s.seconds for s in spent)
    for s in spent[:MOST] if total else ():
        where = f" ({', '.join(s.lines[:3])}{', ...' if len(s.lines) > 3 else ''})"
        moved = size(s.moved) if s.moved else ""
        yield (f"  {s.seconds / total:4.0%} {1e6 * s.seconds / s.calls:9,.1f} us {moved:>10}  "
               f"{s.name}{where if s.lines else ''}")
        if s.moved > LEAN * s.least:
            yield f"       {s.moved / s.least:.2f} times the least: {'; '.join(s.why)}"


def shown(places: Sequence[Place]) -> Iterator[str]:
    for p in places:
        if p.file:
            yield f'  File "{p.file}", line {p.line}, in {p.function}'
            if p.text:
                yield f"    {p.text}"


def located(lines: Sequence[tuple[str, int, str]]) -> Iterator[str]:
    """At most eight of a graph's lines."""
    for file, line, text in lines[:8]:
        yield f"  {os.path.basename(file)}:{line}  {text}".rstrip()
    if len(lines) > 8:
        yield f"  and {len(lines) - 8} more lines"


def priced(c: Cost) -> str:
    return (f"{count(c.kernels, 'kernel')}, {count(c.library_calls, 'library call')}, "
            f"{count(c.host_calls, 'host call')}, {size(c.moved)} moved, {size(c.scratch)} scratch")


def count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def size(n: float) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if n < 1024:
            return f"{n:.4g} {unit}"
        n /= 1024
    return f"{n:.4g} GiB"


def plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {k: plain(v) for k, v in value._asdict().items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return value
