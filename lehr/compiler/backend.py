"""Back ends by name: each turns a capture's `Request` into something that runs."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lehr.base import proof
from lehr.base.options import Options
from lehr.compiler.capture.entry import Backwards, Compiled, Request, concrete
from lehr.compiler.counters import COUNTERS, NAMES
from lehr.compiler.gradient import strides_of
from lehr.compiler.graph import interp
from lehr.compiler.graph.ir import Graph, RefType, Value, map_values
from lehr.compiler.graph.text import print_graph
from lehr.compiler.host import Host
from lehr.compiler.passes import partition, pipeline
from lehr.compiler.passes.decompose import TAKEN
from lehr.compiler.passes.functionalize import functionalize
from lehr.compiler.run import cache, entry, executable, library, onednn, toolchain, word
from lehr.compiler.variant import Variants
from lehr.ops import execute, registry
from lehr.tensor import dispatch
from lehr.tensor.tensor import Tensor

Runner = Callable[[Sequence[Any]], dict[str, tuple[Any, ...]]]


def eager_array(value: Any) -> Any:
    """An input of a graph as the reference interpreter takes it."""
    return value._array if isinstance(value, Tensor) else np.asarray(value)


def reference(request: Request, options: Options) -> Compiled:
    """The graph interpreter: slow, and what every other back end is compared with."""
    graph = functionalize(request.graph)

    def tensors(arrays: Sequence[Any], layouts: Sequence[Any]) -> list[Tensor]:
        return [laid_out(a, s) for a, s in zip(arrays, layouts, strict=True)]

    if not request.tangents:
        def forward(inputs: Sequence[Any]) -> tuple[list[Tensor], Any]:
            sizes = sizes_of(request, inputs)
            found = interp.run(graph, [eager_array(t) for t in inputs], sizes)
            return tensors(found["outputs"], concrete(request.strides, sizes)), None
        return Compiled(forward, same=word.same(), early=())
    names = [t.name for t in request.tangents]
    split = partition.split(graph, named(graph, names), options.activation_memory_budget)
    order = [p for p in graph.params if p.name not in set(names)]
    kept = places(split, order)

    def forward_joint(inputs: Sequence[Any]) -> tuple[list[Tensor], Any]:
        arrays = [eager_array(t) for t in inputs]
        sizes = sizes_of(request, inputs)
        found = interp.run(split.forward, arrays, sizes)
        state = sizes, collect(kept, arrays, found["saved"])
        return tensors(found["outputs"], concrete(request.strides, sizes)), state

    variants = Variants(split.backward, named(split.backward, names),
                        lambda g, numbers, sizes, present: (
                            g, strides_of(request, graph, present, numbers)))

    def backward(state: Any, tangents: Sequence[Tensor | None], numbers: Sequence[int]
                 ) -> list[Tensor | None]:
        sizes, saved = state
        v = variants.find(tangents, numbers, sizes)
        program, strides = v.program
        found = interp.run(program, [*saved, *(t._array for t in tangents if t is not None)],
                           sizes)
        return v.spread(tensors(found["grads"], concrete(strides, sizes)))
    return Compiled(forward_joint, backward, replaying(graph, request), same=word.same(),
                    reads=reads_of(split, order), early=(), anew=anew_of(request, split, order))


def sizes_of(request: Request, inputs: Sequence[Any]) -> dict[Any, int]:
    """The value of every symbol in a call."""
    return dict(zip(request.sizes, request.read(inputs), strict=True))


def named(graph: Graph, names: Sequence[str]) -> list[Value]:
    """The parameters of these names."""
    params = {p.name: p for p in graph.params}
    return [params[n] for n in names]


def replaying(graph: Graph, request: Request) -> Backwards:
    """`Compiled.replay` of a joint graph."""
    variants = Variants(graph, named(graph, [t.name for t in request.tangents]),
                        lambda g, *rest: g)

    def run(inputs: Sequence[Any], tangents: Sequence[Tensor | None], numbers: Sequence[int]
            ) -> list[Tensor | None]:
        sizes = sizes_of(request, inputs)
        v = variants.find(tangents, numbers, sizes)
        there = [t for t in tangents if t is not None]
        return v.spread(replay(v.program, inputs, there, sizes))
    return run


def replay(graph: Graph, inputs: Sequence[Any], tangents: Sequence[Tensor],
           sizes: Mapping[Any, int]) -> list[Tensor]:
    """The gradients of a functionalized joint graph, op by op on the tape: a derivative of a
    compiled backward is asked for."""
    known: dict[Value, Any] = dict(zip(graph.params, [*inputs, *tangents], strict=True))
    for node in graph.nodes:
        args = concrete(map_values(node.args, known.__getitem__), sizes)
        if node.op.name == "read":
            made: Any = args[0]
        elif node.op.name == "number":
            made = args[0].item() if isinstance(args[0], Tensor) else args[0]
        else:
            made = dispatch.call(node.op, args)
        if len(node.results) == 1:
            known[node.results[0]] = made[0] if isinstance(made, tuple) else made
        else:
            known.update(zip(node.results, made, strict=True))
    return [known[v] for v in graph.results["grads"]]


def reads_of(split: partition.Split, order: Sequence[Value]) -> frozenset[int]:
    """The inputs of the call whose memory backward reads."""
    kept = set(split.kept)
    return frozenset(i for i, p in enumerate(order) if p in kept)


def anew_of(request: Request, split: partition.Split, order: Sequence[Value]) -> frozenset[int]:
    """See `Compiled.anew`."""
    return frozenset(i for i, p in enumerate(order)
                     if p in split.anew or (i in request.hasty and p in split.early))


def places(split: partition.Split, order: Sequence[Value]) -> list[int]:
    """Where backward's first arguments are found: numbers of inputs, -1 for what forward saved."""
    place = {p: i for i, p in enumerate(order)}
    return [place.get(v, -1) for v in split.kept]


