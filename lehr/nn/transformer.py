"""Transformers (Vaswani et al., 2017)."""

from __future__ import annotations

import copy
from typing import Any

from lehr.nn import functional as F
from lehr.nn import init
from lehr.nn.attention import MultiheadAttention, additive
from lehr.nn.container import ModuleList
from lehr.nn.dropout import Dropout
from lehr.nn.linear import Linear
from lehr.nn.module import Module
from lehr.nn.norm import LayerNorm
from lehr.tensor.tensor import Tensor

ACTIVATIONS = ("relu", "gelu")


def _activation(given: Any) -> Any:
    if not isinstance(given, str):
        return given
    if given not in ACTIVATIONS:
        raise RuntimeError(f"activation should be relu/gelu, not {given}")
    return getattr(F, given)


def _clones(module: Module, count: int) -> ModuleList:
    return ModuleList([copy.deepcopy(module) for _ in range(count)])


def _generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Tensor:
    """[sz, sz]: 0 where a position may see another, -inf at later ones."""
    ones = Tensor.F.full((sz, sz), float("-inf"), dtype=dtype, device=device)
    return Tensor.F.triu(ones, 1)  # type: ignore[no-any-return]


class TransformerEncoderLayer(Module):
    """Self-attention and a feed-forward network, each with a residual connection and a layer norm.

    norm_first  normalizes before each part in the place of after it
    """

    def __init__(self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
                 activation: Any = "relu", layer_norm_eps: float = 1e-5, batch_first: bool = False,
                 norm_first: bool = False, bias: bool = True, device: Any = None,
                 dtype: Any = None) -> None:
        super().__init__()
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(d_model, nhead, dropout=dropout, bias=bias,
                                            batch_first=batch_first, **where)
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, **where)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, **where)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **where)
        self.norm2 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **where)
        self.dropout1 = Dropout(dropout)
        self.dropout2 = Dropout(dropout)
        self.activation = _activation(activation)

    def __setstate__(self, state: Any) -> None:
        super().__setstate__(state)
        if not hasattr(self, "activation"):
            self.activation = F.relu

    def forward(self, src: Tensor, src_mask: Any = None, src_key_padding_mask: Any = None,
                is_causal: bool = False) -> Tensor:
        """[l, n, d_model] (or [n, l, d_model]) -> the same."""
        padding = additive(src_key_padding_mask, "src_key_padding_mask", src)
        mask = additive(src_mask, "src_mask", src)
        x = src
        if self.norm_first:
            x = x + self._sa_block(self.norm1(x), mask, padding, is_causal)
            return x + self._ff_block(self.norm2(x))
        x = self.norm1(x + self._sa_block(x, mask, padding, is_causal))
        return self.norm2(x + self._ff_block(x))  # type: ignore[no-any-return]

    def _sa_block(self, x: Tensor, attn_mask: Any, key_padding_mask: Any,
                  is_causal: bool = False) -> Tensor:
        made = self.self_attn(x, x, x, attn_mask=attn_mask, key_padding_mask=key_padding_mask,
                              need_weights=False, is_causal=is_causal)[0]
        return self.dropout1(made)  # type: ignore[no-any-return]

    def _ff_block(self, x: Tensor) -> Tensor:
        made = self.linear2(self.dropout(self.activation(self.linear1(x))))
        return self.dropout2(made)  # type: ignore[no-any-return]


class TransformerDecoderLayer(Module):
    """An encoder layer with attention over the encoder's result between its parts."""

    def __init__(self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
                 activation: Any = "relu", layer_norm_eps: float = 1e-5, batch_first: bool = False,
                 norm_first: bool = False, bias: bool = True, device: Any = None,
                 dtype: Any = None) -> None:
        super().__init__()
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        heads: dict[str, Any] = {"dropout": dropout, "batch_first": batch_first, "bias": bias,
                                 **where}
        self.self_attn = MultiheadAttention(d_model, nhead, **heads)
        self.multihead_attn = MultiheadAttention(d_model, nhead, **heads)
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, **where)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, **where)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **where)
        self.norm2 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **where)
        self.norm3 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **where)
        self.dropout1 = Dropout(dropout)
        self.dropout2 = Dropout(dropout)
        self.dropout3 = Dropout(dropout)
        self.activation = _activation(activation)

    def __setstate__(self, state: Any) -> None:
        super().__setstate__(state)
        if not hasattr(self, "activation"):
            self.activation = F.relu

    def forward(self, tgt: Tensor, memory: Tensor, tgt_mask: Any = None, memory_mask: Any = None,
                tgt_key_padding_mask: Any = None, memory_key_padding_mask: Any = None,
                tgt_is_causal: bool = False, memory_is_causal: bool = False) -> Tensor:
        """[l, n, d_model] over memory [s, n, d_model] -> [l, n, d_model]."""
        x = tgt
        own = (tgt_mask, tgt_key_padding_mask, tgt_is_causal)
        other = (memory, memory_mask, memory_key_padding_mask, memory_is_causal)
        if self.norm_first:
            x = x + self._sa_block(self.norm1(x), *own)
            x = x + self._mha_block(self.norm2(x), *other)
            return x + self._ff_block(self.norm3(x))
        x = self.norm1(x + self._sa_block(x, *own))
        x = self.norm2(x + self._mha_block(x, *other))
        return self.norm3(x + self._ff_block(x))  # type: ignore[no-any-return]

    def _sa_block(self, x: Tensor, attn_mask: Any, key_padding_mask: Any,
                  is_causal: bool = False) -> Tensor:
        made = self.self_attn(x, x, x, attn_mask=attn_mask, key_padding_mask=key_padding_mask,
                              is_causal=is_causal, need_weights=False)[0]
        return self.dropout1(made)  # type: ignore[no-any-return]

    def _mha_block(self, x: Tensor, mem: Tensor, attn_mask: Any, key_padding_mask: Any,
                   is_causal: bool = False) -> Tensor:
        made = self.multihead_attn(x, mem, mem, attn_mask=attn_mask,
                                   key_padding_mask=key_padding_mask, is_causal=is_causal,
                                   need_weights=False)[0]
        return self.dropout2(made)  # type: ignore[no-any-return]

    def _ff_block(self, x: Tensor) -> Tensor:
        made = self.linear2(self.dropout(self.activation(self.linear1(x))))
        return self.dropout3(made)  # type: ignore[no-any-return]


