"""Exceptions of the captured program as values, with context, cause and traceback."""
from __future__ import annotations

import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from .objects import ObjectValue
from .source import Source
from .value import Const, Signal, Value, slot

if TYPE_CHECKING:
    from .frame import Frame
    from .machine import Machine
    from .rebuild import Rebuilder


class Raised(Signal):
    """An exception of the captured program on its way through the machine."""

    def __init__(self, value: FaultValue, again: bool = False) -> None:
        self.value = value
        self.again = again      # a re-raise adds no traceback entry in the frame that does it


class Point(NamedTuple):
    """One traceback entry."""
    code: types.CodeType
    offset: int
    line: int


class FaultValue(ObjectValue):
    """An instance of an exception class.

    `native` is the real exception where C code made it: it holds the fields that only C sets.
    `points` is the traceback, innermost entry first, in the order in which frames were left.
    """
    __slots__ = ("args", "cause", "context", "named", "native", "points", "suppress")
    base: type = BaseException

    def __init__(self, type_: Any, args: list[Value], real: Any = None,
                 source: Source | None = None, native: Any = None) -> None:
        super().__init__(type_, real, source)
        self.args, self.native = args, native
        self.context: Value | None = None
        self.cause: Value | None = None
        self.suppress = False
        self.points: list[Point] = []
        self.named: dict[str, Value] = {}   # fields that the machine itself has set
        if real is not None:
            self.native = real

    def enter(self, m: Machine, frame: Frame) -> None:
        """The exception passes through a frame."""
        ins = frame.program.instructions[frame.at]
        point = Point(frame.program.code, ins.offset, frame.line)
        self.points.append(point)
        if self.real is not None:
            m.effect("trace", self, Const(point))

    def shell(self) -> Any:
        if self.native is not None:
            return self.native
        return self.type_.__new__(self.type_)

    def fill(self, r: Rebuilder, real: Any) -> None:
        real.args = tuple(r(v) for v in self.args)
        real.__context__ = None if self.context is None else r(self.context)
        real.__cause__ = None if self.cause is None else r(self.cause)
        real.__suppress_context__ = self.suppress
        real.__traceback__ = traceback(self.points)
        for name, value in self.named.items():
            if name != "obj":       # only for suggestions in tracebacks
                setattr(real, name, r(value))

    def rebuild(self, r: Rebuilder) -> Any:
        if self.native is None and not self.attrs and all(
                type(a) is Const for a in self.args) and issubclass(self.type_, FIELDED):
            # the C constructor fills fields such as errno and StopIteration.value
            real = self.type_.__new__(self.type_, *[r(a) for a in self.args])
            self.native_base().__init__(real, *[r(a) for a in self.args])
            self.native = real
        return super().rebuild(r)

    def field(self, m: Machine, name: str) -> Value:
        """A field that C code keeps."""
        if name in self.named:
            return self.named[name]
        if self.native is None:
            args = [a.constant(m) for a in self.args]
            self.native = m.native_op(self.native_base(), *args)
        return m.fresh(getattr(self.native, name))

    def native_base(self) -> Any:
        return next(k for k in self.type_.__mro__ if k.__module__ == "builtins")

    @slot("__init__")
    def init(self, m: Machine, /, *args: Value, **kwargs: Value) -> Value:
        self.args = list(args)
        if kwargs:
            accepted = KEYWORDS.get(self.native_base(), ())
            if not set(kwargs) <= set(accepted):
                m.error(TypeError, f"{self.native_base().__name__}() takes no keyword arguments")
            made = {k: v.constant(m) for k, v in kwargs.items()}
            self.native = self.native_base()(*[a.constant(m) for a in args], **made)
        return Const(None)

    @slot("args")
    def get_args(self, m: Machine) -> Value:
        return m.tuple_value(list(self.args))

    @slot("args=")
    def set_args(self, m: Machine, value: Value) -> None:
        self.args = list(m.iterate(value))
        self.log(m, "args", m.tuple_value(list(self.args)))

    @slot("__context__")
    def get_context(self, m: Machine) -> Value:
        return self.context or Const(None)

    @slot("__context__=")
    def set_context(self, m: Machine, value: Value) -> None:
        self.set_link(m, "context", None if m.is_none(value) else value.force(m))

    def set_link(self, m: Machine, name: str, value: Value | None) -> None:
        """Writes `context` or `cause`."""
        setattr(self, name, value)
        self.suppress = self.suppress or name == "cause"
        self.log(m, f"__{name}__", value or Const(None))

    def log(self, m: Machine, name: str, value: Value) -> None:
        """A write to an exception that existed before the call."""
        if self.real is not None:
            m.effect("setfield", self, Const(name), value)

    @slot("__cause__")
    def get_cause(self, m: Machine) -> Value:
        return self.cause or Const(None)

    @slot("__cause__=")
    def set_cause(self, m: Machine, value: Value) -> None:
        self.set_link(m, "cause", None if m.is_none(value) else value.force(m))

    @slot("__suppress_context__")
    def get_suppress(self, m: Machine) -> Value:
        return Const(self.suppress)

    @slot("__suppress_context__=")
    def set_suppress(self, m: Machine, value: Value) -> None:
        self.suppress = m.truth(value)
        self.log(m, "__suppress_context__", Const(self.suppress))

    @slot("__traceback__")
    def get_traceback(self, m: Machine) -> Value:
        if self.points or self.real is None:
            return TracebackValue(self, len(self.points)) if self.points else Const(None)
        return m.part(self.real.__traceback__, self.source, "__traceback__")

    @slot("__traceback__=")
    def set_traceback(self, m: Machine, value: Value) -> None:
        value = value.force(m)
        if isinstance(value, TracebackValue):
            self.points = value.fault.points[:value.size]
        elif m.is_none(value):
            self.points = []
        else:
            m.stop("traceback")
        if self.real is not None:
            m.effect("settrace", self, value)

    @slot("with_traceback")
    def with_traceback(self, m: Machine, value: Value) -> Value:
        self.set_traceback(m, value)
        return self

    @slot("value", "code")
    def get_value(self, m: Machine) -> Value:
        """`StopIteration.value`, `SystemExit.code`."""
        if len(self.args) > 1 and issubclass(self.type_, SystemExit):
            return self.get_args(m)
        return self.args[0] if self.args else Const(None)

    @slot("value=", "code=")
    def set_value(self, m: Machine, value: Value) -> None:
        m.stop("unmodelled", f"{self.type_.__name__}.value is written")

    @slot("add_note")
    def add_note(self, m: Machine, note: Value) -> Value:
        if not isinstance(note.force(m), Const) or m.type_of(note) is not str:
            m.error(TypeError, f"note must be a str, not '{m.type_name(note)}'")
        attrs = m.attrs_of(self)
        assert attrs is not None
        notes = attrs.find(m, "__notes__")
        if notes is None:
            notes = m.list_value([])
            attrs.put(m, "__notes__", notes)
        elif not issubclass(m.type_of(notes), list):
            m.error(TypeError, "Cannot add note: __notes__ is not a list")
        m.call_method(notes, "append", [note])
        return Const(None)

    @slot("__setstate__", "__reduce__")
    def unpickle(self, m: Machine, /, *args: Value) -> Value:
        return m.stop("native-method", "pickling of an exception")

    @slot("__str__")
    def text(self, m: Machine) -> Value:
        if issubclass(self.type_, KeyError) and len(self.args) == 1:
            return m.repr(self.args[0])
        if issubclass(self.type_, (OSError, SyntaxError, UnicodeError, BaseExceptionGroup)):
            self.field(m, "args")
            return Const(self.native_base().__str__(self.native))
        if not self.args:
            return Const("")
        return m.str_of(self.args[0] if len(self.args) == 1 else self.get_args(m))

    @slot("__repr__")
    def repr(self, m: Machine) -> Value:
        parts = ", ".join(m.repr_text(v) for v in self.args)
        return Const(f"{self.type_.__name__}({parts})")


