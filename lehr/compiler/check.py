"""`options={"check": "stages"}`: every stage of a compilation, run on the first call's inputs.

The graph as captured is the reference. After each pass the graph runs again, then the program as
lowered, fused, with its temporaries in the planned arena, then the compiled code; the first stage
whose results or written storages are not the reference's raises `StageError`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from lehr.base import dtype as dt
from lehr.base.options import Options
from lehr.compiler.capture.entry import Compiled
from lehr.compiler.emit import c, product
from lehr.compiler.graph import interp
from lehr.compiler.graph.ir import Graph, RefType, Value
from lehr.compiler.loop import fuse, lower, prologue
from lehr.compiler.loop import interp as loop_interp
from lehr.compiler.loop import plan as memory_plan
from lehr.compiler.passes import partition, pipeline
from lehr.compiler.variant import there
from lehr.tensor.tensor import Tensor

Array = np.ndarray[Any, Any]
Results = list[Any]

# Differences beyond rounding, relative to an array's largest element: another order of additions
# and another library's functions stay below.
ROUNDING = {"float64": 1e-9, "float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1,
            "complex128": 1e-9, "complex64": 1e-4}
# And absolute: sums whose terms cancel have no other scale.
FLOOR = {"float64": 1e-14, "float32": 2e-6, "float16": 1e-3, "bfloat16": 1e-2,
         "complex128": 1e-14, "complex64": 2e-6}
TRIALS, LOUD = 3, 16.0      # see `noise`
GROUPS = {"outputs": "result", "saved": "value saved for backward", "grads": "gradient"}


class StageError(AssertionError):
    """A stage of the compilation gives other results than the graph that was captured.

    stage: its name
    """

    def __init__(self, text: str, stage: str = "") -> None:
        super().__init__(text)
        self.stage = stage


class Stage(NamedTuple):
    """A form of the program. `run`: (arrays, Refs changed in place) -> its results."""

    name: str
    run: Callable[[list[Any]], Results]


def copies(inputs: Sequence[Any]) -> list[Any]:
    """The inputs of a call as arrays of their own."""
    return [t._array.copy() if isinstance(t, Tensor) else np.asarray(t) for t in inputs]


def returned(graph: Graph, found: dict[str, tuple[Any, ...]]) -> Results:
    return [a for g in GROUPS for a in found.get(g, ())]


def stages(graph: Graph, strides: Sequence[Any], options: Options) -> Iterator[Stage]:
    """The forms of a program for the CPU up to its C, in order, each made when it is asked for."""
    def interpreted(g: Graph) -> Callable[[list[Any]], Results]:
        return lambda arrays: returned(g, interp.run(g, arrays))

    def looped(p: Any, plan: Any = None) -> Callable[[list[Any]], Results]:
        return lambda arrays: list(loop_interp.run(p, arrays, plan=plan))

    yield Stage("the captured graph", interpreted(graph))
    for each in pipeline.passes_of(c.WHOLE):
        graph = each.run(graph)
        yield Stage(f"the graph after the pass {each.name}", interpreted(graph))
    program = lower.lower(graph, result_strides=strides, supports=c.supports)
    yield Stage("the program as lowered", looped(program))
    program = prologue.absorb(fuse.fuse(program), product.supported)
    yield Stage("the program as fused", looped(program))
    plan = memory_plan.plan(program)
    yield Stage("the program in its planned memory", looped(program, plan))


class Checked:
    """A compiled program that compares its stages at its first call.

    program   (inputs) -> result tensors, Refs updated in place
    graph, strides, options   what it was made of
    """

    def __init__(self, program: Callable[[Sequence[Any]], list[Any]], graph: Graph,
                 strides: Sequence[Any], options: Options) -> None:
        self.program, self.graph, self.strides, self.options = program, graph, strides, options
        self.done = False

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        if self.done:
            return self.program(inputs)
        made: list[Any] = []

        def compiled(arrays: list[Any]) -> Results:
            made.extend(self.program(inputs))
            arrays[:] = copies(inputs)
            return copies(made)

        compare(self.graph, self._stages(compiled), copies(inputs))
        self.done = True
        return made

    def _stages(self, compiled: Callable[[list[Any]], Results]) -> Iterator[Stage]:
        yield from stages(self.graph, self.strides, self.options)
        yield Stage("the compiled code", compiled)


class Run(NamedTuple):
    """A call of a compiled program: its inputs as they were."""

    program: Callable[[Sequence[Any]], list[Any]]
    graph: Graph
    strides: Sequence[Any]
    options: Options
    inputs: list[Any]


class Runs(threading.local):
    """The calls of compiled programs in this thread; None where nobody asks for them."""

    active: list[Run] | None = None


RUNS = Runs()


class Recorded:
    """A compiled program that tells `RUNS` of its calls."""

    def __init__(self, program: Callable[[Sequence[Any]], list[Any]], graph: Graph,
                 strides: Sequence[Any], options: Options) -> None:
        self.program, self.graph, self.strides, self.options = program, graph, strides, options

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        if RUNS.active is not None:
            RUNS.active.append(Run(self.program, self.graph, self.strides, self.options,
                                   own(inputs)))
        return self.program(inputs)


def own(inputs: Sequence[Any]) -> list[Any]:
    """Inputs on memory of their own, laid out as they are."""
    return [Tensor._make(t._storage.copy(), t.dtype, t._shape, t._strides, t._offset)
            if isinstance(t, Tensor) else t for t in inputs]


def joint(compiled: Compiled, graph: Graph, forms: Sequence[tuple[str, Graph]],
          split: partition.Split, order: Sequence[Value]) -> Compiled:
    """The compiled pair of a joint graph; its first backward compares the joint graph as captured,
    after each pass (`forms`), and split. `order`: the parameters that are the call's inputs."""
    places = {p.name: i for i, p in enumerate(order)}
    late = iter(range(len(order), len(graph.params)))
    sources = [places[p.name] if p.name in places else next(late) for p in graph.params]
    done: list[bool] = []

    def whole(g: Graph) -> Callable[[list[Any]], Results]:
        return lambda arrays: returned(g, interp.run(g, arrays))

    def halves(arrays: list[Any]) -> Results:
        by_name = {p.name: a for p, a in zip(graph.params, arrays, strict=True)}
        before = {p: by_name[p.name].copy() for p in order}
        found = interp.run(split.forward, [by_name[p.name] for p in order])
        saved = iter(found["saved"])
        kept = [before[v] if v in before else next(saved) for v in split.kept]
        tangents = [by_name[p.name] for p in graph.params if p.name not in places]
        grads = interp.run(split.backward, [*kept, *tangents])["grads"]
        return [*found["outputs"], *grads]

    def forward(inputs: Sequence[Any]) -> tuple[list[Tensor], Any]:
        arrays = None if done else copies(inputs)
        outputs, state = compiled.forward(inputs)
        return outputs, (state, arrays)

    def backward(state: Any, tangents: Sequence[Tensor | None], numbers: Sequence[int]
                 ) -> list[Tensor | None]:
        inner, arrays = state
        if arrays is not None and not done and all(there(tangents)):
            every = [*arrays, *copies(tangents)]
            compare(graph, (Stage("the captured graph", whole(graph)),
                            *(Stage(f"the graph after the pass {name}", whole(form))
                              for name, form in forms),
                            Stage("the graph split into forward and backward", halves)),
                    [every[i] for i in sources])
            done.append(True)
        assert compiled.backward is not None
        return compiled.backward(inner, tangents, numbers)
    return compiled._replace(forward=forward, backward=backward)


