"""The tape's nodes, and how a call gets on the tape.

A node's gradient rule is its op's `vjp`, written over ops, so a recorded backward pass is itself
differentiable and a captured one is just more graph.
"""

from __future__ import annotations

import itertools
import traceback
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from lehr.base.device import Device
from lehr.base.dtype import DType
from lehr.ops.expand import pullback
from lehr.ops.registry import Op
from lehr.ops.saving import RESULT, reads_for, unread
from lehr.tensor.hook import Handle
from lehr.tensor.state import STATE
from lehr.tensor.tensor import Tensor

_numbers = itertools.count()


class Described(NamedTuple):
    """What a rule may read of a tensor whose value was not saved."""

    shape: tuple[Any, ...]
    dtype: DType
    device: Device
    is_description: bool = True

    @property
    def ndim(self) -> int:
        return len(self.shape)


FREED = ("Trying to backward through the graph a second time (or directly access saved tensors "
         "after they have already been freed). Saved intermediate values of the graph are freed "
         "when you call .backward() or autograd.grad(). Specify retain_graph=True if you need to "
         "backward through the graph a second time or if you need to access saved tensors after "
         "calling backward.")


class Saved:
    """A tensor kept for backward, with the storage version it had.

    A node's own output is kept without its `grad_fn` (that would be a cycle) and gets it back when
    read.
    """

    __slots__ = ("edge", "index", "is_output", "packed", "tensor", "unpack", "version")

    def __init__(self, tensor: Tensor, is_output: bool) -> None:
        self.edge: Edge = None      # what a tensor that hooks made stands for in the graph
        storage = tensor._storage
        if storage.inference:
            raise RuntimeError(
                "Inference tensors cannot be saved for backward. Please do not use Tensors created "
                "in inference mode in computation tracked by autograd. To work around this, you "
                "can make a clone to get a normal tensor and use it in autograd, or use "
                "`torch.no_grad()` instead of `torch.inference_mode()`.")
        self.version, self.is_output = storage.version, is_output
        self.index = tensor._meta.index if is_output and tensor._meta is not None else 0
        self.unpack: Callable[[Any], Tensor] | None = None
        self.packed: Any = None
        self.tensor: Tensor | None = alias(tensor) if is_output else tensor
        if STATE.saved:
            pack, unpack = STATE.saved[-1]
            self.hook(pack, unpack)

    def hook(self, pack: Callable[[Any], Any], unpack: Callable[[Any], Any]) -> None:
        """Keeps what `pack` makes of the tensor instead of the tensor."""
        if self.unpack is not None:
            raise RuntimeError("register_hooks on a saved tensor that hooks were already "
                               "registered on")
        tensor, before = self.tensor, STATE.grad
        STATE.grad = False
        try:
            assert tensor is not None
            self.packed = pack(tensor.detach() if self.is_output else tensor)
        finally:
            STATE.grad = before
        if not self.is_output and tensor is not None and tensor.requires_grad:
            self.edge = edge_of(tensor)
        self.unpack, self.tensor = unpack, None

    def read(self, node: Node) -> Tensor:
        if self.unpack is not None:
            t = self.unpack(self.packed)
            if not isinstance(t, Tensor):
                raise TypeError("Output of saved tensor unpack_hook expected to be a Tensor but "
                                f"got result of type {type(t).__name__}")
            edge = (node, self.index) if self.is_output else self.edge
            if edge is not None and not t.requires_grad:
                t = alias(t)
                t._autograd().grad_fn, t._autograd().index = edge
            return t
        t = self.tensor  # type: ignore[assignment]
        assert t is not None
        if t._storage.version != self.version:
            raise RuntimeError(self._stale(t, node))
        if self.is_output:
            t = alias(t)
            meta = t._autograd()
            meta.grad_fn, meta.index = node, self.index
        return t

    def _stale(self, t: Tensor, node: Node) -> str:
        fn = node if self.is_output else t.grad_fn
        source = "" if fn is None else (f", which is output {t._meta.index if t._meta else 0} of "
                                        f"{fn.name()},")
        return stale(t, t._storage.version, self.version, source)


def stale(t: Tensor, version: int, expected: int, source: str = "") -> str:
    """What backward says of a tensor that it needs and that has been written since."""
    hint = ("Hint: the backtrace further above shows the operation that failed to compute its "
            "gradient. The variable in question was changed in there or anywhere later. Good "
            "luck!" if STATE.anomaly else
            "Hint: enable anomaly detection to find the operation that failed to compute its "
            "gradient, with torch.autograd.set_detect_anomaly(True).")
    return ("one of the variables needed for gradient computation has been modified by an "
            f"inplace operation: [torch.{t.dtype.name} {list(t._shape)}]{source} is at version "
            f"{version}; expected version {expected} instead. {hint}")