def collect(places: Sequence[int], inputs: Sequence[Any], saved: Sequence[Any]) -> list[Any]:
    """Backward's first arguments: inputs that it reads itself, and what forward saved."""
    rest = iter(saved)
    return [inputs[i] if i >= 0 else next(rest) for i in places]


def laid_out(a: Any, strides: tuple[Any, ...]) -> Tensor:
    """A fresh tensor with the values of `a` in a given layout."""
    a = np.asarray(a)
    if a.base is not None or not a.flags.owndata:
        a = a.copy()
    size = a.itemsize
    if a.size == 0 or all(n == 1 or have == want * size for n, have, want in zip(
            a.shape, a.strides, strides, strict=True)):
        made = Tensor._from_array(a)
        made._strides = tuple(strides)
        return made
    extent = 1 + sum((n - 1) * s for n, s in zip(a.shape, strides, strict=True))
    owner = np.empty(extent, a.dtype)
    view = np.ndarray(a.shape, a.dtype, owner.view(np.uint8), 0, tuple(s * size for s in strides))
    view[...] = a
    return Tensor._of(owner, view, Tensor._from_array(a).dtype, a.shape, tuple(strides))


class Native:
    """A graph compiled for the CPU: (inputs, sizes) -> its results as tensors, Refs updated in
    place; sizes: of the graph's symbols, `hints` those of the first call.

    A program is kept in the cache under the text of its graph: where the same graph was compiled
    before, no pass runs and no compiler is looked for. What was decided about symbols is kept with
    it.
    """

    def __init__(self, graph: Graph, strides: Sequence[Any], options: Options,
                 hints: Mapping[Any, int] | None = None) -> None:
        self.graph, self.strides, self.options = graph, strides, options
        self.hints = hints or {}
        parts = toolchain.parts(options)
        sizes = {"sizes": repr(list(self.hints.values()))} if self.hints else {}
        key = cache.key("program", graph=print_graph(graph), strides=repr(list(strides)),
                        **parts, **sizes, **options.key(), **onednn.parts(options))
        payload = cache.store(options).get_or_build(key, self.build, target=parts["target"])
        found = entry.unbundle(payload)
        self.early = frozenset(json.loads(found["early"]))
        record = json.loads(found["record"])
        self.counts: dict[str, int] = json.loads(found["counts"])
        for text in json.loads(found["decided"]):
            relation = proof.Relation.parse(text, {v.name: v for v in self.hints})
            assert proof.decide(relation.lhs, relation.op, relation.rhs), text
        code = found["code"]
        loaded = library.load(code, record["name"]) if code else library.nothing()
        self.run = executable.Executable(record, loaded, host_call)
        for name, n in self.counts.items():
            if name in NAMES:
                COUNTERS.add(name, n)
        self.host: Host | None = None

    def lowered(self) -> Any:
        """See `stages.lowered`."""
        from lehr.compiler import stages

        return stages.lowered(self.graph, self.strides, self.options)

    def build(self) -> bytes:
        """What the cache keeps: the record of the call, the machine code, counts."""
        from lehr.compiler import stages

        return stages.build(self.lowered, self.options)

    def __call__(self, inputs: Sequence[Any], sizes: tuple[int, ...] = ()) -> list[Tensor]:
        return (self.host or self.first(inputs))(inputs, sizes)

    def first(self, inputs: Sequence[Any]) -> Host:
        """The host function, once there are inputs that tell numbers from tensors."""
        numbers = [i for i, x in enumerate(inputs) if not isinstance(x, Tensor)]
        self.host = Host(self.run, numbers)
        return self.host

    def bind(self, inputs: Sequence[Any], fixed: Collection[int], keep: bool) -> Host:
        """The host function for inputs of which some stay."""
        keep = keep and self.options.pack_weights
        return (self.host or self.first(inputs)).bind({i: inputs[i] for i in fixed}, keep)


