"""The tape: nodes recorded by the dispatcher, and the engine that walks them back.

A node's gradient rule is its op's `vjp`, written over ops, so a recorded backward pass is itself
differentiable and a captured one is just more graph. Nodes carry a running number; every consumer of a result
has a higher number than its producer, so a heap by descending number visits them in a valid order without
recursion and without counting dependencies.
"""

from __future__ import annotations

import heapq
import itertools
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from lehr.base.device import Device
from lehr.base.dtype import DType
from lehr.ops.expand import pullback
from lehr.ops.registry import Op
from lehr.tensor.state import STATE
from lehr.tensor.tensor import Meta, Tensor

_numbers = itertools.count()


class Described(NamedTuple):
    """What a rule may read of a tensor whose value was not saved."""

    shape: tuple[Any, ...]
    dtype: DType
    device: Device

    @property
    def ndim(self) -> int:
        return len(self.shape)


class Saved:
    """A tensor kept for backward, with the storage version it had.

    An output is kept without its `grad_fn` (that would be a cycle) and gets it back when read.
    """

    __slots__ = ("index", "is_output", "packed", "tensor", "unpack", "version")

    def __init__(self, tensor: Tensor, is_output: bool) -> None:
        self.version, self.is_output = tensor._storage.version, is_output
        self.index = tensor._meta.index if is_output and tensor._meta is not None else 0
        self.unpack: Callable[[Any], Tensor] | None = None
        self.tensor: Tensor | None = alias(tensor) if is_output else tensor
        if STATE.saved:
            pack, self.unpack = STATE.saved[-1]
            self.packed, self.tensor = pack(tensor.detach() if is_output else tensor), None

    def read(self, node: Node) -> Tensor:
        if self.unpack is not None:
            return self.unpack(self.packed)
        t = self.tensor
        assert t is not None
        if t._storage.version != self.version:
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace "
                f"operation: [torch.{t.dtype.name} {list(t._shape)}], saved by {node.name()}, is at version "
                f"{t._storage.version}; expected version {self.version} instead. Hint: enable anomaly "
                "detection to find the operation that failed to compute its gradient, with "
                "torch.autograd.set_detect_anomaly(True).")
        if self.is_output:
            t = alias(t)
            meta = t._autograd()
            meta.grad_fn, meta.index = node, self.index
        return t


def alias(t: Tensor) -> Tensor:
    """Another tensor object on the same memory, without history."""
    out = Tensor._make(t._storage, t.dtype, t._shape, t._strides, t._offset)
    out._np = t._np
    return out


Edge = tuple["Node", int] | None


