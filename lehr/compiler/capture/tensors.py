"""Tensors, run-time numbers and framework objects as values of the machine.

A tensor value holds a *twin* (see `tracer`). The framework's own tensor code is not interpreted: a
call of a function of the `NATIVE` modules runs for real, on twins, and its ops land in the tracer's
graph. Everything else (`nn`, `optim`, the user's code) is interpreted like any Python.
"""

from __future__ import annotations

import os
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from lehr.base.device import Device
from lehr.base.dtype import DType
from lehr.base.sym import Sym
from lehr.compiler.capture.arithmetic import Arithmetic, NumberValue, source_of
from lehr.compiler.capture.directive import CONSTANT, DIRECTIVES, WHOLE
from lehr.compiler.capture.fact import FACTS, Fact, apart
from lehr.compiler.capture.fault import FaultValue
from lehr.compiler.capture.frame import Frame
from lehr.compiler.capture.later import Late, Later, code_of, is_open
from lehr.compiler.capture.machine import Machine
from lehr.compiler.capture.mapping import DictValue, SpaceValue
from lehr.compiler.capture.modes import enter, leave
from lehr.compiler.capture.moved import Moves
from lehr.compiler.capture.objects import (
    ClassValue,
    FunctionValue,
    MethodValue,
    ModuleValue,
    ObjectValue,
    ScalarValue,
)
from lehr.compiler.capture.picked import Picks
from lehr.compiler.capture.prime import prime
from lehr.compiler.capture.rebuild import Rebuilder
from lehr.compiler.capture.sequence import ListValue, SequenceValue, SliceValue, TupleValue
from lehr.compiler.capture.size import Policy, Resize, Sizes, SizeValue, Sizing
from lehr.compiler.capture.source import KINDS, Kind, Source, based, const
from lehr.compiler.capture.tracer import NeedsFlat, SymNumber, Tracer, lone, whole_of
from lehr.compiler.capture.value import CONSTANT_SET, NUMBERS, OPAQUE_CONSTANTS, Const, Known, Value
from lehr.compiler.graph.ir import Location
from lehr.ops.registry import Functions, Op
from lehr.tensor.custom import CustomOpDef, Namespace
from lehr.tensor.format import Layout, MemoryFormat
from lehr.tensor.function import FunctionCtx
from lehr.tensor.graph import saved_tensors_hooks
from lehr.tensor.hook import retain_grad
from lehr.tensor.state import STATE, State
from lehr.tensor.tensor import Tensor

if TYPE_CHECKING:
    from lehr.compiler.capture.calling import Args, Kwargs

# Modules whose functions run for real on twins, and whose classes' objects are taken whole.
NATIVE = ("lehr.tensor", "lehr.ops", "lehr.base")
INTERPRETED = ("lehr.tensor.mode", "lehr.tensor.autocast", "lehr.tensor.setting")  # but not those


def is_native_module(name: Any) -> bool:
    return isinstance(name, str) and name.startswith(NATIVE) and name.split(".")[1] in (
        "tensor", "ops", "base") and name not in INTERPRETED


def is_native(function: Any) -> bool:
    """Whether a real Python function belongs to the framework's tensor code."""
    if WHOLE in function.__dict__:
        return True
    if is_open(function):
        return False
    space = function.__globals__
    inner = function.__dict__.get("__wrapped__")
    if inner is not None and not is_native_module(getattr(inner, "__module__", None)):
        return False    # a decorator of ours around a function of the user's
    return is_native_module(space.get("__name__"))


HERE = os.path.dirname(os.path.abspath(__file__))
GRAPHS = (os.path.join(HERE, "tracer.py"), os.path.join(os.path.dirname(HERE), "graph"))


