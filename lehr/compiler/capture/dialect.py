"""What the bytecode dialects share: the canonical operations and the rows every version agrees on.

A dialect is a table ``opname -> function(unit)`` that yields canonical operations as pairs
``(op, argument)``.  Jump arguments are given as byte offsets of the original code;
``bytecode.translate`` turns them into canonical positions.  ``EFFECTS`` is the complete list of
canonical operations with their effect on the depth of the stack.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any, NamedTuple

Row = Iterator[tuple[str, Any]]

COMPARISONS = ("<", "<=", "==", "!=", ">", ">=")
BINARY = ("+", "&", "//", "<<", "@", "*", "%", "|", "**", ">>", "-", "/", "^")
ASYNC = {  # operations of coroutines: they all stop the capture, only their stack effect matters
    "GET_AITER": 0, "GET_ANEXT": 1, "BEFORE_ASYNC_WITH": 1, "END_ASYNC_FOR": -2, "GET_AWAITABLE": 0,
    "ASYNC_GEN_WRAP": 0,
}
TYPING = {  # PEP 695 type parameters
    "INTRINSIC_TYPEVAR": 0, "INTRINSIC_PARAMSPEC": 0, "INTRINSIC_TYPEVARTUPLE": 0,
    "INTRINSIC_SUBSCRIPT_GENERIC": 0, "INTRINSIC_TYPEALIAS": 0, "INTRINSIC_TYPEVAR_WITH_BOUND": -1,
    "INTRINSIC_TYPEVAR_WITH_CONSTRAINTS": -1, "INTRINSIC_SET_FUNCTION_TYPE_PARAMS": -1,
    "INTRINSIC_SET_TYPEPARAM_DEFAULT": -1,
}
INTRINSICS_1 = (
    "INTRINSIC_1_INVALID", "INTRINSIC_PRINT", "INTRINSIC_IMPORT_STAR",
    "INTRINSIC_STOPITERATION_ERROR",
    "INTRINSIC_ASYNC_GEN_WRAP", "INTRINSIC_UNARY_POSITIVE", "INTRINSIC_LIST_TO_TUPLE",
    "INTRINSIC_TYPEVAR",
    "INTRINSIC_PARAMSPEC", "INTRINSIC_TYPEVARTUPLE", "INTRINSIC_SUBSCRIPT_GENERIC",
    "INTRINSIC_TYPEALIAS")
INTRINSICS_2 = (
    "INTRINSIC_2_INVALID", "INTRINSIC_PREP_RERAISE_STAR", "INTRINSIC_TYPEVAR_WITH_BOUND",
    "INTRINSIC_TYPEVAR_WITH_CONSTRAINTS", "INTRINSIC_SET_FUNCTION_TYPE_PARAMS",
    "INTRINSIC_SET_TYPEPARAM_DEFAULT")


class Unit(NamedTuple):
    """One original instruction, its EXTENDED_ARG prefixes included."""
    name: str
    arg: int
    offset: int      # byte offset of the first prefix, or of the instruction itself
    end: int         # byte offset behind its inline caches: relative jumps count from here
    code: CodeType
    pending: dict    # state between the units of one code object: keyword names on 3.11 and 3.12

    @property
    def forward(self) -> int:
        return self.end + 2 * self.arg

    @property
    def backward(self) -> int:
        return self.end - 2 * self.arg

    def identifier(self, index: int) -> str:
        return self.code.co_names[index]


Dialect = dict[str, Callable[[Unit], Row]]

Effect = int | Callable[[Any, bool], int]

EFFECTS: dict[str, Effect] = {
    # stack
    "NOP": 0, "POP": -1, "PUSH_NULL": 1, "COPY": 1, "SWAP": 0, "CONST": 1,
    # slots and cells
    "LOAD": 1, "STORE": -1, "DELETE": 0, "LOAD_CLEAR": 1,
    "MAKE_CELL": 0, "COPY_FREE": 0, "LOAD_CELL": 1, "STORE_CELL": -1, "DELETE_CELL": 0,
    "LOAD_DICT_CELL": 0,
    # names
    "LOAD_GLOBAL": 1, "STORE_GLOBAL": -1, "DELETE_GLOBAL": 0, "LOAD_NAME": 1, "STORE_NAME": -1,
    "DELETE_NAME": 0,
    "LOAD_LOCALS": 1, "LOAD_DICT_GLOBAL": 0, "SETUP_ANNOTATIONS": 0,
    "IMPORT": -1, "IMPORT_FROM": 1, "IMPORT_STAR": 0,
    # attributes, items, operators
    "LOAD_ATTR": 0, "LOAD_METHOD": 1, "STORE_ATTR": -2, "DELETE_ATTR": -1, "LOAD_SUPER": -2,
    "LOAD_SUPER_METHOD": -1,
    "GETITEM": -1, "SETITEM": -3, "DELITEM": -2, "UNARY": 0, "TO_BOOL": 0, "BINARY": -1,
    "INPLACE": -1,
    "COMPARE": -1, "IS": -1, "CONTAINS": -1,
    # building
    "BUILD_TUPLE": lambda n, j: 1 - n, "BUILD_LIST": lambda n, j: 1 - n, "BUILD_SET": lambda n,
    j: 1 - n,
    "BUILD_MAP": lambda n, j: 1 - 2 * n, "BUILD_KEY_MAP": lambda n, j: -n, "BUILD_STRING": lambda n,
    j: 1 - n,
    "BUILD_SLICE": lambda n, j: 1 - n, "LIST_APPEND": -1, "SET_ADD": -1, "MAP_ADD": -2,
    "LIST_EXTEND": -1,
    "SET_UPDATE": -1, "DICT_UPDATE": -1, "DICT_MERGE": -1, "LIST_TO_TUPLE": 0,
    "CONVERT": 0, "FORMAT": lambda a, j: -int(a[1]), "UNPACK": lambda n, j: n - 1,
    "UNPACK_EX": lambda a, j: a[0] + a[1],
    # control
    "JUMP": 0, "JUMP_TRUE": -1, "JUMP_FALSE": -1, "JUMP_NONE": -1, "JUMP_NOT_NONE": -1,
    "GET_ITER": 0, "FOR_ITER": lambda a, j: -1 if j else 1, "END_FOR": lambda n, j: -n,
    "RETURN": -1, "RESUME": 0, "RETURN_GENERATOR": 1, "YIELD": 0, "GET_YIELD_ITER": 0,
    "SEND": lambda a, j: -1 if j and a[1] else 0, "END_SEND": -1,
    # calls
    "CALL": lambda a, j: -a[0] - 1, "CALL_KW": lambda n, j: -n - 2, "CALL_EX": lambda f, j: -2 - f,
    "MAKE_FUNCTION": lambda f, j: -bin(f).count("1"), "SET_FUNCTION": -1, "BUILD_CLASS": 1,
    # exceptions and contexts
    "RAISE": lambda n, j: -n, "RERAISE": -1, "PUSH_EXC": 1, "POP_EXC": -1, "CHECK_EXC": 0,
    "CHECK_GROUP": 0,
    "PREP_RERAISE_STAR": -1, "WITH": 1, "WITH_EXIT": 1, "CLEANUP_THROW": -1, "STOP_ITERATION": 0,
    # match
    "GET_LEN": 1, "MATCH_MAPPING": 1, "MATCH_SEQUENCE": 1, "MATCH_KEYS": 1, "MATCH_CLASS": -2,
    # what capture never runs
    "ASYNC": lambda name, j: ASYNC[name], "TYPING": lambda name, j: TYPING[name], "PRINT_EXPR": 0,
}

JUMPS = frozenset((
    "JUMP", "JUMP_TRUE", "JUMP_FALSE", "JUMP_NONE", "JUMP_NOT_NONE", "FOR_ITER", "SEND"))
ENDS = frozenset(("JUMP", "RETURN", "RAISE", "RERAISE"))  # control never falls through


def same(op: str) -> Callable[[Unit], Row]:
    def row(unit: Unit) -> Row:
        yield op, unit.arg
    return row


def plain(op: str, arg: Any = None) -> Callable[[Unit], Row]:
    def row(unit: Unit) -> Row:
        yield op, arg
    return row


def named(op: str) -> Callable[[Unit], Row]:
    def row(unit: Unit) -> Row:
        yield op, unit.identifier(unit.arg)
    return row


def forward(op: str) -> Callable[[Unit], Row]:
    def row(unit: Unit) -> Row:
        yield op, unit.forward
    return row


def backward(op: str) -> Callable[[Unit], Row]:
    def row(unit: Unit) -> Row:
        yield op, unit.backward
    return row


def const(unit: Unit) -> Row:
    yield "CONST", unit.code.co_consts[unit.arg]


def binary_op(unit: Unit) -> Row:
    inplace, which = divmod(unit.arg, len(BINARY))
    yield ("INPLACE" if inplace else "BINARY"), BINARY[which]


def contains(unit: Unit) -> Row:
    yield "CONTAINS", bool(unit.arg)


def identity(unit: Unit) -> Row:
    yield "IS", bool(unit.arg)


def unpack_ex(unit: Unit) -> Row:
    yield "UNPACK_EX", (unit.arg & 0xFF, unit.arg >> 8)


def call_ex(unit: Unit) -> Row:
    yield "CALL_EX", unit.arg & 1


def keyword_names(unit: Unit) -> Row:
    """3.11 and 3.12 keep the names in a variable of the evaluator until the call."""
    unit.pending["names"] = unit.code.co_consts[unit.arg]
    yield "NOP", None


def call(unit: Unit) -> Row:
    yield "CALL", (unit.arg, unit.pending.pop("names", None))


def format_value(unit: Unit) -> Row:
    yield "FORMAT", (("", "s", "r", "a")[unit.arg & 3], bool(unit.arg & 4))


def intrinsic_1(unit: Unit) -> Row:
    name = INTRINSICS_1[unit.arg]
    if name in TYPING:
        yield "TYPING", name
    else:
        yield INTRINSIC_OPS[name]


def intrinsic_2(unit: Unit) -> Row:
    name = INTRINSICS_2[unit.arg]
    if name in TYPING:
        yield "TYPING", name
    else:
        yield INTRINSIC_OPS[name]


INTRINSIC_OPS: dict[str, tuple[str, Any]] = {
    "INTRINSIC_PRINT": ("PRINT_EXPR", None), "INTRINSIC_IMPORT_STAR": ("IMPORT_STAR", None),
    "INTRINSIC_STOPITERATION_ERROR": ("STOP_ITERATION", None),
    "INTRINSIC_ASYNC_GEN_WRAP": ("ASYNC", "ASYNC_GEN_WRAP"),
    "INTRINSIC_UNARY_POSITIVE": ("UNARY", "+"), "INTRINSIC_LIST_TO_TUPLE": ("LIST_TO_TUPLE", None),
    "INTRINSIC_PREP_RERAISE_STAR": ("PREP_RERAISE_STAR", None),
}

SHARED: Dialect = {
    "NOP": plain("NOP"), "POP_TOP": plain("POP"), "PUSH_NULL": plain("PUSH_NULL"),
    "COPY": same("COPY"),
    "SWAP": same("SWAP"), "LOAD_CONST": const,
    "LOAD_FAST": same("LOAD"), "STORE_FAST": same("STORE"), "DELETE_FAST": same("DELETE"),
    "MAKE_CELL": same("MAKE_CELL"), "COPY_FREE_VARS": same("COPY_FREE"),
    "LOAD_DEREF": same("LOAD_CELL"),
    "STORE_DEREF": same("STORE_CELL"), "DELETE_DEREF": same("DELETE_CELL"),
    "STORE_GLOBAL": named("STORE_GLOBAL"), "DELETE_GLOBAL": named("DELETE_GLOBAL"),
    "LOAD_NAME": named("LOAD_NAME"),
    "STORE_NAME": named("STORE_NAME"), "DELETE_NAME": named("DELETE_NAME"),
    "SETUP_ANNOTATIONS": plain("SETUP_ANNOTATIONS"), "IMPORT_NAME": named("IMPORT"),
    "IMPORT_FROM": named("IMPORT_FROM"), "STORE_ATTR": named("STORE_ATTR"),
    "DELETE_ATTR": named("DELETE_ATTR"),
    "BINARY_SUBSCR": plain("GETITEM"), "STORE_SUBSCR": plain("SETITEM"),
    "DELETE_SUBSCR": plain("DELITEM"),
    "UNARY_NEGATIVE": plain("UNARY", "-"), "UNARY_INVERT": plain("UNARY", "~"),
    "UNARY_NOT": plain("UNARY", "not"),
    "BINARY_OP": binary_op, "IS_OP": identity, "CONTAINS_OP": contains,
    "BUILD_TUPLE": same("BUILD_TUPLE"), "BUILD_LIST": same("BUILD_LIST"),
    "BUILD_SET": same("BUILD_SET"),
    "BUILD_MAP": same("BUILD_MAP"), "BUILD_CONST_KEY_MAP": same("BUILD_KEY_MAP"),
    "BUILD_STRING": same("BUILD_STRING"),
    "BUILD_SLICE": same("BUILD_SLICE"), "LIST_APPEND": same("LIST_APPEND"),
    "SET_ADD": same("SET_ADD"),
    "MAP_ADD": same("MAP_ADD"), "LIST_EXTEND": same("LIST_EXTEND"),
    "SET_UPDATE": same("SET_UPDATE"),
    "DICT_UPDATE": same("DICT_UPDATE"), "DICT_MERGE": same("DICT_MERGE"),
    "UNPACK_SEQUENCE": same("UNPACK"), "UNPACK_EX": unpack_ex,
    "JUMP_FORWARD": forward("JUMP"), "JUMP_BACKWARD": backward("JUMP"),
    "JUMP_BACKWARD_NO_INTERRUPT": backward("JUMP"),
    "GET_ITER": plain("GET_ITER"), "GET_YIELD_FROM_ITER": plain("GET_YIELD_ITER"),
    "YIELD_VALUE": plain("YIELD"),
    "RETURN_VALUE": plain("RETURN"), "RETURN_GENERATOR": plain("RETURN_GENERATOR"),
    "RESUME": same("RESUME"),
    "CALL_FUNCTION_EX": call_ex, "MAKE_FUNCTION": same("MAKE_FUNCTION"),
    "LOAD_BUILD_CLASS": plain("BUILD_CLASS"),
    "LOAD_ASSERTION_ERROR": plain("CONST", AssertionError),
    "RAISE_VARARGS": same("RAISE"), "RERAISE": same("RERAISE"), "PUSH_EXC_INFO": plain("PUSH_EXC"),
    "POP_EXCEPT": plain("POP_EXC"), "CHECK_EXC_MATCH": plain("CHECK_EXC"),
    "CHECK_EG_MATCH": plain("CHECK_GROUP"),
    "BEFORE_WITH": plain("WITH"), "WITH_EXCEPT_START": plain("WITH_EXIT"),
    "GET_LEN": plain("GET_LEN"), "MATCH_MAPPING": plain("MATCH_MAPPING"),
    "MATCH_SEQUENCE": plain("MATCH_SEQUENCE"),
    "MATCH_KEYS": plain("MATCH_KEYS"), "MATCH_CLASS": same("MATCH_CLASS"),
    "GET_AITER": plain("ASYNC", "GET_AITER"), "GET_ANEXT": plain("ASYNC", "GET_ANEXT"),
    "BEFORE_ASYNC_WITH": plain("ASYNC", "BEFORE_ASYNC_WITH"),
    "END_ASYNC_FOR": plain("ASYNC", "END_ASYNC_FOR"),
    "GET_AWAITABLE": plain("ASYNC", "GET_AWAITABLE"),
}
