"""Captured calls: from a machine's outcome to something that can be called again.

`capture_call` runs a call through the machine and gives a `Captured`: its graph, facts and effects.
An `Entry`
is a captured call that has been compiled: `check` says whether it is valid for new arguments, `run`
reads the
graph's inputs through their sources, runs the compiled program, and puts results, gradients and
side effects
where the original call would have put them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from lehr.compiler.capture import guard
from lehr.compiler.capture.breaks import CaptureBreak
from lehr.compiler.capture.fact import Fact
from lehr.compiler.capture.rebuild import REPLAY, Rebuilder
from lehr.compiler.capture.source import Source
from lehr.compiler.capture.tensors import (
    NativeValue,
    NumberValue,
    TensorMachine,
    TensorValue,
    enter,
    has_grad,
    leave,
)
from lehr.compiler.capture.tracer import NeedsFlat
from lehr.compiler.capture.value import Const, Value
from lehr.compiler.graph.ir import Graph, TensorType
from lehr.compiler.graph.ir import Value as GraphValue
from lehr.tensor import autograd, node
from lehr.tensor.state import STATE
from lehr.tensor.tensor import Tensor, View


class Request(NamedTuple):
    """What a back end compiles.

    graph     results "outputs" and, for a joint graph, "grads"
    tangents  the parameters that only backward has: gradients of the outputs `roots`
    strides   eager layout of every output and gradient
    """

    graph: Graph
    tangents: tuple[GraphValue, ...]
    strides: tuple[tuple[Any, ...], ...]
    grad_strides: tuple[tuple[Any, ...], ...]


class Compiled(NamedTuple):
    """What a back end returns. Inputs and results are tensors (numbers as Python numbers), in graph
    order.

    forward   (inputs) -> (outputs, state for backward)
    backward  (state, tangents) -> gradients, None where there is no joint graph
    replay    (inputs, tangents) -> gradients recorded on the tape, for double backward
    """

    forward: Callable[[Sequence[Any]], tuple[list[Tensor], Any]]
    backward: Callable[[Any, Sequence[Tensor]], list[Tensor]] | None = None
    replay: Callable[[Sequence[Any], Sequence[Tensor]], list[Tensor]] | None = None
    report: Any = None


Backend = Callable[[Request], Compiled]


class Output(NamedTuple):
    """How one tensor of the results is made: output number `index`, or an input's storage, seen as
    a view.
    """

    index: int  # type: ignore[assignment]
    source: Any         # of the tensor outside whose storage it shares, else None
    shape: tuple[Any, ...]
    strides: tuple[Any, ...]
    offset: Any
    dtype: Any
    root: bool          # it is the output itself


class Captured:
    """One captured call and what must be done to repeat it."""

    def __init__(self, machine: TensorMachine, value: Value | None, fault: Any,
                 modes: dict[str, Any], before: dict[str, Any]) -> None:
        self.machine, self.tracer = machine, machine.tracer
        self.value, self.fault = value, fault
        self.modes = modes if modes != {k: before[k] for k in modes} else None
        self.outputs: list[GraphValue] = []
        self.strides: list[tuple[Any, ...]] = []
        self.slots: dict[int, int] = {}             # id of a fresh storage -> output number
        self.known: dict[int, Output] = {}          # id of a twin -> how to make it
        self.differentiable: list[tuple[int, Tensor]] = []
        self.numbers: dict[int, int] = {}
        self.grads: list[tuple[Tensor, Any]] = []   # (twin outside, its new grad twin or None)
        self._collect()
        self.tracer.finish_generators()

    @property
    def facts(self) -> list[Fact]:
        return list(self.machine.facts.values())

    def _collect(self) -> None:
        """Finds the tensors that results, effects and gradients need."""
        collector = Collector(self)
        if self.value is not None:
            collector(self.value)
        for effect in self.machine.effects:
            for v in (effect.target, *effect.args):
                collector(v)
        tracer = self.tracer
        for twin_id, real in list(tracer.reals.items()):
            twin = tracer.twins[id(real)]
            assert id(twin) == twin_id
            meta = twin._meta
            now = None if meta is None else meta.grad
            was = tracer.twins.get(id(real._meta.grad)) if has_grad(real) else None  # type: ignore
            if now is not was:
                self.grads.append((twin, now))
                if now is not None:
                    self.add(now)
            if meta is not None and (meta.grad_fn is not None) and twin._view is None:
                machine = self.machine
                machine.frame = None
                machine.stop("mutated-leaf", "an argument is written in place with gradients "
                                             "recorded")

    def add(self, t: Tensor) -> Output:
        """Plans how the tensor that stands for twin `t` is made at each call."""
        found = self.known.get(id(t))
        if found is not None:
            return found
        trace = t._storage.trace
        here = (t._shape, t._strides, t._offset, t.dtype)
        if trace.ref is not None:
            source = self.outside(t)
            made = Output(-1, source, *here, False)
        else:
            made = self.inside(t, here)
        self.known[id(t)] = made
        self.tracer._keep.append(t)
        return made

    def inside(self, t: Tensor, here: tuple[Any, ...]) -> Output:
        """A tensor on memory that the program made: that memory's output, or a view of it."""
        trace = t._storage.trace
        root = trace.tensor
        needs = t.requires_grad
        if needs and t is not root and (t._view is None or t._view.base is not root):
            # Same memory, a history of its own: an output of its own.
            return Output(self.output(t, t), None, *here, True)  # type: ignore[call-arg]
        index = self.slots.get(id(t._storage))
        if index is None:
            index = self.slots[id(t._storage)] = self.output(root, None)
        if needs and all(i != index for i, _ in self.differentiable):
            self.differentiable.append((index, root))
        plain = t._view is None and here == trace.root and not root.requires_grad
        return Output(index, None, *here, t is root or plain)  # type: ignore[call-arg]

    def output(self, t: Tensor, differentiable: Tensor | None) -> int:
        """The number of a new output."""
        index = len(self.outputs)
        self.outputs.append(self.tracer.value(t))
        self.strides.append(t._strides)
        if differentiable is not None:
            self.differentiable.append((index, differentiable))
        return index

    def outside(self, t: Tensor) -> Source:
        """The source of a tensor outside that owns this twin's storage."""
        real = self.tracer.reals.get(id(t))
        if real is None:
            real = next(r for i, r in self.tracer.reals.items()
                        if self.tracer.twins[id(r)]._storage is t._storage)
        return self.tracer.sources[id(real)]

    def add_number(self, value: NumberValue) -> None:
        if id(value) not in self.numbers:
            self.numbers[id(value)] = len(self.outputs)
            self.outputs.append(value.number.value)
            self.strides.append(())
            self.tracer._keep.append(value)


