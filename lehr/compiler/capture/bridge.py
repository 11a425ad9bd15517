"""One instruction of a function, run by CPython itself: what stands between two captured parts.

A `Bridge` is a function built for a point (see `resume`): the same prologue, the one instruction
at its own line and columns, and an exit for each way on.  It returns what the instruction pushed;
the slots do not change, and the rest of the stack stays with the caller:

    prologue                            slots and stack as they were
    JUMP_FORWARD; MAKE_CELL ...         never run, but `frame.f_locals` looks for them
    the instruction                     its jump, if any, goes to the second exit
    LOAD_CONST exit; BUILD_TUPLE        what was pushed, and the exit's number
    SWAP 2; POP_TOP ...                 drops the rest of the stack, ends handled exceptions
    RETURN_VALUE
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from opcode import opmap
from types import CodeType, FunctionType
from typing import Any, NamedTuple

from .bytecode import GENERATOR, Program, effect, units
from .dialect import JUMPS, Unit
from .resume import (
    HANDLED,
    NULL,
    VALUE,
    CannotResume,
    Kind,
    Layout,
    Point,
    Step,
    assemble,
    prologue,
    signed,
    varint,
    write_exception_table,
)

# Canonical operation -> number of values it pushes.  Other operations do not fit into a bridge:
# they change slots, or leave the frame.
PUSHES: dict[str, int | Callable[[Any], int]] = {
    "IMPORT": 1, "IMPORT_FROM": 1, "STORE_GLOBAL": 0, "DELETE_GLOBAL": 0,
    "LOAD_ATTR": 1, "LOAD_METHOD": 1, "STORE_ATTR": 0, "DELETE_ATTR": 0,
    "LOAD_SUPER": 1, "LOAD_SUPER_METHOD": 1, "GETITEM": 1, "SETITEM": 0, "DELITEM": 0,
    "UNARY": 1, "TO_BOOL": 1, "BINARY": 1, "INPLACE": 1, "COMPARE": 1, "IS": 1, "CONTAINS": 1,
    "BUILD_TUPLE": 1, "BUILD_LIST": 1, "BUILD_SET": 1, "BUILD_MAP": 1, "BUILD_KEY_MAP": 1,
    "BUILD_STRING": 1, "BUILD_SLICE": 1, "LIST_APPEND": 0, "SET_ADD": 0, "MAP_ADD": 0,
    "LIST_EXTEND": 0, "SET_UPDATE": 0, "DICT_UPDATE": 0, "DICT_MERGE": 0, "LIST_TO_TUPLE": 1,
    "CONVERT": 1, "FORMAT": 1, "UNPACK": lambda arg: arg, "UNPACK_EX": lambda arg: sum(arg) + 1,
    "JUMP_TRUE": 0, "JUMP_FALSE": 0, "GET_ITER": 1, "FOR_ITER": 1,
    "CALL": 1, "CALL_KW": 1, "CALL_EX": 1,
    "BUILD_CLASS": 1, "RAISE": 0, "CHECK_EXC": 1, "WITH": 2, "WITH_EXIT": 1, "STOP_ITERATION": 1,
    "GET_LEN": 1, "MATCH_MAPPING": 1, "MATCH_SEQUENCE": 1, "MATCH_KEYS": 1, "MATCH_CLASS": 1,
    "TYPING": 1,
}
METHODS = {"LOAD_METHOD", "LOAD_SUPER_METHOD"}
# Jumps as forward jumps: the first name that this Python has.
FORWARD = {
    "JUMP_TRUE": ("POP_JUMP_FORWARD_IF_TRUE", "POP_JUMP_IF_TRUE"),
    "JUMP_FALSE": ("POP_JUMP_FORWARD_IF_FALSE", "POP_JUMP_IF_FALSE"),
}
KEEPING = {"JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP"}   # 3.11: pop only where they do not jump
CALL_PARTS = {"KW_NAMES", "PRECALL"}    # run just before the call that they belong to


class Exit(NamedTuple):
    """A way on from the instruction.

    at      canonical position of what comes next
    spec    the stack there
    kept    entries of the old stack that are still there
    """
    at: int
    offset: int
    spec: tuple[Kind, ...]
    kept: int


class Bridge(NamedTuple):
    """The code that runs one instruction, and where it can lead."""
    code: CodeType
    layout: Layout
    dropped: int
    exits: tuple[Exit, ...]

    def function(self, original: FunctionType) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
        """(state) -> what was pushed and the number of the exit; what it raises passes."""
        closure = original.__closure__ or ()
        made = FunctionType(self.code, original.__globals__, self.code.co_name, None,
                            closure[self.dropped:])
        free = closure[0] if self.dropped else None
        arguments = self.layout.arguments

        def cross(state: Sequence[Any]) -> tuple[Any, ...]:
            return made(*arguments(state, free))  # type: ignore[no-any-return]
        return cross


def make_bridge(program: Program, at: int, point: Point) -> Bridge:
    """The bridge over the canonical instruction `at`, from the state that `point` describes.

    CannotResume where the instruction does not fit into one.
    """
    code = program.code
    if code.co_flags & GENERATOR:
        raise CannotResume("a generator's frame is not a function's")
    ways, body = instruction(program, at)
    exits = tuple(leave(program, point.spec, way) for way in ways)
    found = prologue(point)
    head = assemble(found.steps)
    cells = assemble([("MAKE_CELL", i) for i in range(program.own) if is_cell(program, i)])
    if cells:
        head += assemble([("JUMP_FORWARD", len(cells) // 2)]) + cells
    parts = []
    for number, (way, out) in enumerate(zip(ways, exits, strict=True)):
        parts.append(exit_code(point.spec, way, out, len(found.consts)))
        found.consts.append(number)
    if len(ways) == 2:
        body = body(len(parts[0]) // 2)
        parts[1] = ways[1].landing + parts[1]
    start, end = len(head), len(head) + len(body)
    made, table = head + body + b"".join(parts), []
    if HANDLED in point.spec:   # an exception that passes ends the handling of the others, too
        # the row begins one unit early: 3.13 looks there when a call of a Python function raised
        table = [(start - 2, end, len(made), point.spec.index(HANDLED) + 1, False)]
        made += assemble([("SWAP", 2), ("POP_EXCEPT", 0), ("RERAISE", 0)])
    return Bridge(code.replace(
        co_code=made, co_consts=tuple(found.consts),
        co_stacksize=max(code.co_stacksize, found.room) + 2,
        co_exceptiontable=write_exception_table(table),
        co_linetable=place_entries(code, program.instructions[at].offset, len(made) // 2),
        **found.changes), found.layout, found.dropped, exits)


class Way(NamedTuple):
    """Before its stack is known: where the instruction goes on, what it pops and pushes."""
    at: int
    pops: int
    pushes: int
    nulls: tuple[Kind, ...] = ()    # the spec of what it pushes, if that is not VALUE only
    landing: bytes = b""            # instructions that stand at the target of a FOR_ITER


def instruction(program: Program, at: int) -> tuple[list[Way], Any]:
    """The ways on, and the raw instruction; with two ways it is a function of the jump's length."""
    code, ops = program.code, program.instructions
    first = ops[at]
    start, end, unit = raw(program, first.offset)
    whole = [i for i in ops[at:at + 3] if i.offset == first.offset]
    after = program.starts[end] if end < len(code.co_code) else len(ops)
    if at != program.starts[first.offset]:
        if first.op != "TO_BOOL":
            raise CannotResume(f"{first.op} is a part of {unit.name}")
        return [Way(after, 1, 1)], assemble([("TO_BOOL", 0)])
    if unit.name in KEEPING:
        def keep(skip: int) -> bytes:
            return assemble([(unit.name, skip)])
        return [Way(after, 1, 0), Way(whole[1].arg, 0, 0)], keep
    last = whole[-1]
    if last.op not in PUSHES:
        raise CannotResume(f"{last.op} does not fit into a bridge")
    count = PUSHES[last.op]
    pushes = count if isinstance(count, int) else count(last.arg)
    pops = pushes - sum(effect(i, False) for i in whole)
    if last.op in METHODS:  # as an attribute: a method and its object come out as a bound method
        null_first = last.arg[1]
        way = Way(after, pops + 1, 1, (NULL, VALUE) if null_first else (VALUE, NULL))
        name = "LOAD_ATTR" if unit.name == "LOAD_METHOD" else unit.name
        arg = unit.arg if unit.name == "LOAD_METHOD" else unit.arg & ~1
        return [way], assemble([(name, arg)])
    if last.op == "RAISE":
        return [], code.co_code[start:end]
    if last.op not in JUMPS:
        return [Way(after, pops, pushes)], code.co_code[start:end]
    name = next((n for n in FORWARD.get(last.op, ()) if n in opmap), unit.name)
    target = ops[last.arg].offset if last.arg < len(ops) else len(code.co_code)
    landing = code.co_code[unit.forward:target] if last.op == "FOR_ITER" else b""
    out = Way(last.arg, pushes - effect(last, True), pushes, (), landing)
    if last.op == "FOR_ITER":
        out = out._replace(pops=1, pushes=0)

    def jump(skip: int) -> bytes:
        return assemble([(name, skip)])
    return [Way(after, pops, pushes), out], jump


