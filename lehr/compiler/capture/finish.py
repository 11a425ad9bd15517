"""The end of a call as code: results, effects and gradients, where they can be written out.

`Replay` builds whatever a program can return; most programs return tensors, numbers and plain
containers of them, and write to objects that a check has just looked at. `Finish` writes such ends
as lines of Python over the outputs and over what a `Live` knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from lehr.compiler.capture.arithmetic import NumberValue
from lehr.compiler.capture.objects import ClassValue
from lehr.compiler.capture.rebuild import REPLAY
from lehr.compiler.capture.sequence import ListValue, TupleValue
from lehr.compiler.capture.source import Source
from lehr.compiler.capture.tensors import NativeValue, TensorValue
from lehr.compiler.capture.value import Const, Lazy, Value

LITERALS = (int, str, bool, bytes, type(None))


class Unwritable(Exception):
    """A value that `Replay` has to build."""


class Finish:
    """Writes the end of the calls of one captured call.

    place  (twin, how it is made, what it is a view of) -> the tensor
    """

    def __init__(self, captured: Any, place: Callable[..., Any]) -> None:
        self.captured, self.place = captured, place
        self.sources: list[Source] = []     # what the code reads outside
        self.known: dict[int, str] = {}     # id of a value or twin -> expression
        self.count = 0                      # of names given out
        self.lines: list[str] = []

    @classmethod
    def of(cls, captured: Any, place: Callable[..., Any]) -> Finish | None:
        """None where the end is not plain enough."""
        made = cls(captured, place)
        try:
            made.write(_Dry(made))
        except Unwritable:
            return None
        return made

    def write(self, w: Any) -> list[str]:
        """The lines; `w` gives expressions for sources and names for objects."""
        captured = self.captured
        if captured.fault is not None:
            raise Unwritable
        self.known, self.lines, self.count = {}, w.lines, 0
        effects = [(w.bind(REPLAY[e.kind], e.kind), [self.expr(v, w) for v in (e.target, *e.args)])
                   for e in captured.machine.effects]
        places = captured.places
        grads = [(w.path(places[id(twin)]) if id(twin) in places else self.twin(twin, w),
                  None if g is None else self.twin(g, w)) for twin, g in captured.grads]
        result = "None" if captured.value is None else self.expr(captured.value, w)
        self.lines += [f"{function}({', '.join(args)})" for function, args in effects]
        self.lines += [f"{t}._set_grad({g})" for t, g in grads]
        if captured.modes is not None:
            self.lines += [f"{w.bind(w.state, 'state')}.{name} = {self.constant(value, w)}"
                           for name, value in captured.modes.items()]
        return [*self.lines, f"return {result}"]

    def expr(self, value: Value, w: Any) -> str:
        """An expression for a value; each is made once."""
        if isinstance(value, Lazy) and value.made is not None:
            value = value.made
        found = self.known.get(id(value))
        if found is None:
            found = self.known[id(value)] = self.make(value, w)
        return found

    def make(self, value: Value, w: Any) -> str:
        if isinstance(value, Const):
            return self.constant(value.value, w)
        if isinstance(value, ClassValue):
            if value.real in self.captured.machine.fresh_classes:
                raise Unwritable
            return str(w.bind(value.real, "class"))
        if value.real is not None or isinstance(value, NumberValue):
            if value.source is not None:
                return str(w.path(value.source))
            if isinstance(value, NumberValue):
                return self.name(f"outputs[{self.captured.numbers[id(value)]}]._array.item()")
            return str(w.bind(value.real, "o"))
        if isinstance(value, TensorValue):
            return self.twin(value.twin, w)
        if isinstance(value, NativeValue):
            return str(w.bind(value.real, "o"))
        if type(value) in (TupleValue, ListValue) and value.type_ in (tuple, list):
            items = [self.expr(v, w) for v in self.items(value)]
            if value.type_ is list:
                return self.name(f"[{', '.join(items)}]")
            return self.name(f"({''.join(f'{item}, ' for item in items)})")
        raise Unwritable

    def items(self, value: Any) -> Iterator[Value]:
        """The parts of a fresh sequence; one that contains itself is left to `Replay`."""
        if getattr(value, "attrs", None) is not None:
            raise Unwritable
        self.known[id(value)] = ""
        for part in value.items:
            if self.known.get(id(part)) == "":
                raise Unwritable
            yield part
        del self.known[id(value)]

    def constant(self, value: Any, w: Any) -> str:
        return repr(value) if type(value) in LITERALS else str(w.bind(value, "c"))

    def twin(self, twin: Any, w: Any) -> str:
        found = self.known.get(id(twin))
        if found is None:
            how = self.captured.known[id(twin)]
            if how.index >= 0:
                base = f"outputs[{how.index}]"
            else:   # another result, or a tensor outside
                base = self.twin(how.twin, w) if how.source is None else w.path(how.source)
            found = base
            if how.index < 0 or not how.root:
                if self.captured.machine.sizes.hints:
                    raise Unwritable    # `Replay` computes shapes and strides
                args = f"{w.bind(twin, 'twin')}, {w.bind(how, 'how')}, {base}"
                found = self.name(f"{w.bind(self.place, 'place')}({args})")
            self.known[id(twin)] = found
        return found

    def name(self, text: str) -> str:
        made = f"r{self.count}"
        self.count += 1
        self.lines.append(f"{made} = {text}")
        return made


class _Dry:
    """Collects the sources."""

    state: Any = None

    def __init__(self, finish: Finish) -> None:
        self.finish = finish
        self.lines: list[str] = []

    def path(self, source: Source) -> str:
        self.finish.sources.append(source)
        return "x"

    def bind(self, obj: Any, label: str) -> str:
        return "x"