def compare(graph: Graph, several: Iterable[Stage], arrays: Sequence[Any]) -> None:
    """Runs the stages on the inputs; StageError names the first that differs from the first one.

    What the captured graph itself raises (an index out of range) is raised.
    """
    refs = [i for i, p in enumerate(graph.params) if isinstance(p.type, RefType)]
    labels = [*_labels(graph), *(f"storage {graph.params[i].name}" for i in refs)]
    want: Results | None = None
    spread: Results = []
    for stage in several:
        mine = [a.copy() for a in arrays]
        try:
            have = [*stage.run(mine), *(mine[i] for i in refs)]
        except Exception as error:
            if want is None:
                raise
            raise StageError(f"{stage.name} raises {type(error).__name__}, which the captured "
                             f"graph does not: {error}", stage.name) from error
        if want is None:
            want = have
            continue
        found = differing(labels, have, want)
        if found:
            spread = spread or noise(graph, arrays, want)
            found = differing(labels, have, want, spread)
        if found:
            raise StageError(f"{stage.name} is the first stage of {graph.name!r} whose results are "
                             "not those of the captured graph\n" + "\n".join(found), stage.name)


def differing(labels: Iterable[str], have: Results, want: Results, spread: Results | None = None
              ) -> list[str]:
    """A line for each result that is not what is wanted; spread: what else may differ."""
    slack = spread or [0.0] * len(want)
    return [f"  {label}: {text}" for label, a, b, s in zip(labels, have, want, slack, strict=True)
            if (text := difference(a, b, s))]


