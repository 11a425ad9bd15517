"""One element value as Triton text: types, numbers, conversions, operators, index expressions.

A value in a register has its dtype's own type; half precision is only loaded, converted and stored
(the IR computes it in float32).
"""

from __future__ import annotations

import ast
import functools
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from lehr.base import dtype as dt
from lehr.base import spell, sym
from lehr.base.dtype import DType
from lehr.compiler.emit.value import DIVIDING, HALF, Unsupported, exact, neutral
from lehr.compiler.loop.ir import MONOIDS, Expr, identity

_TYPES = {"b1": "int1", "u8": "uint8", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
          "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64"}

# Triton's // and % are C's; so the signs of operands matter.
INDEX: spell.Table = {
    **spell.TEXT,
    "mul": ("{0} * {1}", spell.TERM),
    "floordiv": ("{0} // {1}", spell.TERM),
    "mod": ("{0} % {1}", spell.TERM),
    "floordiv_any": ("lehr_floordiv({0}, {1})", spell.ATOM),
    "mod_any": ("lehr_mod({0}, {1})", spell.ATOM),
    "min": ("tl.minimum({0}, {1})", spell.ATOM),
    "max": ("tl.maximum({0}, {1})", spell.ATOM),
}


def register(dtype: DType) -> str:
    """The Triton type of a value."""
    try:
        return f"tl.{_TYPES[dtype.short]}"
    except KeyError:
        raise Unsupported(f"Triton code has no {dtype.name}") from None


def pointer(dtype: DType) -> str:
    """The type of a pointer in a signature."""
    register(dtype)
    return f"*{dtype.triton}"


def index(e: Any, names: Mapping[Any, str]) -> str:
    """An index expression; `names` gives variables their names."""
    return str(e) if isinstance(e, int) else sym.render(e, INDEX, names)


_WORD = re.compile(r"-?[\w.]+")
_CALLED = re.compile(r"[\w.]+\(")


def atom(text: str) -> str:
    """The text, in parentheses where it is not one word or call."""
    if _WORD.fullmatch(text):
        return text
    found = _CALLED.match(text)
    if found:
        depth = 0
        for n, c in enumerate(text):
            depth += (c == "(") - (c == ")")
            if depth == 0 and c == ")":
                return text if n + 1 == len(text) else f"({text})"
    return f"({text})"


def typed(text: str, dtype: DType) -> str:
    return f"tl.cast({text}, {register(dtype)})"


# Numbers


def literal(value: Any, dtype: DType) -> str:
    """A number as Python spells it; its dtype is that of the tensor it meets."""
    if dtype is dt.bool_:
        return str(bool(value))
    if dtype.category == dt.INT:
        return str(int(value))
    with np.errstate(over="ignore"):
        v = float(dtype.np.type(value))
    return repr(v) if np.isfinite(v) else f'float("{v}")'


def number(value: Any, dtype: DType) -> str:
    """A constant of a dtype that needs no tensor beside it."""
    if dtype.short in HALF:
        return typed(number(float(dtype.np.type(value)), dt.float32), dtype)
    return f"tl.full([], {literal(value, dtype)}, {register(dtype)})"


def state(dtype: DType) -> DType:
    """The dtype in which a reduction keeps its state: lanes of one bit are not exchanged."""
    return dt.int32 if dtype is dt.bool_ else dtype


def limit(spelled: Any, dtype: DType) -> str:
    """A monoid's identity, as a literal of `state(dtype)`."""
    return literal(int(identity(spelled, dtype)) if dtype is dt.bool_ else
                   identity(spelled, dtype), state(dtype))


# Conversions


def cast(text: str, source: DType, target: DType) -> str:
    """`ops.execute.cast` of a register."""
    if source.short in HALF and target is not dt.float32:
        return cast(typed(text, dt.float32), dt.float32, target)
    if target is dt.bool_:
        return f"{atom(text)} != 0"
    if source.category == dt.FLOAT and target.category == dt.INT:
        whole = f"lehr_whole({text})"
        return whole if target is dt.int64 else typed(whole, target)
    if target.short == "bf16" and source is not dt.float32:
        text = typed(text, dt.float32)
    elif target.short == "f16" and source.category == dt.INT and source.itemsize > 2:
        text = typed(text, dt.float64)
    return typed(text, target)


# Operators

_CALL = re.compile(r"(lehr_\w+|tl\.\w+)\(")
# Functions whose arguments after the first may be Python's numbers.
_LOOSE = ("lehr_div", "lehr_maximum", "lehr_minimum")


