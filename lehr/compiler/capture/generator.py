"""Generators: frames that are left and entered again."""
from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from .bytecode import DELEGATING
from .fault import FaultValue, Raised
from .frame import Frame
from .iterators import IteratorValue
from .objects import ClassValue
from .value import Const, Signal, Value, slot

if TYPE_CHECKING:
    from .machine import Machine
    from .rebuild import Rebuilder


class GeneratorValue(IteratorValue):
    """A generator made by the captured code.  `frame` is None once it has ended."""
    __slots__ = ("frame", "function", "maker", "running", "started")
    type_ = types.GeneratorType

    def __init__(self, frame: Frame) -> None:
        self.frame: Frame | None = frame
        self.running = self.started = False
        self.maker: Any = None      # how it is made again in the middle
        self.function, self.source = frame.function, None

    def advance(self, m: Machine) -> Value | None:
        try:
            return self.resume(m, Const(None))
        except Finished:
            return None

    def resume(self, m: Machine, sent: Value) -> Value:
        """Runs to the next yield; raises Finished at the end."""
        frame = self.enter(m)
        if not self.started and not m.is_none(sent):
            m.error(TypeError, "can't send non-None value to a just-started generator")
        self.started = True
        frame.stack.append(sent)
        return self.run(m, frame)

    def enter(self, m: Machine) -> Frame:
        if self.running:
            m.error(ValueError, "generator already executing")
        if self.frame is None:
            raise Finished(Const(None))
        return self.frame

    def run(self, m: Machine, frame: Frame, fault: FaultValue | None = None) -> Value:
        """`fault` is raised at the place where the generator waits."""
        self.running = True
        frame.back = m.frame
        m.handling.append(frame.kept)
        if fault is not None and frame.kept is not None:
            m.set_context(fault)    # only of what this generator handles itself
        try:
            frame.yielded = False
            value = m.execute(frame, fault)
        except Raised as raised:
            self.frame = None
            if issubclass(raised.value.type_, StopIteration):
                self.convert(m, raised.value)
            raise
        finally:
            frame.kept = m.handling.pop()
            self.running = False
            m.frame, frame.back = frame.back, None
        if frame.yielded:
            return value
        self.frame = None
        raise Finished(value)

    def convert(self, m: Machine, cause: FaultValue) -> None:
        """PEP 479."""
        fault = FaultValue(RuntimeError, [Const("generator raised StopIteration")])
        fault.cause = fault.context = cause
        fault.suppress = True
        raise Raised(fault)

    def delegate(self) -> Value | None:
        """The iterator of the `yield from` in which the generator waits."""
        frame = self.frame
        if frame is None or not self.started:
            return None
        ins = frame.program.instructions[frame.next]
        if ins.op == "RESUME" and ins.arg & 3 in DELEGATING:
            return frame.stack[-1]
        return None

    def throw_in(self, m: Machine, fault: FaultValue) -> Value:
        frame = self.enter(m)
        inner = self.delegate()
        if inner is not None:
            self.running = True
            try:
                found = self.throw_delegate(m, frame, inner, fault)
            except Raised as raised:
                fault = raised.value
            except Finished as finished:
                return self.after_delegate(m, frame, finished.value)
            else:
                if found is not None:
                    return found
            finally:
                self.running = False
        if not self.started:
            self.frame = None
            fault.enter(m, frame)
            raise Raised(fault)
        return self.run(m, frame, fault)

    def throw_delegate(self, m: Machine, frame: Frame, inner: Value,
                       fault: FaultValue) -> Value | None:
        inner = inner.force(m)
        if issubclass(fault.type_, GeneratorExit):
            if isinstance(inner, GeneratorValue):
                inner.close(m)
            else:
                closer = m.find_attr(inner, "close")
                if closer is not None:
                    m.call(closer, [])
            return None
        if isinstance(inner, GeneratorValue):
            return inner.throw_in(m, fault)
        thrower = m.find_attr(inner, "throw")
        if thrower is None:
            return None
        try:
            return m.call(thrower, [fault])
        except Raised as raised:
            if issubclass(raised.value.type_, StopIteration):
                raise Finished(m.getattr(raised.value, "value")) from None
            raise

    def after_delegate(self, m: Machine, frame: Frame, value: Value) -> Value:
        """The inner iterator ended by itself: go on behind the SEND loop."""
        ins = frame.program.instructions
        at = frame.next
        while ins[at].op != "SEND":
            at = ins[at].arg if ins[at].op == "JUMP" else at + 1
        target, drop = ins[at].arg
        if drop:
            frame.stack[-1] = value
        else:
            frame.stack.append(value)
        frame.next = target
        return self.run(m, frame)

    @slot("send")
    def send(self, m: Machine, sent: Value) -> Value:
        return self.finished(m, lambda: self.resume(m, sent))

    @slot("throw")
    def throw(self, m: Machine, kind: Value, value: Value | None = None,
              trace: Value | None = None) -> Value:
        kind = kind.force(m)
        if isinstance(kind, ClassValue):
            given = [] if value is None or m.is_none(value) else [value.force(m)]
            fault = given[0] if given and isinstance(given[0], FaultValue) else m.call(kind, given)
        else:
            fault = kind
        if not isinstance(fault, FaultValue):
            name = m.type_name(fault)
            m.error(TypeError, "exceptions must be classes or instances deriving from"
                               f" BaseException, not {name}")
        assert isinstance(fault, FaultValue)
        if self.frame is None:
            raise Raised(fault)
        return self.finished(m, lambda: self.throw_in(m, fault))

    def finished(self, m: Machine, action: Any) -> Value:
        try:
            return action()
        except Finished as finished:
            value = finished.value
        return m.error_with(StopIteration, [] if m.is_none(value) else [value])

    @slot("close")
    def close(self, m: Machine) -> Value:
        if self.frame is None or not self.started:
            self.frame = None
            return Const(None)
        try:
            self.throw_in(m, FaultValue(GeneratorExit, []))
        except Finished as finished:
            return finished.value if m.close_returns else Const(None)
        except Raised as raised:
            if issubclass(raised.value.type_, (GeneratorExit, StopIteration)):
                return Const(None)
            raise
        return m.error(RuntimeError, "generator ignored GeneratorExit")

    @property
    def waits(self) -> bool:
        """Whether something happens when the generator is closed as it is now."""
        frame = self.frame
        if frame is None or not self.started:
            return False
        ins = frame.program.instructions
        handler = ins[frame.at].handler
        while handler is not None and ins[handler.target].op == "CLEANUP_THROW":
            handler = ins[handler.target].handler       # of the `yield from` itself (3.12)
        return handler is not None and ins[handler.target].op != "STOP_ITERATION"

    @slot("__next__")
    def next(self, m: Machine) -> Value:
        return self.finished(m, lambda: self.resume(m, Const(None)))

    @slot("__name__")
    def get_name(self, m: Machine) -> Value:
        return self.function.field(m, "__name__")

    @slot("__qualname__")
    def get_qualname(self, m: Machine) -> Value:
        return self.function.field(m, "__qualname__")

    @slot("__repr__")
    def repr(self, m: Machine) -> Value:
        return m.stop("unmodelled", "the address in repr() of a generator")

    @slot("gi_running")
    def get_running(self, m: Machine) -> Value:
        return Const(self.running)

    @slot("gi_yieldfrom")
    def get_yieldfrom(self, m: Machine) -> Value:
        return self.delegate() or Const(None)

    @slot("gi_frame")
    def get_frame(self, m: Machine) -> Value:
        return Const(None) if self.frame is None else m.stop("frame-access", "gi_frame")

    def rebuild(self, r: Rebuilder) -> Any:
        """A real generator in the same state; impossible while it runs."""
        if self.frame is None:
            return (x for x in "")      # a real generator without content
        if self.running:
            r.machine.stop("generator-escape", self.function.name)
        with r.inside(self):
            return r.paused(self) if self.started else r.generator(self)


def check_dropped(m: Machine, *live: Any) -> None:
    """Breaks where a generator was made that waits in a `try` or `with` and is no part of what goes
    on: the native interpreter closes it at the moment in which nothing refers to it any more."""
    waiting = [g for g in m.generators if g.waits]
    if waiting:
        kept = reachable([*live, m.effects])
        for g in waiting:
            if id(g) not in kept:
                m.stop("generator-escape", f"{g.function.name}, which is left in the middle", g)


def reachable(live: list[Any]) -> set[int]:
    """Ids of what values are made of."""
    seen: set[int] = set()
    stack = list(live)
    while stack:
        v = stack.pop()
        if id(v) in seen:
            continue
        seen.add(id(v))
        if isinstance(v, list | tuple):
            stack += v
        elif isinstance(v, dict):
            stack += [*v, *v.values()]
        elif isinstance(v, Value | Frame):
            stack += [getattr(v, name, None) for kind in type(v).__mro__
                      for name in getattr(kind, "__slots__", ()) if name not in OUTSIDE]
    return seen


OUTSIDE = frozenset(("real", "source", "program", "back"))


class Finished(Signal):
    """A generator returned."""

    def __init__(self, value: Value) -> None:
        self.value = value
