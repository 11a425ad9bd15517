"""The machine: runs the canonical instructions of Python functions over values.

`Machine().run(fn, args, kwargs)` interprets a call, replays its effects on the real objects and
returns or raises like the call itself.  `capture` stops before the replay: nothing real has changed
until then, so a capture can be given up or restarted at any instruction.

The seams for whoever builds on it are `guard`, `effect`, `number`, `native`, `native_method`,
`read_opaque`, the tables `factories` and `models`, and the value classes.
"""
from __future__ import annotations

import builtins as python
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from . import upcoming as upcoming  # fills FACTORIES
from .attribute import Attributes
from .breaks import CaptureBreak, Spot
from .builtins import CALLABLES, MODELS
from .bytecode import (
    ASYNC_GENERATOR,
    CLOSE_RETURNS,
    COROUTINE,
    ITERABLE_COROUTINE,
    NULL_FIRST,
    Program,
    UnknownOpcode,
    program,
)
from .calling import Calls
from .control import CONTROL
from .fact import Fact, implied
from .fault import FaultValue, Raised
from .frame import Frame, bind
from .generator import GeneratorValue
from .iterators import ViewValue
from .klass import Classes
from .objects import CellValue, ClassValue, FunctionValue, ObjectValue, SuperValue
from .operation import Operations
from .rebuild import Rebuilder, replay
from .resume import HANDLED, Point
from .resume import NULL as EMPTY
from .sequence import TupleValue
from .source import Source, const, local
from .steps import STEPS, Step
from .value import CONSTANT_SET, NULL, Const, Handled, Lasti, NotConstant, Value
from .wrapping import FACTORIES, Wraps

DEPTH = 200     # Python calls inside one another before capture gives up
ASYNC_FLAGS = COROUTINE | ASYNC_GENERATOR | ITERABLE_COROUTINE


class Effect(NamedTuple):
    """A write to an object that existed before the call; kinds are the rows of `rebuild.REPLAY`."""
    kind: str
    target: Value
    args: tuple[Value, ...]


class Birth(NamedTuple):
    """Where to halt before a value comes to be, and the lines that make it."""
    count: int  # type: ignore[assignment]
    spots: tuple[Spot, ...]


class Outcome(NamedTuple):
    """How a captured call ended: with a value, or with an exception of the program."""
    value: Value | None
    fault: FaultValue | None