class Node:
    """One recorded operation. `edges` has one entry per tensor argument: (producer, result index) or None."""

    __slots__ = ("__weakref__", "args", "count", "edges", "extra", "inputs", "number", "op", "out",
                 "post_hooks", "pre_hooks", "spread", "tensor_hooks", "trace")

    def __init__(self, op: Any, edges: list[Edge], count: int) -> None:
        self.op, self.edges, self.count = op, edges, count
        self.number = next(_numbers)
        self.args: Any = None                    # bound arguments with Saved / Described; None once released
        self.out: Any = None
        self.inputs: list[Described] = []        # of each edge
        self.spread: tuple[tuple[int, int], ...] = ()   # per tensor parameter: (slot, how many; -1 for one)
        self.tensor_hooks: dict[int, Any] | None = None  # result index -> {id: hook}
        self.pre_hooks: dict[int, Any] | None = None
        self.post_hooks: dict[int, Any] | None = None
        self.trace: str | None = None
        self.extra: Any = None

    def name(self) -> str:
        base = "".join(w.capitalize() for w in self.op.name.split("_"))
        return f"{base}Backward0"

    def __repr__(self) -> str:
        return f"<{self.name()} object at {id(self):#x}>"

    @property
    def next_functions(self) -> tuple[tuple[Any, int], ...]:
        return tuple(e if e is not None else (None, 0) for e in self.edges)

    def apply(self, grads: list[Tensor | None]) -> list[Tensor | None]:
        """The gradients of the inputs, one per edge."""
        if self.args is None:
            raise RuntimeError(
                "Trying to backward through the graph a second time (or directly access saved tensors after "
                "they have already been freed). Saved intermediate values of the graph are freed when you "
                "call .backward() or autograd.grad(). Specify retain_graph=True if you need to backward "
                "through the graph a second time or if you need to access saved tensors after calling "
                "backward.")
        args = [_unpack(a, self) for a in self.args]
        g: Any = grads[0] if self.extra is None else tuple(grads)
        made = pullback(Tensor.F, self.op, g, _unpack(self.out, self), tuple(args))
        if type(made) is not tuple and len(self.spread) == 1:
            made = (made,)
        flat: list[Any] = []
        for (_, many), m in zip(self.spread, made, strict=True):
            if many < 0:
                flat.append(m)
            else:
                flat.extend(_listed(m, many, self.edges, len(flat)))
        return [None if e is None else _fit(m, want)
                for e, m, want in zip(self.edges, flat, self.inputs, strict=True)]

    def release(self) -> None:
        self.args = self.out = None

    # hooks, as PyTorch names them
    def register_hook(self, hook: Callable[..., Any]) -> Handle:
        self.post_hooks = {} if self.post_hooks is None else self.post_hooks
        return Handle(self.post_hooks, hook)

    def register_prehook(self, hook: Callable[..., Any]) -> Handle:
        self.pre_hooks = {} if self.pre_hooks is None else self.pre_hooks
        return Handle(self.pre_hooks, hook)


def _listed(made: Any, many: int, edges: list[Edge], start: int) -> Sequence[Any]:
    if callable(made) and not isinstance(made, Tensor):
        made = made() if any(edges[start:start + many]) else None
    return [None] * many if made is None else made


def _unpack(a: Any, node: Node) -> Any:
    if type(a) is Saved:
        return a.read(node)
    if type(a) in (list, tuple):
        return type(a)([_unpack(x, node) for x in a])
    return a


def _fit(g: Any, want: Described) -> Tensor | None:
    """Evaluates a lazy gradient; sums over broadcast dimensions, casts to the input's dtype."""
    if g is None:
        return None
    if not isinstance(g, Tensor):
        g = g()
        if g is None:
            return None
    if g._shape != want.shape:
        g = sum_to(g, want.shape)
    if g.dtype is not want.dtype:
        g = Tensor.F.to_dtype(g, want.dtype)
    return g  # type: ignore[no-any-return]


def sum_to(g: Any, shape: tuple[Any, ...]) -> Any:
    """`g` summed over the dimensions that broadcasting added or widened to reach it from `shape`."""
    gap = len(g.shape) - len(shape)
    if gap < 0 or any(s != 1 and s != g.shape[gap + i] for i, s in enumerate(shape)):
        if g.numel() == 1 or gap < 0:
            return Tensor.F.expand(g, list(shape))
        raise RuntimeError(f"a gradient of shape {list(g.shape)} does not fit an input of {list(shape)}")
    dims = [*range(gap), *(gap + i for i, s in enumerate(shape) if s == 1 and g.shape[gap + i] != 1)]
    g = Tensor.F.sum(g, dims, True) if dims else g
    return Tensor.F.view(g, list(shape)) if gap else g


class Handle:
    """Removes a hook."""

    _ids = itertools.count()

    def __init__(self, table: dict[int, Any], hook: Any) -> None:
        self.table, self.id = table, next(Handle._ids)
        table[self.id] = hook

    def remove(self) -> None:
        self.table.pop(self.id, None)

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.remove()


class Accumulate(Node):
    """The end of the tape at a leaf: adds to its `.grad`."""

    __slots__ = ("variable",)

    def __init__(self, variable: Tensor) -> None:
        super().__init__(None, [], 1)
        self.variable = variable

    def name(self) -> str:
        return "AccumulateGrad"


