"""Layers that drop elements or channels while training."""

from __future__ import annotations

from lehr.nn import functional as F
from lehr.nn.module import Module
from lehr.tensor.tensor import Tensor


class _DropoutNd(Module):
    """A probability of dropping, and whether to write into the input."""

    p: float
    inplace: bool

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if p < 0 or p > 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p, self.inplace = p, inplace

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_DropoutNd):
    """Zeroes elements with probability p, scales the rest by 1 / (1 - p) (Srivastava et al.,
    2014)."""

    def forward(self, input: Tensor) -> Tensor:
        """[*] -> [*]."""
        return F.dropout(input, self.p, self.training, self.inplace)


class Dropout1d(_DropoutNd):
    """Drops whole channels of [n, c, l] or [c, l]."""

    def forward(self, input: Tensor) -> Tensor:
        """[n, c, l] -> the same."""
        return F.dropout1d(input, self.p, self.training, self.inplace)


class Dropout2d(_DropoutNd):
    """Drops whole channels of [n, c, h, w]."""

    def forward(self, input: Tensor) -> Tensor:
        """[n, c, h, w] -> the same."""
        return F.dropout2d(input, self.p, self.training, self.inplace)


class Dropout3d(_DropoutNd):
    """Drops whole channels of [n, c, d, h, w]."""

    def forward(self, input: Tensor) -> Tensor:
        """[n, c, d, h, w] -> the same."""
        return F.dropout3d(input, self.p, self.training, self.inplace)


class AlphaDropout(_DropoutNd):
    """Dropout that keeps mean and variance of SELU networks (Klambauer et al., 2017)."""

    def forward(self, input: Tensor) -> Tensor:
        """[*] -> [*]."""
        return F.alpha_dropout(input, self.p, self.training)


class FeatureAlphaDropout(_DropoutNd):
    """`AlphaDropout` of whole channels."""

    def forward(self, input: Tensor) -> Tensor:
        """[n, c, *] -> the same."""
        return F.feature_alpha_dropout(input, self.p, self.training)


__all__ = ["AlphaDropout", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout"]
