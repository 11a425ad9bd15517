"""Captured calls: from a machine's outcome to something that can be called again.

A `Captured` is what a machine made of a call: its graph, facts and effects (see `attempt`). An
`Entry` is a captured call that has been compiled: `check` says whether it is valid for new
arguments, `run` reads the graph's inputs through their sources, runs the compiled program, and puts
results, gradients and side effects where the original call would have put them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lehr.base.device import Device
from lehr.base.dtype import DType
from lehr.base.sym import Sym, evaluate
from lehr.compiler.capture import guard
from lehr.compiler.capture.arithmetic import NumberValue
from lehr.compiler.capture.check import Check
from lehr.compiler.capture.fact import Fact
from lehr.compiler.capture.finish import Finish
from lehr.compiler.capture.forget import forget
from lehr.compiler.capture.joint import Joint, alive
from lehr.compiler.capture.prime import take_back
from lehr.compiler.capture.rebuild import REPLAY, Rebuilder
from lehr.compiler.capture.request import NOTHING, Backend, Backwards, Compiled, Request
from lehr.compiler.capture.size import SizeValue
from lehr.compiler.capture.source import Source
from lehr.compiler.capture.stopped import DATA_ERRORS, Stopped
from lehr.compiler.capture.tape import Backward, Call, Refused
from lehr.compiler.capture.tensors import (
    NativeValue,
    TensorMachine,
    TensorValue,
)
from lehr.compiler.capture.tracer import STRIDED, Outside, TwinMeta, slot
from lehr.compiler.capture.value import Const, Lazy, Value
from lehr.compiler.graph.ir import Value as GraphValue
from lehr.ops import registry
from lehr.tensor import dispatch, node
from lehr.tensor.state import STATE
from lehr.tensor.tensor import Tensor, View

NO_SIZES: Mapping[Any, int] = {}
SIZED = (2, 3, 4)       # fields of an `Output` that may hold symbols


# Views that count from the beginning of memory, or in other elements than what they are views of.
PLACED = STRIDED | dispatch.RETYPED
BESIDE = -2     # the index of what is made from another tensor of the results


class Output(NamedTuple):
    """How one tensor of the results is made: output number `index`, or (-1) an input's storage, or
    (BESIDE) that of the result that stands for `twin`, seen as a view.
    """

    index: int  # type: ignore[assignment]
    source: Any         # of the tensor outside whose storage it shares, else None
    shape: tuple[Any, ...]
    strides: tuple[Any, ...]
    offset: Any
    dtype: Any
    root: bool          # it is the output itself
    twin: Any           # of the tensor that it is made from
    passed: bool = False    # a view that results of another history were made from


class Captured:
    """One captured call and what must be done to repeat it."""

    def __init__(self, machine: TensorMachine, value: Value | None, fault: Any,
                 modes: dict[str, Any], before: dict[str, Any], segment: Any = None) -> None:
        self.machine, self.tracer = machine, machine.tracer
        self.value, self.fault = value, fault
        self.segment = segment      # what goes on after a graph break; `value` is the state for it
        self.modes = modes if modes != {k: before[k] for k in modes} else None
        self.outputs: list[GraphValue] = []
        self.strides: list[tuple[Any, ...]] = []
        self.slots: dict[int, int] = {}             # `slot` -> output number
        self.alone: dict[int, int] = {}     # those of which one tensor is an output of its own
        self.known: dict[int, Output] = {}          # id of a twin -> how to make it
        self.differentiable: list[tuple[int, Tensor]] = []
        self.own: list[tuple[int, Tensor]] = []     # outputs that are leaves made inside
        self.leaves: list[Tensor] = []              # made inside that a later backward may reach
        self.aliases: list[Tensor] = []             # such leaves on other tensors' memory
        self.views: list[Tensor] = []       # of what carries gradients
        self.apart: dict[int, Tensor] = {}      # storage of `.data` -> the first twin on it
        self.numbers: dict[int, int] = {}
        self.grads: list[tuple[Tensor, Any]] = []   # (twin, its new grad's twin or None)
        self._collect()
        self.tracer.finish_generators()
        self.tracer.guard_apart(bool(self.grads))
        self.facts: list[Fact] = self.machine.guards()
        sources, twins = self.tracer.sources, self.tracer.twins
        self.places = {id(twins[id(real)]): sources[id(real)]
                       for real in self.tracer.reals.values() if id(real) in sources}
        self.kept = list(self.tracer.twins.values())        # their ids are in use

    def _collect(self) -> None:
        """Finds the tensors that results, effects and gradients need."""
        collector = Collector(self)
        if self.value is not None:
            collector(self.value)
        for effect in self.machine.effects:
            for v in (effect.target, *effect.args):
                collector(v)
        tracer, machine = self.tracer, self.machine
        for twin_id, real in list(tracer.reals.items()):
            twin = tracer.twins[id(real)]
            assert id(twin) == twin_id
            meta = twin._meta
            if isinstance(meta, TwinMeta) and meta.changed:
                self.grads.append((twin, meta.grad))
                if meta.grad is not None:
                    self.add(meta.grad)
            fn = None if meta is None else meta.grad_fn
            if fn is not None and type(fn) is not Outside and (
                    twin._view is None or twin._view.base is None):
                machine.frame = None
                machine.stop("mutated-leaf", "an argument is written in place with gradients "
                                             "recorded",
                             twin._storage.trace)

        machine.frame = None
        tracer.picks.shown(self.slots)
        ends = {node.edge_of(t)[0] for t in self.aliases}  # type: ignore[index]
        own = {id(t) for _, t in self.own}
        tracer.moves.settle(behind([t.grad_fn for _, t in self.differentiable if alive(t)]))
        for fn in behind([t.grad_fn for _, t in self.differentiable]):
            if fn in ends:
                self.shared_leaf()
            leaf = fn.variable if type(fn) is node.Accumulate else None
            if leaf is None or id(leaf) in own or id(leaf) in tracer.reals:
                continue
            self.leaves.append(leaf)
            if id(leaf) not in self.known:      # its memory may be, as another tensor's
                self.outlived(leaf)
        self.leaves += [*self.aliases, *(leaf for _, leaf in self.own)]
        for _, leaf in self.own:
            if id(leaf) not in self.known:      # what is returned are views of it
                self.outlived(leaf)

    def outlived(self, leaf: Tensor) -> None:
        """A later backward adds to a leaf's gradient, and only the leaf says where that is."""
        if leaf.grad is not None and slot(leaf.grad) in self.slots:
            self.machine.stop("tensor-change", "a gradient that outlives its leaf")

    def shared_leaf(self) -> None:
        """A leaf on other tensors' memory has a history that cannot be built again."""
        self.machine.frame = None
        self.machine.stop("tensor-change", "requires_grad = of a tensor that shares memory")

    def add(self, t: Tensor) -> Output:
        """Plans how the tensor that stands for twin `t` is made at each call."""
        found = self.known.get(id(t))
        if found is not None:
            return found
        self.tracer.moves.shown(t)
        trace = t._storage.trace
        here = (t._shape, t._strides, t._offset, t.dtype)
        if trace.ref is not None:
            base = self.outside(t)
            source = self.tracer.sources[id(self.tracer.reals[id(base)])]
            made = Output(-1, source, *here, False, base)
            if t._view is not None and any(op.name in PLACED for op, _ in t._view.chain):
                self.tracer.begin(trace)
            if is_leaf(t):
                self.leaf(t, base)
            elif t.requires_grad and t is not base and (
                    not base.requires_grad or t._view is None or t._view.base is not base
                    or t._view.guarded):
                self.shared_leaf()
        else:
            made = self.inside(t, here)
        if made.twin._storage is not t._storage and not made.root:
            made = self.beside(t, made)
        self.known[id(t)] = made
        if t.requires_grad and not made.root:
            self.views.append(t)
        self.tracer._keep.append(t)
        if t._meta is not None and id(t) not in self.tracer.reals and t._meta.grad is not None:
            self.grads.append((t, t._meta.grad))
            self.add(t._meta.grad)
        return made

    def inside(self, t: Tensor, here: tuple[Any, ...]) -> Output:
        """A tensor on memory that the program made: that memory's output, or a view of it."""
        trace = t._storage.trace
        root = trace.tensor
        needs, leaf, view = t.requires_grad, is_leaf(t), t._view
        base = None if view is None else view.base
        if leaf and t is not root:
            self.leaf(t, root)
        elif needs and view is not None and (
                view.guarded or base is not None and base is root and not base.requires_grad):
            self.shared_leaf()
        elif needs and t is not root and (base is None or base is not root):
            # Same memory, a history of its own: that of a tensor there, or an output of its own.
            if base is not None and base.requires_grad:
                self.add(base)
                return Output(BESIDE, None, *here, False, base)  # type: ignore[call-arg]
            if id(root._storage) in self.slots or id(root._storage) in self.alone:
                self.shared_leaf()
            own = self.alone[id(root._storage)] = self.output(t, t)
            return Output(own, None, *here, True, t)  # type: ignore[call-arg]
        index = self.slots.get(id(root._storage))
        if index is None:
            if id(root._storage) in self.alone:
                self.shared_leaf()
            index = self.slots[id(root._storage)] = self.output(root, None)
        if is_leaf(root):
            if (index, root) not in self.own:
                self.own.append((index, root))
        elif needs and (not leaf or lent(t)) and all(i != index for i, _ in self.differentiable):
            self.differentiable.append((index, root))
        plain = (t._storage is root._storage and t._view is None and here == trace.root
                 and not root.requires_grad and not leaf)
        itself = (t is root or plain) and (leaf or type(t) is Tensor)
        return Output(index, None, *here, itself, root)  # type: ignore[call-arg]

    def beside(self, t: Tensor, made: Output) -> Output:
        """Of tensors that count the versions of their memory apart (`.data`), but together: one is
        made from that memory, the others from that one."""
        base, storage = None if t._view is None else t._view.base, t._storage
        if id(storage) not in self.apart and base is not None and base._storage is storage:
            self.add(base)
        first = self.apart.setdefault(id(storage), t)
        return made if first is t else made._replace(index=BESIDE, source=None, twin=first)

    def leaf(self, t: Tensor, base: Tensor) -> None:
        """A leaf on the memory of `base`. One that is so as a view of a third tensor, made while
        nothing was recorded, says nothing of it when it is built again."""
        own = t._meta is not None and t._meta.requires_grad
        if not own and t._view is not None and t._view.base is not base:
            self.shared_leaf()
        self.aliases.append(t)

    def output(self, t: Tensor, differentiable: Tensor | None) -> int:
        """The number of a new output."""
        index = len(self.outputs)
        self.outputs.append(self.tracer.value(t))
        self.strides.append(t._strides)
        if differentiable is not None:
            self.differentiable.append((index, differentiable))
        return index

    def outside(self, t: Tensor) -> Tensor:
        """The twin of a tensor outside on whose memory `t` lies: the one whose history it shares.
        """
        tracer = self.tracer
        known = [twin for x in tracer.reals.values() if id(x) in tracer.sources
                 and id(twin := tracer.twins[id(x)]) not in tracer.moves.known]
        twins = {id(x): x for x in known}
        base: Tensor | None = t
        while base is not None and id(base) not in twins:
            base = base._view.base if base._view is not None else None
        return base if base is not None else next(
            x for x in known if x._storage.trace is t._storage.trace)

    def add_number(self, value: NumberValue) -> None:
        if id(value) not in self.numbers:
            self.numbers[id(value)] = len(self.outputs)
            self.outputs.append(value.number.value)
            self.strides.append(())
            self.tracer._keep.append(value)