class Collector(Rebuilder):
    """A dry run of rebuilding: notes tensors, stops at what cannot be built again."""

    def __init__(self, captured: Captured) -> None:
        super().__init__(captured.machine)
        self.captured = captured

    def tensor(self, value: TensorValue) -> Any:
        if value.real is None or self.captured.tracer.twins.get(id(value.real)) is not value.twin:
            self.captured.add(value.twin)
        return value.twin

    def number(self, value: NumberValue) -> Any:
        if value.source is None:
            self.captured.add_number(value)
        return 0

    def native(self, value: NativeValue) -> Any:
        if value.source is None and not getattr(type(value.real), "__lehr_constant__", False) and (
                type(value.real).__name__ not in ("DType", "Device", "MemoryFormat", "Layout")):
            self.machine.stop("native-result", type(value.real).__name__)
        return value.real


class Replay(Rebuilder):
    """Builds the results of one call."""

    def __init__(self, entry: Entry, arguments: Mapping[str, Any],
                 outputs: Sequence[Tensor]) -> None:
        super().__init__(entry.captured.machine)
        self.entry, self.arguments, self.outputs = entry, arguments, outputs
        self.tensors: dict[int, Tensor] = {}

    def read(self, value: Any) -> Any:
        source = value.source
        return value.real if source is None else source.read(self.arguments)

    def tensor(self, value: TensorValue) -> Any:
        captured = self.entry.captured
        if value.real is not None and captured.tracer.twins.get(id(value.real)) is value.twin:
            return value.real if value.source is None else value.source.read(self.arguments)
        return self.twin(value.twin)

    def twin(self, twin: Tensor) -> Tensor:
        """The tensor that stands for a twin of the capture."""
        made = self.tensors.get(id(twin))
        if made is None:
            made = self.tensors[id(twin)] = self._make(twin, self.entry.captured.known[id(twin)])
        return made

    def _make(self, twin: Tensor, how: Output) -> Tensor:
        if how.index >= 0 and how.root:
            return self.outputs[how.index]
        base = self.outputs[how.index] if how.index >= 0 else how.source.read(self.arguments)
        if how.index < 0 and (base._shape, base._strides, base._offset) == how[2:5] and (
                twin._view is None):
            view = base._view
            made = Tensor._make(base._storage, how.dtype, how.shape, how.strides, how.offset)
            made._view = view
            return made
        made = Tensor._make(base._storage, how.dtype, how.shape, how.strides, how.offset)
        view = twin._view
        if view is not None:
            shared = view.base is not None and view.base is twin._storage.trace.tensor
            if base._view is None:
                made._view = view.onto(base)
                made._view.base = base if shared else None
            else:
                outer = base._view
                made._view = View(outer.root, (*outer.chain, *view.chain), outer.base, outer.skip,
                                  base._storage.version, view.guarded)
            if shared and base.requires_grad:
                Tensor.rebased_view(made)
        return made

    def number(self, value: NumberValue) -> Any:
        if value.source is not None:
            return value.source.read(self.arguments)
        return self.outputs[self.entry.captured.numbers[id(value)]]._array.item()

    def native(self, value: NativeValue) -> Any:
        return value.real


