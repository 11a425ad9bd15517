"""Comparing many words of memory with what they were, in one foreign call that keeps the GIL.

A table is an array of 64-bit words: groups of `count, address, value, address, value...`, ended by
a zero count (`lehr.compiler.capture.pin` makes them). Earlier groups guard later ones: a group is
only read where those before it are as they were.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

from lehr.base import log
from lehr.compiler.run import library, pool, toolchain

Same = Callable[[Any], int]
_tell = log.channel("run")


@functools.cache
def same() -> Same | None:
    """`same(table)`: whether all words are as the table says. None without a C compiler."""
    try:
        built = pool.pool().library
    except (toolchain.NoCompiler, toolchain.CompileError, library.LoadError) as error:
        _tell("guards are checked in Python: %s", error)
        return None
    found: Any = ctypes.PyDLL(None, handle=built.handle._handle).lehr_same
    return found  # type: ignore[no-any-return]
