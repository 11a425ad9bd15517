"""Functions of `nn.functional` that draw random numbers: dropout in its forms, rrelu, Gumbel
softmax.

A draw takes its place in the generator's stream here, in program order; the ops are functions of
that place.
"""

from __future__ import annotations

import warnings
from typing import Any

from lehr.ops import registry
from lehr.tensor import dispatch, random
from lehr.tensor.tensor import Tensor


def _checked(p: float) -> float:
    if p < 0.0 or p > 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    return p


def _drawn(op: str, input: Tensor, p: float, inplace: bool, features: bool) -> Tensor:
    key, offset = random.take(None)
    if inplace:
        return dispatch.inplace(registry.get(op), (input, p, key, offset, features))
    return getattr(Tensor.F, op)(input, p, key, offset, features)  # type: ignore[no-any-return]


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zeroes elements with probability p and scales the rest by 1 / (1 - p), when training."""
    if _checked(p) == 0.0 or not training:
        return input
    return _drawn("dropout", input, p, inplace, False)


def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False,
                  inplace: bool = False) -> Tensor:
    """Dropout that keeps mean and variance of SELU networks (Klambauer et al., 2017)."""
    if _checked(p) == 0.0 or not training:
        return input
    return _drawn("alpha_dropout", input, p, inplace, False)


def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False,
                          inplace: bool = False) -> Tensor:
    """`alpha_dropout` of whole channels, dimension 1."""
    if _checked(p) == 0.0 or not training:
        return input
    return _drawn("alpha_dropout", input, p, inplace, True)


def _channels(name: str, input: Tensor, p: float, training: bool, inplace: bool, rank: int,
              single: bool) -> Tensor:
    """Dropout of whole channels; inputs without a batch dimension get one."""
    _checked(p)
    n = input.dim()
    if n not in (rank + 1, rank + 2):
        warnings.warn(f"{name}: Received a {n}-D input to {name}, which is deprecated and will "
                      "result in an error in a future release. To retain the behavior and silence "
                      "this warning, please "
                      f"use dropout instead. Note that {name} exists to provide channel-wise "
                      "dropout on "
                      f"inputs with {rank} spatial dimensions, a channel dimension, and an "
                      "optional batch "
                      f"dimension (i.e. {rank + 1}D or {rank + 2}D inputs).", stacklevel=3)
    if p == 0.0 or not training:
        return input
    if single and n == rank + 1:
        made = _drawn("dropout", input.unsqueeze(0), p, inplace, True)
        return made.squeeze(0)  # type: ignore[no-any-return]
    return _drawn("dropout", input, p, inplace, True)


def dropout1d(input: Tensor, p: float = 0.5, training: bool = True,
              inplace: bool = False) -> Tensor:
    """Dropout of whole channels of [n, c, l] or [c, l]."""
    return _channels("dropout1d", input, p, training, inplace, 1, True)


def dropout2d(input: Tensor, p: float = 0.5, training: bool = True,
              inplace: bool = False) -> Tensor:
    """Dropout of whole channels of [n, c, h, w]; of a 3-D input, dimension 1."""
    return _channels("dropout2d", input, p, training, inplace, 2, False)


def dropout3d(input: Tensor, p: float = 0.5, training: bool = True,
              inplace: bool = False) -> Tensor:
    """Dropout of whole channels of [n, c, d, h, w] or [c, d, h, w]."""
    return _channels("dropout3d", input, p, training, inplace, 3, True)


def rrelu(input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False,
          inplace: bool = False) -> Tensor:
    """Leaky ReLU whose slope is drawn from [lower, upper) when training, their mean otherwise."""
    if lower > upper:
        raise RuntimeError("rrelu: Lower bound should be less than or equal to the upper bound, "
                           f"got {lower} and {upper}")
    op, args = "leaky_relu", (input, (lower + upper) / 2)  # type: tuple[str, tuple[Any, ...]]
    if training:
        op, args = "rrelu_train", (input, lower, upper, *random.take(None))
    bound = registry.get(op).signature.bind(args, {})
    run = dispatch.inplace if inplace else dispatch.call
    return run(registry.get(op), bound)  # type: ignore[no-any-return]


def rrelu_(input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3,
           training: bool = False) -> Tensor:
    """`rrelu`, written into its input."""
    return rrelu(input, lower, upper, training, True)


def gumbel_softmax(logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10,
                   dim: int = -1) -> Tensor:
    """A sample of the Gumbel-softmax distribution (Jang et al., 2016); `hard`: one-hot forward."""
    F = Tensor.F
    drawn = F.exponential(tuple(logits._shape), 1.0, *random.take(None), dtype=logits.dtype,
                          device=logits.device)
    soft = F.softmax(F.div(F.sub(logits, F.log(drawn)), tau), dim)
    if not hard:
        return soft  # type: ignore[no-any-return]
    index = F.argmax(soft, dim, True)
    one = F.scatter_value(F.zeros_like(logits), dim, index, 1.0)
    return one - soft.detach() + soft  # type: ignore[no-any-return]


def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Any = None,
                                 dropout_p: float = 0.0, is_causal: bool = False,
                                 scale: float | None = None, enable_gqa: bool = False) -> Tensor:
    """softmax(query key^T * scale + attn_mask) value: [.., l, e], [.., s, e], [.., s, ev].

    scale      1 / sqrt(e) unless given
    attn_mask  booleans (True takes part) or numbers to add, broadcast against [.., l, s]
    enable_gqa groups of query heads (dimension -3) share a key head
    """
    if dropout_p > 0.0:
        seed, offset = random.take(None)
        return Tensor.F.scaled_dot_product_attention(  # type: ignore[no-any-return]
            query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, seed=seed,
            offset=offset)
    return Tensor.F.scaled_dot_product_attention(  # type: ignore[no-any-return]
        query, key, value, attn_mask, 0.0, is_causal, scale, enable_gqa)
