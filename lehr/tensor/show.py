"""The text of a tensor."""

from __future__ import annotations

from lehr.tensor.tensor import Tensor


def text(t: Tensor) -> str:
    return f"tensor({t.detach().tolist()})"
