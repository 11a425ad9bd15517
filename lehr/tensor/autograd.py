"""The engine that walks the tape back.

Nodes carry a running number; every consumer of a result has a higher number than its producer, so a
heap by descending number visits them in a valid order without recursion and without counting
dependencies.
"""

from __future__ import annotations

import heapq
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from lehr.base.dtype import float32
from lehr.ops import layout
from lehr.tensor.history import apply_chain, laid, rebase, write_chain
from lehr.tensor.hook import PAST, retain_grad, watch
from lehr.tensor.node import (
    Accumulate,
    Described,
    Edge,
    Node,
    alias,
    edge_of,
    fit,
    record,
)
from lehr.tensor.state import STATE
from lehr.tensor.storage import Storage
from lehr.tensor.tensor import Tensor

__all__ = ["Accumulate", "Described", "Edge", "Node", "alias", "apply_chain", "edge_of", "fit",
           "rebase", "record", "run_backward", "write_chain"]


def run_backward(roots: Sequence[Tensor], grads: Sequence[Tensor | None], keep: bool, create: bool,
                 inputs: Sequence[Tensor] | None, accumulate: bool,
                 allow_unused: bool = True) -> tuple[Tensor | None, ...]:
    """Walks the tape from `roots`.

    keep: retain saved values; create: record the walk; inputs: leave `.grad` of everything else
    alone; accumulate: add to `.grad` (else return the gradients of `inputs`).
    """
    state = STATE
    before, autocast, outer = state.grad, state.autocast, state.walk
    state.grad, state.autocast = create, None
    try:
        walk = state.walk = Walk(keep, accumulate)
        seeds = [_seed(i, t, g) for i, (t, g) in enumerate(zip(roots, grads, strict=True))]
        for (node, index), g in seeds:
            walk.add(node, index, g)
        wanted = None if inputs is None else [_wanted(t, accumulate) for t in inputs]
        del seeds
        walk.run(wanted)
    finally:
        state.grad, state.autocast, state.walk = before, autocast, outer
    if wanted is None:
        return ()
    out = tuple([walk.found.get(e) for e in wanted])
    if not allow_unused:
        for i, found in enumerate(out):
            if found is None:
                raise RuntimeError(f"The differentiated Tensor at index {i} appears to not have "
                                   "been used in the graph. Set allow_unused=True if this is the "
                                   "desired behavior.")
    return out


def current() -> Walk | None:
    """The backward that is running in this thread."""
    return STATE.walk


class Walk:
    """One walk over the tape.

    pending  node -> gradients of its results that have arrived
    marks    edges whose gradients are wanted; None: those of all leaves
    needed   the nodes that lead to a mark
    found    mark -> its gradient
    after    what is called when the walk is over
    """

    def __init__(self, keep: bool, accumulate: bool) -> None:
        self.keep, self.accumulate = keep, accumulate
        self.pending: dict[Node, list[Tensor | None]] = {}
        self.heap: list[tuple[int, Node]] = []
        self.marks: set[tuple[Node, int]] | None = None
        self.needed: set[Node] = set()
        self.found: dict[tuple[Node, int], Tensor | None] = {}
        self.roots: list[Node] = []
        self.after: list[Any] = []

    def add(self, node: Node, index: int, g: Tensor) -> None:
        """A gradient arrives at one result of a node."""
        slots = self.pending.get(node)
        if slots is None:
            slots = self.pending[node] = [None] * node.count
            heapq.heappush(self.heap, (-node.number, node))
        have = slots[index]
        slots[index] = g if have is None else plus(have, g)

    def run(self, wanted: list[Any] | None) -> None:
        self.roots = list(self.pending)
        if wanted is not None:
            self.marks = set(wanted)
            self.needed = _reaching(self.pending, self.marks)
        heap, pending = self.heap, self.pending
        while heap:
            node = heapq.heappop(heap)[1]
            slots = pending.pop(node)
            try:
                self.step(node, slots)
            except Exception:
                self.halt(node, slots)
                raise
        while self.after:
            self.after.pop(0)()

    def halt(self, node: Node, slots: list[Tensor | None]) -> None:
        """A node raised. Leaves to which nothing leads that is left to visit get their gradients:
        they would have come before it if leaves were visited as soon as that is so."""
        seen: set[Edge] = set()
        stack: list[tuple[Node, int]] = []
        for n, arrived in ((node, slots), *self.pending.items()):
            stack += [(n, i) for i in range(n.count) if not arrived or arrived[i] is not None]
        while stack:
            here, index = stack.pop()
            ahead = here.ahead(index)
            if ahead is None:
                return
            stack += [e for e in ahead if e is not None and e not in seen]
            seen.update(ahead)
        for n in [n for n in self.pending if type(n) is Accumulate and (n, 0) not in seen]:
            self.step(n, self.pending.pop(n))

    def reaches(self, tensors: Sequence[Tensor]) -> int:
        """How many of the tensors get a gradient in this walk (counted before they got any)."""
        seen: set[Node] = set(self.roots)
        stack = list(seen)
        while stack:
            for e in stack.pop().edges:
                if e is not None and e[0] not in seen:
                    seen.add(e[0])
                    stack.append(e[0])
        return sum(1 for t in tensors if (e := edge_of(t)) is not None and e[0] in seen)

    def step(self, node: Node, slots: list[Tensor | None]) -> None:
        """One node: hooks, the gradient rule, and where its results go."""
        marks = self.marks
        goes_on = marks is None or node in self.needed
        shown = _whole(node, slots, marks) if node.inner else slots
        if marks is not None and goes_on:
            self._mark(node, shown, marks)
        if node.tensor_hooks or node.retain:
            _run_tensor_hooks(node, shown, slots)
        if marks is not None and not goes_on:
            self._mark(node, shown, marks)
        if type(node) is Accumulate:
            if self.accumulate and (marks is None or (node, 0) in marks):
                _accumulate(node, slots)
            return
        if not goes_on:
            return
        if node.pre_hooks:
            for hook in list(node.pre_hooks.values()):
                made = hook(tuple(slots))
                slots = slots if made is None else _listed(made)
        out = node.apply(slots) if node.trace is None else _explained(node, slots)
        if node.post_hooks:
            for hook in list(node.post_hooks.values()):
                made = hook(tuple(out), tuple(slots))
                out = out if made is None else _listed(made)
        if STATE.anomaly and STATE.check_nan:
            _check_nan(node, out)
        if not self.keep:
            node.release()
        slots.clear()
        for i, edge in enumerate(node.edges):
            g = out[i]
            if edge is not None and g is not None and (
                    marks is None or edge[0] in self.needed or edge in marks):
                out[i] = None
                self.add(*edge, g)

    def _mark(self, node: Node, slots: list[Tensor | None], marks: set[tuple[Node, int]]) -> None:
        for i, g in enumerate(slots):
            if (node, i) in marks:
                self.found[node, i] = g