def is_internal(error: BaseException) -> bool:
    """Whether an error that native code raised on twins was made by the tracer or the graph's
    builder.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_code.co_filename.startswith(GRAPHS)


class TensorFact(NamedTuple):
    """What a capture assumes of a tensor from outside."""

    type_: type
    dtype: DType
    shape: tuple[Any, ...]
    strides: tuple[Any, ...]
    device: Device
    requires_grad: bool
    leaf: bool
    lone: bool                      # see `tracer.lone`
    seen: tuple[int, ...] = ()      # the shape at hand, where `shape` has symbols

    def holds(self, t: Any) -> bool:
        kind: Any = type(t)
        return (kind is self.type_ and t.dtype is self.dtype and fits(self.shape, t._shape)
                and fits(self.strides, t._strides) and t.device is self.device
                and t.requires_grad is self.requires_grad
                and (not t.requires_grad or t.is_leaf is self.leaf and lone(t) is self.lone))


def fits(wanted: tuple[Any, ...], found: tuple[int, ...]) -> bool:
    """Whether sizes are the wanted ones; facts of their own say what symbols are."""
    return len(wanted) == len(found) and all(
        n == w for w, n in zip(wanted, found, strict=True) if type(w) is int)


def fact_of(t: Tensor, shape: Any = None, strides: Any = None) -> TensorFact:
    """The fact of a tensor; shape, strides: where they have symbols."""
    return TensorFact(type(t), t.dtype, shape or t._shape, strides or t._strides, t.device,
                      t.requires_grad, t.is_leaf, lone(t), t._shape)


FACTS["tensor"] = lambda x, detail, args: isinstance(x, Tensor) and detail.holds(x)
FACTS["no hooks"] = FACTS["no post_hooks"] = lambda x, detail, args: not hooked(x, detail)
FACTS["storage"] = lambda x, detail, args: x._storage.origin is detail.read(args)._storage.origin
FACTS["offset"] = lambda x, detail, args: x._offset == detail
FACTS["view"] = lambda x, detail, args: x._is_view() is detail
FACTS["apart"] = lambda x, detail, args: apart(x, *[s.read(args) for s in detail])
KINDS["whole"] = Kind(
    lambda s, bind: f"{bind(whole_of, 'whole_of')}({based(s).expr(bind)})",
    lambda args, base, key: whole_of(base),
    lambda s: f"the storage of {based(s).name()}")


def hooked(t: Tensor, which: str) -> bool:
    """Whether a leaf has hooks ("hooks" on its gradient, or "post_hooks")."""
    return t._meta is not None and bool(getattr(t._meta, which))


class TensorValue(Value):
    """A tensor. `real` is the tensor outside, None for one that the program made."""

    __slots__ = ("real", "twin")

    def __init__(self, twin: Tensor, real: Tensor | None = None,
                 source: Source | None = None) -> None:
        self.twin, self.real, self.source = twin, real, source

    @property
    def type_(self) -> Any:
        return type(self.twin)

    def type_of(self, m: Machine) -> Any:
        return type(self.twin)

    def key(self, m: Machine) -> Any:
        """Tensors are keys by identity."""
        return self.twin if self.real is None else self.real

    def rebuild(self, r: Any) -> Any:
        return r.tensor(self)

    def __repr__(self) -> str:
        return f"TensorValue({self.twin.dtype}{list(self.twin._shape)})"


class NotesValue(SpaceValue):
    """The `__dict__` of a tensor; that of one that the program made is written to as well."""

    __slots__ = ()

    def put(self, m: Machine, key: Any, value: Value) -> None:
        if self.real is None:
            self.log_put(m, key, value)
        super().put(m, key, value)

    def drop(self, m: Machine, key: Any) -> Value | None:
        if self.real is None and self.find(m, key) is not None:
            self.log_drop(m, key)
        return super().drop(m, key)


class NativeValue(Value):
    """An object of the framework, taken whole: a dtype, a generator, a context manager, a node."""

    __slots__ = ("real",)

    def __init__(self, real: Any, source: Source | None = None) -> None:
        self.real, self.source = real, source

    @property
    def type_(self) -> Any:
        return type(self.real)

    def type_of(self, m: Machine) -> Any:
        return type(self.real)

    def constant(self, m: Machine) -> Any:
        return self.real

    def key(self, m: Machine) -> Any:
        return self.real

    def invoke(self, m: Any, args: Args, kwargs: Kwargs) -> Value:
        return m.call_native(self.real, args, kwargs)  # type: ignore[no-any-return]

    def rebuild(self, r: Any) -> Any:
        return r.native(self)


class Lower(Rebuilder):
    """Values as real objects for native code: tensors are twins, containers are built from their
    parts.
    """

    machine: TensorMachine

    def __call__(self, value: Value | None) -> Any:
        assert value is not None
        value = value.force(self.machine)
        if isinstance(value, Const):
            return value.value
        if isinstance(value, ScalarValue) and isinstance(value.payload, int | float):
            return value.payload    # a number of an enumeration, say
        if isinstance(value, SequenceValue):
            parts = [self(p) for p in self.machine.iterate(value)]
            return parts if isinstance(value, ListValue) else tuple.__new__(value.type_, parts)
        if isinstance(value, SliceValue):
            return slice(*[self.end(p) for p in value.ends])
        if isinstance(value, DictValue) and value.type_ is dict:
            items = self.machine.iterate(self.machine.call_method(value, "items", []))
            return dict(tuple(self(p)) for p in items)
        if isinstance(value, FunctionValue | MethodValue):
            return self.function(value)
        if isinstance(value, ClassValue):
            return value.real
        if isinstance(value, Known) and (value.source is None
                                         or type(value.real) in OPAQUE_CONSTANTS):
            return value.real
        if isinstance(value, TensorValue | NumberValue | SizeValue | NativeValue
                      | FaultValue):
            return value.rebuild(self)
        if value.type_ is types.TracebackType:  # the third argument of an `__exit__` of ours
            return None
        if value.real is not None and getattr(type(value.real), "__lehr_native__", False):
            return value.real
        return self.machine.stop("native-argument", f"{value.type_.__name__} object")

    def end(self, value: Value) -> Any:
        """An end of a slice: numbers there are sizes."""
        made = self(value)
        return self.machine.tracer.size_of(made) if isinstance(made, SymNumber) else made

    def tensor(self, value: TensorValue) -> Any:
        return value.twin

    def number(self, value: NumberValue) -> Any:
        return value.number

    def size(self, value: SizeValue) -> Any:
        return value.size

    def native(self, value: NativeValue) -> Any:
        return value.real

    def function(self, value: Any) -> Any:
        """A callback: when native code calls it (a hook, say), the machine interprets it."""
        m = self.machine
        real = getattr(value, "real", None)
        if real is not None and isinstance(value, FunctionValue) and is_native(real):
            return real
        m.hand_over(value)

        def callback(*args: Any, **kwargs: Any) -> Any:
            given = [m.lifted(a) for a in args], {k: m.lifted(v) for k, v in kwargs.items()}
            made = m.call(value, *given).force(m) if m.frame else m.walk(value, *given)
            return Carried(made) if type(made) is ObjectValue else m.lowered(made)
        callback.late = Late(code_of(value))  # type: ignore[attr-defined]
        return callback


class Carried(NamedTuple):
    """What a callback of the program gave native code to keep: it comes back as it is."""

    value: Value


TALKS = "lehr.distributed.collective"
TALKING = frozenset(("_flat", "_write", "_bytes", "_swap", "_scatter_ring", "_gather_ring",
                     "_spread"))
# Values that the context of an `autograd.Function` keeps as what they stand for.
PLAIN = (Const, TensorValue, SizeValue, NumberValue, NativeValue)
# What tensor code raises about sizes.
TOLD = (TypeError, ValueError, RuntimeError, IndexError)


class TensorMachine(Later, Sizing, Arithmetic, Machine):
    """The machine over tensors; its graph is `tracer`'s.

    loose    values from outside that were seen to change: numbers become inputs of the graph
    brittle  where such a number would have to become a constant, capture breaks
    policy   which sizes are symbols
    late     see `Later`
    followed  native functions with a model, which gives None where they run for real
    """

    followed: ClassVar[dict[Any, Callable[..., Value | None]]] = {}

    def __init__(self, halt: int = -1, flat: frozenset[int] = frozenset(),
                 loose: frozenset[Source] = frozenset(), brittle: bool = False,
                 policy: Policy = Policy(), late: frozenset[types.CodeType] = frozenset()) -> None:
        super().__init__(halt)
        self.late = late
        self.sizes = Sizes(policy)
        self.loose, self.brittle = loose, brittle
        self.tracer = CaptureTracer(self, flat)
        self.lower = Lower(self)
        self.primed: list[Callable[[], Any]] = []   # see `prime`
        self.tensors: dict[int, TensorValue] = {}   # id of a twin -> its value
        self.factories.update({Tensor: make_tensor, DType: make_native, Device: make_native,
                               MemoryFormat: make_native, Layout: make_native, State: make_native,
                               CustomOpDef: make_native, Namespace: make_native,
                               **dict.fromkeys(COMPILED, make_compiled),
                               Functions: lambda m, real, source: NativeValue(real, source)})

    def guards(self) -> list[Fact]:
        return [*super().guards(), *self.sizes.facts()]

    def guard(self, source: Source | None, kind: str, detail: Any) -> None:
        if kind == "equals" and source in self.loose and (
                self.brittle or type(detail) not in NUMBERS):
            self.stop("changing-value", source.name())  # type: ignore[union-attr]
        super().guard(source, kind, detail)

    def fault(self, error: BaseException) -> Any:
        if isinstance(error, NeedsFlat | Resize) or is_internal(error):
            raise error     # the compiler's, not the program's
        if self.sizes.hints and isinstance(error, TOLD):
            raise Resize(everything=True)   # its text may tell sizes, which are not known
        return super().fault(error)

    # -- what is native

    def inline(self, function: FunctionValue, args: Args, kwargs: Kwargs) -> Value:
        real = function.real
        if function.code in DIRECTIVES:
            DIRECTIVES[function.code](self, real)
        if real is not None and is_native(real):
            model = None if STATE.modes else self.followed.get(getattr(real, "__wrapped__", real))
            made = None if model is None else model(self, args, kwargs)
            return self.call_native(real, args, kwargs) if made is None else made
        if real is not None and real.__module__ == TALKS and real.__name__ in TALKING:
            self.stop("disabled", "processes exchange data")
        if real is not None and hasattr(real, "__lehr_prime__") and not kwargs:
            prime(self, real, args)
        if real is not None and CONSTANT in real.__dict__:
            return self.fixed(real, args, kwargs)
        return super().inline(function, args, kwargs)

    def fixed(self, function: Callable[..., Any], args: Args, kwargs: Kwargs) -> Value:
        """The result of a function that gives the same at every call, computed now."""
        def real(value: Value) -> Any:
            value = value.force(self)
            if isinstance(value, Const):
                return value.value
            found = getattr(value, "real", None)
            if found is None or isinstance(value, TensorValue) and self.tracer.twins.get(
                    id(found)) is not value.twin:
                return self.stop("native-argument", f"{function.__qualname__}, which is marked "
                                 "with assume_constant_result, gets a computed value")
            return found
        reals, named = [real(a) for a in args], {k: real(v) for k, v in kwargs.items()}
        held = enter(None)
        try:
            made = function(*reals, **named)
        finally:
            leave(held)
        return self.wrap(made, const(made, f"the result of {function.__qualname__}"))

    def call_class(self, cls: ClassValue, args: Args, kwargs: Kwargs) -> Value:
        if is_native_module(cls.real.__module__) or issubclass(cls.real, Tensor):
            if cls.real not in self.fresh_classes:
                if cls.real is saved_tensors_hooks:
                    self.packers |= {code_of(f) for a in args if isinstance(
                        f := a.force(self), FunctionValue | MethodValue)}
                return self.call_native(cls.real, args, kwargs)
        return super().call_class(cls, args, kwargs)

    def new(self, base: Any, args: Args, kwargs: Kwargs) -> Value:
        cls = self.class_of(args[0]) if args else None
        if cls is not None and hasattr(cls, "__del__"):
            self.stop("unmodelled", f"{cls.__name__}.__del__, which runs when its object goes")
        return super().new(base, args, kwargs)

    def native(self, function: Known, args: Args, kwargs: Kwargs) -> Value:
        real = function.real
        if is_native_module(getattr(real, "__module__", None)):
            return self.call_native(real, args, kwargs)
        return super().native(function, args, kwargs)

    def call_native(self, function: Callable[..., Any], args: Args, kwargs: Kwargs) -> Value:
        """Runs framework code for real; what it raises is the program's exception."""
        reals = [self.lowered(a) for a in args]
        named = {k: self.lowered(v) for k, v in kwargs.items()}
        made = self.native_op(function, *reals, **named)
        if type(made) is str and self.sizes.hints:
            self.sizes.told([*reals, *named.values()])
        return self.lifted(made)

    def lowered(self, value: Value) -> Any:
        return self.lower(value)

    def lifted(self, real: Any) -> Value:
        """What native code returned, as a value."""
        if isinstance(real, Tensor):
            return self.tensor_value(real)
        kind = type(real)
        if kind in CONSTANT_SET:
            return Const(real)
        if kind is Carried:
            return real.value  # type: ignore[no-any-return]
        if isinstance(real, SymNumber):
            return NumberValue(real)
        if isinstance(real, Sym):
            return SizeValue(real, self.sizes)
        if isinstance(real, tuple):
            return TupleValue(kind, [self.lifted(x) for x in real])
        if kind is list:
            return ListValue(list, [self.lifted(x) for x in real])
        if kind is dict:
            return self.dict_value({k: self.lifted(v) for k, v in real.items()})
        if isinstance(real, type):
            return self.wrap(real, None)
        found = self.known.get(id(real))
        if found is None:
            found = self.known[id(real)] = NativeValue(real)
            self.kept.append(real)
            self.born(found)
        return found

    def told(self, real: Any) -> Value:
        """What native code tells a function of the program's."""
        return self.wrap(real, None) if isinstance(real, types.FunctionType) else self.lifted(real)

    def fresh(self, real: Any) -> Value:
        return self.tensor_value(real) if isinstance(real, Tensor) else super().fresh(real)

    def tensor_value(self, t: Tensor) -> TensorValue:
        """The value of a twin; a tensor from outside that native code found is taken by identity.
        """
        trace = t._storage.trace
        if trace is None or trace.tracer is not self.tracer:
            made = self.wrap(t, self.tracer.sources.get(id(t)) or const(t, "a tensor"))
            assert isinstance(made, TensorValue)
            return made
        found = self.tensors.get(id(t))
        if found is None:
            real = self.tracer.reals.get(id(t))
            source = self.tracer.sources.get(id(real)) if real is not None else None
            found = self.tensors[id(t)] = TensorValue(t, real, source)
            self.kept.append(t)
        return found

    def known_key(self, raw: Any) -> Value | None:
        if not isinstance(raw, Tensor):
            return super().known_key(raw)
        twin = self.tracer.twins.get(id(raw), raw)
        return self.tensors.get(id(twin))

    # -- attributes

    def lookup(self, cls: Any, name: str) -> Value | None:
        if issubclass(cls, Tensor) and (cls, name) not in self.lookups:
            hasattr(cls, name)  # generated methods come into being at their first use
        return super().lookup(cls, name)

    def guard_class(self, cls: Any, name: str, owner: Any, after: Any) -> None:
        if not is_native_module(cls.__module__) and not (owner is not None and is_native_module(
                owner.__module__)):
            super().guard_class(cls, name, owner, after)

    def getattr(self, value: Value, name: str) -> Value:
        value = value.force(self)
        if isinstance(value, NativeValue):
            return self.lifted(self.native_op(getattr, value.real, name))
        if isinstance(value, ModuleValue) and value.real.__name__.split(".")[0] == "lehr":
            hasattr(value.real, name)  # lazily resolved names come into being at their first use
        return super().getattr(value, name)

    def attrs_of(self, value: Value) -> SpaceValue | None:
        if not isinstance(value, TensorValue):
            return super().attrs_of(value)
        found = self.known_attrs.get(id(value))
        if found is None:
            found = NotesValue(value)
            if value.real is not None:
                source = value.source or const(value.real, "a tensor")
                found = NotesValue(value, value.real.__dict__, Source("dict", source))
            self.known_attrs[id(value)] = found
            self.kept.append(value)
        return found

    def find_generic(self, value: Value, name: str) -> Value | None:
        """What the class has is looked for among a tensor's own attributes only where it is seen to
        be there: no fact for every method."""
        if isinstance(value, TensorValue):
            found, own = self.lookup(value.type_, name), self.known_attrs.get(id(value))
            if found is not None and not (own is not None and name in own.storage) and not (
                    value.real is not None and name in value.real.__dict__):
                return found.get(self, value, value.type_)
        return super().find_generic(value, name)

    def setattr(self, value: Value, name: str, new: Value | None) -> None:
        value = value.force(self)
        if isinstance(value, NativeValue) and new is not None:
            own = isinstance(value.real, FunctionCtx) and type(new.force(self)) not in PLAIN
            self.native_op(setattr, value.real, name, Carried(new) if own else self.lowered(new))
            return
        super().setattr(value, name, new)

    def read_opaque(self, descriptor: Any, obj: Value) -> Value:
        if isinstance(obj, TensorValue | NativeValue):
            real = obj.twin if isinstance(obj, TensorValue) else obj.real
            return self.lifted(self.native_op(descriptor.__get__, real))
        return super().read_opaque(descriptor, obj)

    def native_method(self, function: Known, obj: Value, args: Args, kwargs: Kwargs) -> Value:
        if isinstance(obj, NativeValue):
            return self.call_native(function.real, args, kwargs)
        return super().native_method(function, obj, args, kwargs)


