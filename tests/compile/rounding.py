"""What rounding alone may do to a program: the eager program again, its ops' roundings moved.

Where a compiled result is not eager's to the precision of its dtype, the difference may be
rounding that the program magnifies: float64 results of float32 arithmetic, gradients that cancel
behind a batch norm, Adam's quotients of those, `frexp` of what is 0 but for rounding. That is
proven here, not assumed: the same program runs eagerly `TRIALS` times, and every op that rounds
gets a relative error of its precision. What these runs move as much as the compiled one is
rounding; all else is a fault.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

import ml_dtypes
import numpy as np

from lehr.base import dtype as dt
from lehr.compiler import check
from lehr.ops import optimize, registry
from lehr.ops.expand import decompose
from lehr.ops.registry import CREATE, INDEX, POINTWISE, RANDOM, VIEW, Op
from lehr.tensor import dispatch
from lehr.tensor.state import STATE
from lehr.tensor.tensor import Tensor

TRIALS = 12     # runs of a program
MORE = 48       # where those do not explain a difference: what is printed may rarely be another
LOUD = 8.0      # how far beyond the most that they move a result a compiled one may lie

# What may differ without a proof, beside what the compiler's own checks let pass: few units in the
# last place of an array's largest element.
PART = {"float64": 0.01, "float32": 0.01, "float16": 0.1, "bfloat16": 0.16, "complex128": 0.01,
        "complex64": 0.01}

# Ops of kinds that round which give back numbers that they got, or whole ones.
EXACT = frozenset((
    "abs all amax amin angle any argmax argmin bitwise_and bitwise_left_shift bitwise_not "
    "bitwise_or bitwise_right_shift bitwise_xor ceil check_divisor clamp clamp_max clamp_min clone "
    "complex conj copysign count_nonzero eq floor floor_divide fmax fmin fmod frac frexp ge gt "
    "hardshrink hardtanh heaviside isclose isfinite isinf isnan isneginf isposinf isreal ldexp le "
    "logical_and logical_not logical_or logical_xor lt masked_fill max max_dim maximum min min_dim "
    "minimum nan_to_num ne neg nextafter number relu relu6 round scan_max scan_min sgn sign "
    "signbit threshold to_dtype trunc trunc_divide where").split())
# Ops of the other kinds that round.
ROUNDED = frozenset((
    "adaptive_sum alpha_dropout dropout embedding_backward exponential index_add index_put "
    "index_put_gradient linspace logspace normal overlap put rrelu_train scatter_add "
    "scatter_reduce unfold_backward window_sum").split())
# Precisions, and the bits that make a number short: sums, products and quotients of numbers this
# short were exact, so no order of additions rounds them otherwise.
SHORT = {np.dtype(np.float32): (np.uint32, 12), np.dtype(np.float64): (np.uint64, 29)}


def rounds(op: Op) -> bool:
    if op.kind in (VIEW, CREATE, INDEX, RANDOM):
        return op.name in ROUNDED
    return op.name not in EXACT


# Ops whose roundings are inside: short operands leave them no less rounded.
INNER = frozenset((
    "attention attention_grad batch_norm_eval batch_norm_train class_loss class_loss_grad "
    "cosine_similarity cross_entropy group_norm instance_norm_train layer_norm log_softmax "
    "logsumexp native_layer_norm nn_log_softmax nn_softmax normalize recurrent recurrent_grad "
    "rms_norm scaled_dot_product_attention softmax softmin standardize standardize_grad "
    "standardize_scale std std_mean var var_mean").split())
HALF = (dt.float16, dt.bfloat16)
# Those whose weights may be rounded to half precision where the operands are.
WEIGHTED = frozenset(("attention", "attention_grad", "scaled_dot_product_attention"))


# Sums of which 0 may come: no other number that a run comes by is as special as that one.
SUMS = frozenset(("sum", "mean"))


class Shaker:
    """Runs ops with errors of rounding. Elements in half precision stay: they are computed in
    float32 and rounded once, eagerly and compiled; of sums that number may be another in every
    second run. In every fourth run sums that are 0 but for rounding are 0."""

    def __init__(self, seed: int) -> None:
        self.cancels, self.widens = seed % 4 == 0, seed % 2 == 1
        self.pick = np.random.Generator(np.random.PCG64(seed))
        self.eager = dispatch.eager

    def __call__(self, op: Op, args: tuple[Any, ...]) -> Any:
        if not rounds(op):
            return self.eager(op, args)
        if self.widens and op.kind is not POINTWISE and any(
                isinstance(a, Tensor) and a.dtype in HALF for a in args):
            return self._widened(op, args)
        if op.kind is not POINTWISE:    # its sums may cancel: their error is that of the terms
            args = tuple(self._operand(a, op.name in INNER) for a in args)
        made = self.eager(op, args)
        if self.widens and op.kind is POINTWISE and op.decomp is not None:
            self._taken_apart(op, args, made)
        for t in made if isinstance(made, (tuple, list)) else (made,):
            if isinstance(t, Tensor) and t._storage.owner is not None:
                self.move(t._array)
        if self.cancels and op.name in SUMS and self.parts(made._array) is not None:
            with np.errstate(all="ignore"):
                size = self.eager(op, (self.eager(registry.get("abs"), args[:1]), *args[1:]))
                reach = np.abs(size._array) * np.finfo(made._array.real.dtype).eps
                np.copyto(made._array, 0, where=np.abs(made._array) <= reach)
        return made

    @staticmethod
    def _taken_apart(op: Op, args: tuple[Any, ...], made: Any) -> None:
        """Gives the op's result the numbers of its parts, each rounded: they may cancel inside, as
        the 1 + erf of `gelu` does."""
        before, STATE.grad = STATE.grad, False
        try:
            parts = dispatch.outside(decompose, dispatch.F, op, args, op.rule(*args))
        finally:
            STATE.grad = before
        if parts is not NotImplemented and isinstance(made, Tensor) and (
                made.dtype not in HALF and made._storage.owner is not None):
            np.copyto(made._array, parts._array)

    def _widened(self, op: Op, args: tuple[Any, ...]) -> Any:
        """The op on float32 operands; its results in the dtypes and layouts that they have."""
        made = self.eager(op, args)
        wide = self(op, tuple(self._wide(a) for a in args))
        many = isinstance(made, (tuple, list))
        for t, w in zip(made if many else (made,), wide if many else (wide,), strict=True):
            if isinstance(t, Tensor) and t.dtype in HALF and t._storage.owner is not None:
                with np.errstate(all="ignore"):
                    array = w._array + self._weights(op, t) if op.name in WEIGHTED else w._array
                    np.copyto(t._array, array.astype(t._array.dtype))
        return made

    def _weights(self, op: Op, t: Tensor) -> Any:
        """What rounding the weights of a mean to its dtype makes of the mean."""
        size = np.abs(t._array.astype(np.float32)).max(initial=0, where=np.isfinite(t._array))
        return (size * ml_dtypes.finfo(t._array.dtype).eps * self.pick.uniform(
            -1, 1, t._array.shape)).astype(np.float32)

    def _wide(self, a: Any) -> Any:
        if type(a) in (list, tuple):
            return type(a)(map(self._wide, a))
        if not isinstance(a, Tensor) or a.dtype not in HALF:
            return a
        return self.eager(registry.get("to_dtype"), (a, dt.float32))

    def _operand(self, a: Any, short: bool) -> Any:
        if type(a) in (list, tuple):
            return type(a)([self._operand(x, short) for x in a])
        if not isinstance(a, Tensor) or a.numel() == 0 or self.parts(a._array) is None:
            return a
        made = Tensor._make(a._storage.copy(), a.dtype, a._shape, a._strides, a._offset)
        self.move(made._array, short)
        return made

    @staticmethod
    def parts(array: Any) -> Any:
        """The real numbers of an array, as an array on its memory; None where there are none."""
        if not isinstance(array, np.ndarray):
            return None
        if array.dtype.kind == "c":
            array = array.view(array.real.dtype) if array.flags.c_contiguous else None
        return array if array is not None and array.dtype in SHORT else None

    def move(self, array: Any, short: bool = False) -> None:
        """Gives numbers a relative error, in place; short ones if asked."""
        array = self.parts(array)
        if array is None or array.size == 0:
            return
        bits, low = SHORT[array.dtype]
        tail = array.copy(order="C").view(bits) & bits((1 << low) - 1)
        size = np.finfo(array.dtype).eps
        wanted = ((tail != 0) | short) & np.isfinite(array)
        with np.errstate(all="ignore"):
            moved = array * (1 + size * self.pick.uniform(-1, 1, array.shape))
        np.copyto(array, moved.astype(array.dtype), where=wanted)


@contextlib.contextmanager
def shaken(seed: int) -> Iterator[None]:
    """Eager ops round otherwise inside."""
    with mock.patch.object(dispatch, "eager", Shaker(seed)), \
            mock.patch.dict(optimize.KERNELS, clear=True):
        yield


def explained(have: Any, want: Any, runs: Sequence[Any]) -> bool:
    """Whether rounding, as in the descriptions `runs`, makes one description of another.

    Numbers: by how far the runs move them. All else: where it differs, a run has the same.
    """
    if hasattr(have, "array"):
        return hasattr(want, "array") and near(
            have.array, want.array, [r.array for r in runs if hasattr(r, "array")])
    if not isinstance(have, (tuple, list)):
        return type(have) is type(want) and bool(have == want) or have in runs
    if not alike(have, want):
        runs = [r for r in runs if alike(have, r)]
        return bool(runs) and explained(have, runs[0], runs[1:])
    runs = [r for r in runs if alike(have, r)]
    return all(explained(a, b, [r[i] for r in runs])
               for i, (a, b) in enumerate(zip(have, want, strict=True)))


def alike(a: Any, b: Any) -> bool:
    """Whether two descriptions have the same kind and number of parts."""
    return type(a) is type(b) and len(a) == len(b) and (
        not a or not isinstance(a[0], str) or a[0] == b[0])


def difference(have: Any, want: Any, slack: Any = 0.0) -> str:
    """`check.difference`, to the last digits."""
    return check.difference(have, want, slack, PART.get(dt.of_numpy(want.dtype).name, 1.0))


def near(have: Any, want: Any, runs: Sequence[Any]) -> bool:
    """Whether numbers lie no farther from those wanted than `LOUD` times what the runs did, or are
    those of a run."""
    if have.dtype != want.dtype or have.shape != want.shape:
        return False
    runs = [r for r in runs if r.dtype == want.dtype and r.shape == want.shape]
    same = [have == r for r in runs] + [(have != have) & (r != r) for r in runs]
    slack: Any = 0.0
    if want.dtype.kind not in "iub" and runs:
        kind = np.complex128 if want.dtype.kind == "c" else np.float64
        with np.errstate(all="ignore"):
            slack = LOUD * np.max([np.abs(r.astype(kind) - want.astype(kind)) for r in runs], 0)
    return not difference(have, np.where(np.any(same, 0), have, want), slack)
