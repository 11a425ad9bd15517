"""Rows of tables: `nn.functional.embedding` and `embedding_bag`, whose gradients may be sparse."""

from __future__ import annotations

from typing import Any

from lehr.tensor import api
from lehr.tensor.mode import is_grad_enabled
from lehr.tensor.tensor import Tensor

_dense: Any = api.function("embedding", "nn")
_dense_bag: Any = api.function("embedding_bag", "nn")


def embedding(input: Tensor, weight: Tensor, padding_idx: int | None = None,
              max_norm: float | None = None, norm_type: float = 2.0,
              scale_grad_by_freq: bool = False, sparse: bool = False) -> Tensor:
    """Rows of `weight` [num, dim] at `input` [*]: [*, dim]. `max_norm` first scales rows of
    `weight` down, in place; with `sparse` its gradient is a sparse tensor of the rows read."""
    if sparse and weight.requires_grad and is_grad_enabled():
        from lehr.tensor.sparse import lookup
        if max_norm is not None:
            _dense(input, weight.detach(), padding_idx, max_norm, norm_type)
        return lookup(weight, input, padding_idx, scale_grad_by_freq)
    return _dense(input, weight, padding_idx, max_norm, norm_type,  # type: ignore[no-any-return]
                  scale_grad_by_freq, sparse)


def embedding_bag(input: Tensor, weight: Tensor, offsets: Tensor | None = None,
                  max_norm: float | None = None, norm_type: float = 2.0,
                  scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False,
                  per_sample_weights: Tensor | None = None, include_last_offset: bool = False,
                  padding_idx: int | None = None) -> Tensor:
    """Rows of `weight` [num, dim] at `input` combined in bags: [bags, dim]; `max_norm` and `sparse`
    as in `embedding`. `mode="max"` has no sparse gradient (RuntimeError)."""
    if sparse and weight.requires_grad and is_grad_enabled():
        if mode == "max":
            raise RuntimeError("embedding_bag: mode='max' has no sparse gradient: leave out sparse")
        F = Tensor.F
        found = embedding(F.reshape(input, [-1]), weight, padding_idx, max_norm, norm_type,
                          scale_grad_by_freq, True)
        place = F.arange(found.shape[0], device=found.device)
        if padding_idx is not None:     # all padding stands at one row, which does not count
            low = padding_idx % int(weight.shape[0])
            place = F.where(F.eq(F.reshape(input, [-1]), low),
                            F.full((), found.shape[0], dtype=place.dtype, device=found.device),
                            place)
            padding_idx = int(found.shape[0])
            found = F.cat([found, F.zeros((1, weight.shape[1]), dtype=found.dtype,
                                          device=found.device)], 0)
        input, weight = F.reshape(place, list(input.shape)), found
        max_norm, scale_grad_by_freq, sparse = None, False, False
    return _dense_bag(input, weight, offsets, max_norm,  # type: ignore[no-any-return]
                      norm_type, scale_grad_by_freq, mode, sparse, per_sample_weights,
                      include_last_offset, padding_idx)
