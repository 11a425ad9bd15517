"""CPython 3.13 bytecode as canonical operations."""
from __future__ import annotations

from collections.abc import Callable

from .dialect import (
    COMPARISONS,
    SHARED,
    Dialect,
    Row,
    Unit,
    forward,
    intrinsic_1,
    intrinsic_2,
    named,
    plain,
    same,
)

IMPOSSIBLE = frozenset((
    "CACHE", "EXTENDED_ARG",                                   # consumed by the decoder
    "RESERVED", "INTERPRETER_EXIT", "EXIT_INIT_CHECK", "ENTER_EXECUTOR",  # never in `co_code`
    "JUMP", "JUMP_NO_INTERRUPT", "LOAD_METHOD", "LOAD_CLOSURE", "LOAD_SUPER_METHOD",
    "LOAD_ZERO_SUPER_ATTR",
    "LOAD_ZERO_SUPER_METHOD", "POP_BLOCK", "SETUP_CLEANUP", "SETUP_FINALLY", "SETUP_WITH",
    "STORE_FAST_MAYBE_NULL",  # the compiler's own, gone before assembly
))


def load_global(unit: Unit) -> Row:
    yield "LOAD_GLOBAL", unit.identifier(unit.arg >> 1)
    if unit.arg & 1:
        yield "PUSH_NULL", None


def load_attr(unit: Unit) -> Row:
    name = unit.identifier(unit.arg >> 1)
    if unit.arg & 1:
        yield "LOAD_METHOD", (name, False)
    else:
        yield "LOAD_ATTR", name


def load_super(unit: Unit) -> Row:
    name = unit.identifier(unit.arg >> 2)
    if unit.arg & 1:
        yield "LOAD_SUPER_METHOD", (name, False, bool(unit.arg & 2))
    else:
        yield "LOAD_SUPER", (name, bool(unit.arg & 2))


def pair(first: str, second: str) -> Callable[[Unit], Row]:
    def row(unit: Unit) -> Row:
        yield first, unit.arg >> 4
        yield second, unit.arg & 15
    return row


def compare(unit: Unit) -> Row:
    yield "COMPARE", COMPARISONS[unit.arg >> 5]
    if unit.arg & 16:
        yield "TO_BOOL", None


def for_iter(unit: Unit) -> Row:
    yield "FOR_ITER", unit.forward + 4  # past END_FOR and POP_TOP, which the loop never runs


def send(unit: Unit) -> Row:
    yield "SEND", (unit.forward, False)


def slice_item(unit: Unit) -> Row:
    yield "BUILD_SLICE", 2
    yield ("GETITEM" if unit.name == "BINARY_SLICE" else "SETITEM"), None


def return_const(unit: Unit) -> Row:
    yield "CONST", unit.code.co_consts[unit.arg]
    yield "RETURN", None


def call(unit: Unit) -> Row:
    yield "CALL", (unit.arg, None)


def convert(unit: Unit) -> Row:
    yield "CONVERT", ("", "s", "r", "a")[unit.arg]


TABLE: Dialect = {
    **SHARED,
    "LOAD_FAST_CHECK": same("LOAD"), "LOAD_FAST_AND_CLEAR": same("LOAD_CLEAR"),
    "LOAD_FAST_LOAD_FAST": pair("LOAD", "LOAD"), "STORE_FAST_LOAD_FAST": pair("STORE", "LOAD"),
    "STORE_FAST_STORE_FAST": pair("STORE", "STORE"), "LOAD_LOCALS": plain("LOAD_LOCALS"),
    "LOAD_FROM_DICT_OR_DEREF": same("LOAD_DICT_CELL"),
    "LOAD_FROM_DICT_OR_GLOBALS": named("LOAD_DICT_GLOBAL"),
    "LOAD_GLOBAL": load_global, "LOAD_ATTR": load_attr, "LOAD_SUPER_ATTR": load_super,
    "BINARY_SLICE": slice_item, "STORE_SLICE": slice_item, "COMPARE_OP": compare,
    "TO_BOOL": plain("TO_BOOL"),
    "CONVERT_VALUE": convert, "FORMAT_SIMPLE": plain("FORMAT", ("", False)),
    "FORMAT_WITH_SPEC": plain("FORMAT", ("", True)),
    "POP_JUMP_IF_FALSE": forward("JUMP_FALSE"), "POP_JUMP_IF_TRUE": forward("JUMP_TRUE"),
    "POP_JUMP_IF_NONE": forward("JUMP_NONE"), "POP_JUMP_IF_NOT_NONE": forward("JUMP_NOT_NONE"),
    "FOR_ITER": for_iter, "END_FOR": plain("END_FOR", 1), "SEND": send,
    "END_SEND": plain("END_SEND"),
    "RETURN_CONST": return_const, "CALL": call, "CALL_KW": same("CALL_KW"),
    "CALL_INTRINSIC_1": intrinsic_1, "CALL_INTRINSIC_2": intrinsic_2,
    "CLEANUP_THROW": plain("CLEANUP_THROW"),
    "SET_FUNCTION_ATTRIBUTE": same("SET_FUNCTION"),
}
