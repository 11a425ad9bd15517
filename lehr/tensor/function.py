"""`autograd.Function`: operations whose gradient the user writes."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

from lehr.tensor import history, hook, node
from lehr.tensor.node import FREED, Described, Node, Saved, edge_of, fit
from lehr.tensor.state import STATE
from lehr.tensor.tensor import Tensor

F = Tensor.F


class FunctionCtx:
    """What `forward` and `backward` of a Function share; the user may set any attribute."""

    needs_input_grad: tuple[bool, ...] = ()
    materialize_grads = True
    to_save: Any = None
    dirty_tensors: Any = ()
    non_differentiable: Any = ()
    saved_for_forward: Any = None

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keeps tensors for `backward`, which finds them in `saved_tensors`."""
        self.to_save = tensors

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        """Keeps tensors for forward mode (which lehr does not have)."""
        self.saved_for_forward = tensors

    def mark_dirty(self, *args: Tensor) -> None:
        """Names the inputs that `forward` writes to; they have to be returned."""
        self.dirty_tensors = args

    def mark_non_differentiable(self, *args: Tensor) -> None:
        """Names the results that carry no gradient."""
        self.non_differentiable = args

    def set_materialize_grads(self, value: bool) -> None:
        """False: a missing gradient reaches `backward` as None instead of zeros."""
        self.materialize_grads = value

    def mark_shared_storage(self, *pairs: Any) -> None:
        raise ValueError("mark_shared_storage is deprecated. Tensors with shared storages are "
                         "automatically tracked. Note that calls to `set_()` are not tracked")


class BackwardCFunction(FunctionCtx, Node):
    """The tape's node of one call, which is also the call's context."""

    _forward_cls: Any

    def __init__(self) -> None:
        Node.__init__(self, None, [], 1)
        self.places: list[int] = []     # of the edges among the arguments
        self.given = 0                  # how many arguments
        self.results: list[Any] = []    # descriptions of the results
        self.saved: Any = None
        self.freed = False
        self.rules: tuple[Any, ...] = ()    # of a capture

    def name(self) -> str:
        return type(self).__name__

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What `save_for_backward` kept."""
        if self.freed:
            raise RuntimeError(FREED)
        if self.saved is None:
            return tuple(self.to_save or ())
        return tuple(s.read(self) if type(s) is Saved else s for s in self.saved)

    saved_variables = saved_tensors

    def apply(self, grads: list[Any]) -> list[Any]:
        if self.materialize_grads:
            grads = [F.zeros(d.shape, dtype=d.dtype, device=d.device)
                     if g is None and d is not None else g
                     for g, d in zip(grads, self.results, strict=True)]
        cls = self._forward_cls
        own = cls.backward is not Function.backward
        if own and cls.vjp is not Function.vjp:
            raise RuntimeError("Implementing both 'backward' and 'vjp' for a custom Function is "
                               "not allowed. You should only implement one of them.")
        made = (self.rules or (cls.backward, cls.vjp))[not own](self, *grads)
        made = made if isinstance(made, tuple) else (made,)
        if len(made) > self.given and any(g is not None for g in made[self.given:]) \
                or len(made) < self.given:
            raise RuntimeError(f"function {self.name()} returned an incorrect number of gradients "
                               f"(expected {self.given}, got {len(made)})")
        for i, g in enumerate(made):
            if g is not None and i not in self.places:
                raise RuntimeError(f"function {self.name()} returned a gradient different than "
                                   f"None at position {i + 1}, but the corresponding forward "
                                   "input was not a Variable")
        return [None if e is None else self._fitted(n, made[i], want) for n, (e, i, want) in
                enumerate(zip(self.edges, self.places, self.inputs, strict=True))]

    def _fitted(self, n: int, g: Any, want: Described) -> Any:
        if g is None:
            return None
        if not isinstance(g, Tensor):
            raise TypeError(f"expected Variable or None (got {type(g).__name__})")
        try:
            return fit(g, want)
        except RuntimeError:
            raise RuntimeError(f"Function {self.name()} returned an invalid gradient at index {n} "
                               f"- got {list(g._shape)} but expected shape compatible with "
                               f"{list(want.shape)}") from None

    def keeps(self) -> bool:
        return bool(self.saved or self.to_save)

    def release(self) -> None:
        self.saved, self.to_save, self.freed = None, None, True


class FunctionMeta(type):
    """Gives each Function the class of its nodes."""

    def __init__(cls, name: str, bases: Any, space: Any) -> None:
        super().__init__(name, bases, space)
        cls._backward_cls = type(f"{name}Backward", (BackwardCFunction,), {"_forward_cls": cls})


class Function(metaclass=FunctionMeta):
    """Subclasses define static methods `forward(ctx, *args)` (or `forward(*args)` and
    `setup_context(ctx, inputs, output)`) and `backward(ctx, *grads)`, and are called by `apply`."""

    _backward_cls: Any
    generate_vmap_rule = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        warnings.warn(f"{type(self)} should not be instantiated. Methods on autograd functions are "
                      "all static, so you should invoke them on the class itself.",
                      DeprecationWarning, stacklevel=2)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("Legacy autograd function with non-static forward method is deprecated. "
                           "Please use new-style autograd function with static forward method: "
                           f"call {type(self).__name__}.apply(...).")

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """The operation."""
        raise NotImplementedError("You must implement the forward function for custom "
                                  "autograd.Function.")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        """What `backward` needs, where `forward` takes no ctx."""
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """The gradients of all arguments of `forward` (None for what is no tensor)."""
        raise NotImplementedError("You must implement either the backward or vjp method for your "
                                  "custom autograd.Function to use it with backward mode AD.")

    @staticmethod
    def vjp(ctx: Any, *grad_outputs: Any) -> Any:
        """Another name of `backward`."""
        raise NotImplementedError("You must implement either the backward or vjp method for your "
                                  "custom autograd.Function to use it with backward mode AD.")

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        """Forward mode, which lehr does not have."""
        raise NotImplementedError("forward mode differentiation is not supported; use "
                                  "torch.autograd.functional.jvp")

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Runs the operation and records it."""
        tensors = tuple([a if isinstance(a, Tensor) else None for a in args])
        ctx, before = _begin(cls, tensors, cls.backward, cls.vjp)
        try:
            if cls.setup_context is Function.setup_context:
                out = cls.forward(ctx, *args, **kwargs)
            else:
                out = cls.forward(*args, **kwargs)
                cls.setup_context(ctx, args, out)
        finally:
            _end(before)
        return _recorded(ctx, tensors, out, before and any(ctx.needs_input_grad))