def edge_of(t: Tensor) -> Edge:
    """Where the gradient of `t` goes, or None."""
    fn = t.grad_fn
    meta = t._meta
    if fn is not None:
        assert meta is not None
        return fn, meta.index
    if meta is None or not meta.requires_grad:
        return None
    node = meta.accumulate() if meta.accumulate is not None else None
    if node is None:
        node = Accumulate(t)
        meta.accumulate = weakref.ref(node)
    return node, 0


def record(op: Op, args: tuple[Any, ...], out: Any) -> None:
    """Puts `out = op(*args)` on the tape."""
    outs = out if isinstance(out, tuple) else (out,)
    edges: list[Edge] = []
    inputs: list[Described] = []
    saves = op.saves
    kept = list(args)
    spread = []
    for i in op.signature.tensor_slots:
        a, how = args[i], saves[op.params[i].name]
        if type(a) in (list, tuple):
            spread.append((i, len(a)))
            kept[i] = type(a)([_keep(x, how) for x in a])
            for x in a:
                _edge(edges, inputs, x)
        else:
            spread.append((i, -1))
            kept[i] = _keep(a, how)
            _edge(edges, inputs, a)
    node = Node(op, edges, len(outs))  # after its edges: a new leaf's node gets the lower number
    node.extra = 0 if isinstance(out, tuple) else None
    node.inputs, node.spread, node.args = inputs, tuple(spread), kept
    skip = op.nondiff if isinstance(op.nondiff, tuple) else ()
    for i, t in enumerate(outs):
        if i in skip or not (t.dtype.is_floating_point or t.dtype.is_complex):
            continue
        meta = t._autograd()
        meta.grad_fn, meta.index = node, i
        meta.edge_version = t._storage.version
    how = saves["out"]
    if how == "value":
        made = tuple([Saved(t, True) for t in outs])
        node.out = made if isinstance(out, tuple) else made[0]
    elif how == "meta":
        described = tuple([Described(t._shape, t.dtype, t.device) for t in outs])
        node.out = described if isinstance(out, tuple) else described[0]
    if STATE.anomaly:
        import traceback
        node.trace = "".join(traceback.format_stack()[:-3])


def _keep(a: Any, how: str) -> Any:
    if not isinstance(a, Tensor):
        return a
    if how == "value":
        return Saved(a, False)
    return Described(a._shape, a.dtype, a.device)


def _edge(edges: list[Edge], inputs: list[Described], a: Any) -> None:
    if isinstance(a, Tensor) and (a._meta is not None or a._view is not None):
        edges.append(edge_of(a))
        inputs.append(Described(a._shape, a.dtype, a.device))
    else:
        edges.append(None)
        inputs.append(_NOWHERE)


_NOWHERE = Described((), None, None)  # type: ignore[arg-type]


# -- in-place writes -----------------------------------------------------------------------------------------


def apply_chain(F: Any, base: Any, chain: Sequence[tuple[Op, tuple[Any, ...]]]) -> Any:
    """The view of `base` that the chain describes."""
    for op, rest in chain:
        base = F._interpret(op, (base, *rest))
    return base


def write_chain(F: Any, base: Any, chain: Sequence[tuple[Op, tuple[Any, ...]]], value: Any) -> Any:
    """`base` with the elements that the chain views replaced by `value`."""
    (op, rest), *more = chain
    if op.inverse is None:
        raise RuntimeError(f"cannot write through a view made by {op.name}; clone() it first")
    if more:
        value = write_chain(F, F._interpret(op, (base, *rest)), more, value)
    return op.inverse(F, base, value, *rest)


class CopySlices(Node):
    """The history of a base after a write through a view: (old base, written value) -> new base."""

    __slots__ = ()

    def name(self) -> str:
        return "CopySlices"

    def apply(self, grads: list[Tensor | None]) -> list[Tensor | None]:
        g, chain = grads[0], self.extra
        assert g is not None
        seen = apply_chain(Tensor.F, g, chain)
        zeros = Tensor.F.zeros_like(seen)
        return [write_chain(Tensor.F, g, chain, zeros) if self.edges[0] is not None else None,
                _fit(seen, self.inputs[1])]

    def release(self) -> None:
        pass


