"""From a call to a result: autocast, recording, and the interpreter in force.

`call(op, bound)` is the one way into an op. In eager mode the op's numpy kernel (or the compiled
one-op kernel that `lehr.compiler.compile` put into the op's slot) runs; under a capture the same
tensors are symbolic and the capture's graph grows instead. Views, layouts, versions and the tape
are the same code in both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lehr.base.device import CPU
from lehr.base.dtype import DType, can_cast
from lehr.ops import execute, layout
from lehr.ops.expand import decompose
from lehr.ops.registry import COMPOSITE, POINTWISE, VIEW, Functions, Op
from lehr.ops.rule import LABELS
from lehr.ops.saving import reads_for
from lehr.tensor import autograd, kernel
from lehr.tensor.direct import DIRECT
from lehr.tensor.history import mould
from lehr.tensor.state import STATE
from lehr.tensor.tensor import Tensor, View

# How an op runs: on the storage of its argument, as its decomposition only, or by its kernel.
ALIAS, PARTS, KERNEL = range(3)
_ROUTES: dict[Op, int] = {}


def route(op: Op) -> int:
    if op.kind is VIEW and op.layout is not None:
        made = ALIAS
    elif op.kind is COMPOSITE and op.eager is None and op.vjp is None:
        # A composite of views has to stay one: its parts share storage.
        made = PARTS
    else:
        made = KERNEL
    _ROUTES[op] = made
    return made


def call(op: Op, args: tuple[Any, ...]) -> Any:
    """Runs `op` on bound arguments in the interpreter in force."""
    state = STATE
    tracer = None
    if state.special:
        if state.profile is not None and state.tracer is None:
            return state.profile(op, args)
        if state.autocast is not None and op.name in state.autocast.listed:
            done = state.autocast.run(op, args)
            if done is not NotImplemented:
                return done
        tracer = state.tracer
        if tracer is not None:
            args = tracer.lift(op, args)
    record = state.grad and op.nondiff is not True and wants_grad(op, args)
    way = _ROUTES.get(op)
    if way is None:
        way = route(op)
    if way is ALIAS:
        out = view(op, args)
    elif way is PARTS or (record and op.vjp is None):
        made = NotImplemented
        if op.decomp is not None:
            made = outside(_parts, op, args)
        if made is not NotImplemented:
            return _named(op, made) if type(made) is tuple else made
        raise RuntimeError(f"derivative for {op.name} is not implemented")
    else:
        out = tracer.emit(op, args) if tracer is not None else eager(op, args)
        if state.inference:
            mark(out)
    if record:
        autograd.record(op, args, out)
    return out


F = Functions(call)
Tensor.F = F


def _parts(op: Op, args: tuple[Any, ...]) -> Any:
    return decompose(F, op, args, op.rule(*args))


def outside(function: Callable[..., Any], *args: Any) -> Any:
    """`function(*args)` outside the autocast regions in force."""
    state = STATE
    before = state.autocast
    if before is None:
        return function(*args)
    state.autocast = None
    try:
        return function(*args)
    finally:
        state.autocast = before


def mark(out: Any) -> None:
    """Results of inference mode are inference tensors."""
    for t in out if isinstance(out, (tuple, list)) else (out,):
        if isinstance(t, Tensor):
            t._storage.inference = True


def check_cast(made: DType, target: DType) -> None:
    """RuntimeError where no write turns results of one dtype into another."""
    if made is not target and not can_cast(made, target):
        raise RuntimeError(f"result type {LABELS.get(made.name, made)} can't be cast to the desired"
                           f" output type {LABELS.get(target.name, target)}")


def wants_grad(op: Op, args: tuple[Any, ...]) -> bool:
    """Whether some tensor argument requires a gradient."""
    for i in op.signature.tensor_slots:
        a = args[i]
        if isinstance(a, Tensor):
            if (a._meta is not None or a._view is not None) and a.requires_grad:
                return True
        elif type(a) in (list, tuple):
            for x in a:
                if isinstance(x, Tensor) and x.requires_grad:
                    return True
    return False


# (view op, key of the input, its offset, arguments) -> (shape, strides, offset) of the result.
_LAYOUTS: dict[Any, Any] = {}


def view(op: Op, args: tuple[Any, ...]) -> Tensor:
    """A tensor on the storage of `args[0]`."""
    base = args[0]
    rest = args[1:]
    storage = base._storage
    if storage.trace is None:
        key = (op, base._key if base._key is not None else kernel.intern(base), base._offset, rest)
        try:
            found = _LAYOUTS.get(key)
        except TypeError:  # a list among the arguments
            rest = tuple([tuple(r) if type(r) is list else r for r in rest])
            key = (op, key[1], base._offset, rest)
            found = _LAYOUTS.get(key)
        if found is None:
            if len(_LAYOUTS) >= kernel.LIMIT:
                _LAYOUTS.clear()
            shape, strides, offset = op.layout(base, *rest)  # type: ignore[misc]
            shape, strides = (tuple([int(n) if isinstance(n, np.integer) else n for n in part])
                              for part in (shape, strides))     # numpy's numbers as sizes
            found = _LAYOUTS[key] = shape, strides, offset
        shape, strides, offset = found
    else:
        shape, strides, offset = op.layout(base, *rest)  # type: ignore[misc]
        shape, strides = tuple(shape), tuple(strides)
    dtype = base.dtype
    if op.name in RETYPED:
        dtype = op.rule(*args).dtype
    out = Tensor._make(storage, dtype, shape, strides, offset)
    parent = base._view
    step = (op, rest)
    if op.nondiff:
        root, chain = (base, (step,)) if parent is None else (parent.root, (*parent.chain, step))
        out._view = View(root, chain, None, 0, storage.version, False)
    else:
        root, chain = (base, ()) if parent is None else (parent.root, parent.chain)
        own, skip, guarded = ((base, len(chain), False) if parent is None or parent.base is None
                              else (parent.base, parent.skip, parent.guarded))
        trace = storage.trace
        if not STATE.grad and trace is not None and trace.tracer.lone(own):
            own, skip = None, 0
        out._view = View(root, (*chain, step), own, skip, storage.version,
                         guarded or not STATE.grad)
    return out


# View ops whose result has another dtype.
RETYPED = frozenset(("view_dtype", "real", "imag", "view_as_real", "view_as_complex"))


def inplace(op: Op, args: tuple[Any, ...]) -> Any:
    """`foo_`: the functional op, then a write of its result into the first argument."""
    target = args[0]
    if not isinstance(target, Tensor):
        raise TypeError(f"{op.api}_(): argument 'self' must be Tensor, not {type(target).__name__}")
    if op.name in RELAYOUTS:
        return relayout(op, args)
    state = STATE
    recorded = state.grad and (target.requires_grad or wants_grad(op, args))
    check_writable(target, recorded, op.name in REPEATABLE
                   or (op.name == "copy" and args[1] is target))
    if state.tracer is not None:
        target = state.tracer.lift(op, (target,))[0]
        args = (target, *args[1:])
    elif not recorded and not state.special:
        direct = DIRECT.get(op.name)
        if direct is not None and target._storage.owner is not None:
            try:
                done = direct(target, args)
            except BaseException:
                target._storage.unsure()
                raise
            if done:
                target._storage.written()
                return target
    source = F.clone(target) if recorded and _saves_target(op, args) else target
    made = outside(call, op, args if source is target else (source, *args[1:]))
    if made._shape != target._shape:
        raise RuntimeError(f"output with shape {list(target._shape)} doesn't match the broadcast "
                           f"shape {list(made._shape)}")
    check_cast(made.dtype, target.dtype)
    assign(target, made)
    return target


# Writes that may reach one place in memory several times: all bring the same value.
REPEATABLE = frozenset(("fill", "zero", "masked_fill"))


def _saves_target(op: Op, args: tuple[Any, ...]) -> bool:
    """Whether the gradient rule reads the target as it was before the write."""
    if op.nondiff is True:
        return False
    if op.vjp is None or _ROUTES.get(op, PARTS) == PARTS:
        return True
    live = tuple([_is_live(args[i]) for i in op.signature.tensor_slots])
    return reads_for(op, live)[op.params[0].name] == "value"


def _is_live(a: Any) -> bool:
    if type(a) in (list, tuple):
        return any(map(_is_live, a))
    return isinstance(a, Tensor) and a.requires_grad


# Their in-place forms change the tensor's layout, not its memory.
RELAYOUTS = frozenset(("t", "transpose", "squeeze", "unsqueeze", "detach"))


def relayout(op: Op, args: tuple[Any, ...]) -> Tensor:
    """`transpose_` and the like: the tensor itself gets another layout of the same memory."""
    target = args[0]
    if target.requires_grad and STATE.grad:
        check_writable(target, True)
    if STATE.tracer is not None:
        STATE.tracer.changes(target, f"{op.name}_()")
    made = call(op, args)
    if made is target:
        return target
    old = Tensor._make(target._storage, target.dtype, target._shape, target._strides,
                       target._offset)
    old._view = target._view
    recorded = made._meta is not None and made._meta.grad_fn is not None
    if recorded:
        old._meta, target._meta = target._meta, made._meta
    target._shape, target._strides, target._offset = made._shape, made._strides, made._offset
    target._np = target._key = None
    target._storage.written()
    if not recorded:
        mould(target, old._shape, old.dtype)
    trace = target._storage.trace
    if trace is not None and trace.tensor is target:
        trace.tensor = old
    view = made._view
    target._view = View(old if view._root is target else view._root, view.chain,
                        old if view._base is target else view._base, view.skip, view.version,
                        view.guarded)
    return target


def check_writable(target: Tensor, recorded: bool, repeatable: bool = False) -> None:
    """In-place writes that PyTorch refuses: overlapping memory, leaves that require grad, views
    made in no_grad mode, inference tensors outside inference mode."""
    if target._storage.inference and not STATE.inference:
        raise RuntimeError(
            "Inplace update to inference tensor outside InferenceMode is not allowed.You can make "
            "a clone to get a normal tensor before doing inplace update.See "
            "https://github.com/pytorch/rfcs/pull/17 for more details.")
    if recorded:
        _check_recorded(target)
    strides = target._strides
    if not repeatable and 0 in strides and any(st == 0 and n != 1
                            for n, st in zip(target._shape, strides, strict=True)):
        raise RuntimeError(
            "unsupported operation: more than one element of the written-to tensor refers to a "
            "single memory location. Please clone() the tensor before performing the operation.")


def _check_recorded(target: Tensor) -> None:
    view = target._view
    if view is not None and view.guarded:
        raise RuntimeError(
            "Output of a custom Function is a view and is being modified inplace. This is not "
            "allowed: clone() the result before writing to it." if view.base is None else
            "A view was created in no_grad mode and is being modified inplace with grad mode "
            "enabled. Given that this use case is ambiguous and error-prone, it is forbidden. "
            "You can clarify your code by moving both the view and the inplace either both "
            "inside the no_grad block (if you don't want the inplace to be tracked) or both "
            "outside (if you want the inplace to be tracked).")
    if view is not None and view.base is not None:
        if target.requires_grad and view.base.is_leaf:
            raise RuntimeError("a view of a leaf Variable that requires grad is being used in an "
                               "in-place operation.")
    if target.requires_grad and target.is_leaf:
        raise RuntimeError("a leaf Variable that requires grad is being used in an in-place "
                           "operation.")


def assign(target: Tensor, value: Tensor) -> None:
    """Writes `value` (of the target's shape) into the target's memory, with its history."""
    if value.dtype is not target.dtype:
        value = F.to_dtype(value, target.dtype)
    tracer = STATE.tracer
    if tracer is not None:
        tracer.write(target, value)
    elif target._storage.owner is not None:
        try:
            np.copyto(target._array, value._array)
        except BaseException:   # a signal is handled when the copy is done
            target._storage.unsure()
            raise
    target._storage.written()
    if STATE.grad and ((value._meta is not None or value._view is not None) and value.requires_grad
                       or target.requires_grad):
        autograd.rebase(target, value)


def eager(op: Op, args: tuple[Any, ...]) -> Any:
    """Runs the op where its tensors are; results have the layout PyTorch gives them."""
    plan = kernel.plan(op, args, strides_of)
    if plan is None:
        out = execute.run(op, arrays(args))
        if not isinstance(out, tuple):
            return Tensor._from_array(out) if isinstance(out, np.ndarray) else out
        return _named(op, tuple(map(Tensor._from_array, out)))
    device = plan.device
    if device is not CPU and device is not None:
        if device.type == "meta":
            made = tuple([Tensor._empty_meta(s, r.strides)
                          for s, r in zip(plan.specs, plan.results, strict=True)])
            return _named(op, made) if plan.several else made[0]
        slot = op.slots.get(device.type)
        if slot is None:
            raise RuntimeError(f"op {op.name} has no eager kernel for device {device}")
        return slot(op, args, plan)
    if op.slots:
        slot = op.slots.get("cpu")
        made = slot(op, args, plan) if slot is not None else NotImplemented
        if made is not NotImplemented:
            return made
    out = kernel.run(plan, args)
    return _named(op, out) if plan.several else out


def _named(op: Op, parts: tuple[Any, ...]) -> Any:
    return op.signature.named(*parts) if op.signature.named else parts


def arrays(args: Any) -> Any:
    """Bound arguments with numpy arrays in the place of tensors."""
    out = []
    for a in args:
        if isinstance(a, Tensor):
            out.append(a._array)
        elif type(a) in (list, tuple):
            out.append(type(a)(arrays(a)))
        else:
            out.append(a)
    return tuple(out)


def operands(args: Any) -> list[tuple[Any, Any]]:
    """(shape, strides) of the tensor arguments."""
    out: list[tuple[Any, Any]] = []
    for a in args:
        if isinstance(a, Tensor):
            out.append((a._shape, a._strides))
        elif type(a) in (list, tuple):
            out.extend(operands(a))
    return out


def strides_of(op: Op, spec: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The eager layout of one result of a non-view op."""
    if op.layout is not None:
        return tuple(op.layout(spec, *args))
    if op.kind is POINTWISE:
        found = operands(args)
        if found:
            return layout.pointwise(tuple(spec.shape), found)
    return layout.contiguous(tuple(spec.shape))
