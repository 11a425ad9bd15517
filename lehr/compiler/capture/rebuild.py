"""From values back to real objects, and the replay of effects.

Used after the captured computation has run: objects that the program made are built, objects that
existed before are written to, in the order in which the program did it.
"""
from __future__ import annotations

import collections
import contextlib
import operator
import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from lehr.tensor.memory import move

from .fault import Point as Point_
from .fault import stand_in
from .frame import Frame, read_stack
from .generator import GeneratorValue
from .objects import CellValue, ClassValue
from .operation import Key
from .resume import VALUE, Point, Resume, make_resume
from .value import CONSTANT_SET, Lazy, Value

if TYPE_CHECKING:
    from .machine import Effect, Machine


class Rebuilder:
    """Makes real objects from values; one object per value, however often it is asked.

    A rebuilder whose recipe is to be used for many calls sets `repeats`.
    """
    repeats = False

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.memo: dict[int, Any] = {}
        self.kept: list[Value] = []
        self.after: list[Callable[[], Any]] = []    # what has to wait for the effects
        self.open: set[int] = set()
        self.waiting: dict[int, list[Any]] = {}     # id of an open value -> cells that will hold it

    def __call__(self, value: Value | None) -> Any:
        assert value is not None
        found = self.memo.get(id(value), self)
        if found is not self:
            return found
        if isinstance(value, Lazy):
            return value.rebuild(self)
        if value.real is not None and not isinstance(value, ClassValue):
            return self.made(value, self.read(value))
        if value.type_ in self.machine.fresh_classes and not isinstance(value, ClassValue):
            self(self.machine.fresh_classes[value.type_])
        if id(value) in self.open:
            self.machine.stop("cyclic-tuple")
        real = self.made(value, value.rebuild(self))
        if self.waiting:
            for cell in self.waiting.pop(id(value), ()):
                cell.cell_contents = real
        return real

    def read(self, value: Value) -> Any:
        """Seam: an object that existed before the call."""
        return value.real

    def made(self, value: Value, real: Any) -> Any:
        """Remembers the object of a value, before its content where that may refer to it."""
        self.memo[id(value)] = real
        self.kept.append(value)
        return real

    @contextlib.contextmanager
    def inside(self, value: Value) -> Iterator[None]:
        """Marks an immutable value whose parts are being made."""
        self.open.add(id(value))
        try:
            yield
        finally:
            self.open.discard(id(value))

    def key(self, key: Any) -> Any:
        """The real key that a storage key stands for."""
        kind = type(key)
        if kind in CONSTANT_SET:
            return key
        if kind is Key:
            return self(key.value)
        if kind in (tuple, frozenset):
            return kind([self.key(part) for part in key])
        value = key if isinstance(key, Value) else self.machine.known_key(key)
        return key if value is None else self(value)

    def class_(self, value: ClassValue) -> Any:
        """A class; one that the program made is the real class itself, in one run."""
        if self.repeats and value.real in self.machine.fresh_classes:
            self.machine.stop("fresh-class", value.real.__qualname__, value)
        self.machine.settle_class(value, self)
        return value.real

    def cell(self, value: CellValue) -> Any:
        """An empty cell; hollow functions of the same run share it."""
        return types.CellType() if self.repeats else self.machine.twin_cell(value)

    def generator(self, value: GeneratorValue) -> Any:
        """An untouched generator: the real function is called with the same slots."""
        frame = value.frame
        assert frame is not None
        return self.restart(frame)

    def paused(self, value: GeneratorValue) -> Any:
        """A generator in the middle: one that goes on at its YIELD, with what that gives thrown
        away.
        """
        frame = value.frame
        assert frame is not None
        spec, stack = read_stack(frame.stack, frame.kept)
        slots = frame.slots[:frame.program.own]
        bound = tuple(i for i, slot in enumerate(slots) if slot is not None)
        state = self.parts([*[slots[i] for i in bound], *stack])
        if value.maker is None:
            offset = frame.program.instructions[frame.at].offset
            value.maker = make_resume(Point(frame.code, offset, (*spec, VALUE), bound))
        return self.primed(value.maker, self(frame.function), state)

    def parts(self, values: list[Any]) -> list[Any]:
        return [self(v) for v in values]

    def primed(self, resume: Resume, function: Any, state: list[Any]) -> Any:
        """Starts the generator: it comes to its YIELD and no further."""
        made = resume.call(function, [*state, None])
        next(made)
        return made

    def restart(self, frame: Frame) -> Any:
        code = frame.code
        function = self(frame.function)
        names = frame.program.slots
        total, at = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
        stars = bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)
        values = [self.content(slot) for slot in frame.slots[:at + stars]]
        args, kwargs = values[:total], dict(zip(names[total:at], values[total:at], strict=True))
        if code.co_flags & 0x04:
            args += values[at]
            at += 1
        if code.co_flags & 0x08:
            kwargs.update(values[at])
        return function(*args, **kwargs)

    def content(self, slot: Any) -> Any:
        """What an argument's slot holds."""
        if not isinstance(slot, CellValue):
            return None if slot is None else self(slot)
        if slot.real is None:
            return self(slot.content)
        return self(slot).cell_contents