class AsView(Node):
    """The history of a view of a base that was written in place: the chain's gradient, step by step."""

    __slots__ = ()

    def name(self) -> str:
        return "AsStridedBackward0"

    def apply(self, grads: list[Tensor | None]) -> list[Tensor | None]:
        g: Any = grads[0]
        for op, rest, seen in reversed(self.extra):
            g = op.vjp(Tensor.F, g, None, seen, *rest)
            g = g[0] if isinstance(g, tuple) else g
            g = _fit(g, seen)
        return [g]

    def release(self) -> None:
        pass


def rebase(target: Tensor, value: Tensor) -> None:
    """After `target` was overwritten by `value`: the target's history, and its base's, become the value's."""
    version = target._storage.version
    view = target._view
    edge = edge_of(value)
    described = Described(value._shape, value.dtype, value.device)
    if view is not None and view.mode == "grad":
        root = view.root
        meta = root._autograd()
        node = CopySlices(None, [edge_of(root), edge], 1)
        node.inputs = [Described(root._shape, root.dtype, root.device), described]
        node.extra = view.chain
        meta.grad_fn, meta.index, meta.rebased, meta.requires_grad = node, 0, version, False
        return
    meta = target._autograd()
    assert edge is not None
    meta.grad_fn, meta.index = edge
    meta.rebased = meta.edge_version = version
    meta.requires_grad = False


def _rebased_view(t: Tensor) -> None:
    view = t._view
    assert view is not None
    root = view.root
    node = AsView(None, [edge_of(root)], 1)
    seen: Any = alias(root)
    steps = []
    for op, rest in view.chain:
        steps.append((op, rest, Described(seen._shape, seen.dtype, seen.device)))
        shape, strides, offset = op.layout(seen, *rest)  # type: ignore[misc]
        seen = Tensor._make(seen._storage, seen.dtype, tuple(shape), tuple(strides), offset)
    node.extra = tuple(steps)
    node.inputs = [Described(root._shape, root.dtype, root.device)]
    meta = t._autograd()
    meta.grad_fn, meta.index, meta.edge_version = node, 0, t._storage.version
    meta.requires_grad = False


Tensor.rebased_view = staticmethod(_rebased_view)


# -- the engine ----------------------------------------------------------------------------------------------


def run_backward(roots: Sequence[Tensor], grads: Sequence[Tensor | None], keep: bool, create: bool,
                 inputs: Sequence[Tensor] | None, accumulate: bool,
                 allow_unused: bool = True) -> tuple[Tensor | None, ...]:
    """Walks the tape from `roots`.

    keep: retain saved values; create: record the walk; inputs: leave `.grad` of everything else alone;
    accumulate: add to `.grad` (else return the gradients of `inputs`).
    """
    pending: dict[Node, list[Tensor | None]] = {}
    heap: list[tuple[int, int, Node]] = []

    def add(node: Node, index: int, g: Tensor) -> None:
        slots = pending.get(node)
        if slots is None:
            slots = pending[node] = [None] * node.count
            heapq.heappush(heap, (-node.number, id(node), node))
        have = slots[index]
        slots[index] = g if have is None else Tensor.F.add(have, g)

    before, STATE.grad = STATE.grad, create
    autocast, STATE.autocast = STATE.autocast, None
    try:
        for t, g in zip(roots, grads, strict=True):
            edge = edge_of(t)
            if edge is None:
                raise RuntimeError("element 0 of tensors does not require grad and does not have a grad_fn")
            add(*edge, _seed(t, g))
        wanted = None if inputs is None else [edge_of(t) for t in inputs]
        needed = None if wanted is None else _reaching(pending, wanted)
        found: dict[tuple[Node, int], Tensor | None] = {}
        marks = set() if wanted is None else {e for e in wanted if e is not None}
        while heap:
            node = heapq.heappop(heap)[2]
            slots = pending.pop(node)
            _step(node, slots, needed, marks, found, keep, accumulate, add)
    finally:
        STATE.grad, STATE.autocast = before, autocast
    if wanted is None:
        return ()
    out = tuple(found.get(e) if e is not None else None for e in wanted)
    if not allow_unused and any(o is None for o in out):
        raise RuntimeError("One of the differentiated Tensors appears to not have been used in the graph. Set "
                           "allow_unused=True if this is the desired behavior.")
    return out