# A capture follows what the user wrote, and runs the rest.
Function.apply.__func__.__lehr_open__ = True  # type: ignore[attr-defined]


def _begin(cls: Any, tensors: tuple[Any, ...], *rules: Any) -> tuple[Any, bool]:
    """The context of a call, whose forward records nothing; whether grad mode was on.

    rules: `backward` and `vjp`, which a capture follows
    """
    ctx = cls._backward_cls()
    ctx.needs_input_grad = tuple([t is not None and t.requires_grad for t in tensors])
    if STATE.tracer is not None:
        ctx.rules = rules
    before, STATE.grad = STATE.grad, False
    return ctx, before


def _end(before: bool) -> None:
    STATE.grad = before


def _recorded(ctx: Any, args: tuple[Any, ...], out: Any, recorded: bool) -> Any:
    """The results with their history."""
    several = isinstance(out, tuple)
    outs = list(out) if several else [out]
    dirty = {id(t) for t in ctx.dirty_tensors}
    returned = {id(t) for t in outs}
    if not dirty <= returned:
        raise RuntimeError("Some elements marked as dirty during the forward method were not "
                           "returned as output. The inputs that are modified inplace must all be "
                           "outputs of the Function.")
    inputs = {id(a) for a in args if isinstance(a, Tensor)}
    if recorded:
        for i, a in enumerate(args):
            if isinstance(a, Tensor):
                ctx.places.append(i)
                ctx.edges.append(edge_of(a))
                ctx.inputs.append(Described(a._shape, a.dtype, a.device))
        ctx.given, ctx.count = len(args), len(outs)
        ctx.number = next(node._numbers)  # above the nodes of leaves met just now
    fixed = {id(t) for t in ctx.non_differentiable}
    made = [_result(ctx, i, t, id(t) in inputs, id(t) in dirty, id(t) in fixed, recorded)
            for i, t in enumerate(outs)]
    if recorded:
        own = {id(t): m for t, m in zip(outs, made, strict=True) if isinstance(t, Tensor)}
        ctx.saved = [_kept(t, own, ctx) for t in ctx.to_save or ()]
    ctx.to_save = None
    return tuple(made) if several else made[0]


