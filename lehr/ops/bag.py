"""Bags of embeddings: rows of a weight looked up and combined without a tensor of all of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from lehr.base import dtype as dt
from lehr.base.proof import decide
from lehr.ops.index import check_index, zeros_of
from lehr.ops.registry import COMPOSITE, op
from lehr.ops.rule import Size, Spec, device_of, numel, same


def _bags(index: Any, offsets: Any, include_last: bool) -> Size:
    """How many bags there are; ValueError where the arguments do not fit."""
    if len(index.shape) == 2:
        if offsets is not None:
            raise ValueError("if input is 2D, then offsets has to be None, as input is treated as "
                             "a mini-batch of fixed length sequences")
        return index.shape[0]
    if len(index.shape) != 1:
        raise ValueError("input has to be 1D or 2D Tensor, but got Tensor of dimension "
                         f"{len(index.shape)}")
    if offsets is None or len(offsets.shape) != 1:
        raise ValueError(f"offsets has to be a 1D Tensor but got "
                         f"{None if offsets is None else list(offsets.shape)}")
    if include_last and decide(offsets.shape[0], "<", 1):
        raise RuntimeError("include_last_offset: number of offsets should be at least 1")
    return offsets.shape[0] - 1 if include_last else offsets.shape[0]


@op("embedding_bag(input: Tensor, weight: Tensor, offsets: Tensor | None = None, "
    "max_norm: float | None = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False, "
    "mode: str = 'mean', sparse: bool = False, per_sample_weights: Tensor | None = None, "
    "include_last_offset: bool = False, padding_idx: int | None = None) -> Tensor")
class embedding_bag:
    """Rows of `weight` (num, dim) at `input`, combined a bag: (bags, dim); mode "sum" | "mean" |
    "max". A 2-d input has a bag a row; bag i of a 1-d one starts at `offsets[i]`. Rows at
    `padding_idx` do not count; an empty bag is zero. Among equal maxima the gradient is shared."""

    kind, where, dtypes = COMPOSITE, "nn", "float"

    def rule(index: Any, weight: Any, offsets: Any, max_norm: Any, norm_type: float, scale: bool,
             mode: str, sparse: bool, per_sample_weights: Any, include_last: bool,
             padding_idx: Any) -> Spec:
        if mode not in ("sum", "mean", "max"):
            raise ValueError("mode has to be one of sum, mean or max")
        bags = _bags(index, offsets, include_last)
        check_index("embedding_bag", index)
        if max_norm is not None:
            raise NotImplementedError(
                "embedding_bag: max_norm changes the weight and is not part of this op; write "
                "weight.copy_(embedding_renorm(weight, input, max_norm, norm_type)) first")
        if per_sample_weights is not None:
            if mode != "sum":
                raise NotImplementedError("embedding_bag: per_sample_weights is only supported for "
                                          f"mode='sum' (got mode='{mode}')")
            given, want = tuple(per_sample_weights.shape), tuple(index.shape)
            if len(given) != len(want) or not all(map(same, given, want)):
                raise ValueError("embedding_bag: If per_sample_weights is not None, then it must "
                                 f"have the shape of the input: {list(want)}, got {list(given)}")
        return Spec((bags, weight.shape[1]), weight.dtype, device_of((weight, index)))

    def decomp(F: Any, index: Any, weight: Any, offsets: Any, max_norm: Any, norm_type: float,
               scale: bool, mode: str, sparse: bool, per_sample_weights: Any, include_last: bool,
               padding_idx: Any) -> Any:
        bags, count = _bags(index, offsets, include_last), numel(index.shape)
        flat = F.reshape(index, (-1,))
        if offsets is None:
            rows = bags
            bag = F.expand(F.unsqueeze(F.arange(bags, device=index.device), 1), index.shape)
            bag = F.reshape(bag, (-1,))
        else:
            rows = offsets.shape[0]
            starts = F.full((count + 1,), 0, dtype=dt.int64, device=index.device)
            ones = F.full((rows,), 1, dtype=dt.int64, device=index.device)
            passed = F.cumsum(F.index_add(starts, 0, offsets, ones), 0)
            bag = F.sub(F.slice(passed, 0, 0, count), 1)
        if padding_idx is not None:  # what does not count goes into one bag more, which is cut off
            low = padding_idx + weight.shape[0] if padding_idx < 0 else padding_idx
            spare = F.full((), rows, dtype=dt.int64, device=index.device)
            bag = F.where(F.eq(flat, low), spare, bag)
        found = F.embedding(flat, weight, None, None, 2.0, scale)
        if per_sample_weights is not None:
            found = F.mul(found, F.unsqueeze(F.reshape(per_sample_weights, (-1,)), 1))
        zeros = zeros_of(F, (rows + 1, weight.shape[1]), found)
        if mode == "max":
            out = F.index_reduce(zeros, 0, bag, found, "amax", include_self=False)
        else:
            out = F.index_add(zeros, 0, bag, found)
        if mode == "mean":
            each = F.full((count,), 1, dtype=found.dtype, device=found.device)
            number = F.index_add(zeros_of(F, (rows + 1,), found), 0, bag, each)
            out = F.div(out, F.unsqueeze(F.clamp_min(number, 1), 1))
        return F.slice(out, 0, 0, bags)

    def samples(s: Any) -> Any:
        starts = np.array([0, 2, 2, 5])
        for mode in ("sum", "mean", "max"):
            yield s(s.i(7, high=5), s.f(5, 3, unique=True), starts, mode=mode)
            yield s(s.i(7, high=5), s.f(5, 3, unique=True), starts, mode=mode, padding_idx=1)
            yield s(s.i(3, 4, high=5), s.f(5, 3, unique=True), mode=mode)
        yield s(s.i(5, high=5), s.f(5, 3), starts, include_last_offset=True)
        yield s(s.i(7, high=5), s.f(5, 3), starts, mode="sum", per_sample_weights=s.f(7))
        yield s.raises(ValueError, s.i(7), s.f(5, 3))
        yield s.raises(ValueError, s.i(2, 2), s.f(5, 3), starts)
        yield s.raises(ValueError, s.i(7), s.f(5, 3), starts, mode="median")
        yield s.raises(NotImplementedError, s.i(7), s.f(5, 3), starts, per_sample_weights=s.f(7))