FIELDED = (OSError, StopIteration, SystemExit, SyntaxError, UnicodeError, ImportError)
KEYWORDS: dict[type, tuple[str, ...]] = {
    ImportError: ("name", "path"), ModuleNotFoundError: ("name", "path"),
    AttributeError: ("name", "obj"), NameError: ("name",)}


def native_field(name: str) -> Callable[[FaultValue, Machine], Value]:
    return lambda self, m: self.field(m, name)


for _name in ("errno", "strerror", "filename", "filename2", "characters_written", "name", "path",
              "name_from", "msg", "obj", "object", "start", "end", "reason", "encoding", "lineno",
              "offset", "text", "end_lineno", "end_offset", "print_file_and_line"):
    FaultValue.table[_name] = native_field(_name)


class TracebackValue(Value):
    """A traceback that is only handed on; looking into it stops the capture."""
    __slots__ = ("fault", "size")
    type_ = types.TracebackType

    def __init__(self, fault: FaultValue, size: int) -> None:
        self.fault, self.size, self.source = fault, size, None

    def rebuild(self, r: Rebuilder) -> Any:
        outside = None if self.fault.real is None else r(self.fault).__traceback__
        return traceback(self.fault.points[:self.size], outside)


def stand_in(code: types.CodeType) -> types.FrameType:
    """A finished frame with the name and the file of `code`, for tracebacks."""
    source = compile("raise ZeroDivisionError", code.co_filename, "exec")
    body = source.replace(co_name=code.co_name, co_qualname=code.co_qualname,
                          co_firstlineno=code.co_firstlineno)
    try:
        exec(body, {"__name__": "captured"})
    except ZeroDivisionError as error:
        assert error.__traceback__ is not None and error.__traceback__.tb_next is not None
        return error.__traceback__.tb_next.tb_frame
    raise AssertionError("unreachable")


def traceback(points: list[Point], made: types.TracebackType | None = None
              ) -> types.TracebackType | None:
    """A real traceback that shows the captured program's own files and lines, then `made`."""
    for point in points:
        made = types.TracebackType(made, stand_in(point.code), point.offset, point.line)
    return made
