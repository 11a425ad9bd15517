"""Frames of the captured program, and how arguments reach their slots."""
from __future__ import annotations

import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from . import resume
from .bytecode import VARARGS, VARKEYWORDS, Program
from .objects import FunctionValue
from .value import NULL, Const, Handled, Lasti, Value

if TYPE_CHECKING:
    from .iterators import IteratorValue
    from .machine import Machine
    from .mapping import DictValue, SpaceValue

STEP = tuple[Any, Any]


class Frame:
    """The state of one call, laid out as the native interpreter lays it out.

    slots    values of locals, cell-only variables and free variables (see `Program.slots`); None is
             unbound; a slot that MAKE_CELL or COPY_FREE_VARS turned into a cell holds a CellValue
    stack    values, and the markers NULL, Handled and Lasti
    at       canonical position of the instruction being executed; next: the one after it
    count    instructions executed in the whole run when this one began
    """
    __slots__ = ("at", "back", "count", "function", "generator", "globals", "kept", "names", "next",
                 "program", "slots", "stack", "steps", "yielded")

    def __init__(self, program: Program, steps: tuple[STEP, ...], function: FunctionValue,
                 slots: list[Value | None], back: Frame | None) -> None:
        self.program, self.steps, self.function = program, steps, function
        self.globals: SpaceValue = function.globals
        self.slots = slots
        self.stack: list[Any] = []
        self.at = self.next = 0
        self.count = 0
        self.back = back
        self.names: DictValue | None = None     # the namespace of a class body
        self.generator: IteratorValue | None = None
        self.yielded = False
        self.kept: Any = None       # the exception being handled while a generator is suspended

    @property
    def line(self) -> int:
        ins = self.program.instructions[self.at]
        return ins.line or self.program.code.co_firstlineno

    @property
    def offset(self) -> int:
        """Byte offset of the current instruction in the original code."""
        return self.program.instructions[self.at].offset

    @property
    def code(self) -> types.CodeType:
        return self.program.code

    @property
    def begun(self) -> int:
        """`count` when the original instruction began; the test behind a comparison is its own."""
        ins = self.program.instructions[self.at]
        if ins.op == "TO_BOOL":
            return self.count
        return self.count - (self.at - self.program.starts[ins.offset])

    def chain(self) -> tuple[Frame, ...]:
        """All frames, outermost first."""
        found, frame = [], self
        while frame is not None:
            found.append(frame)
            frame = frame.back  # type: ignore[assignment]
        return tuple(reversed(found))

    def __repr__(self) -> str:
        return f"<frame {self.code.co_qualname} line {self.line}>"


def read_stack(entries: Sequence[Any], handling: Value | None
               ) -> tuple[tuple[resume.Kind, ...], list[Value]]:
    """The kinds of all entries, and the values of those that carry one.

    handling: the exception being handled
    """
    spec: list[resume.Kind] = []
    values: list[Any] = []
    waiting: list[int] = []     # places of the Handled entries whose exception is not known yet
    for entry in entries:
        if entry is NULL:
            spec.append(resume.NULL)
        elif isinstance(entry, Lasti):
            spec.append(entry.offset)
        elif isinstance(entry, Handled):
            if waiting:
                values[waiting[-1]] = entry.previous
            spec.append(resume.HANDLED)
            waiting.append(len(values))
            values.append(None)
        else:
            spec.append(resume.VALUE)
            values.append(entry)
    if waiting:
        values[waiting[-1]] = handling
    return tuple(spec), values


def bind(m: Machine, function: FunctionValue, args: list[Value],
         kwargs: dict[str, Value]) -> list[Value | None]:
    """The slots of a new frame; argument errors are raised with CPython's own text."""
    code = function.code
    count, flags = code.co_argcount, code.co_flags
    size = m.program(code).slots
    slots: list[Value | None] = [None] * len(size)
    if not kwargs and not flags & (VARARGS | VARKEYWORDS) and not code.co_kwonlyargcount:
        given = len(args)
        if given == count:
            slots[:given] = args
            return slots
        missing = count - given
        defaults = function.defaults
        if 0 < missing <= len(defaults):
            slots[:given] = args
            slots[given:count] = defaults[len(defaults) - missing:]
            return slots
        raise_argument_error(m, function, args, kwargs)
    return bind_all(m, function, args, kwargs, slots)


def bind_all(m: Machine, function: FunctionValue, args: list[Value], kwargs: dict[str, Value],
             slots: list[Value | None]) -> list[Value | None]:
    code = function.code
    count, only = code.co_argcount, code.co_kwonlyargcount
    total = count + only
    names = code.co_varnames[:total]
    taken = min(len(args), count)
    slots[:taken] = args[:taken]
    at = total
    if code.co_flags & VARARGS:
        slots[at] = m.tuple_value(args[count:])
        at += 1
    elif len(args) > count:
        raise_argument_error(m, function, args, kwargs)
    rest: dict[str, Value] | None = {} if code.co_flags & VARKEYWORDS else None
    for name, value in kwargs.items():
        try:
            i = names.index(name, code.co_posonlyargcount)
        except ValueError:
            if rest is None:
                raise_argument_error(m, function, args, kwargs)
            else:
                rest[name] = value
            continue
        if slots[i] is not None:
            raise_argument_error(m, function, args, kwargs)
        slots[i] = value
    if rest is not None:
        slots[at] = m.dict_value(rest)
    defaults = function.defaults
    first = count - len(defaults)
    for i in range(taken, count):
        if slots[i] is None:
            if i < first:
                raise_argument_error(m, function, args, kwargs)
            slots[i] = defaults[i - first]
    for i in range(count, total):
        if slots[i] is None:
            if names[i] not in function.kwdefaults:
                raise_argument_error(m, function, args, kwargs)
            slots[i] = function.kwdefaults[names[i]]
    return slots


def raise_argument_error(m: Machine, function: FunctionValue, args: list[Value],
                         kwargs: dict[str, Value]) -> None:
    """Calls a real function with the same signature and no body, for the text of its error."""
    code = function.code
    body = (lambda: None).__code__
    kept = VARARGS | VARKEYWORDS | 0x3
    name = function.fields.get("__qualname__")
    shown = name.value if isinstance(name, Const) else code.co_qualname
    hollow = code.replace(
        co_code=body.co_code, co_consts=body.co_consts, co_names=(), co_freevars=(),
        co_exceptiontable=b"", co_linetable=body.co_linetable, co_flags=code.co_flags & kept,
        co_stacksize=max(1, body.co_stacksize), co_qualname=shown)
    if function.real is not None:
        shown = function.real.__qualname__
    real = types.FunctionType(hollow, {}, code.co_name)
    real.__qualname__ = shown
    real.__defaults__ = (None,) * len(function.defaults) or None
    real.__kwdefaults__ = dict.fromkeys(function.kwdefaults)
    m.native_op(real, *([None] * len(args)), **dict.fromkeys(kwargs))
    raise AssertionError(f"arguments of {shown} were refused here, not by Python")
