"""Conversions that lose nothing."""

from __future__ import annotations

import functools

from lehr.base import dtype as dt
from lehr.base.dtype import DType


@functools.cache
def widens(a: DType, b: DType) -> bool:
    """Whether every value of `a` is exact in `b`."""
    if a is b or a is dt.bool_:
        return True
    if b.category < a.category or dt.COMPLEX in (a.category, b.category):
        return False
    if a.category == dt.FLOAT:
        return a.itemsize < b.itemsize
    if b.category == dt.FLOAT:
        digits = {2: 8 if b is dt.bfloat16 else 11, 4: 24, 8: 53}[b.itemsize]
        return 8 * a.itemsize - a.signed <= digits
    return a.itemsize < b.itemsize and (b.signed or not a.signed)
