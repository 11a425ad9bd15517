"""Saving and loading in PyTorch's zip format."""

from lehr.io.load import load
from lehr.io.save import save
from lehr.io.trust import add_safe_globals, clear_safe_globals, get_safe_globals, safe_globals

__all__ = ["add_safe_globals", "clear_safe_globals", "get_safe_globals", "load", "safe_globals",
           "save"]
