"""`finfo` and `iinfo`: the limits of dtypes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from lehr.base import dtype as dt
from lehr.base.dtype import DType


class finfo:
    """Limits of a floating dtype.

    bits; eps: 1 + eps is the next number after 1; min, max; tiny, smallest_normal: the smallest
    positive normal number; resolution: 10 ** -(decimal digits)
    """

    __slots__ = ("bits", "dtype", "eps", "max", "min", "resolution", "smallest_normal", "tiny")

    def __init__(self, type: DType | None = None) -> None:
        d = dt.Default.dtype if type is None else type
        if not isinstance(d, DType) or not (d.is_floating_point or d.is_complex):
            raise TypeError("torch.finfo() requires a floating point input type. Use torch.iinfo "
                            f"to handle '{d}'")
        d = d.to_real()
        found: Any = ml_dtypes.finfo(d.np) if d is dt.bfloat16 else np.finfo(d.np)
        self.dtype, self.bits = d.name, 8 * d.itemsize
        self.eps, self.min, self.max = float(found.eps), float(found.min), float(found.max)
        self.tiny = self.smallest_normal = float(found.smallest_normal)
        self.resolution = 10.0 ** -int(found.precision)

    def __repr__(self) -> str:
        return (f"finfo(resolution={self.resolution:g}, min={self.min:g}, max={self.max:g}, "
                f"eps={self.eps:g}, smallest_normal={self.smallest_normal:g}, tiny={self.tiny:g}, "
                f"dtype={self.dtype})")

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, finfo) and other.dtype == self.dtype

    def __hash__(self) -> int:
        return hash(("finfo", self.dtype))


class iinfo:
    """Limits of an integer dtype: bits, min, max."""

    __slots__ = ("bits", "dtype", "max", "min")

    def __init__(self, type: DType) -> None:
        if not isinstance(type, DType) or type.category != dt.INT:
            raise TypeError(f"torch.iinfo() requires an integer input type. Use torch.finfo to "
                            f"handle '{type}'")
        found = np.iinfo(type.np)
        self.dtype, self.bits = type.name, 8 * type.itemsize
        self.min, self.max = int(found.min), int(found.max)

    def __repr__(self) -> str:
        return f"iinfo(min={self.min:g}, max={self.max:g}, dtype={self.dtype})"

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, iinfo) and other.dtype == self.dtype

    def __hash__(self) -> int:
        return hash(("iinfo", self.dtype))
