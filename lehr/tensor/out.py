"""`out=`: results written into tensors of the caller's.

What may be written where depends on the op as in PyTorch: elementwise ops and most reductions cast
into the given dtype; others, and all with several results, want their own.
"""

from __future__ import annotations

import warnings
from typing import Any

from lehr.base import dtype as dt
from lehr.ops import layout
from lehr.ops.registry import POINTWISE, REDUCE, SCAN, Op
from lehr.tensor import dispatch
from lehr.tensor.state import STATE
from lehr.tensor.tensor import Tensor

# Ops that cast into the given dtype, beside those of the kinds POINTWISE, REDUCE and SCAN ...
CASTING = frozenset((
    "true_divide max_other min_other stack hstack vstack dstack column_stack outer addr kron "
    "matrix_power cholesky cholesky_solve cholesky_inverse diff cat arange arange_start linspace "
    "logspace").split())
# ... of which these do not.
EXACT = frozenset((
    "neg abs sign sgn lerp where clamp clamp_min clamp_max isposinf isneginf signbit float_power "
    "ldexp floor ceil trunc round frac heaviside nan_to_num hardshrink complex polar amax amin "
    "argmax argmin any all norm renorm softmax log_softmax").split())
# Ops that cast even where the cast loses: a range's or a running value's dtype is that of `out`.
ANY = frozenset(("linspace", "logspace", "cumsum", "cumprod"))
# Ops whose inputs may share no memory with `out`; of elementwise ops they may be the same tensor.
APART = frozenset((
    "take gather cat stack hstack vstack dstack index_select masked_select scatter scatter_value "
    "kthvalue scatter_src_reduce scatter_value_reduce scatter_add scatter_reduce index_add "
    "index_copy").split())
# Predicates: also into uint8.
BYTES = frozenset(("any", "all"))


def casts(op: Op, several: bool) -> bool:
    """Whether results of `op` may be cast into the dtype of `out`."""
    wide = op.kind in (POINTWISE, REDUCE, SCAN) and op.name not in EXACT
    return not several and (wide or op.name in CASTING)


def write_out(op: Op, bound: tuple[Any, ...], out: Any) -> Any:
    """`out=`: the result is written into the given tensor(s), which are returned."""
    made = dispatch.outside(dispatch.call, op, bound)    # autocast leaves these alone
    several = isinstance(made, tuple)
    values = made if several else (made,)
    targets = tuple(out) if several and isinstance(out, (tuple, list)) else (out,)
    if len(targets) != len(values):
        raise TypeError(f"{op.api}(): argument 'out' must be tuple of {len(values)} Tensors, got "
                        f"{len(targets)}")
    for target, value in zip(targets, values, strict=True):
        if not isinstance(target, Tensor):
            raise TypeError(f"{op.api}(): argument 'out' must be Tensor, not "
                            f"{type(target).__name__}")
        if STATE.grad and (target.requires_grad or value.requires_grad):
            raise RuntimeError(f"{op.api}(): functions with out=... arguments don't support "
                               "automatic differentiation, but one of the arguments requires grad.")
        _check_dtype(op, target, value, several)
        _check_overlap(op, target, bound)
        if target._shape != value._shape:
            _resize(target, value)
        dispatch.check_writable(target, False)
        dispatch.assign(target, value)
    return op.signature.named(*targets) if several and op.signature.named else out


def _check_dtype(op: Op, target: Tensor, value: Tensor, several: bool) -> None:
    if target.dtype is value.dtype or op.name in ANY:
        return
    if casts(op, several):
        dispatch.check_cast(value.dtype, target.dtype)
    elif not (op.name in BYTES and target.dtype is dt.uint8):
        raise RuntimeError(f"{op.api}(): Expected out tensor to have dtype {value.dtype}, but got "
                           f"{target.dtype} instead")


def _resize(target: Tensor, value: Tensor) -> None:
    if target.numel():
        warnings.warn(
            f"An output with one or more elements was resized since it had shape "
            f"{list(target._shape)}, which does not match the required output shape "
            f"{list(value._shape)}. Reuse out tensors by resizing them, inplace, to zero elements "
            "with t.resize_(0).", stacklevel=4)
    target.resize_(value._shape)


def _check_overlap(op: Op, target: Tensor, args: Any) -> None:
    """Inputs that share some of the memory of `out`: elementwise ops may have all of it."""
    for a in args:
        if type(a) in (list, tuple):
            _check_overlap(op, target, a)
        elif isinstance(a, Tensor) and a._storage is target._storage and _overlap(op, a, target):
            raise RuntimeError(
                f"{op.api}(): unsupported operation: some elements of the input tensor and the "
                "written-to tensor refer to a single memory location. Please clone() the tensor "
                "before performing the operation.")


def _overlap(op: Op, a: Tensor, b: Tensor) -> bool:
    """Whether two tensors of one storage share memory in a way that `op` does not allow. As in
    PyTorch, only tensors without gaps are looked at."""
    if not a.numel() or not b.numel():
        return False
    if not (layout.is_dense(a._shape, a._strides) and layout.is_dense(b._shape, b._strides)):
        return False
    if (a._offset, a._shape, a._strides) == (b._offset, b._shape, b._strides):
        return op.name in APART
    apart = a._offset >= b._offset + b.numel() or b._offset >= a._offset + a.numel()
    return not apart and (op.kind is POINTWISE or op.name in APART)
