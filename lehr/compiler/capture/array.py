"""Arrays that `t.numpy()` gives inside a captured program: memory of the graph, shown as numpy.

They may be kept, handed out, asked for their shape, and be tensors again (`from_numpy`). What
computes with them is numpy's, to the last bit: there the graph ends.
"""

from __future__ import annotations

import math
from inspect import unwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from lehr.base import dtype as dt
from lehr.base.device import CPU
from lehr.compiler.capture.tensors import TensorMachine, TensorValue
from lehr.compiler.capture.value import Value, slot
from lehr.ops import layout
from lehr.tensor import convert, create
from lehr.tensor.state import STATE
from lehr.tensor.tensor import Tensor

if TYPE_CHECKING:
    from lehr.compiler.capture.calling import Args, Kwargs

# What numpy has under the same name.
SHOWN = frozenset((dt.float64, dt.float32, dt.float16, dt.int64, dt.int32, dt.int16, dt.int8,
                   dt.uint8, dt.bool_))


class ArrayValue(Value):
    """A numpy array on the memory of a tensor."""

    __slots__ = ("shown",)

    def __init__(self, shown: TensorValue) -> None:
        self.shown, self.source = shown, None

    @property
    def type_(self) -> Any:
        return np.ndarray

    @slot("shape")
    def get_shape(self, m: TensorMachine) -> Value:
        return m.lifted(tuple(self.shown.twin._shape))

    @slot("ndim")
    def get_ndim(self, m: TensorMachine) -> Value:
        return m.lifted(len(self.shown.twin._shape))

    @slot("size")
    def get_size(self, m: TensorMachine) -> Value:
        return m.lifted(math.prod(self.shown.twin._shape))

    def rebuild(self, r: Any) -> Any:
        made = r(self.shown)
        return made if made._storage.trace is not None else convert.numpy(made)

    def __repr__(self) -> str:
        return f"ArrayValue({self.shown!r})"


def show(m: TensorMachine, args: Args, kwargs: Kwargs) -> Value | None:
    """`Tensor.numpy`."""
    t = args[0].force(m) if len(args) == 1 and not kwargs else None
    if not isinstance(t, TensorValue) or type(t.twin) is not Tensor or t.twin.requires_grad or (
            t.twin.device is not CPU or t.twin.dtype not in SHOWN or m.walking is not None):
        return None
    made = ArrayValue(m.tensor_value(t.twin.detach()))
    m.born(made)
    return made


def take(m: TensorMachine, args: Args, kwargs: Kwargs) -> Value | None:
    """`from_numpy`, of memory in its own order: a part of it would be a storage by itself."""
    a = args[0].force(m) if len(args) == 1 and not kwargs else None
    if not isinstance(a, ArrayValue) or STATE.inference:
        return None
    t = a.shown.twin
    here, whole = (t._shape, t._strides, t._offset, t.dtype), t._storage.trace.root
    if here != whole or t._offset or t._strides != layout.contiguous(t._shape):
        return None
    return m.tensor_value(t.data)


MODELS = {unwrap(convert.numpy): show, unwrap(create.from_numpy): take}

__all__ = ["MODELS", "ArrayValue"]