def raw(program: Program, offset: int) -> tuple[int, int, Unit]:
    """(first byte, byte behind, unit); a call starts where its keyword names are set."""
    start = None
    for _, unit in units(program.code):
        if unit.name in CALL_PARTS:
            if unit.offset == offset:
                raise CannotResume(f"{unit.name} is a part of a call")
            start = unit.offset if start is None else start
            continue
        if unit.offset == offset:
            return (offset if start is None else start), unit.end, unit
        start = None
    raise CannotResume(f"{offset}: not the start of an instruction")


def leave(program: Program, spec: tuple[Kind, ...], way: Way) -> Exit:
    kept = len(spec) - way.pops
    offset = program.instructions[way.at].offset if way.at < len(program.instructions) else -1
    return Exit(way.at, offset, spec[:kept] + (way.nulls or (VALUE,) * way.pushes), kept)


def exit_code(spec: Sequence[Kind], way: Way, out: Exit, const: int) -> bytes:
    """Returns what the instruction pushed, and drops the entries below, the top one first."""
    steps: list[Step] = [("LOAD_CONST", const), ("BUILD_TUPLE", way.pushes + 1)]
    drops = {NULL: ("STORE_FAST", 0), HANDLED: ("POP_EXCEPT", 0)}
    for kind in reversed(spec[:out.kept]):
        steps += [("SWAP", 2), drops.get(kind, ("POP_TOP", 0))]  # type: ignore[arg-type]
    return assemble([*steps, ("RETURN_VALUE", 0)])


def is_cell(program: Program, slot: int) -> bool:
    return program.slots[slot] in program.code.co_cellvars


def place_entries(code: CodeType, offset: int, count: int) -> bytes:
    """Line-table entries: all code units at the place of one original instruction."""
    line, last, begin, end = list(code.co_positions())[offset // 2]
    first = code.co_firstlineno
    line = first if line is None else line
    if last is None or begin is None or end is None:
        head, tail = 0x80 | 13 << 3, b""
    else:
        head, tail = 0x80 | 14 << 3, varint(last - line) + varint(begin + 1) + varint(end + 1)
    out, delta = bytearray(), line - first
    while count > 0:
        size = min(8, count)
        out += bytes((head | size - 1,)) + varint(signed(delta)) + tail
        count, delta = count - size, 0
    return bytes(out)

