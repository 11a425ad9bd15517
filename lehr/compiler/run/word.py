"""Comparing many words of memory with what they were, in one foreign call that keeps the GIL.

A table is an array of 64-bit words: runs of `address, count, values...`, ended by a zero address
(`lehr.compiler.capture.pin` makes them). Earlier runs guard later ones: a run is only read where
those before it are as they were.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

from lehr.base import log
from lehr.compiler.run import library, toolchain

SOURCE = """
#include <stdint.h>

__attribute__((visibility("default")))
int lehr_same(const uint64_t *t) {
    while (*t) {
        const uint64_t *p = (const uint64_t *)*t;
        uint64_t n = t[1];
        t += 2;
        for (uint64_t i = 0; i < n; i++)
            if (p[i] != t[i]) return 0;
        t += n;
    }
    return 1;
}
"""

Same = Callable[[Any], int]
_tell = log.channel("run")


@functools.cache
def same() -> Same | None:
    """`same(table)`: whether all words are as the table says. None without a C compiler."""
    try:
        built = library.build([SOURCE], "word")
    except (toolchain.NoCompiler, toolchain.CompileError, library.LoadError) as error:
        _tell("guards are checked in Python: %s", error)
        return None
    found: Any = ctypes.PyDLL(None, handle=built.handle._handle).lehr_same
    return found  # type: ignore[no-any-return]
