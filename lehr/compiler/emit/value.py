"""One element value as C text: types, numbers, conversions, operators, index expressions.

Registers hold a dtype as `register` says: bool as int, half precision as its bits (arithmetic on it
does not occur: the IR converts to float32 first).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from lehr.base import dtype as dt
from lehr.base import spell, sym
from lehr.base.dtype import DType
from lehr.compiler.loop.expr import DIVIDING
from lehr.compiler.loop.ir import Expr


class Unsupported(TypeError):
    """A program that this back end cannot spell; says which part."""


_REGISTERS = {"b1": "int", "u8": "uint8_t", "i8": "int8_t", "i16": "int16_t", "i32": "int32_t",
              "i64": "int64_t", "f16": "uint16_t", "bf16": "uint16_t", "f32": "float",
              "f64": "double"}
HALF = ("f16", "bf16")

# C's / and % are Python's for operands that are not negative.
INDEX: spell.Table = {
    **spell.TEXT,
    "mul": ("{0} * {1}", spell.TERM),
    "floordiv": ("{0} / {1}", spell.TERM),
    "mod": ("{0} % {1}", spell.TERM),
    "floordiv_any": ("lehr_floor_divide_i64({0}, {1})", spell.ATOM),
    "mod_any": ("lehr_remainder_i64({0}, {1})", spell.ATOM),
    "min": ("lehr_minimum_i64({0}, {1})", spell.ATOM),
    "max": ("lehr_maximum_i64({0}, {1})", spell.ATOM),
}


def register(dtype: DType) -> str:
    """The C type of a value in a variable."""
    try:
        return _REGISTERS[dtype.short]
    except KeyError:
        raise Unsupported(f"C code has no {dtype.name}") from None


def memory(dtype: DType) -> str:
    """The C type of an element in memory."""
    return "uint8_t" if dtype is dt.bool_ else register(dtype)


def index(e: Any, names: Mapping[Any, str]) -> str:
    """An index expression; `names` gives variables their C names."""
    return sym.render(e, INDEX, names) if not isinstance(e, int) else str(e)


_PLAIN = re.compile(r"@?\w[\w.@]*(?:\[[^\[\]()]*\])?|[a-z]\w*\([^()]*\)")


def atom(text: str) -> str:
    """The text, in parentheses where it is not one word or call."""
    return text if _PLAIN.fullmatch(text) else f"({text})"


# Numbers


def number(value: Any, dtype: DType) -> str:
    """A constant of a dtype, exactly."""
    if dtype.short in HALF:
        bits = np.asarray(value, dtype.np).view(np.uint16)
        return f"0x{int(bits):04x}"
    if dtype.category == dt.FLOAT:
        return _floating(value, dtype)
    if dtype is dt.bool_:
        return str(int(bool(value)))
    return _integer(int(value))


def _floating(value: Any, dtype: DType) -> str:
    single = dtype is dt.float32
    with np.errstate(over="ignore"):
        v = dtype.np.type(value)
    if np.isnan(v):
        return '__builtin_nanf("")' if single else '__builtin_nan("")'
    if np.isinf(v):
        name = "__builtin_inff()" if single else "__builtin_inf()"
        return name if v > 0 else f"-{name}"
    text = np.format_float_scientific(v, unique=True, trim="0") if v != 0 and not (
        1e-4 <= abs(v) < 1e7) else np.format_float_positional(v, unique=True, trim="0")
    return text + "f" * single


def _integer(v: int) -> str:
    if v == -1 << 63:
        return "INT64_MIN"
    return str(v) if -1 << 31 < v < 1 << 31 else f"{v}LL"


def limit(spelled: Any, dtype: DType) -> str:
    """A monoid's identity: a number, or "lowest" or "highest" of the dtype."""
    if spelled not in ("lowest", "highest"):
        return number(spelled, dtype)
    sign = -1 if spelled == "lowest" else 1
    if dtype.category == dt.FLOAT:
        return number(sign * float("inf"), dtype)
    if dtype is dt.bool_:
        return str(int(sign > 0))
    info = np.iinfo(dtype.np)
    return number(info.min if sign < 0 else info.max, dtype)


