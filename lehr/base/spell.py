"""Spellings of symbolic integers: the text form with its parser, and tables for other languages.

A table maps an operation to (template, strength): how tightly the result binds. Operands that bind
less tightly than the operation needs are parenthesised. Operations are ``neg add sub mul floordiv
mod min max``; a table may also have ``floordiv_any`` and ``mod_any``, used where an operand can be
negative (C's ``/`` and ``%`` are not Python's there).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

from lehr.base.poly import MAXIMUM, MINIMUM, Expr, Sum, Sym, Var, factors_of
from lehr.base.poly import TEXT as SPELL

Table = Mapping[str, tuple[str, int]]

ANY, SUM, TERM, ATOM = 0, 1, 2, 3

# Valid in Python; valid in C for operands that are not negative once // is written /.
TEXT: Table = {
    "neg": ("-{0}", SUM),
    "add": ("{0} + {1}", SUM),
    "sub": ("{0} - {1}", SUM),
    "mul": ("{0}*{1}", TERM),
    "floordiv": ("{0}//{1}", TERM),
    "mod": ("{0}%{1}", TERM),
    "min": ("min({0}, {1})", ATOM),
    "max": ("max({0}, {1})", ATOM),
}
# The strength that each operand needs. The left one may be a product: all of TERM is left-
# associative.
_needs: dict[str, tuple[int, ...]] = {
    "neg": (ATOM,),
    "add": (SUM, TERM),
    "sub": (SUM, TERM),
    "mul": (TERM, ATOM),
    "floordiv": (TERM, ATOM),
    "mod": (TERM, ATOM),
}

Spelled = tuple[str, int]


class _Writer:
    """Spells one expression with one table, each distinct node once."""

    def __init__(self, table: Table, names: Mapping[Var, str]) -> None:
        self.table = table
        self.names = names
        self.done: dict[Sym, Spelled] = {}

    def apply(self, op: str, *parts: Spelled) -> Spelled:
        template, strength = self.table[op]
        needs = _needs.get(op, (ANY, ANY)) if strength < ATOM else (ANY, ANY)
        return template.format(
            *(t if s >= n else f"({t})" for (t, s), n in zip(parts, needs, strict=False))
        ), strength

    def write(self, e: Expr) -> Spelled:
        if isinstance(e, int):
            return (str(e), ATOM) if e >= 0 else (str(e), SUM)
        found = self.done.get(e)
        if found is None:
            found = self.done[e] = self.fresh(e)
        return found

    def fresh(self, e: Any) -> Spelled:
        if isinstance(e, Var):
            return self.names.get(e, e.name), ATOM
        if isinstance(e, Sum):
            return self.sum(e)
        if e.op in ("floordiv", "mod"):
            op = e.op
            if op + "_any" in self.table and (low(e.num) < 0 or low(e.den) < 0):
                op += "_any"
            return self.apply(op, self.write(e.num), self.write(e.den))
        parts = [self.write(part) for part in (e.factors if e.op == "mul" else e.args)]
        if e.op == "mul":
            parts.sort()
        else:
            parts.sort(key=lambda part: (part[0].lstrip("-").isdigit(), part[0]))
        result = parts[0]
        for part in parts[1:]:
            result = self.apply(e.op, result, part)
        return result

    def sum(self, e: Sum) -> Spelled:
        """Highest degree first, then the largest coefficient, then the text: independent of the
        process.
        """
        rows = sorted(
            ((c < 0, -len(factors_of(f)), -abs(c), self.write(f), f, c) for f, c in e.terms),
            key=lambda row: row[:4],
        )
        result: Spelled | None = None
        const = e.const
        if rows[0][0] and const > 0:
            result, const = self.write(const), 0
        for negative, _, _, spelled, _, c in rows:
            if abs(c) != 1:
                spelled = self.apply("mul", spelled, (str(abs(c)), ATOM))
            if result is None:
                result = self.apply("neg", spelled) if negative else spelled
            else:
                result = self.apply("sub" if negative else "add", result, spelled)
        assert result is not None
        if const:
            op = "add" if const > 0 else "sub"
            result = self.apply(op, result, self.write(abs(const)))
        return result


def low(e: Expr) -> Any:
    return e if isinstance(e, int) else e.lo


def render(e: Expr, table: Table, names: Mapping[Var, str] | None = None) -> str:
    """Spells `e` in another language: `names` renames variables."""
    return _Writer(table, names or {}).write(e)[0]


_texts: dict[Sym, str] = {}
_limit = 1 << 14


def to_text(e: Expr) -> str:
    """The text form: valid Python, the same in every process; `parse` reads it back."""
    if isinstance(e, int):
        return str(e)
    text = _texts.get(e)
    if text is None:
        if len(_texts) >= _limit:
            _texts.clear()
        text = _texts[e] = render(e, TEXT)
    return text


SPELL.build = to_text

_binary: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
}
_calls = {"min": MINIMUM, "max": MAXIMUM}


def parse(text: str, variables: Mapping[str, Var]) -> Expr:
    """Reads the text form, simplifying; `ValueError` names what is unknown and where it stands."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except SyntaxError as error:
        raise ValueError(f"not a symbolic integer: {text!r}: {error.msg}") from None
    return _read(tree.body, variables, text)


def _read(node: ast.expr, variables: Mapping[str, Var], text: str) -> Expr:
    def child(part: ast.expr) -> Expr:
        return _read(part, variables, text)

    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name):
        if node.id not in variables:
            raise ValueError(
                f"unknown variable {node.id!r} at column {node.col_offset} of {text!r}"
            )
        return variables[node.id]
    if isinstance(node, ast.BinOp) and type(node.op) in _binary:
        result: Expr = _binary[type(node.op)](child(node.left), child(node.right))
        return result
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -child(node.operand)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        rule = _calls.get(node.func.id)
        if rule is not None and node.args:
            result = child(node.args[0])
            for arg in node.args[1:]:
                result = rule(result, child(arg))
            return result
    raise ValueError(
        f"not a symbolic integer: {ast.unparse(node)!r} at column {node.col_offset} of {text!r}"
    )
