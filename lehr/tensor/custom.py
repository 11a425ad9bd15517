"""Operators of the user's own: Python functions that programs call like any operator.

    @torch.library.custom_op("shop::smooth", mutates_args=())
    def smooth(x: torch.Tensor, width: int) -> torch.Tensor:
        return torch.from_numpy(filter(x.numpy(), width))

    @smooth.register_fake
    def _(x, width):
        return torch.empty_like(x)

The function is opaque: it may leave tensors for numpy or C. Capture makes it one call to the host
in the middle of a compiled program where a fake says what the results look like (there is nothing
to say where it returns None), else the graph breaks there. What it writes to is a result of that
call, which runs on copies, and is then written in the graph.
"""

from __future__ import annotations

import collections.abc
import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any

import lehr.ops
from lehr.base.device import Device
from lehr.base.dtype import DType
from lehr.ops import registry
from lehr.ops.layout import contiguous
from lehr.ops.rule import Spec
from lehr.tensor import dispatch
from lehr.tensor.function import Function
from lehr.tensor.state import STATE
from lehr.tensor.tensor import Tensor

META = Device("meta")
CUSTOM: dict[str, CustomOpDef] = {}
Kernel = Callable[..., Any]

# Annotation -> the word of a signature; sequences of them and None come apart by themselves.
WORDS: dict[Any, str] = {Tensor: "Tensor", int: "int", float: "float", bool: "bool", str: "str",
                         DType: "dtype", Device: "device"}


def word(annotation: Any) -> str:
    """An annotation as a registry signature spells it; ValueError names what cannot be."""
    if annotation in WORDS:
        return WORDS[annotation]
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return " | ".join("None" if p is type(None) else word(p) for p in parts)
    if origin in (list, collections.abc.Sequence, collections.abc.Iterable) and len(parts) == 1:
        return f"list[{word(parts[0])}]"
    raise ValueError(f"custom_op(): no operator takes {annotation!r}; its parameters are Tensor, "
                     "int, float, bool, str, dtype, device, sequences of them, or None")


def signature(name: str, fn: Kernel) -> str:
    """The registry's signature of an annotated function."""
    space = inspect.signature(fn)
    hints = typing.get_type_hints(fn)
    parts, keyword = [], False
    for p in space.parameters.values():
        if p.name not in hints or p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            raise ValueError(f"custom_op(): parameter {p.name} of {fn.__qualname__} needs an "
                             "annotation and may not be starred")
        if p.kind is p.KEYWORD_ONLY and not keyword:
            parts.append("*")
            keyword = True
        default = "" if p.default is p.empty else f" = {p.default!r}"
        parts.append(f"{p.name}: {word(hints[p.name])}{default}")
    if "return" not in hints:
        raise ValueError(f"custom_op(): {fn.__qualname__} needs a return annotation")
    return f"{name}({', '.join(parts)}) -> {results(hints['return'])}"


def results(annotation: Any) -> str:
    if annotation is type(None) or annotation is None:
        return "None"
    if typing.get_origin(annotation) is tuple:
        return f"tuple[{', '.join(word(p) for p in typing.get_args(annotation))}]"
    return word(annotation)


