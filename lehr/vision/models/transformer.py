"""Vision transformers (Dosovitskiy et al. 2020)."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from lehr import nn
from lehr.tensor import api, create
from lehr.tensor.tensor import Tensor
from lehr.vision.models.weights import fill, named

_cat: Any = api.function("cat")


class MLPBlock(nn.Sequential):
    """Two linear layers with GELU between."""

    def __init__(self, in_dim: int, mlp_dim: int, dropout: float) -> None:
        super().__init__(nn.Linear(in_dim, mlp_dim), nn.GELU(), nn.Dropout(dropout),
                         nn.Linear(mlp_dim, in_dim), nn.Dropout(dropout))
        for m in self:
            if isinstance(m, nn.Linear):
                nn.init.xavier_uniform_(m.weight)
                nn.init.normal_(m.bias, std=1e-6)


class EncoderBlock(nn.Module):
    """Attention and an MLP, each after a layer norm and around a shortcut: [n, tokens, width]."""

    def __init__(self, num_heads: int, hidden_dim: int, mlp_dim: int, dropout: float,
                 attention_dropout: float, norm_layer: Any) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.ln_1 = norm_layer(hidden_dim)
        self.self_attention = nn.MultiheadAttention(hidden_dim, num_heads,
                                                    dropout=attention_dropout, batch_first=True)
        self.dropout = nn.Dropout(dropout)
        self.ln_2 = norm_layer(hidden_dim)
        self.mlp = MLPBlock(hidden_dim, mlp_dim, dropout)

    def forward(self, input: Tensor) -> Tensor:
        """The same shape."""
        x = self.ln_1(input)
        x = self.self_attention(x, x, x, need_weights=False)[0]
        x = self.dropout(x) + input
        return x + self.mlp(self.ln_2(x))


class Encoder(nn.Module):
    """Positions added, then blocks, then a layer norm."""

    def __init__(self, seq_length: int, num_layers: int, num_heads: int, hidden_dim: int,
                 mlp_dim: int, dropout: float, attention_dropout: float, norm_layer: Any) -> None:
        super().__init__()
        self.pos_embedding = nn.Parameter(
            nn.init.normal_(Tensor(1, seq_length, hidden_dim), std=0.02))
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.Sequential()
        for i in range(num_layers):
            self.layers.add_module(f"encoder_layer_{i}", EncoderBlock(
                num_heads, hidden_dim, mlp_dim, dropout, attention_dropout, norm_layer))
        self.ln = norm_layer(hidden_dim)

    def forward(self, input: Tensor) -> Tensor:
        """The same shape, [n, tokens, width]."""
        return self.ln(self.layers(self.dropout(input + self.pos_embedding)))


class VisionTransformer(nn.Module):
    """Pictures [n, 3, image_size, image_size] in patches; scores [n, num_classes]."""

    def __init__(self, image_size: int, patch_size: int, num_layers: int, num_heads: int,
                 hidden_dim: int, mlp_dim: int, dropout: float = 0.0,
                 attention_dropout: float = 0.0, num_classes: int = 1000,
                 norm_layer: Any = partial(nn.LayerNorm, eps=1e-6)) -> None:
        super().__init__()
        if image_size % patch_size:
            raise ValueError("Input shape indivisible by patch size!")
        self.image_size, self.patch_size, self.hidden_dim = image_size, patch_size, hidden_dim
        self.num_classes = num_classes
        self.conv_proj = nn.Conv2d(3, hidden_dim, patch_size, patch_size)
        self.class_token = nn.Parameter(create.tensor(0.0).expand(1, 1, hidden_dim).clone())
        length = (image_size // patch_size) ** 2 + 1
        self.encoder = Encoder(length, num_layers, num_heads, hidden_dim, mlp_dim, dropout,
                               attention_dropout, norm_layer)
        self.heads = nn.Sequential()
        self.heads.add_module("head", nn.Linear(hidden_dim, num_classes))
        fan = 3 * patch_size ** 2
        nn.init.trunc_normal_(self.conv_proj.weight, std=math.sqrt(1 / fan))
        nn.init.zeros_(self.conv_proj.bias)
        for p in self.heads.parameters():
            nn.init.zeros_(p)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes. AssertionError for another size of pictures."""
        n, _, h, w = x.shape
        if h != self.image_size or w != self.image_size:
            raise AssertionError(f"Wrong image size! Expected {self.image_size} but got {(h, w)}!")
        x = self.conv_proj(x).flatten(2).permute(0, 2, 1)
        x = self.encoder(_cat([self.class_token.expand(n, -1, -1), x], 1))
        return self.heads(x.select(1, 0))


# name -> patch, layers, heads, width, MLP width, file of the weights
SHAPES = {"vit_b_16": (16, 12, 12, 768, 3072, "vit_b_16-c867db91.pth"),
          "vit_b_32": (32, 12, 12, 768, 3072, "vit_b_32-d86f8d99.pth"),
          "vit_l_16": (16, 24, 16, 1024, 4096, "vit_l_16-852ce7e3.pth"),
          "vit_l_32": (32, 24, 16, 1024, 4096, "vit_l_32-c7638314.pth")}


def _maker(name: str, kind: Any) -> Callable[..., VisionTransformer]:
    patch, layers, heads, width, inner, _ = SHAPES[name]

    def make(*, weights: Any = None, progress: bool = True, pretrained: Any = None,
             image_size: int = 224, **kwargs: Any) -> VisionTransformer:
        model = VisionTransformer(image_size, patch, layers, heads, width, inner, **kwargs)
        return fill(model, kind, weights, pretrained)
    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"{name}: {layers} blocks of width {width}, patches of {patch} pixels."
    return make


for _name, _row in SHAPES.items():
    _kind = named(f"ViT_{_name[4].upper()}_{_name[6:]}", IMAGENET1K_V1=_row[5])
    globals()[_kind.__name__] = _kind
    globals()[_name] = _maker(_name, _kind)
