"""Data loading, recomputation, and other tools around training."""

from lehr.utils import checkpoint, data, hooks

__all__ = ["checkpoint", "data", "hooks"]