class CustomOpDef:
    """An operator made by `custom_op`; call it, or `torch.ops.<namespace>.<name>`."""

    def __init__(self, qualname: str, fn: Kernel, mutates: Any, devices: Any = None) -> None:
        namespace, _, name = qualname.partition("::")
        if not (namespace.isidentifier() and name.isidentifier()):
            raise ValueError(f'custom_op() names are "namespace::name", not {qualname!r}')
        self.qualname, self.mutates = qualname, mutates
        self._namespace, self._name = namespace, name
        self.kernels: dict[str | None, Kernel] = {}
        self.register_kernel(devices, fn)
        self.fake: Kernel | None = None
        self.derivative: Kernel | None = None
        self.context: Kernel | None = None
        text = signature(f"{namespace}__{name}", fn)
        self.signature = registry.Signature(text)
        self.declared = () if text.endswith("-> None") else self.signature.results
        self.written = () if mutates == "unknown" else tuple(
            i for i, p in enumerate(self.signature.params) if p.name in mutates)
        made = ("Tensor",) * (len(self.declared) + len(self.written))
        whole = registry.Signature(f"{text.rpartition(' -> ')[0]} -> "
                                   + (f"tuple[{', '.join(made)}]" if len(made) > 1 else "Tensor"))
        self.op, self.opaque = (registry.Op(what, {
            "kind": registry.HOST, "rule": self.types, "eager": self.on_arrays, "host": True,
            "nondiff": True, "where": "", "breaks": breaks, "__doc__": fn.__doc__,
            "layout": lambda spec, *bound: contiguous(spec.shape)}, __name__)
            for what, breaks in ((whole, None), (self.signature, "native-call")))
        self.op.api = self.opaque.api = qualname
        functools.update_wrapper(self, fn)

    def register_kernel(self, device_types: Any = None, fn: Kernel | None = None, /) -> Any:
        """Another function for tensors on these devices ("cpu")."""
        if fn is None:
            return functools.partial(self.register_kernel, device_types)
        for kind in (device_types,) if device_types is None or isinstance(
                device_types, str) else device_types:
            self.kernels[kind] = fn
        return fn

    def register_fake(self, fn: Kernel) -> Kernel:
        """What results look like: a function of tensors without memory that returns such ones."""
        self.fake = fn
        return fn

    def register_autograd(self, backward: Kernel, /, *,
                          setup_context: Kernel | None = None) -> None:
        """`backward(ctx, *grads)` gives a gradient for each parameter; `setup_context(ctx, inputs,
        output)` keeps what it needs.
        """
        self.derivative, self.context = backward, setup_context

    def in_graph(self, args: tuple[Any, ...]) -> bool:
        """Whether a graph can hold the call: what it makes and writes to is known, and nothing that
        it reads shares memory with what it writes to."""
        if self.mutates == "unknown" or not (self.declared or self.written) or (
                self.declared and self.fake is None) or any(r != "Tensor" for r in self.declared):
            return False
        stores = [t._storage for a in args for t in (a if isinstance(a, (tuple, list)) else (a,))
                  if isinstance(t, Tensor)]
        return all(isinstance(args[i], Tensor) and sum(
            s.trace is args[i]._storage.trace for s in stores) == 1 for i in self.written)

    def emit(self, args: tuple[Any, ...]) -> Any:
        """The call in the graph of the capture in force."""
        if not self.in_graph(args):
            return dispatch.call(self.opaque, args)
        out = dispatch.call(self.op, args)
        out = out if isinstance(out, tuple) else (out,)
        count = len(self.declared)
        for i, new in zip(self.written, out[count:], strict=True):
            args[i].copy_(new)
        return None if count == 0 else out[0] if count == 1 else tuple(out[:count])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return Call.apply(self, *self.signature.bind(args, kwargs))

    def __repr__(self) -> str:
        return f"<CustomOpDef({self.qualname})>"

    # -- how it runs -------------------------------------------------------------------------------

    def run(self, args: tuple[Any, ...]) -> Any:
        """The function on real tensors; what it writes to is marked as written."""
        kind = next((a.device.type for a in args if isinstance(a, Tensor)), None)
        fn = self.kernels.get(kind) or self.kernels.get(None)
        if fn is None:
            raise NotImplementedError(
                f"{self.qualname} is not defined for tensors on {kind or 'no device'}, only for "
                f"{', '.join(map(str, self.kernels))}: give it a function by "
                f"{self._name}.register_kernel")
        names = [p.name for p in self.signature.params]
        keywords = {p.name for p in self.signature.params if p.keyword}
        values = dict(zip(names, map(detached, args), strict=True))
        out = fn(*(a for n, a in values.items() if n not in keywords),
                 **{n: a for n, a in values.items() if n in keywords})
        given = {id(a._storage) for a in args if isinstance(a, Tensor)}
        for t in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(t, Tensor) and id(t._storage) in given:
                raise RuntimeError(f"{self.qualname}: a result shares memory with an argument; "
                                   "return a clone")
        written = names if self.mutates == "unknown" else self.mutates
        for name, a in zip(names, args, strict=True):
            if name in written and isinstance(a, Tensor):
                a._storage.written()
        return out

    def on_arrays(self, np: Any, *args: Any) -> Any:
        """The function on arrays, as a compiled program calls it."""
        held = STATE.grad
        STATE.grad = False
        try:
            given = tuple(wrapped(np.array(a) if i in self.written else a)
                          for i, a in enumerate(args))
            told = self.types(*given)
            out = self.run(given)
        finally:
            STATE.grad = held
        parts = (*(out if isinstance(out, tuple) else (out,) if self.declared else ()),
                 *(given[i] for i in self.written))
        for t, spec in zip(parts, told if type(told) is tuple else (told,), strict=True):
            if tuple(t.shape) != tuple(spec.shape) or t.dtype is not spec.dtype:
                raise TypeError(    # no RuntimeError: those count as the program's own
                    f"{self.qualname} made {t.dtype} {list(t.shape)}, its fake says {spec.dtype} "
                    f"{list(spec.shape)}")
        made = tuple(t.contiguous()._array for t in parts)
        return made if len(self.op.signature.results) > 1 else made[0]

    def types(self, *args: Any) -> Any:
        """The results' types, from the fake, and those of what is written."""
        held, STATE.tracer = STATE.tracer, None
        try:
            fake = self.fake if self.declared else None
            out = () if fake is None else fake(*(faked(a) for a in args))
        finally:
            STATE.tracer = held
        specs = []
        for t in out if isinstance(out, tuple) else (out,):
            if not isinstance(t, Tensor):
                raise TypeError(f"{self.qualname}: its fake has to return tensors, not "
                                f"{type(t).__name__}")
            if not t.is_contiguous():
                raise NotImplementedError(
                    f"{self.qualname}: its fake returns strides {t.stride()}; a custom operator in "
                    "a compiled program returns contiguous tensors: end it with .contiguous()")
            specs.append(Spec(tuple(t.shape), t.dtype))
        specs += [Spec(tuple(args[i].shape), args[i].dtype) for i in self.written]
        return tuple(specs) if len(self.op.signature.results) > 1 else specs[0]


