"""Reads the text form of programs (the grammar is in `lehr.compiler.loop.text`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lehr.base import dtype as dt
from lehr.base import sym
from lehr.compiler.graph.ir import Location
from lehr.compiler.graph.text import Reader, TextError
from lehr.compiler.loop.ir import (
    MONOIDS,
    Axis,
    Bind,
    Buffer,
    Expr,
    Extern,
    Group,
    HostCall,
    Input,
    Kernel,
    Operand,
    Program,
    Step,
    Store,
    last,
)
from lehr.compiler.loop.text import row_major
from lehr.ops import registry

_MODES = ("add", "mul", "max", "min")


def parse_program(text: str) -> Program:
    """The program of a text. TextError names the line; LookupError an op that is not registered."""
    reader = _ProgramReader(text)
    reader.skip_comments()
    program = reader.program()
    reader.skip_comments()
    reader.take("end", "the end")
    return program


class _ProgramReader(Reader):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.buffers: dict[str, Buffer] = {}
        self.axes: dict[str, Any] = {}
        self.lets: dict[str, Expr] = {}
        self.extents: dict[str, Any] = {}

    def program(self) -> Program:
        self.expect("program")
        name = self.name()
        symbols = self.symbols()
        self.expect("(")
        params = self.several(self.declaration, ")")
        self.expect("{")
        self.skip_comments()
        buffers = []
        while self.tokens[self.place + 1][1] == ":" and not self.peek(*_STEPS):
            buffers.append(self.declaration())
            self.skip_comments()
        steps = []
        while not self.accept("return"):
            steps.append(self.step())
            self.skip_comments()
        results = self.several(self.buffer, "}")
        return Program(name, tuple(params), tuple(buffers), tuple(steps), tuple(results),
                       tuple(symbols))

    def declaration(self) -> Buffer:
        name = self.take("word", "a buffer")
        self.expect(":")
        role = self.take("word", "a role")
        dtype = self.dtype(self.take("word", "a dtype"))
        shape = self.bracketed()
        strides = self.bracketed() if self.accept("strides") else row_major(shape)
        data = None
        if self.accept("="):
            self.expect("(")
            values = self.several(self.constant, ")")
            data = np.array(values, dtype.np).reshape(shape)
        if name in self.buffers:
            raise TextError(f"two buffers are named {name}")
        made = self.buffers[name] = Buffer(name, dtype, shape, strides, role, data)
        return made

    def buffer(self) -> Buffer:
        name = self.take("word", "a buffer")
        if name not in self.buffers:
            self.place -= 1
            raise self.fail("a buffer that is declared")
        return self.buffers[name]

    def step(self) -> Step:
        word = self.take("word", "a step")
        if word not in _STEPS:
            self.place -= 1
            raise self.fail("kernel, group, extern, host or return")
        return _STEPS[word](self)

    def locations(self) -> tuple[Location, ...]:
        found = []
        while self.kind() == "comment":
            found.append(self.location())
        return tuple(at for at in found if at is not None)

    def axis(self) -> Axis:
        name = self.take("word", "an axis")
        self.expect(":")
        start = self.place
        depth = 0
        while depth or not self.peek(",", ")", ";"):
            depth += self.peek("(") - self.peek(")")
            self.place += 1
            if self.kind() == "end":
                raise self.fail("')'")
        extent = self.size("".join(text for _, text, _ in self.tokens[start:self.place]))
        var = sym.Var(name, 0, extent - 1)
        self.axes[name] = self.variables[name] = var
        made = Axis(var, extent)
        self.extents[name] = extent
        return made

    def used_axis(self, role: str = "parallel") -> Axis:
        name = self.take("word", "an axis")
        if name not in self.axes:
            self.place -= 1
            raise self.fail("an axis of the kernel's header")
        if self.kind() == "word":
            role = self.take("word")
        return Axis(self.axes[name], self.extents[name], role)

    def scope(self) -> tuple[Axis, ...]:
        """A header's outer axes; the inner ones are only declared."""
        self.axes, self.lets, self.extents = {}, {}, {}
        self.expect("(")
        outer = []
        while not self.peek(")", ";"):
            outer.append(self.axis())
            self.accept(",")
        if self.accept(";"):
            self.several(self.axis, ")")
        else:
            self.expect(")")
        return tuple(outer)

    def kernel(self) -> Kernel:
        name = self.name()
        axes = self.scope()
        self.expect("{")
        locations, binds, stores = self.body()
        return Kernel(name, axes, tuple(stores), tuple(binds), locations)

    def body(self) -> tuple[tuple[Location, ...], list[Bind], list[Store]]:
        locations = self.locations()
        binds: list[Bind] = []
        stores: list[Store] = []
        while not self.accept("}"):
            if self.accept("let"):
                name = self.take("value")
                self.expect("=")
                self.lets[name] = self.value()
            elif self.accept("bind"):
                binds.append(self.bind())
            else:
                stores.append(self.store())
            self.skip_comments()
        return locations, binds, stores

    def bind(self) -> Bind:
        name = self.take("word", "an index variable")
        self.expect("below")
        bound = self.size(self.take("size")[1:-1])
        wrap = self.accept("wrap")
        self.expect("=")
        var = self.variables[name] = sym.Var(name, 0, last(bound))
        value = self.value()
        return Bind(var, value, bound, wrap, self.value() if self.accept("if") else None)

    def store(self) -> Store:
        buffer = self.buffer()
        idx = self.bracketed()
        axes: tuple[Axis, ...] = ()
        if self.accept("for"):
            self.expect("(")
            axes = tuple(self.several(self.used_axis, ")"))
        mode = self.take("word") if self.peek(*_MODES) else "set"
        self.expect("=")
        value = self.value()
        return Store(buffer, idx, value, axes, mode, self.value() if self.accept("if") else None)

    def group(self) -> Group:
        name = self.name()
        self.expect("{")
        kernels = []
        while not self.accept("}"):
            self.expect("kernel")
            kernels.append(self.kernel())
        return Group(name, tuple(kernels))

    def operand(self) -> Operand:
        self.expect("view")
        self.expect("(")
        buffer = self.buffer()
        self.expect(",")
        offset = self.size(self.take("size")[1:-1])
        self.expect(",")
        shape = self.bracketed()
        self.expect(",")
        made = Operand(buffer, offset, shape, self.bracketed())
        if self.accept(","):
            self.expect("as")
            made = made._replace(rounded=self.dtype(self.take("word", "a dtype")))
        self.expect(")")
        return made

    def input(self) -> Input:
        self.expect("in")
        self.expect("(")
        made = Input(self.integer())
        self.expect(")")
        return made

    def argument(self) -> Any:
        if self.peek("view") and self.kind() == "word":
            return self.operand()
        if self.peek("in") and self.kind() == "word":
            return self.input()
        if self.accept("number"):
            self.expect("(")
            made = self.buffer()
            self.expect(")")
            return made
        if self.accept("("):
            return tuple(self.several(self.argument, ")"))
        return self.constant()

    def extern(self) -> Extern:
        name = self.name()
        self.expect(":")
        op = registry.get(self.take("word", "an op"))
        self.expect("(")
        attrs = tuple(self.several(self.argument, ")"))
        self.expect("of")
        self.expect("(")
        inputs = tuple(self.several(self.operand, ")"))
        self.expect("->")
        output, others = self.operand(), []
        while self.accept("and"):
            others.append(self.operand())
        if not self.accept("with"):
            return Extern(name, op, inputs, output, attrs, locations=self.locations(),
                          others=tuple(others))
        axes = self.scope()
        self.expect("{")
        locations, binds, stores = self.body()
        return Extern(name, op, inputs, output, attrs, tuple(stores), axes, tuple(binds), locations,
                      tuple(others))

    def host(self) -> HostCall:
        name = self.name()
        self.expect(":")
        op = registry.get(self.take("word", "an op"))
        self.expect("(")
        args = tuple(self.several(self.argument, ")"))
        self.expect("->")
        self.expect("(")
        outputs = tuple(self.several(self.buffer, ")"))
        return HostCall(name, op, args, outputs, self.locations())

    def value(self) -> Expr:
        if self.kind() == "value":
            text = self.take("value")
            if text not in self.lets:
                self.place -= 1
                raise self.fail("a value named by let above")
            return self.lets[text]
        word = self.take("word", "a value")
        if self.peek("["):
            if word in self.buffers:
                buffer = self.buffers[word]
                return Expr("Load", buffer.dtype, buffer, self.bracketed(), None, None)
            return self.loop(word)
        self.expect("(")
        name, _, short = word.rpartition(".")
        return (_VALUES.get(name or word) or _alu)(self, name, short)

    def values(self) -> list[Any]:
        return self.several(self.part, ")")

    def part(self) -> Any:
        """A value, or a constant argument of an op."""
        plain = self.kind() in ("number", "string") or self.peek("None", "True", "False")
        return self.constant() if plain else self.value()

    def loop(self, word: str) -> Expr:
        """A reduction or a scan; its `[axes]` come next."""
        names = word.split(".")
        scan = names[0] == "scan"
        names = names[1:] if scan else names
        if len(names) < 2 or names[0] not in MONOIDS:
            self.place -= 1
            raise self.fail("a buffer or a reduction")
        self.expect("[")
        axes = tuple(self.several(lambda: self.used_axis("scan" if scan else "reduce"), "]"))
        self.expect("(")
        args = tuple(self.values())
        part = int(names[2]) if len(names) > 2 else 0
        return Expr("Scan" if scan else "Reduce", self.dtype(names[1]), names[0],
                    axes[0] if scan else axes, args, part)

    def braced(self) -> Any:
        return self.size(self.take("size")[1:-1])