def make_tensor(m: Any, real: Tensor, source: Source | None) -> Value:
    trace = real._storage.trace
    if trace is not None and trace.tracer is m.tracer:
        return m.tensor_value(real)  # type: ignore[no-any-return]
    if isinstance(getattr(type(real), "_shape", None), property):   # a lazy module's parameter
        m.stop("tensor-change", "a parameter without a shape gets one")
    source = source or const(real, "a tensor")
    m.tracer.sources.setdefault(id(real), source)
    twin = m.tracer.twin(real)
    made = TensorValue(twin, real, source)
    m.tensors[id(twin)] = made
    return made


COMPILED: list[type] = []     # classes of compiled functions: `function`, and `bound` for a method


def make_compiled(m: Any, real: Any, source: Source | None) -> Value:
    """A compiled function inside a captured one is the function itself."""
    m.guard(source, "is", real)
    source = source or const(real, real.name)
    function = m.part(real.function, source, "function").force(m)
    if not real.bound:
        return function  # type: ignore[no-any-return]
    return MethodValue(function, m.part(real.bound[0], source, "bound", 0))


def make_native(m: Any, real: Any, source: Source | None) -> Value:
    m.guard(source, "is", real)
    return NativeValue(real, source)


# Attributes that an optimizer's step may set though it is skipped: only a warning asks for them.
HARMLESS = frozenset(("_opt_called",))


