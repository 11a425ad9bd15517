"""Symbolic tensors: the eager code runs once more, and the ops it calls become a graph.

While a tracer is in force (`STATE.tracer`), every tensor that reaches an op is a *twin*: an
ordinary `Tensor` whose storage holds no memory but a graph value. Layouts, views, versions and the
tape are the eager code's own; only `emit`, `write`, `rng` and `concretize` differ. A storage that
exists outside becomes a `Ref` parameter when it is first read; one that the program makes is a
plain value, replaced when it is written.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from lehr.base import dtype as dt
from lehr.base.sym import Sym
from lehr.compiler.graph.ir import Builder, Location, RefType, ScalarType, TensorType, Value
from lehr.ops import layout, registry
from lehr.ops.registry import Op
from lehr.tensor import autograd, dispatch
from lehr.tensor.node import Node
from lehr.tensor.state import STATE
from lehr.tensor.storage import Storage
from lehr.tensor.tensor import Meta, Tensor

# What arithmetic on run-time numbers means in Python.
PYTHON: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
    "pow": operator.pow, "floor_divide": operator.floordiv, "remainder": operator.mod}


SYMBOLS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "pow": "**", "floor_divide": "//",
           "remainder": "%"}
SMALL, LARGE = 31, 62   # bits of ints that may be inputs, and of those that graphs compute with
GROWTH: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: max(a, b) + 1, "sub": lambda a, b: max(a, b) + 1, "mul": operator.add,
    "pow": lambda a, b: LARGE + 1, "floor_divide": lambda a, b: a, "remainder": lambda a, b: b}
LEAVES, DEPTH = 4, 8    # an expression of numbers longer than this is not kept


def depth(expr: Any) -> int:
    """Number of operations in an expression of numbers."""
    return 1 + depth(expr[1]) + depth(expr[2]) if type(expr) is tuple else 0


def bits_of(name: str, a: Any, b: Any) -> int | None:
    """How large the result of an operation on ints can get; None where it is no int."""
    bits = [n.bits if isinstance(n, SymNumber) else n.bit_length() if isinstance(n, int) else None
            for n in (a, b)]
    if name not in GROWTH or bits[0] is None or bits[1] is None:
        return None
    return GROWTH[name](*bits)  # type: ignore[arg-type]


# What an op does with a number: computes with it, takes it for a size, or has to know it.
SCALAR, SIZE, CONSTANT = range(3)
SIZES = frozenset((
    "size", "shape", "sizes", "input_sizes", "out", "steps", "m", "start", "end", "length",
    "split_size", "split_sizes", "index", "step", "repeats", "pad", "n", "stride", "storage_offset",
    "normalized_shape", "output_size", "diagonal"))


RANGES = frozenset(("arange", "arange_start"))     # their numbers say how long the result is


class NeedsFlat(Exception):
    """A storage is seen through views that no single one covers: capture again with it as a flat
    Ref.
    """

    def __init__(self, storage: Storage) -> None:
        self.storage = storage


class Traced:
    """What a tracer knows of one storage.

    value   the graph value of the root tensor, None before the first read
    ref     the Ref parameter (None: made inside)
    real    the storage outside
    root    (shape, strides, offset, dtype) of the tensor that `value` is
    tensor  the twin that is the root
    """

    __slots__ = ("real", "ref", "root", "tensor", "tracer", "value", "written")

    def __init__(self, tracer: Tracer, value: Value | None, ref: Value | None,
                 real: Storage | None) -> None:
        self.tracer, self.value, self.ref, self.real = tracer, value, ref, real
        self.root: Any = None
        self.tensor: Any = None
        self.written = False


class TwinMeta(Meta):
    """The Meta of a twin: the gradient outside becomes a twin when the program looks at it, not
    before.

    seen  the program has read it; `was` is what it found
    """

    __slots__ = ("_grad", "_hooks", "_post_hooks", "real", "seen", "tracer", "was")

    def __init__(self, tracer: Tracer, real: Any) -> None:
        self.tracer, self.real = tracer, real
        super().__init__()
        self._hooks: Any = OutsideHooks(self, "hooks")
        self._post_hooks: Any = OutsideHooks(self, "post_hooks")
        self._grad: Any = UNSEEN
        self.seen = False
        self.was: Any = None

    @property
    def grad(self) -> Tensor | None:  # type: ignore[override]
        if self._grad is UNSEEN:
            self.seen = True
            self._grad = self.was = self.tracer.grad(self.real)
        return self._grad  # type: ignore[no-any-return]

    @grad.setter
    def grad(self, given: Tensor | None) -> None:
        self._grad = given

    @property
    def hooks(self) -> Any:  # type: ignore[override]
        return self._hooks

    @hooks.setter
    def hooks(self, given: Any) -> None:
        self._hooks = given

    @property
    def post_hooks(self) -> Any:  # type: ignore[override]
        return self._post_hooks

    @post_hooks.setter
    def post_hooks(self, given: Any) -> None:
        self._post_hooks = given

    def forget(self) -> None:
        """Lets go of the tensor outside, once the capture is over."""
        self.real = self.was = None

    @property
    def changed(self) -> bool:
        """Whether the program has left another gradient behind (or has not looked at the one it
        replaced).
        """
        return self._grad is not UNSEEN and not (self.seen and self._grad is self.was)


UNSEEN = object()


class OutsideHooks(dict[int, Any]):
    """The hooks that a leaf outside has, looked at when a backward of the program's reaches it."""

    def __init__(self, meta: TwinMeta, which: str) -> None:
        self.meta, self.which = meta, which

    def __bool__(self) -> bool:
        return bool(self.values())

    def values(self) -> list[Any]:  # type: ignore[override]
        return self.meta.tracer.hooks_of(self.meta.real, self.which)

    def __setitem__(self, key: int, hook: Any) -> None:
        self.meta.tracer.changes(self.meta.real, "hooks", True)


