"""CPython 3.11 bytecode as canonical operations."""
from __future__ import annotations

from collections.abc import Callable

from .dialect import (
    COMPARISONS,
    SHARED,
    Dialect,
    Row,
    Unit,
    backward,
    call,
    format_value,
    forward,
    keyword_names,
    named,
    plain,
    same,
)

IMPOSSIBLE = frozenset(("CACHE", "EXTENDED_ARG"))  # consumed by the decoder


def load_global(unit: Unit) -> Row:
    if unit.arg & 1:
        yield "PUSH_NULL", None
    yield "LOAD_GLOBAL", unit.identifier(unit.arg >> 1)


def load_method(unit: Unit) -> Row:
    yield "LOAD_METHOD", (unit.identifier(unit.arg), True)


def compare(unit: Unit) -> Row:
    yield "COMPARE", COMPARISONS[unit.arg]


def jump_or_pop(op: str) -> Callable[[Unit], Row]:
    def row(unit: Unit) -> Row:
        yield "COPY", 1
        yield op, unit.forward
        yield "POP", None
    return row


def send(unit: Unit) -> Row:
    yield "SEND", (unit.forward, True)


def load_class_cell(unit: Unit) -> Row:
    yield "LOAD_LOCALS", None
    yield "LOAD_DICT_CELL", unit.arg


def import_star(unit: Unit) -> Row:
    yield "IMPORT_STAR", None
    yield "POP", None


def print_expr(unit: Unit) -> Row:
    yield "PRINT_EXPR", None
    yield "POP", None


TABLE: Dialect = {
    **SHARED,
    "LOAD_GLOBAL": load_global, "LOAD_ATTR": named("LOAD_ATTR"), "LOAD_METHOD": load_method,
    "LOAD_CLOSURE": same("LOAD"), "LOAD_CLASSDEREF": load_class_cell,
    "UNARY_POSITIVE": plain("UNARY", "+"), "COMPARE_OP": compare, "FORMAT_VALUE": format_value,
    "FOR_ITER": forward("FOR_ITER"), "SEND": send,
    "POP_JUMP_FORWARD_IF_FALSE": forward("JUMP_FALSE"),
    "POP_JUMP_FORWARD_IF_TRUE": forward("JUMP_TRUE"),
    "POP_JUMP_FORWARD_IF_NONE": forward("JUMP_NONE"),
    "POP_JUMP_FORWARD_IF_NOT_NONE": forward("JUMP_NOT_NONE"),
    "POP_JUMP_BACKWARD_IF_FALSE": backward("JUMP_FALSE"),
    "POP_JUMP_BACKWARD_IF_TRUE": backward("JUMP_TRUE"),
    "POP_JUMP_BACKWARD_IF_NONE": backward("JUMP_NONE"),
    "POP_JUMP_BACKWARD_IF_NOT_NONE": backward("JUMP_NOT_NONE"),
    "JUMP_IF_FALSE_OR_POP": jump_or_pop("JUMP_FALSE"),
    "JUMP_IF_TRUE_OR_POP": jump_or_pop("JUMP_TRUE"),
    "KW_NAMES": keyword_names, "PRECALL": plain("NOP"), "CALL": call,
    "LIST_TO_TUPLE": plain("LIST_TO_TUPLE"), "PREP_RERAISE_STAR": plain("PREP_RERAISE_STAR"),
    "ASYNC_GEN_WRAP": plain("ASYNC", "ASYNC_GEN_WRAP"), "IMPORT_STAR": import_star,
    "PRINT_EXPR": print_expr,
}
