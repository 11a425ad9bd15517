"""Functions that go on in the middle of other functions.

A `Point` is a place in a code object together with what is bound and what is on the stack there.
`make_resume` builds the function that continues at a point: a short prologue, then the original
bytecode unchanged (every jump is relative since 3.11), the exception and line tables shifted.  The
prologue unbinds what was unbound, refills the value stack slot by slot and jumps to the place:

    COPY_FREE_VARS n                    free variables come from the original closure
    RETURN_GENERATOR; POP_TOP           generators only
    RESUME 0
    LOAD_FAST 0                         the tuple that carries the stack
    DELETE_FAST i ...                   unbound locals; their arguments are dummies
    UNPACK_SEQUENCE m
    STORE_FAST 0, STORE_FAST cell ...   slot 0's own value, then the cells that are no arguments
    SWAP i; fix; SWAP i ...             one group for each special entry of the stack
    JUMP_FORWARD                        or RERAISE, where the point raises
    NOP                                 never run; restores the line number

Slots keep their numbers: locals are the positional arguments, and a cell slot is given as its cell
object, since the MAKE_CELL of the original code does not run again.
"""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from opcode import opmap
from types import CodeType, FunctionType
from typing import Any, NamedTuple

from .bytecode import (
    ASYNC_GENERATOR,
    CACHES,
    COROUTINE,
    GENERATOR,
    VARARGS,
    VARKEYWORDS,
    exception_table,
    slot_names,
    units,
)

# What a stack entry is at a point.  Any other entry is an int: the byte offset that a handler with
# the `lasti` flag keeps below its exception.
VALUE = "value"
NULL = "null"           # the empty place beside a callable, or an unbound local that is saved
HANDLED = "handled"     # made by PUSH_EXC_INFO; the exception being handled is passed for it
CARRIED = (VALUE, HANDLED)

Kind = str | int
Step = tuple[str, int]
ENTRIES = 3             # stack entries that a prologue needs beside the state


class CannotResume(ValueError):
    """Slots and stack are not the whole state at this place."""


class Point(NamedTuple):
    """A place where a function can go on.

    offset  byte offset of the instruction that comes next, its EXTENDED_ARG included
    spec    the stack, bottom first: VALUE, NULL, HANDLED or an int
    bound   slots that hold something, ascending; free variables are not counted among the slots
    raises  instead of going on, raise there the exception that follows the stack
    """
    code: CodeType
    offset: int
    spec: tuple[Kind, ...]
    bound: tuple[int, ...]
    raises: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """What the function and each value of the state are called."""
        slots = slot_names(self.code)
        stack = [f"<stack {i}>" for i, kind in enumerate(self.spec) if kind in CARRIED]
        last = ("<exception>",) * self.raises
        return ("<function>", *[slots[i] for i in self.bound], *stack, *last)

    @property
    def carried(self) -> int:
        """Number of values that the state consists of: bound slots, stack, exception."""
        return len(self.bound) + sum(kind in CARRIED for kind in self.spec) + self.raises


class Layout(NamedTuple):
    """How a point's state becomes the arguments of a function.

    order   positional arguments as indexes into the state, -1 for a dummy, -2 for a free variable
    packed  argument 0 is a tuple, or None: indexes of slot 0, other cells, stack from the top down
    """
    order: tuple[int, ...]
    packed: tuple[int, ...] | None

    def arguments(self, state: Sequence[Any], free: Any = None) -> list[Any]:
        """`state`: the bound slots in order, the carried stack bottom first, the exception.

        free: the cell of a free variable that became an argument
        """
        flat = (*state, free, None)
        args = [flat[i] for i in self.order]
        if self.packed is not None:
            args[0] = tuple([flat[i] for i in self.packed])
        return args


class Prologue(NamedTuple):
    """The part that functions built for a point have in common."""
    steps: list[Step]
    layout: Layout
    consts: list[Any]           # of the code object, then the indexes that handlers keep
    changes: dict[str, Any]     # fields of the code object that differ
    dropped: int                # leading free variables that became an argument
    tail: Step                  # stands behind the jump
    room: int                   # stack entries needed