class TransformerEncoder(Module):
    """`num_layers` copies of an encoder layer; `enable_nested_tensor` is accepted without
    effect."""

    def __init__(self, encoder_layer: Module, num_layers: int, norm: Any = None,
                 enable_nested_tensor: bool = True, mask_check: bool = True) -> None:
        super().__init__()
        self.layers = _clones(encoder_layer, num_layers)
        self.num_layers, self.norm = num_layers, norm
        self.enable_nested_tensor, self.mask_check = enable_nested_tensor, mask_check

    def forward(self, src: Tensor, mask: Any = None, src_key_padding_mask: Any = None,
                is_causal: bool | None = None) -> Tensor:
        """[l, n, d_model] -> the same."""
        padding = additive(src_key_padding_mask, "src_key_padding_mask", src)
        mask = additive(mask, "mask", src)
        x = src
        for layer in self.layers:
            x = layer(x, src_mask=mask, is_causal=bool(is_causal), src_key_padding_mask=padding)
        return x if self.norm is None else self.norm(x)  # type: ignore[no-any-return]


class TransformerDecoder(Module):
    """`num_layers` copies of a decoder layer."""

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Any = None) -> None:
        super().__init__()
        self.layers = _clones(decoder_layer, num_layers)
        self.num_layers, self.norm = num_layers, norm

    def forward(self, tgt: Tensor, memory: Tensor, tgt_mask: Any = None, memory_mask: Any = None,
                tgt_key_padding_mask: Any = None, memory_key_padding_mask: Any = None,
                tgt_is_causal: bool | None = None, memory_is_causal: bool = False) -> Tensor:
        """[l, n, d_model] over memory [s, n, d_model] -> [l, n, d_model]."""
        x = tgt
        for layer in self.layers:
            x = layer(x, memory, tgt_mask=tgt_mask, memory_mask=memory_mask,
                      tgt_key_padding_mask=tgt_key_padding_mask,
                      memory_key_padding_mask=memory_key_padding_mask,
                      tgt_is_causal=bool(tgt_is_causal), memory_is_causal=memory_is_causal)
        return x if self.norm is None else self.norm(x)  # type: ignore[no-any-return]


class Transformer(Module):
    """An encoder and a decoder."""

    def __init__(self, d_model: int = 512, nhead: int = 8, num_encoder_layers: int = 6,
                 num_decoder_layers: int = 6, dim_feedforward: int = 2048, dropout: float = 0.1,
                 activation: Any = "relu", custom_encoder: Any = None, custom_decoder: Any = None,
                 layer_norm_eps: float = 1e-5, batch_first: bool = False, norm_first: bool = False,
                 bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        layer = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first,
                 norm_first, bias, device, dtype)
        norm: dict[str, Any] = {"eps": layer_norm_eps, "bias": bias, "device": device,
                                "dtype": dtype}
        self.encoder = TransformerEncoder(
            TransformerEncoderLayer(*layer), num_encoder_layers, LayerNorm(d_model, **norm)
        ) if custom_encoder is None else custom_encoder
        self.decoder = TransformerDecoder(
            TransformerDecoderLayer(*layer), num_decoder_layers, LayerNorm(d_model, **norm)
        ) if custom_decoder is None else custom_decoder
        self._reset_parameters()
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    def forward(self, src: Tensor, tgt: Tensor, src_mask: Any = None, tgt_mask: Any = None,
                memory_mask: Any = None, src_key_padding_mask: Any = None,
                tgt_key_padding_mask: Any = None, memory_key_padding_mask: Any = None,
                src_is_causal: bool | None = None, tgt_is_causal: bool | None = None,
                memory_is_causal: bool = False) -> Tensor:
        """[s, n, d_model], [l, n, d_model] -> [l, n, d_model]."""
        batched = src.dim() == 3
        dim = 0 if self.batch_first else 1
        if batched and src.size(dim) != tgt.size(dim):
            raise RuntimeError("the batch number of src and tgt must be equal")
        if src.size(-1) != self.d_model or tgt.size(-1) != self.d_model:
            raise RuntimeError("the feature number of src and tgt must be equal to d_model")
        memory = self.encoder(src, mask=src_mask, src_key_padding_mask=src_key_padding_mask,
                              is_causal=src_is_causal)
        return self.decoder(  # type: ignore[no-any-return]
            tgt, memory, tgt_mask=tgt_mask, memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask, tgt_is_causal=tgt_is_causal,
            memory_is_causal=memory_is_causal)

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Tensor:
        """[sz, sz]: 0 where a position may see another, -inf at later ones."""
        return _generate_square_subsequent_mask(sz, device, dtype)

    def _reset_parameters(self) -> None:
        for p in self.parameters():
            if p.dim() > 1:
                init.xavier_uniform_(p)


__all__ = ["Transformer", "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder",
           "TransformerEncoderLayer"]
