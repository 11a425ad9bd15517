"""Multi-head attention."""

from __future__ import annotations

import contextlib
import enum
import warnings
from collections.abc import Iterator
from typing import Any

from lehr.base import dtype as dt
from lehr.nn import functional as F
from lehr.nn import init
from lehr.nn.linear import NonDynamicallyQuantizableLinear, empty
from lehr.nn.module import Module
from lehr.nn.parameter import Parameter
from lehr.tensor.tensor import Tensor


class SDPBackend(enum.Enum):
    """Implementations of attention that `sdpa_kernel` names."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


@contextlib.contextmanager
def sdpa_kernel(backends: Any, set_priority: bool = False) -> Iterator[None]:
    """Accepted: every attention here is one implementation whose results do not depend on it."""
    named = [backends] if isinstance(backends, SDPBackend) else list(backends)
    if not named or not all(isinstance(b, SDPBackend) for b in named):
        raise AssertionError("Backend must be an instance of SDPBackend or a list of SDPBackend "
                             "instances")
    yield


def additive(mask: Any, name: str, like: Tensor) -> Any:
    """A mask as numbers to add: -inf where a boolean one is True."""
    if mask is None:
        return None
    if mask.dtype is not dt.bool_:
        if not mask.dtype.is_floating_point:
            raise AssertionError(f"only bool and floating types of {name} are supported")
        return mask
    zeros = Tensor.F.full(tuple(mask.shape), 0.0, dtype=like.dtype, device=mask.device)
    return zeros.masked_fill(mask, float("-inf"))


def _check_ranks(query: Tensor, key: Tensor, value: Tensor, padding: Any, mask: Any,
                 num_heads: int) -> bool:
    """Whether there is a batch dimension; AssertionError where ranks disagree."""
    if query.dim() not in (2, 3):
        raise AssertionError("query should be unbatched 2D or batched 3D tensor but received "
                             f"{query.dim()}-D query tensor")
    batched = query.dim() == 3
    kind, n = ("batched (3-D)", 3) if batched else ("unbatched (2-D)", 2)
    if key.dim() != n or value.dim() != n:
        raise AssertionError(f"For {kind} `query`, expected `key` and `value` to be {n}-D but "
                             "found "
                             f"{key.dim()}-D and {value.dim()}-D tensors respectively")
    if padding is not None and padding.dim() != n - 1:
        raise AssertionError(f"For {kind} `query`, expected `key_padding_mask` to be `None` or "
                             f"{n - 1}-D but found {padding.dim()}-D tensor instead")
    if mask is not None:
        if mask.dim() not in (2, 3):
            raise AssertionError(f"For {kind} `query`, expected `attn_mask` to be `None`, 2-D or "
                                 "3-D but "
                                 f"found {mask.dim()}-D tensor instead")
        if not batched and mask.dim() == 3:
            wanted = (num_heads, query.shape[0], key.shape[0])
            if tuple(mask.shape) != wanted:
                raise AssertionError(f"Expected `attn_mask` shape to be {wanted} but got "
                                     f"{mask.shape}")
    return batched


def _projected(query: Tensor, key: Tensor, value: Tensor, weight: Any, weights: Any,
               bias: Any) -> list[Tensor]:
    """Query, key and value through their input projections, in one product where they are one
    tensor."""
    if weight is None:
        biases = (None,) * 3 if bias is None else bias.chunk(3)
        return [F.linear(x, w, b) for x, w,
                b in zip((query, key, value), weights, biases, strict=True)]
    if key is value and query is key:
        return list(F.linear(query, weight, bias).chunk(3, -1))
    biases = (None,) * 3 if bias is None else bias.chunk(3)
    return [F.linear(x, w, b) for x, w, b in zip((query, key, value), weight.chunk(3), biases,
                                                 strict=True)]


def _mask_3d(mask: Any, length: Any, source: Any, heads: Any) -> Any:
    """An attention mask [1 or heads, l, s]; RuntimeError for another shape."""
    if mask is None:
        return None
    if mask.dim() == 2:
        if tuple(mask.shape) != (length, source):
            raise RuntimeError(f"The shape of the 2D attn_mask is {mask.shape}, but should be "
                               f"{(length, source)}.")
        return mask.unsqueeze(0)
    if tuple(mask.shape) != (heads, length, source):
        raise RuntimeError(f"The shape of the 3D attn_mask is {mask.shape}, but should be "
                           f"{(heads, length, source)}.")
    return mask


def _longer(key: Tensor, value: Tensor, mask: Any, padding: Any, more_key: Tensor,
            more_value: Tensor, dim: int) -> tuple[Any, ...]:
    """One more source position, which every query may see."""
    cat = Tensor.F.cat
    return (cat([key, more_key], dim), cat([value, more_value], dim),
            None if mask is None else F.pad(mask, (0, 1)),
            None if padding is None else F.pad(padding, (0, 1)))


def multi_head_attention_forward(
        query: Tensor, key: Tensor, value: Tensor, embed_dim_to_check: int, num_heads: int,
        in_proj_weight: Any, in_proj_bias: Any, bias_k: Any, bias_v: Any, add_zero_attn: bool,
        dropout_p: float, out_proj_weight: Tensor, out_proj_bias: Any, training: bool = True,
        key_padding_mask: Any = None, need_weights: bool = True, attn_mask: Any = None,
        use_separate_proj_weight: bool = False, q_proj_weight: Any = None,
        k_proj_weight: Any = None, v_proj_weight: Any = None, static_k: Any = None,
        static_v: Any = None, average_attn_weights: bool = True,
        is_causal: bool = False) -> tuple[Tensor, Any]:
    """Attention of `num_heads` heads (Vaswani et al., 2017): [l, n, e], [s, n, *], [s, n, *] ->
    [l, n, e] and the weights [n, l, s] (or [n, heads, l, s] if not averaged), without n for 2-D
    input."""
    batched = _check_ranks(query, key, value, key_padding_mask, attn_mask, num_heads)
    if not batched:
        shared = key is query, value is key
        query = query.unsqueeze(1)
        key = query if shared[0] else key.unsqueeze(1)
        value = key if shared[1] else value.unsqueeze(1)
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    length, batch, width = query.shape
    source = key.shape[0]
    if is_causal and attn_mask is None:
        raise RuntimeError("Need attn_mask if specifying the is_causal hint. You may use the "
                           "Transformer module method `generate_square_subsequent_mask` to create "
                           "this mask.")
    if width != embed_dim_to_check:
        raise AssertionError(f"was expecting embedding dimension of {embed_dim_to_check}, but got "
                             f"{width}")
    head = width // num_heads
    if head * num_heads != width:
        raise AssertionError(f"embed_dim {width} not divisible by num_heads {num_heads}")
    if is_causal and key_padding_mask is None and not need_weights:
        attn_mask = None  # the hint says it is the causal mask
    else:
        is_causal = False
    mask = _mask_3d(additive(attn_mask, "attn_mask", query), length, source, batch * num_heads)
    padding = additive(key_padding_mask, "key_padding_mask", query)

    separate = (q_proj_weight, k_proj_weight, v_proj_weight)
    q, k, v = _projected(query, key, value, None if use_separate_proj_weight else in_proj_weight,
                         separate, in_proj_bias)
    if bias_k is not None and bias_v is not None:
        k, v, mask, padding = _longer(k, v, mask, padding, bias_k.expand(1, batch, width),
                                      bias_v.expand(1, batch, width), 0)
    q = q.reshape(length, batch * num_heads, head).transpose(0, 1)
    k = (k.reshape(k.shape[0], batch * num_heads, head).transpose(0, 1) if static_k is None
         else static_k)
    v = (v.reshape(v.shape[0], batch * num_heads, head).transpose(0, 1) if static_v is None
         else static_v)
    if add_zero_attn:
        zeros = Tensor.F.full((batch * num_heads, 1, head), 0.0, dtype=k.dtype, device=k.device)
        k, v, mask, padding = _longer(k, v, mask, padding, zeros, zeros, 1)
    source = k.shape[1]
    if padding is not None:
        if tuple(padding.shape) != (batch, source):
            raise AssertionError(f"Expected key_padded_mask.shape[0] to be {batch}, but got "
                                 f"{padding.shape[0]}")
        padding = padding.reshape(batch, 1, 1, source).expand(batch, num_heads, 1, source).reshape(
            batch * num_heads, 1, source)
        mask = padding if mask is None else mask + padding
    p = dropout_p if training else 0.0
    out, weights = _attend(q, k, v, mask, p, need_weights, is_causal, num_heads)
    out = out.transpose(0, 1).reshape(length * batch, width)
    out = F.linear(out, out_proj_weight, out_proj_bias).reshape(length, batch,
                                                                out_proj_weight.shape[0])
    if weights is not None:
        weights = weights.reshape(batch, num_heads, length, source)
        weights = weights.mean(1) if average_attn_weights else weights
        weights = weights if batched else weights.squeeze(0)
    return (out if batched else out.squeeze(1)), weights


def _attend(q: Tensor, k: Tensor, v: Tensor, mask: Any, p: float, need_weights: bool,
            is_causal: bool, num_heads: int) -> tuple[Tensor, Any]:
    """[n heads, l, d], [n heads, s, d] twice -> [n heads, l, d], and the weights where needed."""
    if not need_weights:
        def heads(t: Any) -> Any:
            return t if t is None or t.shape[0] == 1 else t.unflatten(0, (-1, num_heads))
        out = F.scaled_dot_product_attention(heads(q), heads(k), heads(v), heads(mask), p,
                                             is_causal)
        return out.reshape(q.shape[0], *out.shape[-2:]), None
    scores = Tensor.F.matmul(q * (1.0 / float(q.shape[-1]) ** 0.5), k.transpose(-2, -1))
    weights = F.softmax(scores if mask is None else scores + mask, -1)
    weights = F.dropout(weights, p) if p > 0.0 else weights
    return Tensor.F.matmul(weights, v), weights


class MultiheadAttention(Module):
    """Attention of `num_heads` heads of size embed_dim / num_heads (Vaswani et al., 2017).

    add_bias_kv    a learnt source position more
    add_zero_attn  a source position of zeros more
    kdim, vdim     sizes of key and value, embed_dim unless given
    batch_first    [n, l, e] in the place of [l, n, e]
    """

    def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True,
                 add_bias_kv: bool = False, add_zero_attn: bool = False, kdim: int | None = None,
                 vdim: int | None = None, batch_first: bool = False, device: Any = None,
                 dtype: Any = None) -> None:
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError("embed_dim and num_heads must be greater than 0, got "
                             f"embed_dim={embed_dim} and num_heads={num_heads} instead")
        super().__init__()
        self.embed_dim, self.num_heads, self.dropout = embed_dim, num_heads, dropout
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        self.batch_first, self.head_dim = batch_first, embed_dim // num_heads
        if self.head_dim * num_heads != embed_dim:
            raise AssertionError("embed_dim must be divisible by num_heads")
        names = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
        if self._qkv_same_embed_dim:
            self.in_proj_weight = empty((3 * embed_dim, embed_dim), device, dtype)
            for name in names:
                self.register_parameter(name, None)
        else:
            for name, size in zip(names, (embed_dim, self.kdim, self.vdim), strict=True):
                self.register_parameter(name, empty((embed_dim, size), device, dtype))
            self.register_parameter("in_proj_weight", None)
        self.register_parameter("in_proj_bias",
                                empty((3 * embed_dim,), device, dtype) if bias else None)
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias, device, dtype)
        self.bias_k = empty((1, 1, embed_dim), device, dtype) if add_bias_kv else None
        self.bias_v = empty((1, 1, embed_dim), device, dtype) if add_bias_kv else None
        self.add_zero_attn = add_zero_attn
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        for name in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"):
            weight = getattr(self, name)
            if weight is not None:
                init.xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            init.zeros_(self.in_proj_bias)
            init.zeros_(self.out_proj.bias)
        for bias in (self.bias_k, self.bias_v):
            if isinstance(bias, Parameter):
                init.xavier_normal_(bias)

    def __setstate__(self, state: Any) -> None:
        state.setdefault("_qkv_same_embed_dim", True)
        super().__setstate__(state)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Any = None,
                need_weights: bool = True, attn_mask: Any = None, average_attn_weights: bool = True,
                is_causal: bool = False) -> tuple[Tensor, Any]:
        """[l, n, e], [s, n, kdim], [s, n, vdim] -> [l, n, e] and weights [n, l, s] or None.

        key_padding_mask  [n, s], True (or added numbers) where a source position is no one's
        attn_mask         [l, s] or [n heads, l, s], True (or added numbers) where it is not seen
        """
        if key_padding_mask is not None and attn_mask is not None and (
                key_padding_mask.dtype is not attn_mask.dtype):
            warnings.warn("Support for mismatched key_padding_mask and attn_mask is deprecated. "
                          "Use same type for both instead.", stacklevel=2)
        flip = self.batch_first and query.dim() == 3
        if flip:
            same_key, same_value = key is query, value is key
            query = query.transpose(1, 0)
            key = query if same_key else key.transpose(1, 0)
            value = key if same_value else value.transpose(1, 0)
        out, weights = multi_head_attention_forward(
            query, key, value, self.embed_dim, self.num_heads, self.in_proj_weight,
            self.in_proj_bias, self.bias_k, self.bias_v, self.add_zero_attn, self.dropout,
            self.out_proj.weight, self.out_proj.bias, self.training, key_padding_mask,
            need_weights, attn_mask, not self._qkv_same_embed_dim, self.q_proj_weight,
            self.k_proj_weight, self.v_proj_weight, average_attn_weights=average_attn_weights,
            is_causal=is_causal)
        return (out.transpose(1, 0) if flip else out), weights


__all__ = ["MultiheadAttention"]  # what `lehr.nn` has of this