FIXED = frozenset((DType, Device))     # classes of the framework whose objects never change


class Collector(Rebuilder):
    """A dry run of rebuilding: notes tensors, stops at what cannot be built again."""

    repeats = True

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

    def size(self, value: SizeValue) -> Any:
        return 0

    def primed(self, resume: Any, function: Any, state: list[Any]) -> Any:
        """Nothing of the program may run here."""
        return (x for x in "")

    def read(self, value: Any) -> Any:
        real = value.real
        if isinstance(value, NativeValue) and value.source is None and not getattr(
                type(real), "__lehr_constant__", False) and type(real) not in FIXED:
            self.machine.stop("native-result", type(real).__name__, value)
        return real


class Replay(Rebuilder):
    """Builds the results of one call."""

    repeats = True

    def __init__(self, entry: Entry, arguments: Mapping[str, Any],
                 outputs: Sequence[Tensor], sizes: Mapping[Any, int]) -> None:
        super().__init__(entry.captured.machine)
        self.entry, self.arguments, self.outputs = entry, arguments, outputs
        self.sizes = sizes
        self.tensors: dict[int, Tensor] = {}

    def read(self, value: Any) -> Any:
        source = value.source
        return value.real if source is None else source.read(self.arguments)

    def tensor(self, value: TensorValue) -> Any:
        return self.read(value) if value.real is not None else self.twin(value.twin)

    def twin(self, twin: Tensor) -> Tensor:
        """The tensor that stands for a twin of the capture."""
        made = self.tensors.get(id(twin))
        if made is None:
            made = self.tensors[id(twin)] = self._make(twin, self.entry.captured.known[id(twin)])
        return made

    def _make(self, twin: Tensor, how: Output) -> Tensor:
        if how.index >= 0 and how.root:
            return self.outputs[how.index]
        if how.index == BESIDE:
            base = self.twin(how.twin)
        else:
            base = self.outputs[how.index] if how.index >= 0 else how.source.read(self.arguments)
        if self.sizes:
            known = Output(*[concrete(x, self.sizes) if n in SIZED else x
                             for n, x in enumerate(how)])
            return placed(twin, known, base, self.sizes)
        return placed(twin, how, base)

    def size(self, value: SizeValue) -> Any:
        return concrete(value.size, self.sizes)

    def number(self, value: NumberValue) -> Any:
        if value.source is not None:
            return value.source.read(self.arguments)
        return self.outputs[self.entry.captured.numbers[id(value)]]._array.item()


