"""Switches of cuDNN. lehr's results do not depend on them: its ops are deterministic as they are.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

enabled = True
benchmark = False
benchmark_limit: int | None = None
deterministic = False
allow_tf32 = True
fp32_precision = "none"

FLAGS = ("enabled", "benchmark", "benchmark_limit", "deterministic", "allow_tf32")


def version() -> int | None:
    """None: lehr computes without cuDNN here."""
    return None


def is_available() -> bool:
    """False: lehr computes without cuDNN here."""
    return False


def is_acceptable(tensor: Any) -> bool:
    """False: lehr computes without cuDNN here."""
    return False


def set_flags(_enabled: bool | None = None, _benchmark: bool | None = None,
              _benchmark_limit: int | None = None, _deterministic: bool | None = None,
              _allow_tf32: bool | None = None, _fp32_precision: str = "none") -> tuple[Any, ...]:
    """Sets what is not None; the values before."""
    here = sys.modules[__name__]
    before = tuple(getattr(here, name) for name in FLAGS)
    given = (_enabled, _benchmark, _benchmark_limit, _deterministic, _allow_tf32)
    for name, value in zip(FLAGS, given, strict=True):
        if value is not None:
            setattr(here, name, value)
    return before


@contextlib.contextmanager
def flags(enabled: bool = False, benchmark: bool = False, benchmark_limit: int = 10,
          deterministic: bool = False, allow_tf32: bool = True,
          fp32_precision: str = "none") -> Iterator[None]:
    """The switches so inside, as before after."""
    before = set_flags(enabled, benchmark, benchmark_limit, deterministic, allow_tf32)
    try:
        yield
    finally:
        set_flags(*before)
