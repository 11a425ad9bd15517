"""Templates: C written by hand for what loops do badly, compiled once per toolchain.

A template is a source beside this file. Its library is loaded when a program first needs it, and
its `lehr_install` puts its functions into the runtime's table, through which programs call them.
"""

from __future__ import annotations

import ctypes
import functools

from lehr.compiler.run import library, pool

NAMES = ("convolution", "attention")
# Sums of products may be fused here, as in any library that multiplies matrices.
FLAGS = ("-ffp-contract=fast",)


@functools.cache
def need(name: str) -> library.Library:
    """A template, loaded into the runtime's table. Raises what `library.build` raises."""
    if name not in NAMES:
        raise LookupError(f"there is no template {name!r}: {', '.join(NAMES)}")
    built = library.build([pool.header() + pool.text(f"{name}.c")], name, extra=FLAGS)
    built.function("lehr_install", None, ctypes.c_void_p)(pool.pool().table)
    return built