def is_leaf(t: Tensor) -> bool:
    """Whether a tensor that the program made is a leaf with gradients, as views of leaves are that
    were made while nothing was recorded."""
    return t.requires_grad and t.grad_fn is None


def lent(t: Tensor) -> bool:
    """Whether a leaf has its gradients from a base with a history, as a view made in `no_grad`."""
    base = None if t._view is None else t._view.base
    return base is not None and base.grad_fn is not None


def behind(fns: Sequence[Any]) -> Iterator[Any]:
    """The nodes of the tape from some of them on."""
    seen, stack = set(), list(fns)
    while stack:
        found = stack.pop()
        if found is not None and found not in seen:
            seen.add(found)
            yield found
            stack += [edge[0] for edge in found.edges if edge is not None]


def concrete(x: Any, sizes: Mapping[Any, int]) -> Any:
    """Sizes in the place of symbols, also inside tuples and lists."""
    if isinstance(x, Sym):
        return evaluate(x, sizes)
    return type(x)([concrete(y, sizes) for y in x]) if type(x) in (tuple, list) else x


def settled(view: View, sizes: Mapping[Any, int]) -> View:
    """A view of a call whose sizes are known."""
    chain = tuple([(op, concrete(args, sizes)) for op, args in view.chain])
    return View(view.root, chain, view.base, view.skip, view.version, view.guarded)


