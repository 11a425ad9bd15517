"""`torch.cond`: one of two functions, as data decide."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any],
         operands: Any = ()) -> Any:
    """`true_fn(*operands)` where `pred` (a bool, or a tensor of one element) holds, otherwise
    `false_fn(*operands)`. A compiled program breaks at a tensor, whose value decides in Python."""
    if not isinstance(operands, (tuple, list)):
        raise RuntimeError("Expect operands to be a tuple of possibly nested dict/list/tuple that "
                           f"only consists of tensor leaves, but got {operands}.")
    return true_fn(*operands) if pred else false_fn(*operands)