class Outside(Node):
    """The history that a tensor from outside has: the tape of a capture ends there.

    Entries take the gradients that arrive; a backward of the program's own cannot go on.
    """

    __slots__ = ("_edges", "tracer")

    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer
        super().__init__(None, [], 1)

    @property
    def edges(self) -> list[Any]:  # type: ignore[override]
        """Asked for by whoever looks for certain tensors in the history."""
        self.tracer.outside()
        return self._edges

    @edges.setter
    def edges(self, given: list[Any]) -> None:
        self._edges = given

    @property
    def retain(self) -> Any:  # type: ignore[override]
        return None

    @retain.setter
    def retain(self, given: Any) -> None:
        if given is not None:
            self.tracer.changes(None, "retain_grad()", True)

    def hooks_of(self, index: int) -> dict[int, Any]:
        self.tracer.changes(None, "hooks", True)
        return {}

    def name(self) -> str:
        return "OutsideBackward"

    def apply(self, grads: list[Any]) -> list[Any]:
        self.tracer.outside()
        return []


class SymNumber:
    """A number known only at run time: a 0-d float64 or int64 graph value that acts as a Python
    number.

    Arithmetic adds nodes in double precision (or int64), as Python would compute. `hint` is the
    value in the captured call; where the program needs the value itself (a branch, an index), the
    hint is used and every number from outside that it came from (`leaves`: key -> value) becomes a
    constant under a guard. `expr` is how Python would compute it, (symbol, left, right) over keys
    and constants; None where that is too long. `bits` is how large an int can get, None where that
    does not matter.
    """

    __slots__ = ("bits", "expr", "hint", "leaves", "tracer", "value")

    def __init__(self, tracer: Tracer, value: Value, hint: Any, leaves: dict[Any, Any],
                 expr: Any = None, bits: int | None = None) -> None:
        self.tracer, self.value, self.hint, self.leaves = tracer, value, hint, leaves
        self.expr, self.bits = expr, bits

    @property
    def scalar_category(self) -> int:
        return self.value.dtype.category

    def settle(self) -> Any:
        """The value, from now on a constant of this capture."""
        if self.hint is None:
            return self.tracer.concretize("number", self)
        for key, value in self.leaves.items():
            self.tracer.specialise(key, value)
        return self.hint

    def __repr__(self) -> str:
        return f"<number {self.hint}>"

    def __str__(self) -> str:
        return str(self.settle())   # the program's text

    def __bool__(self) -> bool:
        return bool(self.settle())

    def __float__(self) -> float:
        return float(self.settle())

    def __int__(self) -> int:
        return int(self.settle())

    def __index__(self) -> int:
        return int(self.settle())

    __hash__ = None  # type: ignore[assignment]