def _alu(r: _ProgramReader, name: str, short: str) -> Expr:
    return Expr("Alu", r.dtype(short), registry.get(name), *r.values())


def _const(r: _ProgramReader, name: str, short: str) -> Expr:
    values = r.several(r.constant, ")")
    return Expr("Const", r.dtype(short), *values)


def _index(r: _ProgramReader, name: str, short: str) -> Expr:
    made = Expr("Index", dt.int64, r.braced())
    r.expect(")")
    return made


def _load(r: _ProgramReader, name: str, short: str) -> Expr:
    plain, mask, other = r.values()
    return Expr("Load", plain.dtype, *plain.fields[:2], mask, other)


def _random(r: _ProgramReader, name: str, short: str) -> Expr:
    key = r.value()
    r.expect(",")
    counter = r.value()
    r.expect(",")
    made = Expr("Random", dt.int64, key, counter, r.braced())
    r.expect(")")
    return made


_VALUES: dict[str, Callable[[_ProgramReader, str, str], Expr]] = {
    "cast": lambda r, name, short: Expr("Cast", r.dtype(short), *r.values()),
    "select": lambda r, name, short: Expr("Select", r.dtype(short), *r.values()),
    "index": _index, "load": _load, "random": _random,
    **dict.fromkeys(dt.BY_SHORT, _const),
}
_STEPS: dict[str, Callable[[_ProgramReader], Step]] = {
    "kernel": _ProgramReader.kernel, "group": _ProgramReader.group,
    "extern": _ProgramReader.extern, "host": _ProgramReader.host,
}
