"""Ops that write several of their arguments: optimizer steps.

The op's results are written into the arguments at the given places. Eagerly on the CPU, a numpy
kernel does all of it in place; under a capture, and with recording on, the op's own parts run and
the writes follow.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lehr.base.device import CPU
from lehr.ops import layout, registry
from lehr.ops.optimize import KERNELS
from lehr.tensor import dispatch
from lehr.tensor.state import STATE
from lehr.tensor.tensor import Tensor

FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


def update(name: str, args: tuple[Any, ...], written: tuple[int, ...]) -> None:
    """Runs op `name` on its bound arguments; result i goes into argument `written[i]` (None:
    nowhere)."""
    op = registry.get(name)
    if args[1].is_sparse:
        return sparse_update(name, args)
    if args[0].dtype.is_complex:
        args = tuple([Tensor.F.view_as_real(a) if isinstance(a,
                                                             Tensor) and a.dtype.is_complex else a
                      for a in args])
    if STATE.tracer is None and not STATE.modes and not STATE.grad:
        kernel = KERNELS.get(name)
        flat = None if kernel is None else _flat(args)
        if flat is not None and kernel is not None:
            try:
                with np.errstate(all="ignore"):
                    kernel(*flat)  # type: ignore[operator]
            finally:
                for i in written:
                    if args[i] is not None:
                        args[i]._storage.written()
            return
    if STATE.tracer is not None:
        args = STATE.tracer.lift(op, args)
    recorded = STATE.grad and dispatch.wants_grad(op, args)
    for i in written:
        if args[i] is not None:
            dispatch.check_writable(args[i], recorded)
    if STATE.tracer is not None and not recorded:
        made = STATE.tracer.emit(op, args)  # one node, whose parts the compiler writes out
    else:
        made = dispatch.call(op, args)
    for i, value in zip(written, made, strict=True):
        if args[i] is not None:
            dispatch.assign(args[i], value)


def sparse_update(name: str, args: tuple[Any, ...]) -> None:
    """A step whose gradient is sparse."""
    from lehr.tensor import sparse
    sparse.update(name, args)


def _flat(args: tuple[Any, ...]) -> list[Any] | None:
    """Flat numpy arrays for the tensors where all but the 0-d ones agree in dtype and dense
    layout."""
    first = args[0]
    shape, strides, dtype = first._shape, first._strides, first.dtype
    if dtype.np not in FLOATS or not layout.is_dense(shape, strides):
        return None
    contiguous = layout.is_contiguous(shape, strides)
    order = None if contiguous else sorted(range(len(shape)), key=lambda d: -strides[d])
    out: list[Any] = []
    for a in args:
        if not isinstance(a, Tensor):
            out.append(a)
        elif a._storage.device is not CPU:
            return None
        elif a._shape == shape and a._strides == strides and a.dtype is dtype:
            out.append((a._array if order is None else a._array.transpose(order)).reshape(-1))
        elif a._shape:
            return None
        else:
            out.append(a._array)
    return out
