"""Templates: C written by hand for what loops do badly, compiled once per toolchain.

A template's sources lie beside this file. Its library is loaded when a program first needs it, and
its `lehr_install` puts its functions into the runtime's table, through which programs call them.
"""

from __future__ import annotations

import ctypes
import functools

from lehr.compiler.run import library, pool

# Name -> the files of its source.
SOURCES = {
    "convolution": ("convolution.c",),
    "attention": ("attention.h", "attention.c"),
    "attention_back": ("attention.h", "attention_back.c"),
    "half": ("amx.h", "half.c"),
}
# Sums of products may be fused here, as in any library that multiplies matrices.
FLAGS = ("-ffp-contract=fast",)


@functools.cache
def need(name: str) -> library.Library:
    """A template, loaded into the runtime's table. Raises what `library.build` raises."""
    if name not in SOURCES:
        raise LookupError(f"there is no template {name!r}: {', '.join(SOURCES)}")
    source = "".join([pool.header(), *map(pool.text, SOURCES[name])])
    built = library.build([source], name, extra=FLAGS)
    built.function("lehr_install", None, ctypes.c_void_p)(pool.pool().table)
    return built
