"""Indexing: `x[index]` and `x[index] = value` in every form.

Integers, slices, None and `...` make views; what is left are tensor indices (integers, masks),
which the ops `index` and `index_put` take.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lehr.base import dtype as dt
from lehr.base.sym import Sym
from lehr.ops import parts, registry
from lehr.ops.rule import same
from lehr.tensor import api, create, dispatch, override
from lehr.tensor.state import STATE
from lehr.tensor.tensor import Tensor

F = Tensor.F
_SELECT, _SLICE, _UNSQUEEZE, _ALIAS = (
    registry.get(name) for name in ("select", "slice", "unsqueeze", "alias"))
_FILL, _COPY, _PUT, _MASKED = (
    registry.get(name) for name in ("fill", "copy", "index_put", "masked_fill"))
MASKS = (dt.bool_, dt.uint8)


def getitem(self: Tensor, index: Any) -> Tensor:
    """`self[index]`."""
    if override.WATCH.on:
        made = override.intercept(getitem, (self, index), {})
        if made is not override.MISSING:
            return made
    if type(index) is int:
        if not self._shape:
            raise IndexError(SCALAR)
        return _chosen(self, 0, index, 0)
    seen, tensors = sliced(self, items_of(index))
    if tensors:
        return F.index(seen, whole(seen, tensors))
    return dispatch.call(_ALIAS, (self,)) if seen is self else seen


SCALAR = ("invalid index of a 0-dim tensor. Use `tensor.item()` in Python or `tensor.item<T>()` in "
          "C++ to convert a 0-dim tensor to a number")


def setitem(self: Tensor, index: Any, value: Any) -> None:
    """`self[index] = value`."""
    if override.WATCH.on:
        made = override.intercept(setitem, (self, index, value), {})
        if made is not override.MISSING:
            return
    seen, tensors = sliced(self, items_of(index), True)
    if STATE.tracer is not None and len(tensors) - tensors.count(None) > 1 and any(
            t is not None and not t._shape for t in tensors):
        STATE.tracer.changes(seen, "a view at an index that is data,", True)
    is_number = not isinstance(value, Tensor)
    if is_number and not isinstance(value, (int, float, complex)) \
            and not hasattr(value, "scalar_category"):
        value, is_number = _given(value, self), False
    if not tensors:
        if is_number:
            dispatch.inplace(_FILL, (seen, value))
        else:
            dispatch.inplace(_COPY, (seen, _trimmed(value, len(seen._shape)), False))
        return
    mask = _only_mask(tensors)
    if mask is not None and (is_number or not value._shape):
        _check_mask(seen, tensors)
        shape = (*mask._shape, *(1,) * (len(seen._shape) - len(tensors) + 1 - len(mask._shape)))
        value = value if is_number or value.dtype is seen.dtype else F.to_dtype(value, seen.dtype)
        dispatch.inplace(_MASKED, (seen, F.view(_bool(mask), shape), value))
        return
    if is_number:
        value = F.scalar_tensor(value, dtype=seen.dtype, device=seen.device)
    else:
        value = _trimmed(value, None)
    dispatch.inplace(_PUT, (seen, whole(seen, tensors), value, False))


def _given(value: Any, like: Tensor) -> Tensor:
    """An array or a sequence as a value to store."""
    if isinstance(value, (np.ndarray, np.generic)):
        made = create.from_data(np.asarray(value), None)
        return F.to_dtype(made, like.dtype) if made.dtype is not like.dtype else made
    if isinstance(value, Sequence) and not isinstance(value, str):
        return create.from_data(value, like.dtype)
    raise TypeError(f"can't assign a {type(value).__name__} to a {like.type()}")


def _trimmed(value: Tensor, ndim: int | None) -> Tensor:
    """`value` without dimensions of size 1 in front (down to `ndim`, where given)."""
    shape = value._shape
    drop = 0
    while drop < len(shape) and isinstance(shape[drop], int) and shape[drop] == 1 and (
            ndim is None or len(shape) - drop > ndim):
        drop += 1
    return F.view(value, shape[drop:]) if drop else value


def _only_mask(tensors: list[Any]) -> Tensor | None:
    """The one bool mask that is the whole advanced index, after leading full dimensions none."""
    given = [t for t in tensors if t is not None]
    if len(given) == 1 and tensors[0] is not None and given[0].dtype in MASKS:
        return given[0]
    return None


def _bool(mask: Tensor) -> Tensor:
    return mask if mask.dtype is dt.bool_ else F.to_dtype(mask, dt.bool_)


def where(condition: Tensor, *args: Any, **kwargs: Any) -> Any:
    """where(condition, input, other): elements of `input` where the condition holds, else of
    `other`. where(condition): the places where it holds, one vector a dimension."""
    if args or kwargs:
        return _choose(condition, *args, **kwargs)
    return condition.nonzero(as_tuple=True)


_choose: Any = api.function("where")


# -- taking an index apart -------------------------------------------------------------------------


def items_of(index: Any) -> tuple[Any, ...]:
    """The index as a tuple; a list that holds slices, tensors or sequences counts as one."""
    if type(index) is tuple:
        return index
    if isinstance(index, tuple):
        return tuple(index)
    if isinstance(index, list) and len(index) < 32 and any(
            isinstance(i, (Tensor, Sequence, slice)) or i is None or i is Ellipsis for i in index):
        return tuple(index)
    return (index,)


def sliced(self: Tensor, items: tuple[Any, ...], stored: bool = False
           ) -> tuple[Tensor, list[Any]]:
    """Takes the views that the items ask for; returns the view, and the tensor indices by its
    dimensions (None: all of the dimension). `stored`: to be written to."""
    ndim = len(self._shape)
    used = _used(items)
    if used > ndim:
        if ndim == 0 and len(items) == 1 and not isinstance(items[0], (slice, Tensor)):
            raise IndexError(SCALAR)
        raise IndexError(f"too many indices for tensor of dimension {ndim}")
    call, seen, dim = dispatch.call, self, 0
    tensors: list[Any] = []
    gone = 0
    for item in items:
        kind = type(item)
        if kind is slice:
            start, stop, step = (_bound(b) for b in (item.start, item.stop, item.step))
            if step is not None and isinstance(step, int) and step <= 0:
                raise ValueError("step must be greater than zero")
            if stop is not None or step not in (None, 1) or start not in (None, 0):
                seen = call(_SLICE, (seen, dim, start, stop, 1 if step is None else step))
            dim += 1
        elif kind is int or isinstance(item, Sym):
            seen = _chosen(seen, dim, item, gone)
            gone += 1
        elif item is None:
            seen = call(_UNSQUEEZE, (seen, dim))
            dim, gone = dim + 1, gone - 1
        elif item is Ellipsis:
            dim += ndim - used
        elif kind is bool:
            seen = call(_UNSQUEEZE, (seen, dim))
            _put(tensors, dim, F.zeros([int(item)], dtype=dt.int64, device=self.device))
            dim, gone = dim + 1, gone - 1
        else:
            rank = len(seen._shape)
            seen, dim = _advanced(seen, dim, item, tensors, gone, stored)
            gone += rank - len(seen._shape)
    return seen, tensors


def _chosen(seen: Tensor, dim: int, index: Any, gone: int) -> Tensor:
    """The view at an index; `gone`: how many dimensions of the whole tensor were before."""
    try:
        return dispatch.call(_SELECT, (seen, dim, index))
    except IndexError:
        raise IndexError(f"index {index} is out of bounds for dimension {dim + gone} with size "
                         f"{seen._shape[dim]}") from None


def _advanced(seen: Tensor, dim: int, item: Any, tensors: list[Any], gone: int, stored: bool
              ) -> tuple[Tensor, int]:
    """A tensor, an array, a sequence, or an integer-like index."""
    if not isinstance(item, Tensor):
        if isinstance(item, (np.ndarray, Sequence)) and not isinstance(item, str):
            item = _listed(item, seen)
        elif hasattr(item, "__index__"):
            return _chosen(seen, dim, item.__index__(), gone), dim
        else:
            raise IndexError("only integers, slices (`:`), ellipsis (`...`), None and long or byte "
                             f"Variables are valid indices (got {type(item).__name__})")
    if not item._shape:
        if item.dtype in MASKS:
            seen = dispatch.call(_UNSQUEEZE, (seen, dim))
            item = F.view(item, (1,))
        elif item.dtype.category == dt.INT and item.device.type != "meta":
            if STATE.tracer is None:
                return _chosen(seen, dim, int(item.item()), gone), dim
            if not stored:
                return STATE.tracer.pick(seen, dim, item), dim
    count = len(item._shape) if item.dtype in MASKS else 1
    _put(tensors, dim, item)
    return seen, dim + count


def _listed(item: Any, like: Tensor) -> Tensor:
    if isinstance(item, np.ndarray):
        return create.from_data(item, None)
    if len(item) == 0:
        return F.zeros([0], dtype=dt.int64)
    made = create.from_data(item, None)
    return made


def _bound(b: Any) -> Any:
    """One end of a slice as an integer (or a symbolic size)."""
    if b is None or type(b) is int or isinstance(b, Sym):
        return b
    if hasattr(b, "__index__"):
        return b.__index__()
    raise TypeError("slice indices must be integers or None or have an __index__ method")


def _used(items: tuple[Any, ...]) -> int:
    """How many dimensions the items stand for."""
    used = 0
    for i in items:
        if i is None or i is Ellipsis or type(i) is bool:
            continue
        if isinstance(i, Tensor) and i.dtype in MASKS:
            used += len(i._shape)
        elif isinstance(i, np.ndarray) and i.dtype.kind == "b":
            used += i.ndim
        else:
            used += 1
    return used


def _put(tensors: list[Any], dim: int, item: Tensor) -> None:
    """Places a tensor index at a dimension; a mask takes as many entries as it has dimensions, in
    one."""
    at = sum(len(t._shape) if t is not None and t.dtype in MASKS else 1 for t in tensors)
    tensors.extend([None] * (dim - at))
    tensors.append(item)


def whole(seen: Tensor, tensors: list[Any]) -> list[Any]:
    """The tensor indices as integer tensors, one a dimension; masks are counted, which needs
    data."""
    if all(t is None or t.dtype not in MASKS for t in tensors):
        return tensors
    _check_mask(seen, tensors)
    return parts.integer_indices(F, tensors)


def _check_mask(seen: Tensor, tensors: list[Any]) -> None:
    at = 0
    for t in tensors:
        if t is not None and t.dtype in MASKS:
            for k, n in enumerate(t._shape):
                if not same(n, seen._shape[at + k]):
                    raise IndexError(f"The shape of the mask {list(t._shape)} at index {k} does "
                                     "not match the shape of the indexed tensor "
                                     f"{list(seen._shape)} at index {at + k}")
            at += len(t._shape)
        else:
            at += 1


getitem.__name__, setitem.__name__ = "__getitem__", "__setitem__"
for _method in (getitem, setitem):
    setattr(Tensor, _method.__name__, _method)