class Backward(node.Node):
    """The tape's node for a compiled call."""

    __slots__ = ()

    def name(self) -> str:
        return "CompiledBackward"

    def apply(self, grads: list[Tensor | None]) -> list[Tensor | None]:
        compiled, state, inputs, metas, versions = self.extra
        if state is None:
            raise RuntimeError(
                "Trying to backward through the graph a second time. Specify retain_graph=True if "
                "you need "
                "to backward through a compiled call a second time.")
        for t, version in versions:
            if t._storage.version != version:
                raise RuntimeError(
                    "one of the variables needed for gradient computation has been modified by an "
                    "inplace "
                    f"operation: an input of a compiled call, [torch.{t.dtype.name} "
                    f"{list(t._shape)}], is at "
                    f"version {t._storage.version}; expected version {version} instead.")
        full = [g if g is not None else Tensor.F.zeros(list(shape), dtype=dtype)
                for g, (shape, dtype) in zip(grads, metas, strict=True)]
        if STATE.grad or STATE.tracer is not None:
            return list(compiled.replay(inputs, full))
        return list(compiled.backward(state, full))

    def release(self) -> None:
        self.extra = (self.extra[0], None, None, self.extra[3], ())


class Entry:
    """A compiled captured call."""

    def __init__(self, captured: Captured, backend: Backend, positional: tuple[str, ...],
                 names: tuple[str, ...]) -> None:
        self.captured, self.positional, self.names = captured, positional, names
        self.leaves: list[Tensor] = []          # twins that receive gradients
        request = self._request()
        self.compiled = backend(request)
        self.request = request
        self.check, self.guard_source, _ = guard.generate(
            captured.facts, len(positional), names, positional)
        self.gather, self.gather_source = self._gather()
        self.written = [i for i, (v, real) in enumerate(captured.tracer.inputs)
                        if isinstance(real, Tensor)
                        and captured.tracer.storages[id(real._storage)].trace.written]
        self.plain = self._plain()
        self.hits = 0

    def _request(self) -> Request:
        """Finishes the graph; where results require grad it becomes a joint graph."""
        captured, tracer = self.captured, self.captured.tracer
        tangents: list[GraphValue] = []
        grads: list[Tensor] = []
        held = enter(tracer)
        try:
            STATE.grad = False
            roots = [t for _, t in captured.differentiable if self._alive(t)]
            self.roots = [i for i, t in captured.differentiable if self._alive(t)]
            self.spent = [i for i, t in captured.differentiable if not self._alive(t)]
            if roots:
                seeds = []
                for n, t in enumerate(roots):
                    kind = TensorType(t._shape, t.dtype, t.device)
                    value = tracer.builder.param(f"tangent{n}", kind)
                    tangents.append(value)
                    seeds.append(self._seed(t, value))
                leaves = [t for t in tracer.twins.values()
                          if t._meta is not None and t._meta.requires_grad and t._view is None]
                found = autograd.run_backward(roots, seeds, False, False, leaves, False)
                self.leaves = [t for t, g in zip(leaves, found, strict=True) if g is not None]
                grads = [g for g in found if g is not None]
            values = [tracer.value(g) for g in grads]
        finally:
            leave(held)
        graph = tracer.builder.finish({"outputs": captured.outputs, "grads": values})
        return Request(graph, tuple(tangents), tuple(captured.strides),
                       tuple(g._strides for g in grads))

    def _alive(self, t: Tensor) -> bool:
        """Whether the tensor's history can still be walked: backward inside the call has used it
        up.
        """
        fn = t.grad_fn
        return fn is None or type(fn) is not node.Node or fn.args is not None

    def _seed(self, t: Tensor, value: GraphValue) -> Tensor:
        from lehr.compiler.capture.tracer import Traced
        from lehr.tensor.storage import Storage
        trace = Traced(self.captured.tracer, value, None, None)
        made = Tensor._make(Storage(None, t.device, trace), t.dtype, t._shape, t._strides)
        trace.tensor, trace.root = made, (t._shape, t._strides, 0, t.dtype)
        return made

    def _gather(self) -> tuple[Callable[..., list[Any]], str]:
        """Reads the graph's inputs for a call, in graph order."""
        params = {p: f"a{i}" for i, p in enumerate(self.positional)}
        params |= {k: f"kwargs[{k!r}]" for k in self.names}
        w = guard.Writer(params)
        tracer = self.captured.tracer
        texts = []
        for _, real in tracer.inputs:
            if isinstance(real, Source):
                texts.append(w.path(real))
                continue
            source = tracer.sources.get(id(real))
            texts.append(w.bind(real, "t") if source is None else w.path(source))
        unpack = f"    ({''.join(f'a{i}, ' for i in range(len(self.positional)))}) = args\n"
        body = "".join(f"    {line}\n" for line in w.lines)
        source_text = (f"def gather(args, kwargs):\n{unpack if self.positional else ''}{body}"
                       f"    return [{', '.join(texts)}]\n")
        exec(compile(source_text, "<gather>", "exec"), w.space)
        return w.space["gather"], source_text

    def _plain(self) -> Callable[[list[Tensor]], Any] | None:
        """Results that are fresh tensors only, in a plain shape: no rebuilding is needed."""
        c = self.captured
        if c.machine.effects or c.grads or c.modes or c.fault is not None or c.value is None:
            return None
        return _plain_result(c, c.value.force(c.machine))

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The call, through the compiled program."""
        self.hits += 1
        inputs = self.gather(args, kwargs)
        outputs, state = self.compiled.forward(inputs)
        if self.written:
            for i in self.written:
                inputs[i]._storage.version += 1
        if self.roots or self.spent:
            self._record(inputs, outputs, state)
        if self.plain is not None:
            return self.plain(outputs)
        arguments = {**dict(zip(self.positional, args, strict=True)), **kwargs}
        return self._replay(arguments, outputs)

    def _record(self, inputs: list[Any], outputs: list[Tensor], state: Any) -> None:
        """Puts the call on the tape."""
        twins = self.captured.tracer
        order = {id(twins.twins[id(real)]): i for i, (_, real) in enumerate(twins.inputs)
                 if isinstance(real, Tensor)}
        reals = [inputs[order[id(t)]] for t in self.leaves]
        made = Backward(None, [node.edge_of(t) for t in reals], max(len(self.roots), 1))
        made.inputs = [node.Described(t._shape, t.dtype, t.device) for t in reals]
        metas = [(outputs[i]._shape, outputs[i].dtype) for i in self.roots]
        versions = tuple((t, t._storage.version) for t in inputs if isinstance(t, Tensor))
        made.extra = (self.compiled, state if self.roots else None, inputs, metas, versions)
        for n, i in enumerate(self.roots):
            meta = outputs[i]._autograd()
            meta.grad_fn, meta.index, meta.edge_version = made, n, 0
        for i in self.spent:
            meta = outputs[i]._autograd()
            meta.grad_fn = Backward(None, [], 1)
            meta.grad_fn.extra = (self.compiled, None, None, (), ())

    def _replay(self, arguments: Mapping[str, Any], outputs: list[Tensor]) -> Any:
        captured = self.captured
        r = Replay(self, arguments, outputs)
        ready = [(REPLAY[e.kind], [r(v) for v in (e.target, *e.args)])
                 for e in captured.machine.effects]
        grads = [(captured.tracer.sources[id(captured.tracer.reals[id(twin)])].read(arguments),
                  None if g is None else r.twin(g)) for twin, g in captured.grads]
        made = None if captured.value is None else r(captured.value)
        for function, values in ready:
            function(*values)
        for t, g in grads:
            t._set_grad(g)
        if captured.modes is not None:
            for k, v in captured.modes.items():
                setattr(STATE, k, v)
        if captured.fault is not None:
            raise r(captured.fault)
        return made


def _plain_result(c: Captured, value: Value) -> Callable[[list[Tensor]], Any] | None:
    if isinstance(value, TensorValue):
        how = c.known.get(id(value.twin))
        if how is None or not how.root or how.index < 0:
            return None
        index = how.index
        return lambda outputs: outputs[index]
    if isinstance(value, Const):
        constant = value.value
        return lambda outputs: constant
    return None


def capture_call(function: Callable[..., Any], args: tuple[Any, ...],
                 kwargs: dict[str, Any]) -> Captured:
    """Captures one call. CaptureBreak where the machine cannot go on; nothing outside has changed
    then.
    """
    flat: frozenset[int] = frozenset()
    while True:
        machine = TensorMachine(flat=flat)
        held = enter(machine.tracer)
        try:
            outcome = machine.capture(function, args, kwargs)
            after = leave(held)
            STATE.tracer = machine.tracer
            return Captured(machine, outcome.value, outcome.fault, after, held)
        except NeedsFlat as needs:
            flat = flat | {id(needs.storage)}
        finally:
            leave(held)


__all__ = ["Backend", "CaptureBreak", "Captured", "Compiled", "Entry", "Request", "capture_call"]