def placed(twin: Tensor, how: Output, base: Tensor, sizes: Mapping[Any, int] = NO_SIZES) -> Tensor:
    """What stands for a twin that is a view of `base`, an output or a tensor outside; of a class of
    the program's own, if the twin is (`as_subclass`)."""
    made = located(twin, how, base, sizes)
    if type(twin) is not Tensor and not is_leaf(twin):
        made.__class__ = type(twin)
    return made


def located(twin: Tensor, how: Output, base: Tensor, sizes: Mapping[Any, int]) -> Tensor:
    if how.index < 0:   # where an input begins in its memory is no fact of a call
        there = how.twin._offset if not sizes else concrete(how.twin._offset, sizes)
        how = how._replace(offset=how.offset + base._offset - there)
    view = twin._view if not sizes or twin._view is None else settled(twin._view, sizes)
    whole = (base._shape, base._strides, base._offset) == how[2:5]
    if (view is not None and view.base is how.twin and base.requires_grad
            and twin.grad_fn is not None):  # else made before its base was a leaf
        made = recorded(view, base)
        if how.passed and made.grad_fn is not base.grad_fn:
            made.grad_fn.passed = True
        return made
    # `.data` and `detach` in the old sense: the same memory, versions of its own.
    storage = base._storage if twin._storage is how.twin._storage else base._storage.twin()
    made = Tensor._make(storage, how.dtype, how.shape, how.strides, how.offset)
    if view is None or (how.index < 0 and view.base is not how.twin and whole):
        made._view = base._view and base._view.detached() if how.index < 0 else None
    else:
        made._view = seen_from(view, how, base)
    if twin._meta is not None and twin._meta.requires_grad and twin.grad_fn is None:
        made._autograd().requires_grad = True
    return made