class CaptureTracer(Tracer):
    """The tracer of a machine: it knows where tensors came from, and asks for their guards."""

    def __init__(self, machine: TensorMachine, flat: frozenset[int]) -> None:
        super().__init__("captured", self.name_of, self.line, flat)
        self.machine = machine
        self.sources: dict[int, Source] = {}
        self.first: dict[int, Source] = {}          # id of a storage -> source of its first tensor
        self.tensors_of: dict[Source, Tensor] = {}
        self.layouts: dict[int, Any] = {}           # id of a tensor -> shape and strides, symbolic
        self.effects = 0
        self.picks = Picks(self.torn)
        self.moves = Moves(self)

    def counted(self, t: Tensor) -> None:
        if t._storage.trace.ref is not None:
            self.machine.stop("data-dependent", "the version of an argument")

    def torn(self, what: Any) -> None:
        """Capture ends where a view at an index that is data came to be."""
        self.machine.stop("data-dependent", "a view at an index that is data", what)

    def set_data(self, t: Tensor, new: Tensor) -> None:
        if not self.moves.add(t, new):
            super().set_data(t, new)

    def pick(self, t: Tensor, dim: int, index: Tensor) -> Tensor:
        base = self.lift(None, (t,))[0]  # type: ignore[arg-type]
        made = super().pick(base, dim, index)
        self.machine.born(made._storage)
        self.picks.add(made, base, dim)
        return made

    def write(self, target: Tensor, value: Tensor) -> None:
        target = self.lift(None, (target,))[0]  # type: ignore[arg-type]
        trace = target._storage.trace
        self.picks.written(target._storage)
        if self.machine.walking is not None and trace.ref is not None:
            raise Late(self.machine.walking)
        if STATE.grad and id(trace) not in self.machine.births:
            self.machine.born(trace)
        super().write(target, value)

    def choose(self, condition: Tensor) -> None:
        super().choose(condition)
        self.effects = len(self.machine.effects)

    def chosen(self) -> None:
        super().chosen()
        for effect in self.machine.effects[self.effects:]:
            if not any(getattr(a, "value", None) in HARMLESS for a in effect.args):
                self.concretize("step", effect)

    def outside(self) -> None:
        if self.machine.frame is not None:
            self.machine.stop("outside-history")

    def name_of(self, t: Tensor) -> str:
        source = self.sources.get(id(t))
        return "tensor" if source is None else source.name().replace("self.", "", 1)

    def twin(self, t: Tensor) -> Tensor:
        found = self.twins.get(id(t))
        if found is not None:
            return found
        if t.is_sparse:
            self.sparse()
        source = self.sources.get(id(t))
        if source is None:
            source = self.sources[id(t)] = const(t, "a tensor")
        guard = self.machine.guard
        guard(source, "tensor", fact_of(t, *self.layout_of(t)))
        seen = self.first.setdefault(id(t._storage.origin), source)
        if seen is not source:
            guard(source, "storage", seen)
            guard(source, "distinct", (seen,))
            guard(source, "offset", t._offset)
            guard(seen, "offset", self.tensors_of[seen]._offset)
        else:
            self.tensors_of[source] = t
        return super().twin(t)

    def layout_of(self, t: Tensor) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        if id(t._storage.origin) in self.flat or id(t) not in self.sources:
            return t._shape, t._strides
        found = self.layouts.get(id(t))
        if found is None and id(t._storage.origin) in self.storages:
            return t._shape, t._strides     # no input of its own: nothing would tell its sizes
        if found is None:
            found = self.layouts[id(t)] = self.machine.sizes.layout(t, self.sources[id(t)])
            for v in self.machine.sizes.hints:
                if not any(v is s for s in self.builder.symbols):
                    self.builder.symbols.append(v)
        return found

    def size_of(self, number: SymNumber) -> Any:
        """A number from outside that the program takes for a size."""
        sizes = self.machine.sizes
        if number.expr is None or type(number.hint) is not int or number.hint < 2:
            return number.settle()
        source = source_of(number.expr)
        if source in sizes.policy.static or sizes.policy.off:
            return number.settle()
        made = sizes.symbol(number.hint, source, source, source)
        self.number(source, source.name(), 1, number.hint)
        if not any(made is s for s in self.builder.symbols):
            self.builder.symbols.append(made)
        return made

    def grad(self, t: Tensor) -> Tensor | None:
        source = self.sources[id(t)].attr("grad")
        found = None if t._meta is None else t._meta.grad
        self.machine.guard(source, "is" if found is None else "is not", None)
        if found is not None:
            self.sources.setdefault(id(found), source)
        return super().grad(t)

    def place(self, t: Tensor, kinds: frozenset[str]) -> tuple[Any, ...] | None:
        found = super().place(t, kinds)
        if found is not None and t._storage.trace.ref is not None:
            self.begin(t._storage.trace)
        return found

    def begin(self, trace: Any) -> None:
        """A view says where in memory it lies, not where in the tensor that it is of."""
        seen = self.first.get(id(trace.real.origin))
        if seen is not None:
            self.machine.guard(seen, "offset", self.tensors_of[seen]._offset)

    def _flat(self, t: Tensor, name: str) -> Tensor:
        source = Source("whole", self.sources[id(t)])
        made = super()._flat(t, name)
        whole = self.inputs[-1][1]
        self.sources[id(whole)] = source
        self.machine.guard(source, "tensor", fact_of(whole))
        self.machine.guard(self.sources[id(t)], "offset", t._offset)
        return made

    def guard_apart(self, writes: bool) -> None:
        """Where the program writes to memory from outside or gives gradients (`writes`), no two of
        its inputs may share memory that it took for separate."""
        if writes or any(s.trace.written for s in self.storages.values()):
            first, *others = self.first.values()
            if others:
                self.machine.guard(first, "apart", tuple(others))

    def line(self) -> Location | None:
        """The innermost line that is the user's, not lehr's own."""
        frame: Frame | None = self.machine.frame
        while frame is not None and "/lehr/" in frame.code.co_filename and frame.back is not None:
            frame = frame.back
        if frame is None:
            return None
        # The name alone: a program in the cache serves the same source in another folder.
        path = frame.code.co_filename
        return Location(os.path.basename(path), frame.line or 0, "", path)

    def specialise(self, key: Any, value: Any) -> None:
        self.machine.guard(key, "equals", value)

    def concretize(self, what: str, value: Any) -> Any:
        return self.machine.stop("data-dependent", f"{what}()")

    def hooks_of(self, t: Tensor, which: str) -> list[Any]:
        m = self.machine
        if m.frame is None:     # an entry's own walk: the real tape runs them
            return []
        table = None if t._meta is None else getattr(t._meta, which)
        source = self.sources[id(t)]
        if not table:
            m.guard(source, f"no {which}", which)
            return []
        every = m.wrap(table, source.attr("_meta").attr(which))
        values = m.call_method(every, "values", [])
        return [m.lower.function(hook.force(m)) for hook in m.iterate(values)]

    def is_view(self, t: Tensor) -> bool:
        found = super().is_view(t)
        if id(t) in self.reals:
            self.machine.guard(self.sources[id(self.reals[id(t)])], "view", found)
        return found

    def changes(self, t: Any, what: str, always: bool = False) -> None:
        if always or id(t) in self.reals:
            self.machine.stop("tensor-change", what)

    def retains(self) -> None:
        if retain_grad.__code__ in self.machine.late:
            self.machine.stop("tensor-change", "retain_grad()")

    def sparse(self) -> None:
        self.machine.stop("sparse-tensor")

    def hollow(self) -> None:
        self.machine.stop("unmodelled", "a tensor on the meta device")

    def takes_over(self, function: Any) -> None:
        if not function.__module__.startswith("lehr."):
            self.machine.stop("native-argument", function.__qualname__)

    def taking(self, cls: Any) -> Any:
        """One of the program's is interpreted."""
        m, hook = self.machine, cls.__torch_function__
        if hook.__module__.startswith("lehr."):
            return hook
        if m.frame is None or m.walking is not None:
            self.takes_over(hook)

        def call(*given: Any) -> Any:
            held, function = STATE.functions, m.getattr(m.wrap(cls, None), "__torch_function__")
            try:
                return m.lowered(m.call(function, [m.told(x) for x in given]))
            finally:
                STATE.functions = held
        return call

    def refuse(self, op: Op) -> None:
        self.machine.stop(str(op.breaks), f"{op.api}()")