def _whole(node: Node, slots: list[Tensor | None], marks: Any) -> list[Tensor | None]:
    """The gradients, with what goes past a result where somebody is to see that result's."""
    shown = list(slots)
    for index, made in node.inner.items():
        ref = (node.retain or {}).get(index)
        if any(slots[n] is not None for n in made) and (
                (node, index) in (marks or ()) or (node.tensor_hooks or {}).get(index)
                or (ref is not None and ref() is not None)):
            shown[index] = node.total(slots, index)
    return shown


def _wanted(t: Tensor, accumulate: bool) -> tuple[Node, int]:
    if accumulate:
        retain_grad(t)
    edge = edge_of(t)
    if edge is None:
        raise RuntimeError("One of the differentiated Tensors does not require grad")
    watch(edge[0])
    return edge


def _listed(made: Any) -> list[Any]:
    return list(made) if isinstance(made, (tuple, list)) else [made]


def _explained(node: Node, slots: list[Tensor | None]) -> list[Tensor | None]:
    """Runs a node that remembers its call; an error comes with that call's place."""
    try:
        return node.apply(slots)
    except Exception:
        warnings.warn(f"Error detected in {node.name()}. Traceback of forward call that caused the "
                      f"error:\n{node.trace}", UserWarning, stacklevel=2)
        raise


def _check_nan(node: Node, out: list[Tensor | None]) -> None:
    for i, g in enumerate(out):
        if g is not None and g.dtype.is_floating_point and STATE.tracer is None and bool(
                Tensor.F.any(Tensor.F.isnan(g))._array):
            if node.trace:
                warnings.warn(f"Error detected in {node.name()}. Traceback of forward call that "
                              f"caused the error:\n{node.trace}", UserWarning, stacklevel=2)
            raise RuntimeError(f"Function '{node.name()}' returned nan values in its {i}th output.")


def _run_tensor_hooks(node: Node, shown: list[Tensor | None], slots: list[Tensor | None]) -> None:
    """`shown`: what hooks see; `slots`: what they may replace."""
    for index, table in (node.tensor_hooks or {}).items():
        for hook in list(table.values()):
            g = shown[index]
            if g is not None:
                made = hook(g)
                if made is not None:
                    if g is not slots[index]:
                        raise RuntimeError(PAST)
                    shown[index] = slots[index] = _replacement(made, g, hook)
    for index, ref in (node.retain or {}).items():
        t, g = ref(), shown[index]
        if t is not None and g is not None:
            have = t._autograd().grad
            t._set_grad(g if have is None else plus(have, g))