def recorded(view: View, base: Tensor) -> Tensor:
    """The view of `base`, with the nodes that lead to it."""
    held, STATE.grad = STATE.grad, not view.guarded
    try:
        for op, args in view.chain[view.skip:]:
            base = dispatch.call(op, (base, *args))
    finally:
        STATE.grad = held
    return base


def seen_from(view: View, how: Output, base: Tensor) -> View:
    """A view of the captured program as a view of `base`, which `how.twin` stands for."""
    shared = view.base is how.twin
    steps = view.chain[view.skip:] if shared else view.chain
    if not shared and view.root is not how.twin:
        steps = ((registry.get("as_strided"), (how.shape, how.strides, how.offset)),)
    version, outer = base._storage.version, base._view
    if outer is None:
        return View(base, steps, base if shared else None, 0, version, view.guarded)
    root, chain = outer.root, (*outer.chain, *steps)
    if not shared:
        return View(root, chain, None, 0, version, view.guarded)
    if outer.base is None:
        return View(root, chain, base, len(outer.chain), version, view.guarded)
    return View(root, chain, outer.base, outer.skip, version, view.guarded or outer.guarded)


class Entry:
    """A compiled captured call."""

    def __init__(self, captured: Captured, backend: Backend, positional: tuple[str, ...],
                 names: tuple[str, ...]) -> None:
        self.captured, self.positional, self.names = captured, positional, names
        self.sizes = captured.machine.sizes
        with self.sizes.deciding(True):
            self.joint = Joint(captured)
        request = self.joint.request
        empty = not request.graph.nodes and not any(request.graph.results.values())
        with self.sizes.deciding():
            self.compiled = NOTHING if empty else backend(request)
        self.request = request
        if self.sizes.hints:    # decisions of the back end are guards, too
            captured.facts = [f for f in captured.facts if f.kind != "size"] + self.sizes.facts()
        self.hits = 0
        tracer = captured.tracer
        self.inputs = [real if isinstance(real, Source) else tracer.sources.get(id(real), real)
                       for _, real in tracer.inputs]
        self.checker = Check(captured.facts, positional, names, self.inputs, self.compiled.same,
                             self._bind, lambda: self.hits, Finish.of(captured, placed))
        self.check = self.checker.quick
        self.gather, self.gather_source = self._gather()
        # Inputs that are written, and how often: versions count each write but those of `x.data`.
        storages = {i: tracer.storages[id(real._storage.origin)]
                    for i, (_, real) in enumerate(captured.tracer.inputs)
                    if isinstance(real, Tensor)}
        self.written = [(i, s.version) for i, s in storages.items() if s.trace.written]
        early = self.compiled.early
        self.early = [i for i, _ in self.written if early is None or i in early]
        place = {id(tracer.twins[id(real)]): i for i, (_, real) in enumerate(tracer.inputs)
                 if isinstance(real, Tensor)}
        # Inputs that stand on other memory after the call.
        self.moved = frozenset([place[t] for t in tracer.moves.known if t in place])
        place |= {id(t): -1 - i for i, t in captured.own}   # outputs count from -1 down
        joint = self.joint
        self.order = [(t, place.get(id(t))) for t in joint.leaves]
        self.behind = {i: [(t, place.get(id(t))) for t in ts] for i, ts in joint.behind.items()}
        self.taped = bool(joint.roots or joint.spent or joint.refused or captured.own)
        self.plain = self._plain()
        self.primed = captured.machine.primed   # until the first run has used it
        forget(captured)

    def _gather(self) -> tuple[Callable[..., list[Any]], str]:
        """Reads the graph's inputs for a call, in graph order."""
        params = {p: f"a{i}" for i, p in enumerate(self.positional)}
        params |= {k: f"kwargs[{k!r}]" for k in self.names}
        w = guard.Writer(params)
        texts = [w.path(s) if isinstance(s, Source) else w.bind(s, "t") for s in self.inputs]
        unpack = f"    ({''.join(f'a{i}, ' for i in range(len(self.positional)))}) = args\n"
        body = "".join(f"    {line}\n" for line in w.lines)
        source_text = (f"def gather(args, kwargs):\n{unpack if self.positional else ''}{body}"
                       f"    return [{', '.join(texts)}]\n")
        exec(compile(source_text, "<gather>", "exec"), w.space)
        return w.space["gather"], source_text

    def _bind(self, inputs: Sequence[Any], fixed: Collection[int]) -> Any:
        """What runs the graph where some inputs stay."""
        bind = self.compiled.bind
        fixed = frozenset(fixed) - self.moved
        return self.compiled.forward if bind is None or not fixed else bind(inputs, fixed)

    def _plain(self) -> Callable[[list[Tensor]], Any] | None:
        """Results that are fresh tensors only, in a plain shape: no rebuilding is needed."""
        c = self.captured
        if c.machine.effects or c.grads or c.modes or c.fault is not None or c.value is None:
            return None
        value = c.value.made if isinstance(c.value, Lazy) else c.value
        return None if value is None else _plain_result(c, value)

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any], live: Any = True) -> Any:
        """The call, through the compiled program; `live`: what `check` has given."""
        self.hits += 1
        if live is True:
            inputs, forward = self.gather(args, kwargs), self.compiled.forward
        else:
            inputs, forward = live.gather(args, kwargs, live), live.forward
        for i in self.moved:    # what is kept for a backward is the memory of now
            if not inputs[i].requires_grad:
                inputs[i] = inputs[i].detach()
        before = self.set_aside(inputs) if self.early else ()
        try:
            outputs, state = forward(inputs)
        except BaseException as error:
            known = isinstance(error, DATA_ERRORS)
            for t, array in before if known else ():
                np.copyto(t._array, array)
            for i, _ in self.written:       # something may have been written already
                inputs[i]._storage.unsure()
            if known:
                take_back(self.primed)
                raise Stopped from error
            raise
        if self.primed:
            self.primed.clear()
        for i, times in self.written:
            inputs[i]._storage.written(times)
        if self.taped:
            self._record(inputs, outputs, state, live, args, kwargs)
        if self.plain is not None:
            return self.plain(outputs)
        if live is not True and live.finish is not None:
            return live.finish(args, kwargs, live, outputs)
        arguments = {**dict(zip(self.positional, args, strict=True)), **kwargs}
        return self._replay(arguments, outputs, self.request.read(inputs))

    def set_aside(self, inputs: list[Any]) -> list[tuple[Tensor, Any]]:
        """What has to be put back where data stops the call."""
        return [(inputs[i], inputs[i]._array.copy()) for i in self.early]

    def _record(self, inputs: list[Any], outputs: list[Tensor], state: Any, live: Any,
                args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Puts the call on the tape."""
        for i, _ in self.captured.own:
            outputs[i]._autograd().requires_grad = True
        known, joint = {} if live is True else live.edges, self.joint

        def edges_of(order: Sequence[tuple[Tensor, int | None]]) -> list[tuple[Any, Any]]:
            return [known.get(i) or self._edge(
                        t, i, inputs if i is None or i >= 0 else outputs[::-1], live, args, kwargs)
                    for t, i in order]
        edges = edges_of(self.order)
        made = Backward(None, [e for e, _ in edges], max(len(joint.roots), 1), joint.inner,
                        joint.reached)
        made.inputs = [described for _, described in edges]
        reads, anew = self.compiled.reads, self.compiled.anew
        given = [(t, s := t._storage, s.version, s.origin.writes, reads is None or i in reads,
                  i in anew)
                 if i not in self.moved or not t.requires_grad else (t, None, -1, 0, False, False)
                 for i, t in enumerate(inputs) if isinstance(t, Tensor)]
        if joint.roots:
            shown = [[(t, t._storage.version, t._storage.origin.writes)
                      for t in map(outputs.__getitem__, numbers)] for numbers in joint.shown]
            made.extra = Call(self.compiled, state, inputs, given, shown, joint.spends,
                              self.request.usual, joint.totals)
        for n, i in enumerate(joint.roots):
            meta = outputs[i]._autograd()
            meta.grad_fn, meta.index, meta.edge_version = made, n, 0
        for i in joint.spent:
            meta = outputs[i]._autograd()
            meta.grad_fn = Backward(None, [], 1)
        for i, error in joint.refused.items():
            meta = outputs[i]._autograd()
            meta.grad_fn = Refused(None, [e for e, _ in edges_of(self.behind[i])], 1)
            meta.grad_fn.extra = error

    def _edge(self, twin: Tensor, i: int | None, inputs: list[Any], live: Any,
              args: tuple[Any, ...],
              kwargs: dict[str, Any]) -> tuple[Any, Any]:
        """Where the gradient of an input goes, and what it looks like; kept for one that stays."""
        t = self._outside(twin, args, kwargs) if i is None else inputs[i]
        made = node.edge_of(t), node.Described(t._shape, t.dtype, t.device)
        if live is not True and i in live.fixed and t.grad_fn is None:
            live.edges[i] = made
        return made

    def _outside(self, twin: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A tensor of the call that is no input of the graph by itself: it shares another one's
        memory.
        """
        arguments = {**dict(zip(self.positional, args, strict=True)), **kwargs}
        return self.captured.places[id(twin)].read(arguments)

    def _replay(self, arguments: Mapping[str, Any], outputs: list[Tensor],
                sizes: Sequence[int]) -> Any:
        captured = self.captured
        r = Replay(self, arguments, outputs, dict(zip(self.request.sizes, sizes, strict=True)))
        ready = [(REPLAY[e.kind],
                  [r(v) for v in (e.target, *e.args)]) for e in captured.machine.effects]
        grads = [(captured.places[id(twin)].read(arguments) if id(twin) in captured.places
                  else r.twin(twin), None if g is None else r.twin(g))
                 for twin, g in captured.grads]
        made = None if captured.value is None else r(captured.value)
        for function, values in ready:
            function(*values)
        for action in r.after:
            action()
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


__all__ = ["Backend", "Backwards", "Captured", "Compiled", "Entry", "Request"]
