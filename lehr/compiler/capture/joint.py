"""The graph of a captured call together with that of its gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lehr.compiler.capture.later import Late
from lehr.compiler.capture.modes import enter, leave
from lehr.compiler.capture.request import Request
from lehr.compiler.capture.size import Resize
from lehr.compiler.capture.source import Source
from lehr.compiler.capture.tape import depending, hasty, leading, passing, showing, spending
from lehr.compiler.graph.ir import RefType, TensorType
from lehr.compiler.graph.ir import Value as GraphValue
from lehr.tensor import autograd, node
from lehr.tensor.hook import register_hook, retain_grad
from lehr.tensor.state import STATE
from lehr.tensor.tensor import Tensor

if TYPE_CHECKING:
    from lehr.compiler.capture.entry import Captured

# What tensor code raises where there is no derivative.
REFUSALS = (RuntimeError, NotImplementedError)


class Joint:
    """The joint graph of a call, and what its entry must know of it.

    request  what the back end is given
    leaves   twins that receive gradients
    roots    numbers of the results that carry gradients
    spent    of those whose history a backward inside has used up
    refused  of those whose backward raises -> what it raises; behind: -> leaves that it leads to
    inner    root -> the roots that were made from it; totals: those whose own gradient is a result
             of the graph -> its number
    spends   see `tape.Call`; reached: `tape.Backward`
    shown    of each root the results that nodes behind it keep
    """

    def __init__(self, captured: Captured) -> None:
        self.captured = captured
        self.refused: dict[int, Exception] = {}
        self.request = self._made()

    def _made(self) -> Request:
        """Finishes the graph; where results require grad it becomes a joint graph."""
        captured, tracer = self.captured, self.captured.tracer
        tangents: list[GraphValue] = []
        grads: list[Tensor] = []
        held = enter(tracer)
        try:
            STATE.grad = False
            self._unhooked(captured.leaves)
            roots = [(i, t) for i, t in captured.differentiable if alive(t)]
            self.spent = [i for i, t in captured.differentiable if not alive(t)]
            leaves = [*(t for t in tracer.twins.values()
                        if t._meta is not None and t._meta.requires_grad),
                        *(t for _, t in captured.own)]
            inner = passing([*(t for _, t in roots), *captured.views])
            for n, t in enumerate(captured.views, len(roots)):
                how = captured.known[id(t)]
                past = any(m < len(roots) for m in inner.get(n, ()))
                captured.known[id(t)] = how._replace(passed=past)
            # Whose gradient may be asked for where others were made from them.
            asked = [n for n in inner if n < len(roots) and roots[n][1].grad_fn is not None]
            start = len(tracer.builder.nodes)
            found = self._derive(roots, [*leaves, *(roots[n][1] for n in asked)], tangents)
            captured.facts = captured.machine.guards()  # functions of the program's made some
            self.roots = [i for i, _ in roots if i not in self.refused]
            good = [t for i, t in roots if i not in self.refused]
            self.spends, self.shown = spending(good), showing(good, captured.slots | captured.alone)
            place = {n: self.roots.index(i) for n, (i, _) in enumerate(roots) if i in self.roots}
            self.inner = {place[n]: {place[m] for m in above if m in place}
                          for n, above in inner.items() if n in place}
            self.leaves = [t for t, g in zip(leaves, found, strict=False) if g is not None]
            self.behind = {i: [leaf for leaf, ways in zip(leaves, leading([t], leaves), strict=True)
                               if ways] for i, t in roots if i in self.refused}
            grads = [g for g in found if g is not None]
            own = [place[n] for n, g in zip(asked, found[len(leaves):], strict=True)
                   if g is not None]
            self.totals = {n: len(self.leaves) + at for at, n in enumerate(own)}
            values = [tracer.value(g) for g in grads]
            self.reached = self._reached(good, tangents, values[:len(self.leaves)])
        finally:
            leave(held)
        graph = tracer.builder.finish({"outputs": captured.outputs, "grads": values})
        return Request(graph, tuple(tangents), tuple(captured.strides),
                       tuple(g._strides for g in grads), dict(captured.machine.sizes.hints),
                       self._places(), len(self.totals), tuple(self.roots),
                       hasty(graph.nodes, start, tangents, graph.params))

    def _unhooked(self, leaves: Sequence[Tensor]) -> None:
        """Leaves that the program made take no hooks along: those are registered behind a break, on
        the leaf that a later backward meets."""
        for meta in [t._autograd() for t in leaves]:
            for hook in (*(meta.hooks or {}).values(), *(meta.post_hooks or {}).values()):
                raise getattr(hook, "late", None) or Late(register_hook.__code__)

    def _places(self) -> tuple[tuple[int, int | None], ...]:
        """Where a call finds the value of each symbol."""
        found = []
        inputs = self.captured.tracer.inputs
        for v, source in self.captured.machine.sizes.sources.items():
            for i, (value, real) in enumerate(inputs):
                kind: Any = value.type
                shape = kind.tensor.shape if isinstance(kind, RefType) else ()
                at = next((d for d, n in enumerate(shape) if n is v), None)
                if at is not None or real is source or isinstance(real, Source) and real == source:
                    found.append((i, at))
                    break
            else:
                raise AssertionError(f"no input has the size {v.name}")
        return tuple(found)

    def _derive(self, roots: Sequence[tuple[int, Tensor]], leaves: list[Tensor],
                tangents: list[GraphValue]) -> Sequence[Tensor | None]:
        """Gradients of the leaves. Where a root's backward raises, the program that asks for it
        gets that error: the root is `refused`."""
        try:
            return self._backward(roots, leaves, tangents)
        except REFUSALS:
            if self.captured.machine.sizes.hints:
                raise Resize(everything=True) from None     # the text may tell sizes
            for root in roots:
                self._undo(tangents)
                try:
                    self._backward([root], leaves, tangents)
                except REFUSALS as error:
                    self.refused[root[0]] = error.with_traceback(None)
            self._undo(tangents)
            good = [r for r in roots if r[0] not in self.refused]
            return self._backward(good, leaves, tangents)

    def _backward(self, roots: Sequence[tuple[int, Tensor]], leaves: list[Tensor],
                  tangents: list[GraphValue]) -> Sequence[Tensor | None]:
        """Adds parameters for the gradients of the roots (`tangents`) and the nodes behind them."""
        if not roots:
            return [None] * len(leaves)
        if any(t._meta is not None and t._meta.retains and id(t) not in self.captured.tracer.reals
               for _, t in roots):
            raise Late(retain_grad.__code__)    # results of one call have one node
        seeds = []
        for n, (_, t) in enumerate(roots):
            value = self.captured.tracer.builder.param(
                f"tangent{n}", TensorType(t._shape, t.dtype, t.device))
            tangents.append(value)
            seeds.append(self._seed(t, value))
        return autograd.run_backward([t for _, t in roots], seeds, True, False, leaves, False)

    def _reached(self, roots: list[Tensor], tangents: Sequence[GraphValue],
                 values: Sequence[GraphValue]) -> list[frozenset[int]]:
        """For each leaf the roots from which it has a gradient. The graph tells, but for zeros that
        depend on nothing: where the tape leads to more, those roots are tried one by one."""
        builder = self.captured.tracer.builder
        found = leading(roots, self.leaves)
        told = depending(builder.nodes, tangents, values)
        doubtful = frozenset().union(*(a ^ b for a, b in zip(found, told, strict=True)))
        for n in doubtful if len(roots) > 1 else ():
            nodes, params = len(builder.nodes), len(builder.params)
            made = self._backward([(0, roots[n])], self.leaves, [])
            del builder.nodes[nodes:], builder.params[params:]
            found = [ways | {n} if g is not None else ways - {n}
                     for ways, g in zip(found, made, strict=True)]
        return found

    def _undo(self, tangents: list[GraphValue]) -> None:
        """The graph without these parameters and what depends on them."""
        builder = self.captured.tracer.builder
        dead = set(tangents)
        builder.params[:] = [p for p in builder.params if p not in dead]
        kept = []
        for n in builder.nodes:
            if dead.isdisjoint(n.inputs):
                kept.append(n)
            else:
                dead.update(n.results)
        builder.nodes[:] = kept
        tangents.clear()

    def _seed(self, t: Tensor, value: GraphValue) -> Tensor:
        from lehr.compiler.capture.tracer import Traced
        from lehr.tensor.storage import Storage
        trace = Traced(self.captured.tracer, value, None, None)
        made = Tensor._make(Storage(None, t.device, trace), t.dtype, t._shape, t._strides)
        trace.tensor, trace.root = made, (t._shape, t._strides, 0, t.dtype)
        return made


def alive(t: Tensor) -> bool:
    """Whether the tensor's history can still be walked: backward inside the call has used it up."""
    seen, stack = set(), [t.grad_fn]
    while stack:
        fn = stack.pop()
        if fn is None or fn in seen:
            continue
        if type(fn) is node.Node:
            if fn.args is None:
                return False
            stack.extend(edge[0] for edge in fn.edges if edge is not None)
        seen.add(fn)
    return True
