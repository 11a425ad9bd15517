"""Padding layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lehr.nn import functional as F
from lehr.nn.conv import spread
from lehr.nn.module import Module
from lehr.tensor.tensor import Tensor


class _Pad(Module):
    """Widths at both sides of the last `rank` dimensions, the last first."""

    rank = 0
    mode = ""
    padding: Sequence[int]

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding = spread(padding, 2 * self.rank)

    def forward(self, input: Tensor) -> Tensor:
        """[*, d1, .., dn] -> each d longer by its two widths."""
        return F.pad(input, self.padding, self.mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPadNd(_Pad):
    """Padding with one value."""

    value: float

    def __init__(self, padding: Any, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        """[*, d1, .., dn] -> each d longer by its two widths."""
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class _ZeroPadNd(_ConstantPadNd):
    """Padding with zeros."""

    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


def _family(base: type, stem: str, text: str, **fields: Any) -> dict[str, type]:
    """The classes of 1, 2 and 3 dimensions."""
    return {f"{stem}{rank}d": type(f"{stem}{rank}d", (base,), {
        "rank": rank, "__doc__": f"{text} the last {rank} dimension{'s' * (rank > 1)}.",
        "__module__": __name__, **fields}) for rank in (1, 2, 3)}


CLASSES = {
    **_family(_ConstantPadNd, "ConstantPad", "Pads with `value`"),
    **_family(_ZeroPadNd, "ZeroPad", "Pads with zeros"),
    **_family(_Pad, "ReflectionPad", "Pads with a mirror image of", mode="reflect"),
    **_family(_Pad, "ReplicationPad", "Pads with the border values of", mode="replicate"),
    **_family(_Pad, "CircularPad", "Pads with the values from the other side of", mode="circular"),
}
globals().update(CLASSES)
__all__ = list(CLASSES)