def operator(e: Expr, texts: list[str], checked: Callable[[str, Expr], str]) -> str:
    """An application of an op to argument texts; `checked` guards a divisor that may be 0."""
    op, *args = e.fields
    values = [a for a in args if isinstance(a, Expr)]
    if not values:
        raise Unsupported(f"op {op.name} of no element")
    computed = values[-1] if op.name == "where" else values[0]
    spelled = op.triton.get(computed.dtype.category) if isinstance(op.triton, dict) else op.triton
    if spelled is None:
        raise Unsupported(f"op {op.name} of {computed.dtype.name} has no Triton spelling")
    found = _CALL.match(spelled)
    call = found is not None or all(a.kind == "Const" for a in values)
    loose = not call or found is not None and found[1] in _LOOSE and values[0].kind != "Const"
    slots, rest = {}, iter(texts)
    for p, a in zip(op.params, args, strict=True):
        if isinstance(a, Expr):
            text = next(rest)
            if a.kind == "Const" and loose:
                text = literal(a.fields[0], a.dtype)
            slots[p.name] = text if call else atom(text)
        elif f"{{{p.name}}}" in spelled:
            raise Unsupported(f"op {op.name}: argument {p.name} is no element")
    if op.name in DIVIDING and computed.dtype.category == dt.INT:
        divisor = values[1]
        if divisor.kind != "Const" or divisor.fields[0] == 0:
            slots["other"] = checked(slots["other"], divisor)
    neutral(op, args, spelled)
    if op.name == "div" and loose and exact(values[1]):
        return f"{atom(slots['input'])} * {literal(1 / values[1].fields[0], e.dtype)}"
    return str(spelled).format(**slots)


# Monoids


class _Text(ast.NodeVisitor):
    """A monoid's expression as Triton."""

    def visit_Expression(self, node: ast.Expression) -> str:
        return self.visit(node.body)

    def visit_Name(self, node: ast.Name) -> str:
        return node.id

    def visit_IfExp(self, node: ast.IfExp) -> str:
        return f"tl.where({', '.join(map(self.visit, (node.test, node.body, node.orelse)))})"

    def visit_BoolOp(self, node: ast.BoolOp) -> str:
        sign = " & " if isinstance(node.op, ast.And) else " | "
        return f"({sign.join(map(self.visit, node.values))})"

    def visit_UnaryOp(self, node: ast.UnaryOp) -> str:
        return f"(~{self.visit(node.operand)})"

    def visit_Compare(self, node: ast.Compare) -> str:
        sign = {ast.Gt: ">", ast.Lt: "<", ast.NotEq: "!=", ast.Eq: "=="}[type(node.ops[0])]
        return f"({self.visit(node.left)} {sign} {self.visit(node.comparators[0])})"

    def visit_BinOp(self, node: ast.BinOp) -> str:
        sign = {ast.Add: "+", ast.Mult: "*", ast.BitOr: "|", ast.BitAnd: "&"}[type(node.op)]
        return f"{self.visit(node.left)} {sign} {self.visit(node.right)}"


# One instruction does what these spell out.
_DIRECT = {"max": "lehr_maximum(a0, b0)", "min": "lehr_minimum(a0, b0)"}


@functools.cache
def combiner(monoid: str) -> str:
    """The function `lehr_fold_MONOID` of two states."""
    m = MONOIDS[monoid]
    names = [f"{side}{i}" for side in "ab" for i in range(m.arity)]
    made = [_DIRECT.get(monoid) or _Text().visit(ast.parse(text, mode="eval"))
            for text in m.combine]
    head = f"@triton.jit\ndef lehr_fold_{monoid}({', '.join(names)}):\n"
    return f"{head}    return {', '.join(made)}"


# The prelude

_FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "prelude", "triton.txt")
_NAME = re.compile(r"\blehr_\w+")


@functools.cache
def _functions() -> dict[str, str]:
    with open(_FILE, encoding="utf-8") as stream:
        text = stream.read()
    lines = text.splitlines()
    found = {}
    for node in ast.parse(text).body:
        assert isinstance(node, ast.FunctionDef) and node.end_lineno
        found[node.name] = "\n".join(lines[node.lineno - 2:node.end_lineno])
    return found


def prelude(texts: Iterable[str]) -> list[str]:
    """The definitions of all `lehr_*` functions that texts name, in order of need."""
    waiting = [name for text in texts for name in _NAME.findall(text)]
    taken: dict[str, str] = {}
    while waiting:
        name = waiting.pop()
        if name in taken:
            continue
        if name.startswith("lehr_fold_"):
            taken[name] = combiner(name.removeprefix("lehr_fold_"))
        elif name in _functions():
            taken[name] = _functions()[name]
        else:
            raise LookupError(f"no Triton function {name} in the prelude")
        waiting += _NAME.findall(taken[name])
    order = {name: n for n, name in enumerate(_functions())}
    return [taken[name] for name in sorted(taken, key=lambda n: (order.get(n, len(order)), n))]