def alias(t: Tensor) -> Tensor:
    """Another tensor object on the same memory, without history."""
    out = Tensor._make(t._storage, t.dtype, t._shape, t._strides, t._offset)
    out._np, out._key = t._np, t._key
    if t._storage.trace is not None and t._view is not None:
        out._view = t._view.detached()
    return out


Edge = tuple["Node", int] | None


NOTHING: Mapping[int, Any] = {}


class Node:
    """One recorded operation. `edges`: (producer, result index) or None for each tensor argument.

    A node's number is higher than that of every producer it draws on.
    """

    __slots__ = ("__weakref__", "args", "count", "edges", "extra", "inputs", "metadata_", "number",
                 "op", "out", "passed", "post_hooks", "pre_hooks", "retain", "spread",
                 "tensor_hooks", "trace")

    # Result -> results that were made from it inside the node: they take its gradient past it.
    inner: Mapping[int, Any] = NOTHING

    def __init__(self, op: Any, edges: list[Edge], count: int) -> None:
        self.op, self.edges, self.count = op, edges, count
        self.number = next(_numbers)
        self.args: Any = None                    # bound arguments with Saved / Described
        self.out: Any = None
        self.inputs: list[Described] = []        # of each edge
        self.spread: tuple[tuple[int, int], ...] = ()   # per parameter: (slot, how many; -1: one)
        self.tensor_hooks: dict[int, Any] | None = None  # result index -> {id: hook}
        self.retain: dict[int, Any] | None = None  # result index -> weak reference to its tensor
        self.pre_hooks: dict[int, Any] | None = None
        self.post_hooks: dict[int, Any] | None = None
        self.metadata_: dict[Any, Any] | None = None
        self.trace: str | None = traced() if STATE.anomaly else None
        self.extra: Any = None

    def name(self) -> str:
        """The node's name, as the tape prints it."""
        base = "".join(w.capitalize() for w in self.op.api.split("_"))
        return f"{base}Backward0"

    @property
    def label(self) -> str:
        """The last part of the name."""
        return self.name().rpartition(":")[2]

    def __repr__(self) -> str:
        return f"<{self.label} object at {id(self):#x}>"

    @property
    def next_functions(self) -> tuple[tuple[Any, int], ...]:
        """(producer, result index) of each tensor argument."""
        return tuple(e if e is not None else (None, 0) for e in self.edges)

    @property
    def metadata(self) -> dict[Any, Any]:
        """For the user's own notes."""
        if self.metadata_ is None:
            self.metadata_ = {}
        return self.metadata_

    def _sequence_nr(self) -> int:
        return self.number

    def ahead(self, index: int) -> list[Edge] | None:
        """Where a gradient of this result goes; None where that is not known."""
        return self.edges

    def apply(self, grads: list[Tensor | None]) -> list[Tensor | None]:
        """The gradients of the inputs, one per edge."""
        if self.args is None:
            raise RuntimeError(FREED)
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
        return [None if e is None else fit(m, want)
                for e, m, want in zip(self.edges, flat, self.inputs, strict=True)]

    def keeps(self) -> bool:
        """Whether there are saved values, without which it cannot be walked."""
        return self.args is not None and (_has_saved(self.args) or _has_saved((self.out,)))

    def release(self) -> None:
        """Forgets the saved values; a node without any can be walked again."""
        if self.keeps():
            self.args = self.out = None

    def total(self, grads: list[Tensor | None], result: int) -> Tensor | None:
        """The gradient of a result in `inner`, with what goes past it."""
        raise NotImplementedError(f"{self.name()} has results that were made from each other and "
                                  "cannot tell their gradients apart")

    def __call__(self, *grads: Tensor | None) -> Any:
        made = self.apply(list(grads))
        return made[0] if len(made) == 1 else tuple(made)

    # hooks, as PyTorch names them
    def register_hook(self, hook: Callable[..., Any]) -> Handle:
        """`hook(grad_inputs, grad_outputs)` runs after the node and may replace `grad_inputs`."""
        self.post_hooks = {} if self.post_hooks is None else self.post_hooks
        return Handle(self.post_hooks, hook)

    def register_prehook(self, hook: Callable[..., Any]) -> Handle:
        """`hook(grad_outputs)` runs before the node and may replace them."""
        self.pre_hooks = {} if self.pre_hooks is None else self.pre_hooks
        return Handle(self.pre_hooks, hook)

    def hooks_of(self, index: int) -> dict[int, Any]:
        """The hooks on one result's gradient."""
        self.tensor_hooks = {} if self.tensor_hooks is None else self.tensor_hooks
        return self.tensor_hooks.setdefault(index, {})