# Conversions


def cast(text: str, source: DType, target: DType) -> str:
    """`ops.execute.cast` of a register."""
    s, t = source.short, target.short
    if target is dt.bool_:
        if s in HALF:
            return f"({atom(text)} & 0x7fff) != 0"
        return f"{atom(text)} != 0"
    if s in HALF:
        wide = f"lehr_f32_of_{s}({text})"
        return wide if t == "f32" else cast(wide, dt.float32, target)
    if t in HALF:
        if source.category == dt.FLOAT:
            return f"lehr_{t}_of_{s}({text})"
        if t == "f16" and source.itemsize > 2:  # may not be exact in a float
            return f"lehr_f16_of_f64((double){atom(text)})"
        return f"lehr_{t}_of_f32((float){atom(text)})"
    if source.category == dt.FLOAT and target.category == dt.INT:
        whole = f"lehr_i64_of_{s}({text})"
        return whole if t == "i64" else f"({register(target)}){whole}"
    return f"({register(target)}){atom(text)}"


# Operators

# Operators whose C result has the type of the operands, once those are at least int.
_SAME = re.compile(r"-?\{\w+\}( [-+*/&|^] \{\w+\})?|~\{\w+\}|\{\w+\} \? \{\w+\} : \{\w+\}|lehr_.*")
_SMALL = ("u8", "i8", "i16")


def exact(e: Expr) -> bool:
    """Whether dividing by it is the same as multiplying by its reciprocal: powers of two."""
    return e.kind == "Const" and e.dtype.category == dt.FLOAT and (
        abs(math.frexp(e.fields[0])[0]) == 0.5 and 1e-30 < abs(e.fields[0]) < 1e30)


def operator(e: Expr, texts: list[str], checked: Callable[[str], str]) -> str:
    """An application of an op to argument texts; `checked` wraps a divisor that may be 0."""
    op, *args = e.fields
    values = [a for a in args if isinstance(a, Expr)]
    if not values:
        raise Unsupported(f"op {op.name} of no element")
    computed = values[-1] if op.name == "where" else values[0]
    spelled = op.c.get(computed.dtype.category) if isinstance(op.c, dict) else op.c
    if spelled is None:
        raise Unsupported(f"op {op.name} of {computed.dtype.name} has no C spelling")
    slots, rest = {"t": computed.dtype.short}, iter(texts)
    for p, a in zip(op.params, args, strict=True):
        if isinstance(a, Expr):
            slots[p.name] = atom(next(rest))
        elif f"{{{p.name}}}" in spelled:
            raise Unsupported(f"op {op.name}: argument {p.name} is no element")
    if op.name in DIVIDING and computed.dtype.category == dt.INT:
        divisor = values[1]
        if divisor.kind != "Const" or divisor.fields[0] == 0:
            slots["other"] = f"({register(divisor.dtype)}){checked(slots['other'])}"
    neutral(op, args, spelled)
    if op.name == "div" and exact(values[1]):
        return f"{slots['input']} * {number(1 / values[1].fields[0], e.dtype)}"
    text = spelled.format(**slots)
    called = spelled.startswith("lehr_") and e.dtype is not dt.bool_
    if called or (_SAME.fullmatch(spelled) and e.dtype.short not in _SMALL):
        return text
    return text if e.dtype is dt.bool_ else f"({register(e.dtype)}){atom(text)}"


def neutral(op: Any, args: list[Any], spelled: str) -> None:
    """Arguments that the spelling leaves out must not matter: alpha = 1, decimals = 0."""
    for p, a in zip(op.params, args, strict=True):
        if f"{{{p.name}}}" in spelled or a is None or p.is_tensor:
            continue
        given = a.fields[0] if isinstance(a, Expr) and a.kind == "Const" else a
        if isinstance(given, Expr) or given != p.default:
            raise Unsupported(f"op {op.name} with {p.name} = {given} has to be decomposed")
