"""Products of float32 matrices by bfloat16 tiles (`split.c`), where this machine has them.

Three bfloat16 parts hold a float32 number, and a tile unit multiplies bfloat16 so fast that six
products of parts take less time than one float32 product: 1.4 to 2 times, five times for numbers
that are bfloat16. Results are as exact as those of float32 arithmetic (`tests/run/test_split.py`
measures it), but not the same bits. `LEHR_SPLIT=0` leaves all products to BLAS.
"""

from __future__ import annotations

import ctypes

from lehr.base import log
from lehr.base.options import default
from lehr.compiler.run import library, target, toolchain

_tell = log.channel("run")
NEEDS = frozenset("amx_tile amx_bf16 avx512f avx512bw avx512vl".split())


def address(source: str) -> int:
    """Of `lehr_runtime.split`, made of the text of `split.c`; 0 where it cannot be used."""
    if not default().split or not target.host().features >= NEEDS:
        return 0
    try:
        built = library.build([source], "split", extra=("-pthread", "-D_GNU_SOURCE"))
    except toolchain.CompileError as error:  # a compiler older than the tiles: BLAS does it all
        _tell("no products by tiles: %s", error)
        return 0
    return built.function("lehr_split", ctypes.c_void_p)() or 0