def _arith(name: str, flip: bool) -> Callable[[Any, Any], Any]:
    def method(self: SymNumber, other: Any) -> Any:
        if isinstance(other, Tensor) or not isinstance(other, (int, float, SymNumber)):
            return NotImplemented
        return self.tracer.arith(name, other, self) if flip else self.tracer.arith(name, self,
                                                                                   other)
    return method


def _compare(name: str) -> Callable[[Any, Any], Any]:
    """A comparison needs the value: it settles both sides."""
    def method(self: SymNumber, other: Any) -> Any:
        if isinstance(other, Tensor) or not isinstance(other, (int, float, SymNumber)):
            return NotImplemented
        theirs = other.settle() if isinstance(other, SymNumber) else other
        return getattr(operator, name)(self.settle(), theirs)
    return method


for _dunder, _op in {"add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "pow": "pow",
                     "floordiv": "floor_divide", "mod": "remainder"}.items():
    setattr(SymNumber, f"__{_dunder}__", _arith(_op, False))
    setattr(SymNumber, f"__r{_dunder}__", _arith(_op, True))
for _dunder in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(SymNumber, f"__{_dunder}__", _compare(_dunder))
SymNumber.__neg__ = lambda self: self * -1  # type: ignore[operator,attr-defined]


def slot(t: Tensor) -> int:
    """What tensors on one memory have in common, whatever versions they count."""
    trace = t._storage.trace
    return id(t._storage if trace is None else trace.tensor._storage)


def lone(t: Tensor) -> bool:
    """Whether a leaf with gradients is a view of a tensor without: what views share that are made
    of it while nothing is recorded is the other's history."""
    base = None if t._view is None else t._view.base
    return base is not None and t.is_leaf and t.requires_grad and not base.requires_grad