def host_call(name: str, args: tuple[Any, ...]) -> Any:
    """An op that no kernel computes, run by its eager body."""
    return execute.run(registry.get(name), args)


def program_of(graph: Graph, strides: Sequence[Any], options: Options,
               hints: Mapping[Any, int] | None = None) -> Any:
    """The program of a graph, which checks its stages where that is asked for."""
    made: Any = Native(graph, strides, options, hints)
    if not (options.audit or options.check):
        return made
    from lehr.compiler import check

    if options.audit:
        made = check.Recorded(made, graph, strides, options)
    return check.Checked(made, graph, strides, options) if options.check else made


def lying(graph: Graph) -> dict[Value, RefType]:
    """How images that a joint graph may keep lie: what only convolutions ask for."""
    if not any(node.op.name in ("convolution", "conv_weight") for node in graph.nodes):
        return {}
    from lehr.compiler.loop import image

    return image.kept(graph)


class Halves(NamedTuple):
    """A joint graph on its way to two programs.

    forms   the graph after each pass, by name; split where single ops can be told apart: a layer
            norm's result is cheap where its statistics are kept
    split   its forward and its backward graph
    order   the parameters that are the call's inputs
    """

    forms: tuple[tuple[str, Graph], ...]
    split: partition.Split
    order: list[Value]

    @classmethod
    def of(cls, request: Request, options: Options) -> Halves:
        graph, forms = request.graph, []
        for each in pipeline.passes_of(TAKEN):
            if each.joint:
                graph = pipeline.run(graph, passes=(each,))
                forms.append((each.name, graph))
        params = {p.name: p for p in graph.params}
        tangents = [params[t.name] for t in request.tangents]
        split = partition.split(graph, tangents, options.activation_memory_budget, lying(graph))
        late = set(tangents)
        return cls(tuple(forms), split, [p for p in graph.params if p not in late])

    @property
    def functional(self) -> Graph:
        """The graph without reads and writes, of ops as they were called."""
        return self.forms[0][1]


