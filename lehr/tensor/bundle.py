"""Several dense tensors as one flat one, and back; tensors that change places."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from lehr.tensor.tensor import SLOTS, Tensor

F = Tensor.F


def _flatten_dense_tensors(tensors: Sequence[Tensor]) -> Tensor:
    """All elements in a row."""
    return F.cat([F.reshape(t, [-1]) for t in tensors], 0)  # type: ignore[no-any-return]


def _unflatten_dense_tensors(flat: Tensor, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Views of `flat` in the shapes of `tensors`."""
    ends = [0, *itertools.accumulate(t.numel() for t in tensors)]
    if ends[-1] != flat.numel():
        raise RuntimeError(f"a flat tensor of {flat.numel()} elements does not fit tensors of "
                           f"{ends[-1]}")
    return tuple([F.view(F.slice(flat, 0, a, b), list(t.shape))
                  for a, b, t in zip(ends, ends[1:], tensors, strict=False)])


def _take_tensors(tensors: Sequence[Tensor], size_limit: int) -> Iterator[list[Tensor]]:
    """Lists of tensors of one dtype that have at most `size_limit` bytes together, or are alone."""
    held: dict[Any, tuple[list[Tensor], int]] = {}
    for t in tensors:
        size = t.numel() * t.dtype.itemsize
        bundle, full = held.get(t.dtype, ([], 0))
        if full and full + size > size_limit:
            yield bundle
            bundle, full = [], 0
        held[t.dtype] = ([*bundle, t], full + size)
    yield from (bundle for bundle, _ in held.values())


def swap_tensors(t1: Tensor, t2: Tensor) -> None:
    """Exchanges two tensors: each object becomes the other tensor, class, attributes and gradient
    included. RuntimeError for tensors that others are views of or the tape holds."""
    for t in (t1, t2):
        if not t.is_leaf or t._view is not None or (
                t._meta is not None and t._meta.accumulate is not None
                and t._meta.accumulate() is not None):
            raise RuntimeError("swap_tensors: a tensor that is a view or that a graph holds cannot "
                               "be exchanged")
    t1.__class__, t2.__class__ = t2.__class__, t1.__class__
    t1.__dict__, t2.__dict__ = t2.__dict__, t1.__dict__
    for name in SLOTS - {"__dict__", "__weakref__"}:
        a, b = getattr(t1, name), getattr(t2, name)
        setattr(t1, name, b)
        setattr(t2, name, a)


__all__ = ["_flatten_dense_tensors", "_take_tensors", "_unflatten_dense_tensors", "swap_tensors"]