def _replacement(made: Any, g: Tensor, hook: Any) -> Tensor:
    name = getattr(hook, "__name__", type(hook).__name__)
    if not isinstance(made, Tensor):
        raise TypeError(f"hook '{name}' returned '{type(made).__name__}', expected a Tensor")
    if made._shape != g._shape:
        raise RuntimeError(f"hook '{name}' has changed the size of value: from {list(g._shape)} to "
                           f"{list(made._shape)}")
    if made.dtype is not g.dtype:
        raise RuntimeError(f"hook '{name}' has changed the type of value: from {g.dtype} to "
                           f"{made.dtype}")
    return made


def _reaching(pending: Any, marks: set[tuple[Node, int]]) -> set[Node]:
    """The nodes from which some mark can be reached."""
    order: list[Node] = []
    seen: set[Node] = set(pending)
    stack = list(pending)
    while stack:
        node = stack.pop()
        order.append(node)
        for e in node.edges:
            if e is not None and e[0] not in seen:
                seen.add(e[0])
                stack.append(e[0])
    order.sort(key=lambda n: n.number)
    needed: set[Node] = set()
    for node in order:
        if any(e is not None and (e in marks or e[0] in needed) for e in node.edges) or any(
                (node, i) in marks for i in node.inner):
            needed.add(node)
    return needed


def _seed(i: int, t: Any, g: Any) -> tuple[Any, Tensor]:
    """The edge of a root and the gradient that starts there."""
    if not isinstance(t, Tensor):
        raise TypeError(f"element {i} of tensors is a {type(t).__name__}, not a Tensor")
    edge = edge_of(t)
    if edge is None:
        raise RuntimeError(f"element {i} of tensors does not require grad and does not have a "
                           "grad_fn")
    if g is None:
        if t.numel() != 1:
            raise RuntimeError("grad can be implicitly created only for scalar outputs")
        if not t.dtype.is_floating_point:
            raise RuntimeError("grad can be implicitly created only for real scalar outputs but "
                               f"got {t.dtype}")
        return edge, Tensor.F.ones_like(t)
    if not isinstance(g, Tensor):
        raise TypeError(f"gradients can be either Tensors or None, but got {type(g).__name__}")
    if tuple(g._shape) != tuple(t._shape):
        raise RuntimeError(f"Mismatch in shape: grad_output[{i}] has a shape of {g.shape} and "
                           f"output[{i}] has a shape of {t.shape}.")
    if g.dtype is not t.dtype:
        g = Tensor.F.to_dtype(g, t.dtype)
    return edge, g


def plus(have: Tensor, g: Tensor) -> Tensor:
    """The sum of two gradients; a sparse one brings its own."""
    if have.is_sparse or g.is_sparse:
        return have + g  # type: ignore[no-any-return]
    return Tensor.F.add(have, g)  # type: ignore[no-any-return]


def _accumulate(node: Accumulate, slots: list[Any]) -> None:
    """Adds the gradient in `slots` (its last reference) to a leaf's `.grad`."""
    if slots[0] is None:
        return
    t = node.variable
    meta = t._autograd()
    have = meta.grad
    if slots[0].is_sparse or have is not None and have.is_sparse:
        meta.grad = slots[0] if have is None else plus(have, slots[0])
    elif have is None:
        alone = not STATE.grad and is_alone(slots)
        g = slots[0]
        if STATE.grad:
            made = Tensor.F.clone(g)
        elif (alone and g._strides == t._strides and g._view is None
              and layout.is_dense(g._shape, g._strides)):
            made = g
        else:
            made = laid_like(g, t)
        t._set_grad(alias(made) if made._meta is not None and not STATE.grad else made)
    elif STATE.grad:
        meta.grad = Tensor.F.add(have, slots[0])
    else:
        have.add_(slots[0])
    if meta.post_hooks:
        for hook in list(meta.post_hooks.values()):
            hook(t)


def laid_like(g: Tensor, t: Tensor) -> Tensor:
    """A copy of `g` with the strides of `t` where these are dense, row-major otherwise."""
    made = laid(g, t._strides)
    if made is g or made._storage is g._storage:
        made = Tensor.F.clone(g)
    return alias(made)


def is_alone(slots: list[Any]) -> bool:
    """Whether nobody else holds the tensor in `slots`, nor its storage."""
    return (sys.getrefcount(slots[0]) <= ALONE[0]
            and sys.getrefcount(slots[0]._storage) <= ALONE[1])


def _alone() -> tuple[int, int]:
    """The reference counts of a tensor that nobody else holds."""
    slots = [Tensor._make(Storage(None), float32, (), ())]
    return sys.getrefcount(slots[0]), sys.getrefcount(slots[0]._storage)


ALONE = _alone()