def native(request: Request, options: Options, make: Callable[..., Any] = program_of) -> Compiled:
    """C for the CPU; `make`: (graph, result strides, options, and values of symbols where there are
    any) -> program. The values of symbols are read from the inputs at each call."""
    settings = (options, request.sizes) if request.sizes else (options,)

    def read(inputs: Sequence[Any]) -> tuple[tuple[int, ...], ...]:
        """What a program is called with besides its inputs."""
        return (request.read(inputs),) if request.sizes else ()
    if not request.tangents:
        program = make(request.graph, request.strides, *settings)

        def sized(program: Any, inputs: Sequence[Any]) -> tuple[list[Tensor], Any]:
            return program(inputs, *read(inputs)), None
        alone = sized if request.sizes else plain
        return Compiled(functools.partial(alone, program), report=(program,),
                        bind=binding(alone, program, True), same=word.same(),
                        early=getattr(program, "early", None))
    split, order = (found := Halves.of(request, options)).split, found.order
    kept = places(split, order)
    count = len(request.strides)
    first = make(split.forward, [*request.strides, *split.strides], *settings)
    programs = [first]

    def second(graph: Graph, numbers: Sequence[int], sizes: Mapping[Any, int],
               present: Sequence[bool]) -> Any:
        strides = strides_of(request, found.functional, present, numbers)
        programs.append(make(graph, strides, *((options, sizes) if sizes else (options,))))
        return programs[-1]
    variants = Variants(split.backward, named(split.backward, [t.name for t in request.tangents]),
                        second)
    if len(request.tangents) == 1:  # else it is not known yet which are wanted
        every = range(len(request.grad_strides))
        variants.whole(second(split.backward, every, request.sizes, (True,)))

    def forward(program: Any, inputs: Sequence[Any]) -> tuple[list[Tensor], Any]:
        sizes = read(inputs)
        made = program(inputs, *sizes)
        return made[:count], (sizes, collect(kept, inputs, made[count:]))

    def backward(state: Any, tangents: Sequence[Tensor | None], numbers: Sequence[int]
                 ) -> list[Tensor | None]:
        sizes, rest = state
        v = variants.find(tangents, numbers,
                          dict(zip(request.sizes, *sizes, strict=True)) if sizes else {})
        rows = [t if t.is_contiguous() else t.contiguous() for t in tangents if t is not None]
        return v.spread(v.program([*rest, *rows], *sizes))
    made = Compiled(
        functools.partial(forward, first), backward, replaying(found.functional, request),
        programs, binding(forward, first, False), word.same(), reads_of(split, order),
        getattr(first, "early", None), anew_of(request, split, order))
    if (options.check or options.audit) and not request.sizes:
        from lehr.compiler import check

        made = check.joint(made, request.graph, found.forms, split, order)
    return made


def plain(program: Any, inputs: Sequence[Any]) -> tuple[list[Tensor], Any]:
    """The forward of a graph that has no backward."""
    return program(inputs), None


def binding(forward: Callable[..., Any], program: Any, keep: bool) -> Any:
    """`Compiled.bind` of a program; None for one that reads all its inputs at each call. `keep`:
    whether weights may stay packed, as they hardly do where a step of training follows."""
    bind = getattr(program, "bind", None)
    return bind and (lambda inputs, fixed: functools.partial(forward, bind(inputs, fixed, keep)))


# Under PyTorch's names, too: those without code generation are the interpreter.
BACKENDS: dict[str, Callable[..., Compiled]] = {
    "reference": reference, "inductor": native, "eager": reference, "aot_eager": reference}
TAGS: dict[str, tuple[str, ...]] = dict.fromkeys(
    ("reference", "eager", "aot_eager"), ("debug",))

__all__ = ["BACKENDS", "Graph", "native", "reference"]
