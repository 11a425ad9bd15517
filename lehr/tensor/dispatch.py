"""From a call to a result: interceptors, autocast, recording, and the interpreter in force.

`call(op, bound)` is the one way into an op. In eager mode the op's numpy kernel (or the compiled one-op kernel
that `lehr.compiler.compile` put into the op's slot) runs; under a capture the same tensors are symbolic and the
capture's graph grows instead. Views, layouts, versions and the tape are the same code in both.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lehr.base.device import CPU
from lehr.base.dtype import can_cast
from lehr.ops import execute, layout
from lehr.ops.expand import decompose
from lehr.ops.registry import COMPOSITE, POINTWISE, VIEW, Functions, Op
from lehr.tensor import autograd, kernel
from lehr.tensor.state import STATE
from lehr.tensor.tensor import Tensor, View


def call(op: Op, args: tuple[Any, ...]) -> Any:
    """Runs `op` on bound arguments in the interpreter in force."""
    state = STATE
    if state.modes:
        mode = state.modes[-1]
        return mode.intercept(op, args)
    if state.autocast is not None and op.amp is not None:
        args = state.autocast(op, args)
    tracer = state.tracer
    if tracer is not None:
        args = tracer.lift(op, args)
    record = state.grad and op.nondiff is not True and _wants_grad(op, args)
    if op.kind is VIEW and op.layout is not None:
        out = view(op, args)
    else:
        # A composite of views has to stay one: its parts share storage and check nothing themselves.
        composite = op.kind is COMPOSITE and op.eager is None and op.vjp is None
        if composite or (record and op.vjp is None):
            made = NotImplemented if op.decomp is None else decompose(F, op, args, op.rule(*args))
            if made is not NotImplemented:
                return made
            raise RuntimeError(f"derivative for {op.name} is not implemented")
        out = tracer.emit(op, args) if tracer is not None else eager(op, args)
    if record:
        autograd.record(op, args, out)
    return out


F = Functions(call)
Tensor.F = F


def _wants_grad(op: Op, args: tuple[Any, ...]) -> bool:
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


# Views that see their storage as another dtype.
RETYPED = frozenset(("view_dtype", "view_as_real", "view_as_complex", "real", "imag"))


def view(op: Op, args: tuple[Any, ...]) -> Tensor:
    """A tensor on the storage of `args[0]`."""
    base = args[0]
    assert op.layout is not None
    shape, strides, offset = op.layout(*args)
    spec_dtype = op.rule(*args).dtype if op.name in RETYPED else base.dtype
    out = Tensor._make(base._storage, spec_dtype, tuple(shape), tuple(strides), offset)
    parent = base._view
    step = (op, args[1:])
    mode = "detached" if op.nondiff else "grad" if STATE.grad else "no_grad"
    if parent is not None and parent.mode != "grad":
        mode = parent.mode if mode == "grad" else mode
    root, chain = (base, (step,)) if parent is None else (parent.root, (*parent.chain, step))
    out._view = View(root, chain, base._storage.version, mode)
    return out


def inplace(op: Op, args: tuple[Any, ...]) -> Tensor:
    """`foo_`: the functional op, then a write of its result into the first argument."""
    target = args[0]
    check_writable(target)
    if STATE.tracer is not None:
        target = STATE.tracer.lift(op, (target,))[0]
        args = (target, *args[1:])
    made = call(op, args)
    if tuple(made._shape) != tuple(target._shape):
        raise RuntimeError(f"output with shape {list(target._shape)} doesn't match the broadcast shape "
                           f"{list(made._shape)}")
    if made.dtype is not target.dtype and not can_cast(made.dtype, target.dtype):
        raise RuntimeError(f"result type {made.dtype} can't be cast to the desired output type "
                           f"{target.dtype}")
    assign(target, made)
    return args[0]


def check_writable(target: Tensor) -> None:
    """In-place writes that PyTorch refuses: leaves that require grad, overlapping memory."""
    if any(st == 0 and n != 1 for n, st in zip(target._shape, target._strides, strict=True)):
        raise RuntimeError("unsupported operation: more than one element of the written-to tensor refers to "
                           "a single memory location. Please clone() the tensor before performing the "
                           "operation.")
    if not STATE.grad or not target.requires_grad:
        root = target._view.root if target._view is not None else None
        if not STATE.grad or root is None or not root.requires_grad or target._view is None:
            return
        if target._view.mode == "no_grad":
            raise RuntimeError("A view was created in no_grad mode and is being modified inplace with grad "
                               "mode enabled. Make the view outside no_grad, or write inside no_grad.")
        return
    if target.is_leaf:
        raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
    if target._view is not None and target._view.mode == "grad" and target._view.root.is_leaf \
            and target._view.root.requires_grad:
        raise RuntimeError("a view of a leaf Variable that requires grad is being used in an in-place "
                           "operation.")


def assign(target: Tensor, value: Tensor) -> None:
    """Writes `value` (of the target's shape) into the target's memory, with its gradient history."""
    if value.dtype is not target.dtype:
        value = F.to_dtype(value, target.dtype)
    tracer = STATE.tracer
    if tracer is not None:
        tracer.write(target, value)
    elif target._storage.owner is not None:
        np.copyto(target._array, value._array)
    target._storage.version += 1
    if STATE.grad and value.requires_grad:
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
            made = tuple([Tensor._empty_meta(s, strides)
                          for s, strides in zip(plan.specs, plan.strides, strict=True)])
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