def _step(node: Node, slots: list[Tensor | None], needed: Any, marks: Any, found: Any, keep: bool,
          accumulate: bool, add: Callable[[Node, int, Tensor], None]) -> None:
    """One node of the walk: hooks, the gradient rule, and where its results go."""
    _run_tensor_hooks(node, slots)
    for i, g in enumerate(slots):
        if (node, i) in marks:
            found[node, i] = g
    if type(node) is Accumulate:
        if accumulate and (needed is None or (node, 0) in marks):
            _accumulate(node, slots[0])
        return
    if needed is not None and node not in needed:
        return
    if node.pre_hooks:
        for hook in list(node.pre_hooks.values()):
            made = hook(tuple(slots))
            slots = slots if made is None else list(made)
    out = node.apply(slots)
    if node.post_hooks:
        for hook in list(node.post_hooks.values()):
            made = hook(tuple(out), tuple(slots))
            out = out if made is None else list(made)
    if STATE.anomaly:
        _check_anomaly(node, out)
    if not keep:
        node.release()
    for edge, g in zip(node.edges, out, strict=True):
        if edge is not None and g is not None and (needed is None or edge[0] in needed
                                                   or edge in marks):
            add(*edge, g)


def _check_anomaly(node: Node, out: list[Tensor | None]) -> None:
    for i, g in enumerate(out):
        if g is not None and g.dtype.is_floating_point and STATE.tracer is None and bool(
                Tensor.F.any(Tensor.F.isnan(g))._array):
            where = f"\nTraceback of forward call:\n{node.trace}" if node.trace else ""
            raise RuntimeError(f"Function '{node.name()}' returned nan values in its {i}th output.{where}")


def _run_tensor_hooks(node: Node, slots: list[Tensor | None]) -> None:
    if node.tensor_hooks:
        for index, table in node.tensor_hooks.items():
            for hook in list(table.values()):
                g = slots[index]
                if g is not None:
                    made = hook(g)
                    slots[index] = g if made is None else made


def _reaching(pending: Any, wanted: list[Edge]) -> set[Node]:
    """The nodes from which some wanted edge can be reached."""
    targets = {e[0] for e in wanted if e is not None}
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
        if any(e is not None and (e in wanted or e[0] in needed) for e in node.edges):
            needed.add(node)
    return needed | {t for t in targets if type(t) is Accumulate}


def _seed(t: Tensor, g: Tensor | None) -> Tensor:
    if g is None:
        if t.numel() != 1:
            raise RuntimeError("grad can be implicitly created only for scalar outputs")
        if not t.dtype.is_floating_point and not t.dtype.is_complex:
            raise RuntimeError("grad can be computed only for real scalar outputs but got "
                               f"{t.dtype}")
        return Tensor.F.ones_like(t)  # type: ignore[no-any-return]
    if tuple(g._shape) != tuple(t._shape):
        raise RuntimeError(f"Mismatch in shape: grad_output[0] has a shape of {g.shape} and output[0] has a "
                           f"shape of {t.shape}.")
    g._storage.owned = True
    return g


def _accumulate(node: Accumulate, g: Tensor | None) -> None:
    if g is None:
        return
    t = node.variable
    meta = t._autograd()
    have = meta.grad
    if have is None:
        if STATE.grad:
            meta.grad = g
        else:
            free = not g._storage.owned and g._view is None and g._strides == t._strides
            made = g if free else _copy_like(g, t)
            made._storage.owned = True
            meta.grad = alias(made) if made._meta is not None else made
    elif STATE.grad:
        meta.grad = Tensor.F.add(have, g)
    else:
        have.add_(g)
    if meta.post_hooks:
        for hook in list(meta.post_hooks.values()):
            hook(t)


def _copy_like(g: Tensor, t: Tensor) -> Tensor:
    out = Tensor.F.clone(g)
    return alias(out)


def meta_of(t: Tensor) -> Meta:
    return t._autograd()