def noise(graph: Graph, arrays: Sequence[Any], want: Results) -> Results:
    """How far rounding in each op of a graph may carry its results: `LOUD` times the most by which
    they move where every value gets a relative error of its precision, in `TRIALS` runs.
    """
    found: Results = [0.0] * len(want)
    pick = np.random.Generator(np.random.PCG64(0))
    refs = [i for i, p in enumerate(graph.params) if isinstance(p.type, RefType)]

    def shaken(a: Any) -> Any:
        if not isinstance(a, np.ndarray) or dt.of_numpy(a.dtype).name not in ROUNDING:
            return a.copy() if isinstance(a, np.ndarray) else a
        wide = a.astype(np.complex128 if a.dtype.kind == "c" else np.float64)
        size = float(ml_dtypes.finfo(a.dtype).eps)
        return np.asarray(wide * (1 + size * pick.uniform(-1, 1, a.shape))).astype(a.dtype)

    for _ in range(TRIALS):
        mine = [shaken(a) for a in arrays]
        sizes = interp.bind_sizes(graph, mine)
        values: dict[Value, Any] = dict(zip(graph.params, mine, strict=True))
        with np.errstate(all="ignore"):
            for node in graph.nodes:
                made = interp.evaluate(node, values, sizes)
                values.update(zip(node.results, map(shaken, made), strict=True))
        for target, v in zip(graph.targets, graph.results["writebacks"], strict=True):
            np.copyto(values[target], values[v], casting="no")
        moved = [*(values[v] for g in GROUPS for v in graph.results[g]), *(mine[i] for i in refs)]
        found = [np.fmax(f, LOUD * apart(a, b)) for f, a, b in zip(found, moved, want, strict=True)]
    return found


def apart(a: Any, b: Any) -> Any:
    """How far floating numbers lie apart, 0 for others."""
    kind = dt.of_numpy(np.asarray(b).dtype).name
    if kind not in ROUNDING:
        return 0.0
    wide = np.complex128 if kind.startswith("complex") else np.float64
    with np.errstate(all="ignore"):
        return np.abs(np.asarray(a).astype(wide) - np.asarray(b).astype(wide))


def _labels(graph: Graph) -> Iterator[str]:
    """What each result is, with the user's line."""
    for group, word in GROUPS.items():
        for i, v in enumerate(graph.results.get(group, ())):
            at = v.node.location if v.node is not None else None
            yield f"{word} {i}" + (f" ({at})" if at else "")


def difference(have: Any, want: Any, slack: Any = 0.0, factor: float = 1.0) -> str:
    """Empty where two arrays are equal but for rounding; else how many elements differ, by how
    much, and where first. slack: by how much they may differ besides; factor: for rounding."""
    have, want = np.asarray(have), np.asarray(want)
    if have.dtype != want.dtype or have.shape != want.shape:
        return (f"{dt.of_numpy(have.dtype).name}{list(have.shape)}, expected "
                f"{dt.of_numpy(want.dtype).name}{list(want.shape)}")
    name = dt.of_numpy(want.dtype).name
    rounding = ROUNDING.get(name)
    if rounding is None:
        bad = have != want
        a, b = have.astype(object), want.astype(object)
    else:
        kind = np.complex128 if want.dtype.kind == "c" else np.float64
        a, b = have.astype(kind), want.astype(kind)
        with np.errstate(all="ignore"):
            finite = np.abs(b[np.isfinite(b)])
            most = finite.max() if finite.size else 0.0
            bad = ~(np.abs(a - b) <= factor * (rounding * most + FLOOR[name]) + slack)
            bad |= ~np.isfinite(a) | ~np.isfinite(b)
            bad &= ~((a == b) | (np.isnan(a) & np.isnan(b)))
    if not bad.any():
        return ""
    where = tuple(int(i) for i in np.argwhere(bad)[0])
    with np.errstate(all="ignore"):
        most = max((abs(x - y) for x, y in zip(a[bad].tolist(), b[bad].tolist(), strict=True)
                    if x == x and y == y), default=float("nan"))
    return (f"{int(bad.sum())} of {bad.size} elements differ, by at most {most:.6g}; first at "
            f"{where}: {have[where]}, expected {want[where]}")
