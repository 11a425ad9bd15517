"""CPython 3.12 bytecode as canonical operations."""
from __future__ import annotations

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
    intrinsic_1,
    intrinsic_2,
    keyword_names,
    named,
    plain,
    same,
)

IMPOSSIBLE = frozenset((
    "CACHE", "EXTENDED_ARG",                                   # consumed by the decoder
    "RESERVED", "INTERPRETER_EXIT",                            # never in a code object
    "JUMP", "JUMP_NO_INTERRUPT", "LOAD_METHOD", "LOAD_SUPER_METHOD",
    "LOAD_ZERO_SUPER_ATTR",
    "LOAD_ZERO_SUPER_METHOD", "POP_BLOCK", "SETUP_CLEANUP", "SETUP_FINALLY", "SETUP_WITH",
    "STORE_FAST_MAYBE_NULL",  # the compiler's own, gone before assembly
))


def load_global(unit: Unit) -> Row:
    if unit.arg & 1:
        yield "PUSH_NULL", None
    yield "LOAD_GLOBAL", unit.identifier(unit.arg >> 1)


def load_attr(unit: Unit) -> Row:
    name = unit.identifier(unit.arg >> 1)
    if unit.arg & 1:
        yield "LOAD_METHOD", (name, True)
    else:
        yield "LOAD_ATTR", name


def load_super(unit: Unit) -> Row:
    name = unit.identifier(unit.arg >> 2)
    if unit.arg & 1:
        yield "LOAD_SUPER_METHOD", (name, True, bool(unit.arg & 2))
    else:
        yield "LOAD_SUPER", (name, bool(unit.arg & 2))


def compare(unit: Unit) -> Row:
    yield "COMPARE", COMPARISONS[unit.arg >> 4]


def for_iter(unit: Unit) -> Row:
    yield "FOR_ITER", unit.forward + 2  # past END_FOR, which the loop never runs


def send(unit: Unit) -> Row:
    yield "SEND", (unit.forward, False)


def slice_item(unit: Unit) -> Row:
    yield "BUILD_SLICE", 2
    yield ("GETITEM" if unit.name == "BINARY_SLICE" else "SETITEM"), None


def return_const(unit: Unit) -> Row:
    yield "CONST", unit.code.co_consts[unit.arg]
    yield "RETURN", None


TABLE: Dialect = {
    **SHARED, "LOAD_CLOSURE": same("LOAD"),
    "LOAD_FAST_CHECK": same("LOAD"), "LOAD_FAST_AND_CLEAR": same("LOAD_CLEAR"),
    "LOAD_LOCALS": plain("LOAD_LOCALS"),
    "LOAD_FROM_DICT_OR_DEREF": same("LOAD_DICT_CELL"),
    "LOAD_FROM_DICT_OR_GLOBALS": named("LOAD_DICT_GLOBAL"),
    "LOAD_GLOBAL": load_global, "LOAD_ATTR": load_attr, "LOAD_SUPER_ATTR": load_super,
    "BINARY_SLICE": slice_item, "STORE_SLICE": slice_item, "COMPARE_OP": compare,
    "FORMAT_VALUE": format_value,
    "POP_JUMP_IF_FALSE": forward("JUMP_FALSE"), "POP_JUMP_IF_TRUE": forward("JUMP_TRUE"),
    "POP_JUMP_IF_NONE": forward("JUMP_NONE"), "POP_JUMP_IF_NOT_NONE": forward("JUMP_NOT_NONE"),
    "FOR_ITER": for_iter, "END_FOR": plain("END_FOR", 2), "SEND": send,
    "END_SEND": plain("END_SEND"),
    "JUMP_BACKWARD": backward("JUMP"), "RETURN_CONST": return_const,
    "KW_NAMES": keyword_names, "CALL": call, "CALL_INTRINSIC_1": intrinsic_1,
    "CALL_INTRINSIC_2": intrinsic_2,
    "CLEANUP_THROW": plain("CLEANUP_THROW"),
}
