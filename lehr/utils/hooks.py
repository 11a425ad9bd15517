"""Handles of hooks, at PyTorch's path."""

from lehr.nn.hook import RemovableHandle

__all__ = ["RemovableHandle"]