class Resume(NamedTuple):
    """A function's code that goes on at a point."""
    code: CodeType
    layout: Layout
    shift: int                  # bytes in front of the original bytecode
    dropped: int

    def function(self, namespace: dict[str, Any], closure: tuple[Any, ...] | None) -> FunctionType:
        """The function over the globals and the closure of the original one."""
        cells = (closure or ())[self.dropped:]
        return FunctionType(self.code, namespace, self.code.co_name, None, cells)

    def call(self, function: FunctionType, state: Sequence[Any]) -> Any:
        """Goes on natively, as a call of `function` that has come to the point would."""
        made = self.function(function.__globals__, function.__closure__)
        free = function.__closure__[0] if self.dropped else None  # type: ignore[index]
        return made(*self.layout.arguments(state, free))


def make_resume(point: Point) -> Resume:
    """The function that goes on at a point; CannotResume where slots and stack are not enough."""
    code, offset = point.code, point.offset
    check(point)
    found = prologue(point)
    steps = found.steps
    steps += [("RERAISE", 0)] if point.raises else [("JUMP_FORWARD", 1 + offset // 2)]
    head = assemble([*steps, found.tail])
    shift = len(head)
    for i in range(len(code.co_consts), len(found.consts)):
        found.consts[i] += shift // 2   # what a handler keeps counts from the start of the code
    table = [(a + shift, b + shift, target + shift, depth, lasti)
             for a, b, target, depth, lasti in exception_table(code)]
    handler = handler_of(code, offset)
    if point.raises and handler is not None:
        _, _, target, depth, lasti = handler
        table.insert(0, (shift - 4, shift - 2, target + shift, depth, lasti))
    line = line_at(code, offset)
    lines = line_entries(shift // 2 - 1, line - code.co_firstlineno)
    lines += line_entries(1, code.co_firstlineno - line)
    made = code.replace(
        co_code=head + code.co_code, co_consts=tuple(found.consts),
        co_stacksize=max(code.co_stacksize, found.room),
        co_exceptiontable=write_exception_table(table),
        co_linetable=lines + code.co_linetable, **found.changes)
    return Resume(made, found.layout, shift, found.dropped)


def prologue(point: Point) -> Prologue:
    """Everything up to the point's stack, as it was."""
    code = point.code
    cellvars = code.co_cellvars
    only_cells = [name for name in cellvars if name not in code.co_varnames]
    own, free = code.co_nlocals + len(only_cells), len(code.co_freevars)
    locals_, bound, dropped = code.co_nlocals, set(point.bound), 0
    spec = (*point.spec, VALUE) if point.raises else point.spec
    changes: dict[str, Any] = {}
    tail, packed = ("NOP", 0), bool(spec) or own > locals_
    if packed and not locals_:  # slot 0 becomes an argument; no slot changes its number
        locals_ = 1
        if own:
            changes.update(co_varnames=(only_cells[0],))
        elif free:
            name, *rest = code.co_freevars
            changes.update(co_varnames=(name,), co_cellvars=(name,), co_freevars=tuple(rest))
            # `frame.f_locals` unwraps a cell only behind a MAKE_CELL
            bound, free, dropped, tail = {0}, free - 1, 1, ("MAKE_CELL", 0)
        else:
            changes.update(co_varnames=(".state",))
        changes.update(co_nlocals=1)
    lead = 0 in bound
    cells = [i for i in range(locals_, own) if i in bound]
    count = max([1 + i for i in bound if i < locals_] + [int(packed)])
    changes.update(
        co_argcount=count, co_posonlyargcount=0, co_kwonlyargcount=0,
        co_flags=code.co_flags & ~(VARARGS | VARKEYWORDS))

    steps: list[Step] = [("COPY_FREE_VARS", free)] if free else []
    if code.co_flags & GENERATOR:
        steps += [("RETURN_GENERATOR", 0), ("POP_TOP", 0)]
    steps += [("RESUME", 0)]
    steps += [("LOAD_FAST", 0)] if packed else []
    steps += [("DELETE_FAST", i) for i in range(count) if i not in bound]
    if packed:
        steps += [("UNPACK_SEQUENCE", lead + len(cells) + len(spec))]
        steps += [("STORE_FAST", i) for i in [0] * lead + cells]
    consts = list(code.co_consts)
    fixes = stack_fixes(spec, consts)
    layout = layout_of(point, bound, dropped, count, cells if packed else None)
    return Prologue(steps + fixes, layout, consts, changes, dropped, tail,
                    len(spec) + len(cells) + ENTRIES)


def stack_fixes(spec: Sequence[Kind], consts: list[Any]) -> list[Step]:
    """Turns the placeholders of special entries into what they stand for."""
    steps: list[Step] = []
    for index, kind in enumerate(spec):
        if kind == VALUE:
            continue
        if kind == NULL:
            fix = [("POP_TOP", 0), ("PUSH_NULL", 0)]
        elif kind == HANDLED:   # leaves the previous exception in the entry
            fix = [("PUSH_EXC_INFO", 0), ("POP_TOP", 0)]
        else:
            fix = [("POP_TOP", 0), ("LOAD_CONST", len(consts))]
            consts.append(int(kind) // 2)
        depth = len(spec) - index
        swap = [("SWAP", depth)] if depth > 1 else []
        steps += [*swap, *fix, *swap]
    return steps


def layout_of(point: Point, bound: set[int], dropped: int, count: int,
              cells: list[int] | None) -> Layout:
    """Where each argument is in the state."""
    place = {slot: i for i, slot in enumerate(point.bound)}
    if dropped:
        place = {0: -2}
    order = tuple(place[i] if i in bound else -1 for i in range(count))
    if cells is None:
        return Layout(order, None)
    at, stack = len(point.bound), []
    for kind in (*point.spec, VALUE) if point.raises else point.spec:
        stack.append(at if kind in CARRIED else -1)
        at += kind in CARRIED
    packed = [place[0]] if 0 in bound else []
    return Layout(order, (*packed, *(place[i] for i in cells), *reversed(stack)))


def check(point: Point) -> None:
    """Refuses places where slots and stack are not the whole state."""
    code, offset = point.code, point.offset
    if code.co_flags & (COROUTINE | ASYNC_GENERATOR):
        raise CannotResume("coroutines and async generators run natively")
    entered, names = False, False
    for _, unit in units(code):
        if unit.offset == offset:
            if not entered:
                raise CannotResume(f"{offset}: before the function's RESUME")
            if names and not point.raises:
                raise CannotResume(f"{offset}: KW_NAMES already ran; resume at it instead")
            return
        names = unit.name == "KW_NAMES" or names and unit.name == "PRECALL"
        entered = entered or unit.name == "RESUME"
    raise CannotResume(f"{offset}: not the start of an instruction")


# -- pieces of code objects


def assemble(steps: Iterable[Step]) -> bytes:
    """Bytecode of raw instructions, with prefixes and empty caches."""
    out = bytearray()
    for name, arg in steps:
        number = opmap[name]
        for shift in (24, 16, 8):
            if arg >> shift:
                out += bytes((opmap["EXTENDED_ARG"], arg >> shift & 255))
        out += bytes((number, arg & 255)) + bytes(2 * CACHES[number])
    return bytes(out)


def handler_of(code: CodeType, offset: int) -> tuple[int, int, int, int, bool] | None:
    """The row of the exception table that covers an instruction."""
    return next((row for row in exception_table(code) if row[0] <= offset < row[1]), None)


def write_exception_table(rows: Iterable[tuple[int, int, int, int, bool]]) -> bytes:
    """The inverse of `bytecode.exception_table`."""
    out = bytearray()
    for start, end, target, depth, lasti in rows:
        head = len(out)
        for number in (start // 2, (end - start) // 2, target // 2, depth << 1 | lasti):
            out += bytes(reversed(groups(number)))
        out[head] |= 128
    return bytes(out)


def groups(number: int) -> list[int]:
    """6-bit groups, lowest first; bit 6 marks all but the last of them in writing order."""
    found = [number & 63]
    while number := number >> 6:
        found.append(number & 63 | 64)
    return found


def signed(number: int) -> int:
    return -number << 1 | 1 if number < 0 else number << 1


def varint(number: int) -> bytes:
    """6-bit groups, lowest first, unlike the exception table."""
    out = bytearray()
    while number > 63:
        out.append(number & 63 | 64)
        number >>= 6
    out.append(number)
    return bytes(out)


def line_entries(count: int, delta: int) -> bytes:
    """Line-table entries that give `count` code units a line `delta` below the one before."""
    out = bytearray()
    while count > 0:
        size = min(8, count)
        out += bytes((0x80 | 13 << 3 | size - 1,)) + varint(signed(delta))
        count, delta = count - size, 0
    return bytes(out)


def line_at(code: CodeType, offset: int) -> int:
    found = (line for start, end, line in code.co_lines() if start <= offset < end)
    return next(found, None) or code.co_firstlineno