class Tracer:
    """One capture's graph and the twins of the tensors it met.

    describe  (tensor) -> name of a real tensor that is met for the first time, or raises a break
    where     () -> the user's current Location
    """

    def __init__(self, name: str, describe: Callable[[Tensor], str] | None = None,
                 where: Callable[[], Location | None] | None = None,
                 flat: frozenset[int] = frozenset()) -> None:
        self.builder = Builder(name)
        self.describe = describe or (lambda t: "t")
        self.where = where or (lambda: None)
        self.flat = flat
        self.twins: dict[int, Tensor] = {}
        self.reals: dict[int, Tensor] = {}              # id(twin) -> the tensor outside
        self.storages: dict[int, Storage] = {}          # id(real storage) -> the twin's storage
        # graph parameter -> Tensor, Generator or number key
        self.inputs: list[tuple[Value, Any]] = []
        self.numbers: dict[Any, SymNumber] = {}
        self.generators: dict[int, list[Any]] = {}
        self._keep: list[Any] = []
        self.ops = 0
        self.choice: Tensor | None = None   # writes happen only where it is true

    # -- the seams the dispatcher uses -------------------------------------------------------------

    def lift(self, op: Op, args: Any) -> Any:
        """Bound arguments with twins in the place of tensors from outside; run-time numbers stay
        only where the op takes a Scalar."""
        params = op.params if op is not None else None

        def kind(i: int) -> int:
            if params is None:
                return CONSTANT
            if op.name in RANGES:
                return SIZE
            return SCALAR if "Scalar" in params[i].types else (
                SIZE if params[i].name in SIZES else CONSTANT)
        return self._lifted(args, kind)

    def _lifted(self, args: Any, kind: Callable[[int], int]) -> Any:
        out = None
        for i, a in enumerate(args):
            if isinstance(a, Tensor):
                made = a if self._is_mine(a) else self.twin(a)
            elif type(a) in (list, tuple):
                made = self._lifted(a, lambda _, i=i: kind(i))  # type: ignore[misc]
            elif type(a) is SymNumber and kind(i) != SCALAR:
                made = self.size_of(a) if kind(i) == SIZE else a.settle()
            elif isinstance(a, Sym) and kind(i) == CONSTANT:
                made = int(a)  # type: ignore[assignment]
            else:
                continue
            if made is not a:
                out = list(args) if out is None else out
                out[i] = made
        if out is None:
            return args
        return out if type(args) is list else tuple(out)

    def _is_mine(self, t: Tensor) -> bool:
        trace = t._storage.trace
        return trace is not None and trace.tracer is self

    def emit(self, op: Op, args: tuple[Any, ...]) -> Any:
        """Adds a node; returns twins in the layout that eager results would have."""
        if op.breaks is not None:
            self.refuse(op)
        self.ops += 1
        builder = self.builder
        builder.location = self.where()
        made = builder.call(op, self.values(args))
        for v in made if isinstance(made, tuple) else (made,):
            if v.type.device.type == "meta":
                self.hollow()
        if isinstance(made, tuple):
            parts = tuple([self.fresh(op, v, args) for v in made])
            return op.signature.named(*parts) if op.signature.named else parts
        return self.fresh(op, made, args)

    def lone(self, twin: Tensor) -> bool:
        """See `lone`; of the tensor outside, whose base need not have a twin."""
        real = self.reals.get(id(twin))
        return real is not None and lone(real)

    def write(self, target: Tensor, value: Tensor) -> None:
        """`target` now holds `value` (same shape and dtype)."""
        target = self.lift(None, (target,))[0]  # type: ignore[arg-type]
        if self.choice is not None:
            held, STATE.grad = STATE.grad, False
            try:
                value = Tensor.F.where(self.choice, value, target)
            finally:
                STATE.grad = held
        trace = target._storage.trace
        self.builder.location = self.where()
        new = self.value(value)
        if trace.ref is not None and overlaps(*trace.root[:2]):
            raise NeedsFlat(trace.real)
        if target._view is not None:
            base = self.value(trace.tensor)
            place = self.place(target, OVERLAPPING)
            F = self.builder.F
            new = (autograd.write_chain(F, base, target._view.chain, new) if place is None else
                   F.as_strided_scatter(base, new, *place))
        trace.value = new
        if trace.ref is not None:
            trace.written = True
            self.builder.call(registry.get("write"), (trace.ref, new))

    def choose(self, condition: Tensor) -> None:
        """See `lehr.tensor.choice`."""
        if self.choice is not None:
            self.concretize("a step inside a step", condition)
        self.choice = condition

    def chosen(self) -> None:
        self.choice = None

    def rng(self, generator: Any, n: int) -> tuple[Any, Any]:
        """(key, offset) of the next `n` counters of a generator, as run-time numbers."""
        if self.choice is not None:
            self.concretize("random numbers in a step that may be skipped", generator)
        entry = self.stream(generator)
        offset = entry[2] if entry[3] == 0 else entry[2] + entry[3]
        entry[3] = entry[3] + n
        return entry[1], offset

    def stream(self, generator: Any) -> list[Any]:
        """Of a generator: the twin of its state, key and counter, how many it gave out since."""
        entry = self.generators.get(id(generator))
        if entry is None:
            twin = self.twin(generator.state_tensor)
            entry = self.generators[id(generator)] = [twin, *self.start(twin)]
            self._keep.append(generator)
        return entry

    def start(self, twin: Tensor) -> tuple[Any, ...]:
        F, read = self.builder.F, self.value(twin)
        return *[SymNumber(self, F.select(read, 0, i), None, {}) for i in (0, 1)], 0

    def rng_state(self, generator: Any) -> Tensor:
        """The state of a generator as bytes."""
        twin = self.advanced(self.stream(generator))
        return Tensor.F.view_dtype(Tensor.F.clone(twin), dt.uint8)  # type: ignore[no-any-return]

    def set_rng_state(self, generator: Any, state: Tensor) -> None:
        """The generator goes on from a state that `rng_state` gave."""
        self.restart(generator, Tensor.F.view_dtype(state, dt.int64))

    def seed_rng(self, generator: Any, seed: int) -> None:
        """The generator starts the stream of a seed, a signed number of 64 bits."""
        F = Tensor.F
        self.restart(generator, F.mul(F.rsub(F.arange(2, dtype=dt.int64), 1), seed))

    def restart(self, generator: Any, state: Tensor) -> None:
        entry = self.stream(generator)
        self.write(entry[0], self.lift(None, (state,))[0])  # type: ignore[arg-type]
        entry[1:] = self.start(entry[0])

    def advanced(self, entry: list[Any]) -> Tensor:
        """The state of a generator, with the counters that it gave out."""
        twin, _, _, used = entry
        if used:
            F, value = self.builder.F, self.value(twin)
            trace = twin._storage.trace
            trace.value = F.add(value, F.mul(F.arange(2, dtype=value.dtype), used))
            trace.written = True
            self.builder.call(registry.get("write"), (trace.ref, trace.value))
            entry[1:] = self.start(twin)
        return twin  # type: ignore[no-any-return]

    def outside(self) -> None:
        """A backward reaches history from outside: a capture built on this class breaks here."""

    def concretize(self, what: str, value: Any) -> Any:
        """The program needs data: a capture built on this class breaks here."""
        raise RuntimeError(f"{what} needs the data of a tensor that is being captured")

    def hooks_of(self, t: Tensor, which: str) -> list[Any]:
        """The hooks of a leaf outside, as a backward of the program's calls them."""
        return list((getattr(t._meta, which) or {}).values())

    def pick(self, t: Tensor, dim: int, index: Tensor) -> Tensor:
        """The slice of `t` at an index that is data, a number: a copy."""
        indices: list[Tensor | None] = [None] * dim
        return Tensor.F.index(t, [*indices, index])  # type: ignore[no-any-return]

    def counted(self, t: Tensor) -> None:
        """The program reads how often the memory of `t` was written."""
        if t._storage.trace.ref is not None:
            raise RuntimeError("the version of an argument is not known while it is captured")

    def is_view(self, t: Tensor) -> bool:
        """Whether `t`, no view in here, is one outside."""
        real = self.reals.get(id(t))
        return real is not None and real._view is not None and real._view.base is not None

    def memory(self, t: Tensor, last: Any) -> Any:
        """How many elements of its dtype the storage of `t` has; NeedsFlat where it is seen in part
        and a view reaches beyond that part, to its element `last`."""
        trace = t._storage.trace
        shape, strides, start, dtype = trace.root
        count: Any = start + (0 if 0 in shape else 1 + sum(
            (n - 1) * s for n, s in zip(shape, strides, strict=True)))
        count = count * dtype.itemsize // t.dtype.itemsize
        if last < count or trace.ref is None or id(trace.real.origin) in self.flat:
            return count
        raise NeedsFlat(trace.real)

    def changes(self, t: Any, what: str, always: bool = False) -> None:
        """The program gives a tensor another layout, flag or memory. `always`: also one of its own.
        """
        if always or id(t) in self.reals:
            raise RuntimeError(f"{what} of a tensor that is being captured")

    def retains(self) -> None:
        """The program asks for the gradient of a result."""

    def takes_over(self, function: Any) -> None:
        """The `__torch_function__` of a mode is about to run in the place of a function."""

    def taking(self, cls: Any) -> Any:
        """What runs in the place of the `__torch_function__` of a class."""
        return cls.__torch_function__

    def set_data(self, t: Tensor, new: Tensor) -> None:
        """`t.data = new`."""
        self.changes(t, "data =", True)

    def sparse(self) -> None:
        """A sparse tensor is made or read: graphs hold dense ones."""
        raise RuntimeError("sparse tensors cannot be part of a graph")

    def hollow(self) -> None:
        """A tensor on the meta device is made or read: the kernels of a graph need memory."""
        raise RuntimeError("tensors on the meta device cannot be part of a graph")

    def refuse(self, op: Op) -> None:
        """The op's result depends on data in a way that no graph describes."""
        raise RuntimeError(f"{op.name} cannot be part of a graph ({op.breaks})")

    # -- values ------------------------------------------------------------------------------------

    def values(self, args: Any) -> Any:
        """Bound arguments with graph values in the place of twins and run-time numbers."""
        out = []
        for a in args:
            if isinstance(a, Tensor):
                out.append(self.value(a))
            elif isinstance(a, SymNumber):
                out.append(self.builder.F.number(a.value))
            elif type(a) in (list, tuple):
                out.append(self.values(a))
            else:
                out.append(a.item() if isinstance(a, np.generic) else a)
        return tuple(out)

    def value(self, t: Tensor) -> Value:
        """The graph value of a twin as it is now."""
        trace = t._storage.trace
        if trace is None or trace.tracer is not self:
            t = self.twin(t)
            trace = t._storage.trace
        if trace.value is None:
            trace.value = self.builder.call(registry.get("read"), (trace.ref,))
            if trace.root is not None and trace.root[3] is not trace.value.dtype:
                raise AssertionError("a Ref keeps its dtype")
        if t._view is None:
            return trace.value  # type: ignore[no-any-return]
        version = t._storage.version
        cached = t._np
        if cached is not None and cached[0] == version and cached[2] is trace.value:
            return cached[1]  # type: ignore[no-any-return]
        place = self.place(t, STRIDED)
        if place is None:
            root = t._view.root     # its own memory may be another since (`moved`)
            base = self.value(root if root._storage.trace is trace else trace.tensor)
            made = autograd.apply_chain(self.builder.F, base, t._view.chain)
        else:
            made = self.builder.F.as_strided(trace.value, *place)
        t._np = (version, made, trace.value)
        return made  # type: ignore[no-any-return]

    def place(self, t: Tensor, kinds: frozenset[str]) -> tuple[Any, ...] | None:
        """Size, strides and offset of a view on the root's elements in memory order, if there is a
        view of these kinds among its steps: then those alone say what its elements are."""
        names = {op.name for op, _ in t._view.chain}  # type: ignore[union-attr]
        if names.isdisjoint(kinds) or not names.isdisjoint(dispatch.RETYPED):
            return None
        trace = t._storage.trace
        shape, strides, start, _ = trace.root
        offset = t._offset - start
        last = offset + sum((n - 1) * s for n, s in zip(t._shape, t._strides, strict=True))
        if not layout.is_contiguous(shape, strides) or 0 not in t._shape and not (
                0 <= offset and last < trace.tensor.numel()):
            if trace.ref is not None and id(trace.real.origin) not in self.flat:
                raise NeedsFlat(trace.real)
            self.changes(t, "a strided view of memory in another order, or beyond it,", True)
        return t._shape, t._strides, offset

    def fresh(self, op: Op, value: Value, args: tuple[Any, ...]) -> Tensor:
        """A twin with its own storage for a node's result."""
        spec = value.type
        assert isinstance(spec, TensorType), spec
        strides = dispatch.strides_of(op, spec, args)
        trace = Traced(self, value, None, None)
        storage = Storage(None, spec.device, trace)
        t = Tensor._make(storage, spec.dtype, tuple(spec.shape), strides)
        trace.tensor, trace.root = t, (t._shape, t._strides, 0, t.dtype)
        return t

    # -- the world outside -------------------------------------------------------------------------

    def twin(self, t: Tensor) -> Tensor:
        """The twin of a tensor from outside; its storage becomes a Ref parameter."""
        found = self.twins.get(id(t))
        if found is not None:
            return found
        if t.device.type == "meta":
            self.hollow()
        name = self.describe(t)
        storage = self.storages.get(id(t._storage.origin))
        if storage is None:
            made = self._first(t, name)
        else:
            made = self._alias(t, storage)
        own = made._meta = TwinMeta(self, t)
        own.requires_grad = t.requires_grad
        if not t.is_leaf:
            own.grad_fn = Outside(self)
        self.twins[id(t)], self.reals[id(made)] = made, t
        self._keep += (t, made)
        made.__class__ = t.__class__
        return made

    def _first(self, t: Tensor, name: str) -> Tensor:
        if id(t._storage.origin) in self.flat:
            return self._flat(t, name)
        shape, strides = self.layout_of(t)
        kind = RefType(TensorType(shape, t.dtype, t.device), strides)
        ref = self.builder.param(name, kind)
        trace = Traced(self, None, ref, t._storage)
        storage = Storage(None, t.device, trace)
        self.storages[id(t._storage.origin)] = storage
        made = Tensor._make(storage, t.dtype, shape, strides, t._offset)
        trace.tensor, trace.root = made, (shape, strides, t._offset, t.dtype)
        self.inputs.append((ref, t))
        return made

    def layout_of(self, t: Tensor) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Shape and strides of a tensor from outside; a capture built on this class may have
        symbols for them."""
        return t._shape, t._strides

    def size_of(self, number: SymNumber) -> Any:
        """A number that an op takes for a size."""
        return number.settle()

    def _flat(self, t: Tensor, name: str) -> Tensor:
        """The whole storage as a 1-d Ref, and `t` as a strided view of it."""
        whole = whole_of(t)
        n = whole._shape[0]
        kind = RefType(TensorType((n,), t.dtype, t.device), (1,))
        ref = self.builder.param(name + "_storage", kind)
        trace = Traced(self, None, ref, t._storage)
        storage = Storage(None, t.device, trace)
        self.storages[id(t._storage.origin)] = storage
        root = Tensor._make(storage, t.dtype, (n,), (1,), 0)
        trace.tensor, trace.root = root, ((n,), (1,), 0, t.dtype)
        self.inputs.append((ref, whole))
        self.reals[id(root)], self.twins[id(whole)] = whole, root
        self._keep += (whole, root)
        return self._strided(root, t)

    def _alias(self, t: Tensor, storage: Storage) -> Tensor:
        """Another tensor of a storage that is known already."""
        trace = storage.trace
        shape, strides = self.layout_of(t)
        if (shape, strides, t._offset, t.dtype) == trace.root:
            return Tensor._make(storage, t.dtype, shape, strides, t._offset)
        root = trace.tensor
        if trace.root == (whole_of(t)._shape, (1,), 0, t.dtype):
            return self._strided(root, t)
        raise NeedsFlat(t._storage)

    def _strided(self, root: Tensor, t: Tensor) -> Tensor:
        made = dispatch.view(registry.get("as_strided"),
                             (root, list(t._shape), list(t._strides), t._offset))
        made._view = made._view.detached()  # type: ignore[union-attr]
        return made

    def grad(self, t: Tensor) -> Tensor | None:
        """The twin of the gradient of a tensor outside."""
        meta = t._meta
        return None if meta is None or meta.grad is None else self.twin(meta.grad)

    def number(self, key: Any, name: str, category: int, hint: Any) -> SymNumber:
        """A number read from outside as a graph parameter; `key` tells it apart."""
        found = self.numbers.get(key)
        if found is None:
            value = self.builder.param(name, TensorType((), ScalarType(category).dtype))
            bits = SMALL if category == 1 else None
            found = self.numbers[key] = SymNumber(self, value, hint, {key: hint}, key, bits)
            self.inputs.append((value, key))
        return found

    def specialise(self, key: Any, value: Any) -> None:
        """A number from outside became a constant: a capture built on this class adds the guard."""

    def arith(self, name: str, a: Any, b: Any) -> Any:
        """Python arithmetic on run-time numbers, in double precision or int64."""
        bits = bits_of(name, a, b)
        if bits is not None and bits > LARGE:
            return PYTHON[name](*[n.settle() if isinstance(n, SymNumber) else n for n in (a, b)])
        self.builder.location = self.where()
        x, y = (n.value if isinstance(n, SymNumber) else n for n in (a, b))
        p, q = (n.hint if isinstance(n, SymNumber) else n for n in (a, b))
        leaves = {**getattr(a, "leaves", {}), **getattr(b, "leaves", {})}
        hint = None if p is None or q is None else PYTHON[name](p, q)
        F = self.builder.F
        if isinstance(hint, float):     # int64 values would be operands of single precision
            x, y = (F.to_dtype(v, dt.float64) if isinstance(v, Value) and v.dtype is not dt.float64
                    else v for v in (x, y))
        made = getattr(F, name)(x, y)
        want = dt.float64 if isinstance(hint, float) else made.dtype
        if made.dtype is not want:
            made = F.to_dtype(made, want)
        x, y = (n.expr if isinstance(n, SymNumber) else n for n in (a, b))
        short = (x is not None and y is not None and len(leaves) <= LEAVES
                 and depth(x) + depth(y) < DEPTH)
        return SymNumber(self, made, hint, leaves, (SYMBOLS[name], x, y) if short else None, bits)

    def finish_generators(self) -> None:
        """Writes the advanced counters back; called once, before the graph is finished."""
        for entry in self.generators.values():
            self.advanced(entry)


# Views whose elements are told by strides alone; those that may show an element several times.
STRIDED = frozenset(("as_strided",))
OVERLAPPING = frozenset(("as_strided", "expand", "unfold"))


def overlaps(shape: tuple[Any, ...], strides: tuple[Any, ...]) -> bool:
    """Whether two elements may lie at one place."""
    reach = 0
    for step, n in sorted((s, n) for n, s in zip(shape, strides, strict=True) if n != 1):
        if step <= reach and n > 1:
            return True
        reach += (n - 1) * step
    return False


def whole_of(t: Tensor) -> Tensor:
    """The whole storage of a tensor, as elements of its dtype."""
    n = t._storage.nbytes // t.dtype.itemsize
    return Tensor._make(t._storage, t.dtype, (n,), (1,), 0)


def is_symbolic(x: Any) -> bool:
    """Whether `x` is a size or number known only at run time."""
    return isinstance(x, (Sym, SymNumber))


def caller_location(depth: int = 1) -> Location:
    """The Python line `depth` frames up, for traces made without the bytecode machine."""
    frame = sys._getframe(depth + 1)
    return Location(frame.f_code.co_filename, frame.f_lineno)
