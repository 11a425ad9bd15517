"""The functions are made from the op registry at their first use."""

from typing import Any

def __getattr__(name: str) -> Any: ...