def set_cell(cell: Any, *content: Any) -> None:
    if content:
        cell.cell_contents = content[0]
    else:
        del cell.cell_contents


def set_attr(target: Any, name: str, value: Any) -> None:
    """Into the instance's `__dict__`: the program has run `__setattr__` and descriptors already."""
    object.__getattribute__(target, "__dict__")[name] = value


def delete_attr(target: Any, name: str) -> None:
    del object.__getattribute__(target, "__dict__")[name]


def set_field(target: Any, name: str, value: Any) -> None:
    """A slot, a field of a C object or a class attribute."""
    if isinstance(target, type):
        type.__setattr__(target, name, value)
    else:
        object.__setattr__(target, name, value)


def delete_field(target: Any, name: str) -> None:
    if isinstance(target, type):
        type.__delattr__(target, name)
    else:
        object.__delattr__(target, name)


def replace_list(target: list[Any], items: list[Any]) -> None:
    list.__setitem__(target, slice(None), items)


def replace_set(target: set[Any], items: list[Any]) -> None:
    set.intersection_update(target, items)
    set.update(target, items)


def extend_trace(error: BaseException, point: Point_) -> None:
    """The exception has passed through a frame."""
    error.__traceback__ = types.TracebackType(error.__traceback__, stand_in(point.code),
                                              point.offset,
                                              point.line)


def set_trace(error: BaseException, trace: Any) -> None:
    error.__traceback__ = trace


# Effect kind -> what to do with the real target and the real arguments.
REPLAY: dict[str, Callable[..., Any]] = {
    "data": move, "setattr": set_attr, "delattr": delete_attr, "setfield": set_field,
    "delfield": delete_field, "cell": set_cell,
    "setglobal": dict.__setitem__, "delglobal": dict.__delitem__,
    "trace": extend_trace, "settrace": set_trace,
    "dict.setitem": dict.__setitem__, "dict.delitem": dict.__delitem__,
    "ordered.setitem": collections.OrderedDict.__setitem__,
    "ordered.delitem": collections.OrderedDict.__delitem__,
    "ordered.move": collections.OrderedDict.move_to_end,
    "list.append": list.append, "list.extend": list.extend, "list.insert": list.insert,
    "list.pop": list.pop, "list.clear": list.clear, "list.reverse": list.reverse,
    "list.setitem": list.__setitem__, "list.delitem": list.__delitem__,
    "list.repeat": list.__imul__, "list.replace": replace_list,
    "set.add": set.add, "set.discard": set.discard, "set.replace": replace_set,
    **{f"deque.{name}": getattr(collections.deque, name) for name in (
        "append", "appendleft", "pop", "popleft", "clear", "rotate")},
    "deque.setitem": operator.setitem,
}


def replay(effects: list[Effect], rebuilder: Rebuilder) -> None:
    """Does to the real objects what the program did to their values, in order.

    Objects that the program made are built once, in their final state: nothing looks at them before
    all effects are replayed.
    """
    ready = [(REPLAY[effect.kind], [rebuilder(v) for v in (effect.target, *effect.args)])
             for effect in effects]
    for function, args in ready:
        function(*args)
    for action in rebuilder.after:
        action()
