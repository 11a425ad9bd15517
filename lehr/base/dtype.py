"""The dtype table: one record a dtype, with its spelling in each language, and the promotion
lattice.

Promotion follows PyTorch: a *category* (bool < integer < float < complex) is chosen over all
operands, but among operands of one category tensors with dimensions outrank 0-d tensors, which
outrank Python numbers (`result_type`).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import ml_dtypes
import numpy as np

BOOL, INT, FLOAT, COMPLEX = range(4)


class DType:
    """An element type.

    Attributes: `name` (as in PyTorch), `short` (as in IR text), `np` (numpy dtype), `itemsize` in
    bytes, `category` (BOOL, INT, FLOAT, COMPLEX), `c` and `triton` (spellings), `wide` (the dtype
    in which arithmetic on it is computed before it is rounded once: float32 for the half-precision
    types).
    """

    __slots__ = ("c", "category", "itemsize", "name", "np", "short", "signed", "triton", "wide")

    def __init__(self, name: str, short: str, np_type: Any, category: int, c: str,
                 triton: str) -> None:
        self.name, self.short, self.category = name, short, category
        self.np = np.dtype(np_type)
        self.itemsize = self.np.itemsize
        self.c, self.triton = c, triton
        self.signed = category >= INT and name[0] != "u"
        self.wide: DType = self

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return named, (self.name,)

    @property
    def is_floating_point(self) -> bool:
        return self.category == FLOAT

    @property
    def is_complex(self) -> bool:
        return self.category == COMPLEX

    @property
    def is_signed(self) -> bool:
        return self.signed

    @property
    def is_integer(self) -> bool:
        """True for the integer types and bool."""
        return self.category <= INT

    def to_complex(self) -> DType:
        return {float64: complex128, complex128: complex128}.get(self, complex64)

    def to_real(self) -> DType:
        return {complex128: float64, complex64: float32}.get(self, self)


def named(name: str) -> DType:
    return BY_NAME[name]


bool_ = DType("bool", "b1", np.bool_, BOOL, "uint8_t", "i1")
uint8 = DType("uint8", "u8", np.uint8, INT, "uint8_t", "u8")
int8 = DType("int8", "i8", np.int8, INT, "int8_t", "i8")
int16 = DType("int16", "i16", np.int16, INT, "int16_t", "i16")
int32 = DType("int32", "i32", np.int32, INT, "int32_t", "i32")
int64 = DType("int64", "i64", np.int64, INT, "int64_t", "i64")
float16 = DType("float16", "f16", np.float16, FLOAT, "_Float16", "fp16")
bfloat16 = DType("bfloat16", "bf16", ml_dtypes.bfloat16, FLOAT, "uint16_t", "bf16")
float32 = DType("float32", "f32", np.float32, FLOAT, "float", "fp32")
float64 = DType("float64", "f64", np.float64, FLOAT, "double", "fp64")
complex64 = DType("complex64", "c64", np.complex64, COMPLEX, "float _Complex", "")
complex128 = DType("complex128", "c128", np.complex128, COMPLEX, "double _Complex", "")
float16.wide = bfloat16.wide = float32

ALL = (bool_, uint8, int8, int16, int32, int64, float16, bfloat16, float32, float64, complex64,
       complex128)
BY_NAME = {d.name: d for d in ALL}
BY_SHORT = {d.short: d for d in ALL}
BY_NP = {d.np: d for d in ALL}
ALIASES = {"half": float16, "float": float32, "double": float64, "short": int16, "int": int32,
           "long": int64, "cfloat": complex64, "cdouble": complex128}


def of_numpy(np_type: Any) -> DType:
    """The lehr dtype of a numpy dtype; TypeError names one that has none."""
    try:
        return BY_NP[np.dtype(np_type)]
    except KeyError:
        raise TypeError(
            f"can't convert np.ndarray of type {np.dtype(np_type)}. The supported types are: "
            + ", ".join(d.name for d in ALL)) from None


@functools.cache
def promote(a: DType, b: DType) -> DType:
    """The common dtype of two tensors that both have dimensions (PyTorch's table)."""
    if a is b:
        return a
    if a.category != b.category:
        low, high = sorted((a, b), key=lambda d: d.category)
        if high.category == COMPLEX and low is float64:
            return complex128
        return high
    if a.category == INT:
        small, large = sorted((a, b), key=lambda d: d.itemsize)
        if small.itemsize == large.itemsize or (not large.signed and small.signed):
            return int16  # uint8 with int8
        return large
    if a.itemsize == b.itemsize:
        return float32  # float16 with bfloat16
    return a if a.itemsize > b.itemsize else b


class Default:
    """The process-wide default floating dtype (`set_default_dtype`)."""

    dtype = float32


def of_category(category: int) -> DType:
    """The dtype a Python number of this category has on its own."""
    return (bool_, int64, Default.dtype, Default.dtype.to_complex())[category]


def category_of(number: Any) -> int:
    """The category of a Python number; TypeError for anything else."""
    if isinstance(number, (bool, np.bool_)):
        return BOOL
    if isinstance(number, (int, np.integer)):
        return INT
    if isinstance(number, (float, np.floating)):
        return FLOAT
    if isinstance(number, (complex, np.complexfloating)):
        return COMPLEX
    category = getattr(number, "scalar_category", None)  # a symbolic number
    if category is None:
        raise TypeError(f"expected a number, got {type(number).__name__}")
    return int(category)


def result_type(dims: Iterable[DType], zeros: Iterable[DType] = (),
                numbers: Iterable[int] = ()) -> DType:
    """The common dtype of operands in PyTorch's three ranks.

    dims: dtypes of tensors with dimensions; zeros: of 0-d tensors; numbers: categories of Python
    numbers.
    """
    number = max(numbers, default=None)
    wrapped = None if number is None else of_category(number)
    out = _combine(_join(dims), _combine(_join(zeros), wrapped))
    if out is None:
        raise TypeError("result_type of no operands")
    return out


def _combine(high: DType | None, low: DType | None) -> DType | None:
    """`high` outranks `low` unless `low` is of a higher category."""
    if high is None or low is None:
        return high or low
    if high.category == COMPLEX or low.category <= high.category:
        return promote(high, low) if high is bool_ else high
    if high.category == FLOAT:
        return high.to_complex()
    return promote(high, low)


def _join(dtypes: Iterable[DType]) -> DType | None:
    out = None
    for d in dtypes:
        out = d if out is None else promote(out, d)
    return out


def can_cast(source: DType, target: DType) -> bool:
    """Whether an in-place result of `source` may be stored into `target` (same or higher category).
    """
    return source.category <= target.category