class Call(Function):
    """One call: opaque to autograd but for the derivative that was registered."""

    @staticmethod
    def forward(op: CustomOpDef, *args: Any) -> Any:
        tracer = STATE.tracer
        if tracer is None:
            return op.run(args)
        return op.emit(args)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.op = inputs[0]
        if ctx.op.context is not None:
            needs = ctx.needs_input_grad
            ctx.needs_input_grad = needs[1:]
            ctx.op.context(ctx, inputs[1:], output)
            ctx.needs_input_grad = needs

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        op = ctx.op
        if op.derivative is None:
            raise RuntimeError(f"{op.qualname} has no derivative: give it one by "
                               f"{op._name}.register_autograd(backward, setup_context=...)")
        needs = ctx.needs_input_grad
        ctx.needs_input_grad = needs[1:]
        try:
            found = op.derivative(ctx, *grads)
        finally:
            ctx.needs_input_grad = needs
        return None, *(found if isinstance(found, tuple) else (found,))


def detached(a: Any) -> Any:
    if isinstance(a, (tuple, list)):
        return type(a)([detached(x) for x in a])
    return a.detach() if isinstance(a, Tensor) and a.requires_grad else a


def wrapped(a: Any) -> Any:
    if isinstance(a, (tuple, list)):
        return [wrapped(x) for x in a]
    return Tensor._from_array(a) if hasattr(a, "__array_interface__") else a


def faked(a: Any) -> Any:
    """A tensor without memory in the place of anything with a shape and a dtype."""
    if isinstance(a, (tuple, list)):
        return [faked(x) for x in a]
    if hasattr(a, "shape") and hasattr(a, "dtype"):
        return dispatch.F.empty(tuple(a.shape), dtype=a.dtype, device=META)
    return a


class Namespace:
    """`torch.ops.<namespace>`: the operators of the user's own in it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> CustomOpDef:
        try:
            return CUSTOM[f"{self._name}::{name}"]
        except KeyError:
            raise AttributeError(f"no operator {self._name}::{name} has been defined") from None


def custom_op(name: str, fn: Kernel | None = None, /, *, mutates_args: str | Iterable[str],
              device_types: Any = None, schema: str | None = None) -> Any:
    """Makes an operator of a Python function, or a decorator that does.

    name: "namespace::name"; mutates_args: the names of parameters that the function writes to, or
    "unknown"; device_types: the devices it is for. The annotations of its parameters and its result
    say what it takes. ValueError where they do not, or where the name is taken by lehr.
    """
    if fn is None:
        return functools.partial(custom_op, name, mutates_args=mutates_args,
                                 device_types=device_types, schema=schema)
    if schema is not None:
        raise NotImplementedError("custom_op(schema=...): annotate the parameters instead")
    mutates = mutates_args if mutates_args == "unknown" else tuple(mutates_args)
    made = CustomOpDef(name, fn, mutates, device_types)
    space = made._namespace
    held = getattr(lehr.ops, space, None)
    if held is not None and not isinstance(held, Namespace):
        raise ValueError(f"custom_op(): the namespace {space!r} is lehr's own")
    registry.OPS[made.op.name] = made.op        # a later definition replaces an earlier one
    CUSTOM[name] = made
    setattr(lehr.ops, space, Namespace(space))
    return made


def found(op: Any) -> CustomOpDef:
    """The operator with a name, or the operator itself."""
    if isinstance(op, CustomOpDef):
        return op
    try:
        return CUSTOM[op]
    except KeyError:
        raise RuntimeError(f"operator {op} does not exist: define it by torch.library.custom_op"
                           ) from None


def register_fake(op: Any, func: Kernel | None = None, /) -> Any:
    """`CustomOpDef.register_fake` of an operator or its name; without func a decorator."""
    if func is None:
        return functools.partial(register_fake, op)
    return found(op).register_fake(func)


def register_kernel(op: Any, device_types: Any, func: Kernel | None = None, /) -> Any:
    """`CustomOpDef.register_kernel` of an operator or its name; without func a decorator."""
    if func is None:
        return functools.partial(register_kernel, op, device_types)
    return found(op).register_kernel(device_types, func)


def register_autograd(op: Any, backward: Kernel, /, *, setup_context: Kernel | None = None) -> None:
    """`CustomOpDef.register_autograd` of an operator or its name."""
    found(op).register_autograd(backward, setup_context=setup_context)
