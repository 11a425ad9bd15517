"""Data loading, recomputation, and other tools around training."""

from lehr.tensor.bundle import swap_tensors
from lehr.utils import checkpoint, data, hooks

__all__ = ["checkpoint", "data", "hooks", "swap_tensors"]