def traced() -> str:
    """Where the call that is being recorded was made."""
    return "".join(traceback.format_stack()[:-4])


def _listed(made: Any, many: int, edges: list[Edge], start: int) -> Sequence[Any]:
    if callable(made) and not isinstance(made, Tensor):
        made = made() if any(edges[start:start + many]) else None
    return [None] * many if made is None else made


def _has_saved(args: Any) -> bool:
    for a in args:
        if type(a) is Saved or type(a) in (list, tuple) and _has_saved(a):
            return True
    return False


def _unpack(a: Any, node: Node) -> Any:
    if type(a) is Saved:
        return a.read(node)
    if type(a) in (list, tuple):
        return type(a)([_unpack(x, node) for x in a])
    return a


def fit(g: Any, want: Described) -> Tensor | None:
    """Evaluates a lazy gradient; sums over broadcast dimensions, casts to the input's dtype."""
    if g is None:
        return None
    if not isinstance(g, Tensor):
        g = g()
        if g is None:
            return None
    # Lengths first: comparing symbolic sizes of shapes that cannot be equal would become guards.
    if len(g._shape) != len(want.shape) or g._shape != want.shape:
        g = sum_to(g, want.shape)
    if g.dtype is not want.dtype:
        if g.dtype.is_complex and not want.dtype.is_complex:
            g = Tensor.F.real(g)
        g = Tensor.F.to_dtype(g, want.dtype) if g.dtype is not want.dtype else g
    return g


def sum_to(g: Any, shape: tuple[Any, ...]) -> Any:
    """`g` summed over the dimensions that broadcasting added to or widened in `shape`."""
    gap = len(g.shape) - len(shape)
    if gap < 0 or any(s != 1 and s != g.shape[gap + i] for i, s in enumerate(shape)):
        if g.numel() == 1 or gap < 0:
            return Tensor.F.expand(g, list(shape))
        raise RuntimeError(f"a gradient of shape {list(g.shape)} does not fit an input of "
                           f"{list(shape)}")
    dims = [*range(gap), *(gap + i for i, s in enumerate(shape)
                           if s == 1 and g.shape[gap + i] != 1)]
    g = Tensor.F.sum(g, dims, True) if dims else g
    return Tensor.F.view(g, list(shape)) if gap else g


class Accumulate(Node):
    """The end of the tape at a leaf: adds to its `.grad`."""

    __slots__ = ("variable",)

    def __init__(self, variable: Tensor) -> None:
        super().__init__(None, [], 1)
        self.variable = variable
        meta = variable._autograd()
        meta.hooks = {} if meta.hooks is None else meta.hooks
        self.tensor_hooks = {0: meta.hooks}

    def name(self) -> str:
        return "torch::autograd::AccumulateGrad"


class Cut(Node):
    """The history of a tensor that was overwritten by something without one."""

    __slots__ = ()

    def name(self) -> str:
        return "CutBackward0"

    def apply(self, grads: list[Tensor | None]) -> list[Tensor | None]:
        return []

    def release(self) -> None:
        pass


def edge_of(t: Tensor) -> Edge:
    """Where the gradient of `t` goes, or None."""
    fn = t.grad_fn
    meta = t._meta
    if fn is not None:
        assert meta is not None
        return fn, meta.index
    if (meta is None or not meta.requires_grad) and not t.requires_grad:
        return None
    meta = t._autograd()
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
    spread, live = [], []
    slots = op.signature.tensor_slots
    for i in slots:
        a = args[i]
        start = len(edges)
        if type(a) in (list, tuple):
            spread.append((i, len(a)))
            for x in a:
                _edge(edges, inputs, x)
            live.append(any(e is not None for e in edges[start:]))
        else:
            spread.append((i, -1))
            _edge(edges, inputs, a)
            live.append(edges[start] is not None)
    saves = reads_for(op, tuple(live))
    kept = list(args)
    for i in slots:
        a, how = args[i], saves[op.params[i].name]
        if type(a) in (list, tuple):
            kept[i] = type(a)([_keep(x, how) for x in a])
        else:
            kept[i] = _keep(a, how)
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
    keep_out(node, out, saves[RESULT])


def keep_out(node: Node, out: Any, how: str) -> None:
    """Saves of the results what the node's rule reads of them."""
    outs = out if isinstance(out, tuple) else (out,)
    if how == "value":
        idle = unread(node.op) if len(outs) > 1 else ()
        made: Iterable[Any] = [Described(t._shape, t.dtype, t.device) if i in idle
                               else Saved(t, True) for i, t in enumerate(outs)]
    elif how == "meta":
        made = [Described(t._shape, t.dtype, t.device) for t in outs]
    else:
        return
    node.out = tuple(made) if isinstance(out, tuple) else next(iter(made))


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