def _kept(t: Any, own: dict[int, Any], ctx: Any) -> Any:
    if t is None:
        return None
    if not isinstance(t, Tensor):
        raise TypeError(f"save_for_backward can only save variables, but argument is of type "
                        f"{type(t).__name__}")
    made = own.get(id(t), t)
    return Saved(made, made._meta is not None and made._meta.grad_fn is ctx)


def _result(ctx: Any, i: int, t: Any, is_input: bool, is_dirty: bool, is_fixed: bool,
            recorded: bool) -> Any:
    """Result number `i` with its history."""
    if not isinstance(t, Tensor):
        ctx.results.append(None)
        return t
    ctx.results.append(Described(t._shape, t.dtype, t.device))
    if is_fixed or not (t.dtype.is_floating_point or t.dtype.is_complex):
        return F.detach(t) if is_input and not is_dirty else t
    if is_dirty:
        if recorded:
            _rewritten(ctx, i, t)
        return t
    if is_input:
        t = F.detach(t) if recorded else F.alias(t)
    if not recorded:
        return t
    meta = t._autograd()
    meta.grad_fn, meta.index, meta.requires_grad = ctx, i, False
    meta.edge_version = t._storage.version
    if t._view is not None:
        t._view = t._view.detached()
        t._view.guarded = True
    return t


def _rewritten(ctx: Any, i: int, t: Tensor) -> None:
    """The history of an input that the function wrote to."""
    if t.requires_grad and t.is_leaf:
        raise RuntimeError("a leaf Variable that requires grad has been used in an in-place "
                           "operation.")
    t._storage.written()  # views of before are stale
    if t._view is not None and t._view.base is not None:
        if t.requires_grad and t._view.base.is_leaf:
            raise RuntimeError("a view of a leaf Variable that requires grad is being used in an "
                               "in-place operation.")
        made = node.alias(t)
        made._view = None
        meta = made._autograd()
        meta.grad_fn, meta.index = ctx, i
        history.rebase(t, made)
        return
    retains = t._meta is not None and t._meta.retains
    if retains:
        hook.unretain(t)
    history.attach(t, (ctx, i), t._storage.version)
    if retains:
        hook.retain(t)


class Refusal(Node):
    """Gradients of a backward that may be differentiated no further."""

    def name(self) -> str:
        return "DelayedError"

    def apply(self, grads: list[Any]) -> list[Any]:
        raise RuntimeError(self.extra)


def once_differentiable(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator of a `backward` that is not itself differentiable."""
    @functools.wraps(fn)
    def wrapper(ctx: Any, *args: Any) -> Any:
        before, STATE.grad = STATE.grad, False
        try:
            out = fn(ctx, *args)
        finally:
            STATE.grad = before
        if not STATE.grad or not any(isinstance(a, Tensor) and a.requires_grad for a in args):
            return out
        outs = out if isinstance(out, tuple) else (out,)
        refusal = Refusal(None, [edge_of(a) for a in args if isinstance(a, Tensor)], len(outs))
        refusal.extra = ("trying to differentiate twice a function that was marked with "
                         "@once_differentiable")
        made = []
        for i, g in enumerate(outs):
            if isinstance(g, Tensor):
                g = F.detach(g)
                meta = g._autograd()
                meta.grad_fn, meta.index = refusal, i
            made.append(g)
        return tuple(made) if isinstance(out, tuple) else made[0]
    return wrapper


class InplaceFunction(Function):
    """An old name of Function."""


class NestedIOFunction(Function):
    """Refuses: nested inputs are not supported."""

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("NestedIOFunction is not supported; use torch.autograd.Function")
