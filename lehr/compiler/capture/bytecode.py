"""Code object -> canonical instructions, the same on every supported Python.

This is the only file that looks at the running version.  `program(code)` is cached per code object.
Nothing is lost on the way: each canonical instruction keeps the byte offset it came from, and the
machine's stack mirrors the native one slot by slot, so a graph break can resume the original
bytecode at `Instruction.offset`.
"""
from __future__ import annotations

import importlib
import opcode
import sys
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any, NamedTuple

from .dialect import EFFECTS, ENDS, JUMPS, Dialect, Row, Unit

VERSION = sys.version_info[:2]
OLDEST, NEWEST = (3, 11), (3, 13)
if not OLDEST <= VERSION <= NEWEST:
    raise ImportError(f"lehr.compiler.capture reads Python 3.11 to 3.13, this is {VERSION}")
_dialect = importlib.import_module(f"{__package__}.py{VERSION[0]}{VERSION[1]}")
TABLE: Dialect = _dialect.TABLE
IMPOSSIBLE: frozenset[str] = _dialect.IMPOSSIBLE
NULL_FIRST = VERSION < (3, 13)      # PUSH_NULL comes before the callable
CLOSE_RETURNS = VERSION >= (3, 13)  # generator.close() gives what the generator returns
DELEGATING = (2, 3)                 # RESUME arguments behind the yield of `yield from` and `await`

GENERATOR, COROUTINE, ASYNC_GENERATOR, ITERABLE_COROUTINE = 0x20, 0x80, 0x200, 0x100
VARARGS, VARKEYWORDS = 0x04, 0x08


class Handler(NamedTuple):
    """Where an exception raised by an instruction goes."""
    target: int      # canonical position
    depth: int       # the stack is cut to this depth, then [index] and exception are pushed
    lasti: bool


class Instruction(NamedTuple):
    """One canonical operation."""
    op: str
    arg: Any         # jumps: canonical position of the target
    at: int          # canonical position
    offset: int      # byte offset in the original code
    line: int | None
    handler: Handler | None


class Program(NamedTuple):
    """The canonical form of one code object."""
    code: CodeType
    instructions: tuple[Instruction, ...]
    starts: dict[int, int]       # original byte offset -> canonical position
    slots: tuple[str, ...]       # names: locals, cell-only variables, free variables
    own: int                     # slots that are not free variables


def _caches() -> tuple[int, ...]:
    """Inline cache units behind each opcode; a list up to 3.12, a mapping from names since."""
    entries: Any = opcode._inline_cache_entries  # type: ignore[attr-defined]
    if isinstance(entries, dict):
        return tuple(entries.get(name, 0) for name in opcode.opname)
    return tuple(entries)


CACHES = _caches()
EXTENDED = opcode.opmap["EXTENDED_ARG"]
ROWS: tuple[tuple[str, Callable[[Unit], Row] | None, int], ...] = tuple(
    (name, TABLE.get(name), CACHES[i] if i < len(CACHES) else 0) for i,
    name in enumerate(opcode.opname))


class UnknownOpcode(Exception):
    """The code object holds an opcode that the dialect does not list."""


def units(code: CodeType) -> Iterator[tuple[Callable[[Unit], Row], Unit]]:
    """The original instructions with their EXTENDED_ARG prefixes folded in."""
    data, pending = code.co_code, dict[str, Any]()
    at, start, high = 0, 0, 0
    while at < len(data):
        number, arg = data[at], data[at + 1] | high
        if number == EXTENDED:
            high, at = arg << 8, at + 2
            continue
        name, row, caches = ROWS[number]
        end = at + 2 + 2 * caches
        if row is None:
            raise UnknownOpcode(name)
        yield row, Unit(name, arg, start, end, code, pending)
        at = start = end
        high = 0


def exception_table(code: CodeType) -> list[tuple[int, int, int, int, bool]]:
    """(start, end, target, depth, lasti), byte offsets; numbers are 6-bit groups, big-endian."""
    numbers, value = [], 0
    for byte in code.co_exceptiontable:
        value = value << 6 | byte & 63
        if not byte & 64:
            numbers.append(value)
            value = 0
    quads = zip(*[iter(numbers)] * 4, strict=True)
    return [(2 * start, 2 * (start + size), 2 * target, packed >> 1, bool(packed & 1))
            for start, size, target, packed in quads]


def slot_names(code: CodeType) -> tuple[str, ...]:
    only_cells = tuple(name for name in code.co_cellvars if name not in code.co_varnames)
    return code.co_varnames + only_cells + code.co_freevars


def translate(code: CodeType) -> Program:
    """Canonical instructions of `code`; raises UnknownOpcode."""
    raw: list[tuple[str, Any, int]] = []
    starts: dict[int, int] = {}
    for row, unit in units(code):
        starts[unit.offset] = len(raw)
        for op, arg in row(unit):
            raw.append((op, arg, unit.offset))
    lines: dict[int, int | None] = {}
    for begin, end, line in code.co_lines():
        for offset in range(begin, end, 2):
            lines[offset] = line
    handlers: dict[int, Handler] = {}
    for begin, end, target, depth, lasti in reversed(exception_table(code)):  # the first one wins
        handler = Handler(starts[target], depth, lasti)
        for offset in range(begin, end, 2):
            handlers[offset] = handler
    instructions = []
    for at, (op, arg, offset) in enumerate(raw):
        if op in JUMPS:
            arg = (starts[arg[0]], arg[1]) if op == "SEND" else starts[arg]
        line, caught = lines.get(offset), handlers.get(offset)
        instructions.append(Instruction(op, arg, at, offset, line, caught))
    names = slot_names(code)
    return Program(code, tuple(instructions), starts, names, len(names) - len(code.co_freevars))


_programs: dict[int, Program] = {}      # id of a code object, which the program keeps alive
MOST_PROGRAMS = 20_000


def program(code: CodeType) -> Program:
    """`translate`, once per code object; equal ones may differ in file and line."""
    found = _programs.get(id(code))
    if found is None:
        if len(_programs) >= MOST_PROGRAMS:
            _programs.clear()
        found = _programs[id(code)] = translate(code)
    return found


def effect(instruction: Instruction, jump: bool) -> int:
    """Change of the stack's depth when the instruction ends normally."""
    change = EFFECTS[instruction.op]
    return change if isinstance(change, int) else change(instruction.arg, jump)


def depths(found: Program) -> dict[int, int]:
    """Canonical position -> depth of the stack before it, for every reachable position."""
    known: dict[int, int] = {}
    work = [(0, 0)]
    while work:
        at, depth = work.pop()
        if known.setdefault(at, depth) != depth:
            raise ValueError(f"{found.code.co_qualname}: depth {known[at]} or {depth} at {at}")
        while True:
            ins = found.instructions[at]
            if ins.handler and ins.handler.target not in known:
                work.append((ins.handler.target, ins.handler.depth + ins.handler.lasti + 1))
            if ins.op in JUMPS:
                target = ins.arg[0] if ins.op == "SEND" else ins.arg
                work.append((target, depth + effect(ins, True)))
                if known.get(target) == work[-1][1]:
                    work.pop()
            if ins.op in ENDS:
                break
            depth += effect(ins, False)
            at += 1
            if at in known:
                if known[at] != depth:
                    where = f"{found.code.co_qualname} at {at}"
                    raise ValueError(f"{where}: depth {known[at]} or {depth}")
                break
            known[at] = depth
    return known