class Machine(Attributes, Operations, Wraps, Calls, Classes):
    """One capture.

    halt    instruction count at which to stop (`CaptureBreak.count` of an earlier attempt); the
            break that is raised then has the code "halt" and exact frames
    """
    steps: dict[str, Step] = {**STEPS, **CONTROL}
    models: dict[Any, Any] = MODELS
    callables: dict[type, Any] = CALLABLES
    views = ViewValue
    close_returns = CLOSE_RETURNS
    null_above = int(not NULL_FIRST)
    plain_truth = frozenset((int, float, bool, str, bytes, type(None), tuple, list, dict, set))
    raw_types = CONSTANT_SET

    def __init__(self, halt: int = -1) -> None:
        self.halt = halt
        self.count = 0                                      # instructions executed
        self.frame: Frame | None = None
        self.depth = 0
        self.handling: list[Any] = [None]                   # exceptions being handled
        self.around: BaseException | None = None            # the one that the caller handles
        self.facts: dict[Any, Fact] = {}
        self.effects: list[Effect] = []
        self.known: dict[int, Value] = {}                   # id of a real object -> its value
        self.kept: list[Any] = []                           # real objects whose ids are in use
        self.births: dict[int, Birth] = {}                  # id of a value -> where it came to be
        self.generators: list[GeneratorValue] = []          # those with handlers in their code
        self.lookups: dict[tuple[Any, str], Value | None] = {}
        self.overlays: dict[Any, dict[str, Value]] = {}     # class -> what the program wrote to it
        self.fresh_classes: dict[Any, Any] = {}             # classes made by the program
        self.known_attrs: dict[int, Any] = {}               # id of a Known value -> its __dict__
        self.python_classes: dict[Any, bool] = {}
        self.has_dict: dict[Any, bool] = {}
        self.by_identity: dict[Any, bool] = {}
        self.proxies: dict[Any, Any] = {}
        self.shown: set[int] = set()                        # values whose repr is being made
        self.twins: dict[int, Any] = {}                      # id of a value -> hollow real object
        self.settled: set[Any] = set()
        self.visited: set[int] = set()                      # containers being made constant
        self.caches: dict[Any, dict[Any, Value]] = {}       # lru_cache wrapper -> results
        self.prepared: dict[int, tuple[Program, tuple[Any, ...]]] = {}
        self.factories = dict(FACTORIES)
        self.builtins = self.space(vars(python), "builtins")
        self.object_getattribute = self.known_value(object.__getattribute__)
        self.object_init = self.known_value(object.__init__)
        self.build_class_value = self.known_value(python.__build_class__)

    # -- seams

    def guard(self, source: Source | None, kind: str, detail: Any) -> None:
        """Asks for a guard; without a source the object cannot be another one next time."""
        if source is None:
            return
        key = (source, kind, detail if isinstance(detail, (str, Source)) else id(detail))
        if key not in self.facts:
            self.facts[key] = Fact(source, kind, detail)

    def guards(self) -> list[Fact]:
        """The guards of the run, without those that others imply."""
        self.guard_separate()
        return implied(self.facts.values())

    def guard_separate(self) -> None:
        """Objects taken for different ones while one of them was written must be different."""
        by_type: dict[Any, list[Value]] = {}
        for value in self.known.values():
            if value.source is not None and value.real is not None and value.source.kind != "const":
                by_type.setdefault(type(value.real), []).append(value)
        seen = set()
        for effect in self.effects:
            target = effect.target
            if target.source is None or target.source in seen:
                continue
            seen.add(target.source)
            others = tuple(v.source for v in by_type.get(type(target.real), ()) if v is not target)
            if others:
                self.guard(target.source, "distinct", others)

    def effect(self, kind: str, target: Value, *args: Value) -> None:
        """Logs a write to an object that existed before the call."""
        self.effects.append(Effect(kind, target, args))

    def stop(self, code: str, detail: str = "", value: Any = None) -> Any:
        """Breaks the capture here, or where `value` came to be."""
        birth = self.births.get(id(value))
        if birth is not None:
            raise CaptureBreak(code, detail, count=birth.count, spots=birth.spots)
        frames = self.frame.chain() if self.frame is not None else ()
        raise CaptureBreak(code, detail, frames)

    def born(self, value: Any) -> None:
        """A value comes to be that may turn out to have no place outside: capture can halt here."""
        if self.frame is not None:
            chain = self.frame.chain()
            self.births[id(value)] = Birth(chain[0].begun, tuple((f.code, f.line) for f in chain))
            self.kept.append(value)

    # -- running

    def capture(self, function: Callable[..., Any], args: tuple[Any, ...] = (),
                kwargs: Mapping[str, Any] | None = None, source: Source | None = None) -> Outcome:
        """Interprets `function(*args, **kwargs)` without touching any real object.

        Raises CaptureBreak where it cannot go on.  Arguments get sources under the names of the
        function's parameters; a bound method's self is the first of them.  With a source, the
        function is an argument, too.
        """
        return self.deep(lambda: self.captured(function, args, dict(kwargs or {}), source))

    def resume(self, point: Point, function: Callable[..., Any], state: Sequence[Any]) -> Outcome:
        """Goes on at a point of the function's code; sources as `Point.names` has them."""
        return self.deep(lambda: self.resumed(point, function, state))

    def deep(self, run: Callable[[], Outcome]) -> Outcome:
        """Runs with room for the frames of the machine itself."""
        self.around = sys.exc_info()[1]
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(max(limit, 40 * DEPTH))
        try:
            return run()
        except RecursionError:
            self.stop("recursion")
            raise
        finally:
            sys.setrecursionlimit(limit)

    def captured(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any],
                 source: Source | None) -> Outcome:
        if isinstance(function, types.MethodType):
            args, function = (function.__self__, *args), function.__func__
        source = source or const(function, getattr(function, "__name__", "function"))
        callee = self.wrap(function, source)
        code = getattr(function, "__code__", None)
        named = code is not None and len(args) <= code.co_argcount
        params = code.co_varnames if code is not None else ()
        values = [self.lazy(x, local(params[i] if named else f"arg{i}"))
                  for i, x in enumerate(args)]
        named_values = {k: self.lazy(x, local(k)) for k, x in kwargs.items()}
        try:
            value = self.call(callee, values, named_values)
        except Raised as raised:
            return Outcome(None, raised.value)
        return Outcome(value, None)

    def resumed(self, point: Point, function: Any, state: Sequence[Any]) -> Outcome:
        names = point.names
        callee = self.wrap(function, local(names[0]))
        assert isinstance(callee, FunctionValue)
        values = iter([self.lazy(x, local(n)) for x, n in zip(state, names[1:], strict=True)])
        found, steps = self.prepare(point.code)
        slots: list[Value | None] = [None] * found.own
        for i in point.bound:
            slots[i] = next(values)
        frame = Frame(found, steps, callee, slots + list(callee.closure), None)
        for kind in point.spec:
            if kind == EMPTY:
                frame.stack.append(NULL)
            elif kind == HANDLED:
                frame.stack.append(Handled(self.handling[-1]))
                self.handling[-1] = next(values).force(self)
            elif isinstance(kind, int):
                frame.stack.append(Lasti(kind))
            else:
                value = next(values)    # the steps of handlers take exceptions as they are
                fault = issubclass(type(value.real), BaseException)
                frame.stack.append(value.force(self) if fault else value)
        frame.at = frame.next = found.starts[point.offset]
        thrown = next(values).force(self) if point.raises else None
        try:
            if thrown is not None:  # its traceback has the frame already
                self.frame = frame
                self.unwind(frame, Raised(thrown, again=True))  # type: ignore[arg-type]
            value = self.execute(frame)
        except Raised as raised:
            return Outcome(None, raised.value)
        return Outcome(value, None)

    def run(self, function: Callable[..., Any], args: tuple[Any, ...] = (),
            kwargs: Mapping[str, Any] | None = None) -> Any:
        """Calls the function through the machine: same result, same exception, same effects."""
        outcome = self.capture(function, args, kwargs)
        rebuilder = Rebuilder(self)
        replay(self.effects, rebuilder)
        if outcome.fault is not None:
            raise rebuilder(outcome.fault)
        return rebuilder(outcome.value)

    def program(self, code: types.CodeType) -> Program:
        return self.prepare(code)[0]

    def prepare(self, code: types.CodeType) -> tuple[Program, tuple[Any, ...]]:
        """The program of a code object with the step function of each instruction."""
        found = self.prepared.get(id(code))
        if found is None:
            try:
                translated = program(code)
            except UnknownOpcode as unknown:
                self.stop("unknown-opcode", f"{unknown} in {code.co_qualname}")
                raise
            steps = tuple([
                (self.steps[i.op], self.constant_step(i.arg) if i.op == "CONST" else i.arg)
                for i in translated.instructions])
            found = self.prepared[id(code)] = translated, steps
        return found

    def constant_step(self, raw: Any) -> Value:
        return self.fresh(raw)

    def inline(self, function: FunctionValue, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """Interprets a call of a Python function."""
        model = self.models.get(function.real) if function.real is not None else None
        if model is not None:
            return model(self, args, kwargs)
        code = function.code
        if code.co_flags & ASYNC_FLAGS:
            self.stop("async", code.co_qualname)
        if self.depth >= DEPTH:
            self.stop("recursion", f"{code.co_qualname}, {DEPTH} calls deep")
        slots = bind(self, function, args, kwargs)
        found, steps = self.prepare(code)
        frame = Frame(found, steps, function, slots, self.frame)
        self.depth += 1
        try:
            return self.execute(frame)
        finally:
            self.depth -= 1
            self.frame = frame.back

    def execute(self, frame: Frame, fault: FaultValue | None = None) -> Value:
        """Runs a frame until it returns or yields; `fault` is raised where it stands first."""
        self.frame = frame
        steps, halt = frame.steps, self.halt
        if fault is not None:
            frame.stack.append(Const(None))
            self.unwind(frame, Raised(fault))
        while True:
            try:
                while True:
                    at = frame.at = frame.next
                    frame.next = at + 1
                    frame.count = count = self.count
                    if count == halt:
                        halt = self.halted(frame)
                    self.count = count + 1
                    step, arg = steps[at]
                    found = step(self, frame, arg)
                    if found is not None:
                        return found
            except Raised as raised:
                self.frame = frame
                self.unwind(frame, raised)
            except NotConstant:
                self.frame = frame
                self.stop("unmodelled", "a value that is not known here is needed by C code")

    def halted(self, frame: Frame) -> int:
        """The place to halt at is reached; gives another one, if it is not to be."""
        frame.next = frame.at
        return self.stop("halt")  # type: ignore[no-any-return]

    def unwind(self, frame: Frame, raised: Raised) -> None:
        """Moves the frame to the handler that covers its instruction, or leaves it."""
        value = raised.value
        if not raised.again:
            value.enter(self, frame)
        handler = frame.program.instructions[frame.at].handler
        if handler is None:
            if raised.again:
                raise Raised(value) from None
            raise raised
        del frame.stack[handler.depth:]
        if handler.lasti:
            frame.stack.append(Lasti(frame.offset))
        frame.stack.append(value)
        frame.next = handler.target

    # -- for the steps

    def force(self, value: Value) -> Value:
        return value.force(self)

    def type_of(self, value: Value) -> Any:
        return value.type_of(self)

    def method(self, owner: Value, name: str) -> Value | None:
        """The function to be called with the owner first, where LOAD_METHOD finds one."""
        kind = owner.type_
        found = self.lookup(kind, name)
        if not isinstance(found, FunctionValue) and not self.is_method_descriptor(found):
            return None
        if self.lookup(kind, "__getattribute__") is not self.object_getattribute:
            return None
        attrs = self.attrs_of(owner)
        return None if attrs is not None and attrs.find(self, name) is not None else found

    def converted(self, value: Value, how: str) -> Value:
        return {"s": self.str_of, "r": self.repr, "a": self.ascii}[how](value)

    def ascii(self, value: Value) -> Value:
        return Const(python.ascii(self.repr_text(value))[1:-1].replace("\\\\", "\\").replace(
            "\\'", "'")) if not self.repr_text(value).isascii() else self.repr(value)

    def callee_name(self, function: Value) -> str:
        """How argument errors name the function."""
        function = function.force(self)
        name = self.find_attr(function, "__qualname__")
        if name is None:
            return self.text(self.str_of(function))
        module = self.find_attr(function, "__module__")
        prefix = "" if module is None or self.is_none(module) else self.text(module) + "."
        return f"{'' if prefix == 'builtins.' else prefix}{self.text(name)}()"

    def import_module(self, frame: Frame, name: str, names: Value, level: Value) -> Value:
        """`import`: done for real, a module that is already loaded has no effect."""
        space = {k: self.text(v) for k in ("__name__", "__package__")
                 if (v := frame.globals.find(self, k)) is not None and not self.is_none(v)}
        wanted, depth = names.constant(self), level.constant(self)
        found = self.native_op(python.__import__, name, space, None, wanted or (), depth)
        return self.wrap(found, const(found, found.__name__))

    def import_from(self, module: Value, name: str) -> Value:
        found = self.find_attr(module, name)
        if found is not None:
            return found
        owner = module.force(self)
        full = f"{owner.real.__name__}.{name}"
        if full in sys.modules:
            return self.wrap(sys.modules[full], const(sys.modules[full], full))
        return self.fault(self.import_error(owner.real, name))

    @staticmethod
    def import_error(module: Any, name: str) -> BaseException:
        """The error CPython would raise, with its own text."""
        scope: dict[str, Any] = {"__name__": "captured"}
        try:
            exec(f"from {module.__name__} import {name}", scope)
        except ImportError as error:
            return error
        return ImportError(f"cannot import name {name!r}", name=module.__name__)

    # -- super

    def zero_super(self) -> Value:
        """`super()` without arguments."""
        frame = self.frame
        if frame is None:
            return self.error(RuntimeError, "super(): no current frame")
        code = frame.code
        if not code.co_argcount:
            self.error(RuntimeError, "super(): no arguments")
        first = frame.slots[0]
        if isinstance(first, CellValue):
            first = first.read(self)
        if first is None:
            self.error(RuntimeError, "super(): arg[0] deleted")
        if "__class__" not in code.co_freevars:
            self.error(RuntimeError, "super(): __class__ cell not found")
        cell = frame.slots[frame.program.slots.index("__class__", frame.program.own)]
        assert isinstance(cell, CellValue)
        cls = cell.read(self)
        if cls is None:
            self.error(RuntimeError, "super(): empty __class__ cell")
        assert first is not None
        assert cls is not None
        return self.make_super(cls, first)

    def make_super(self, cls: Value, obj: Value | None) -> Value:
        cls = cls.force(self)
        if not isinstance(cls, ClassValue):
            self.error(TypeError, "super() argument 1 must be a type, not"
                                  f" {self.type_name(cls)}")
        assert isinstance(cls, ClassValue)
        if obj is None:
            return SuperValue(cls.real, None, None)
        obj = obj.force(self)
        if isinstance(obj, ClassValue) and issubclass(obj.real, cls.real):
            return SuperValue(cls.real, obj, obj.real)
        kind = self.claimed_class(obj)
        if issubclass(kind, cls.real):
            return SuperValue(cls.real, obj, kind)
        blank: Any = obj.real
        if blank is None and isinstance(obj, ObjectValue):
            blank = obj.shell()
        self.native_op(super, cls.real, blank)
        return self.stop("unmodelled", "super() of this object")

    # -- match

    def match_keys(self, subject: Value, keys: Value) -> Value:
        """The values under all keys, or None where one is missing."""
        found: list[Value] = []
        seen = set()
        for key in keys.parts(self):  # type: ignore[attr-defined]
            raw = key.key(self)
            if raw in seen:
                self.error(ValueError, "mapping pattern checks duplicate key"
                                       f" ({self.repr_text(key)})")
            seen.add(raw)
            missing = self.known_value(MISSING)
            value = self.call(self.getattr(subject, "get"), [key, missing])
            if value is missing:
                return Const(None)
            found.append(value)
        return TupleValue(tuple, found)

    def match_class(self, subject: Value, cls: Value, count: int, names: Value) -> Value:
        """The attributes of a class pattern, or None."""
        cls = cls.force(self)
        if not isinstance(cls, ClassValue):
            self.error(TypeError, "called match pattern must be a class")
        assert isinstance(cls, ClassValue)
        if not self.is_instance(subject, cls):
            return Const(None)
        wanted = [self.text(n) for n in names.parts(self)]  # type: ignore[attr-defined]
        found: list[Value] = []
        if count:
            ordered = self.match_args(cls, count)
            if ordered is None:
                found.append(subject)
            else:
                wanted = ordered[:count] + wanted
        for i, name in enumerate(wanted):
            if name in wanted[:i]:
                self.error(TypeError, f"{cls.real.__name__}() got multiple sub-patterns for"
                                      f" attribute {name!r}")
            value = self.find_attr(subject, name)
            if value is None:
                return Const(None)
            found.append(value)
        return TupleValue(tuple, found)

    def match_args(self, cls: ClassValue, count: int) -> list[str] | None:
        """`__match_args__`; None for builtin classes that match themselves."""
        name = cls.real.__name__
        declared = self.find_attr(cls, "__match_args__")
        selfish = declared is None and cls.real.__flags__ & 1 << 22
        allowed = 1 if selfish else 0
        ordered: list[str] = []
        if declared is not None:
            if self.type_of(declared) is not tuple:
                self.error(TypeError, f"{name}.__match_args__ must be a tuple (got"
                                      f" {self.type_name(declared)})")
            for part in self.iterate(declared):
                if self.type_of(part) is not str:
                    self.error(TypeError, "__match_args__ elements must be strings (got"
                                          f" {self.type_name(part)})")
                ordered.append(self.text(part))
            allowed = len(ordered)
        if count > allowed:
            plural = "" if allowed == 1 else "s"
            self.error(TypeError, f"{name}() accepts {allowed} positional sub-pattern{plural}"
                                  f" ({count} given)")
        return None if selfish else ordered


MISSING = type("Missing", (), {"__slots__": ()})()
