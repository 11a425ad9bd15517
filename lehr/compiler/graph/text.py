"""The text form of graphs: `parse_graph(print_graph(g))` prints the same text again.

    graph step<s0: 2..1024 / 8>(%x: i64[8,s0], %w: ref f32[256,256], %lr: scalar f64) {
      %0 = read(%w) : f32[256,256]
      %1 = linear(%x, %0, None) : f32[8,s0,256]  # model.py:12 | y = self.fc(x)
      return outputs(%1) saved() grads() writebacks(%w <- %3)
    }

Arguments: `%value`, `(nested, tuples)`, Python's spelling of numbers, strings, True, False and
None, `!f32` a dtype, `@cuda:0` a device, `{s0*4 + 1}` a size, `graph ...` a region. The location
comment of a node is kept.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from typing import Any

from lehr.base import dtype as dt
from lehr.base import sym
from lehr.base.device import CPU, Device
from lehr.base.dtype import DType
from lehr.compiler.graph.ir import (
    GROUPS,
    FutureType,
    Graph,
    Location,
    Node,
    RefType,
    ScalarType,
    TensorType,
    Type,
    Value,
    infer_effects,
)
from lehr.ops import families, registry

assert families.FAMILIES  # a text may name any op: the registry is filled

_PLAIN = re.compile(r"(?=.*[A-Za-z_])[A-Za-z0-9_.$]+\Z")
_CATEGORY = {ScalarType(c).dtype.short: c for c in range(4)}


class TextError(ValueError):
    """A text that is no graph (or program), with the line and what was expected."""


# Printing


def print_graph(graph: Graph) -> str:
    """The text form of a graph. TypeError names an argument that has none."""
    symbols = ", ".join(map(symbol_text, graph.symbols))
    params = ", ".join(f"{value_text(p)}: {type_text(p.type)}" for p in graph.params)
    lines = [f"graph {name_text(graph.name)}{f'<{symbols}>' if symbols else ''}({params}) {{"]
    lines += [f"  {node_text(n)}" for n in graph.nodes]
    groups = [f"{g}({', '.join(map(value_text, graph.results[g]))})" for g in GROUPS[:3]]
    backs = graph.results["writebacks"]
    arrows = ", ".join(f"{value_text(t)} <- {value_text(v)}"
                       for t, v in zip(graph.targets, backs, strict=True))
    lines.append(f"  return {' '.join(groups)} writebacks({arrows})")
    return "\n".join((*lines, "}"))


def node_text(node: Node) -> str:
    """One line: results, op, arguments, types, location."""
    args = ", ".join(map(argument_text, node.args))
    line = f"{node.op.name}({args})"
    if node.results:
        line = f"{', '.join(map(value_text, node.results))} = {line}"
        line += f" : {', '.join(type_text(v.type) for v in node.results)}"
    return f"{line}{location_text(node.location)}"


def location_text(location: Location | None) -> str:
    """A comment, or nothing."""
    if location is None:
        return ""
    return f"  # {location}" + (f" | {location.text}" if location.text else "")


def name_text(name: str) -> str:
    return name if _PLAIN.match(name) else json.dumps(name)


def value_text(value: Value) -> str:
    return f"%{name_text(value.name) if value.node is None else value.name}"


def symbol_text(var: sym.Var) -> str:
    lo, hi = sym.interval(var)
    ends = f"{'' if lo is None else lo}..{'' if hi is None else hi}"
    return f"{var.name}: {ends}{f' / {var.div}' if var.div > 1 else ''}"


def sizes_text(sizes: tuple[Any, ...]) -> str:
    return ",".join(map(sym.to_text, sizes))


def type_text(type: Type) -> str:
    if isinstance(type, ScalarType):
        return f"scalar {type.dtype.short}"
    if isinstance(type, RefType):
        tail = "" if type.strides is None else f" strides [{sizes_text(type.strides)}]"
        return f"ref {type_text(type.tensor)}{tail}"
    if isinstance(type, FutureType):
        return f"future {type_text(type.tensor)}"
    place = "" if type.device is CPU else f"@{type.device}"
    return f"{type.dtype.short}[{sizes_text(type.shape)}]{place}"


def argument_text(a: Any) -> str:
    """One bound argument; TypeError where the text form has no spelling for it."""
    spell = _SPELL.get(type(a))
    if spell is not None:
        return spell(a)
    if isinstance(a, sym.Sym):
        return f"{{{sym.to_text(a)}}}"
    if isinstance(a, tuple):  # a namedtuple of sizes, say
        return _tuple_text(a)
    raise TypeError(f"an argument of type {type(a).__name__} has no text form: {a!r}")


def _tuple_text(a: tuple[Any, ...]) -> str:
    return f"({', '.join(map(argument_text, a))}{',' if len(a) == 1 else ''})"


_SPELL: dict[type, Callable[[Any], str]] = {
    Value: value_text, tuple: _tuple_text, list: _tuple_text, bool: repr, int: repr, float: repr,
    str: repr, type(None): repr, complex: lambda a: f"complex({a.real!r}, {a.imag!r})",
    DType: lambda a: f"!{a.short}", Device: lambda a: f"@{a}",
    Graph: lambda a: print_graph(a).replace("\n", "\n  "),
}


# Parsing

_TOKEN = re.compile(r"""
    (?P<space>[ \t\r]+) | (?P<line>\n) | (?P<comment>\#[^\n]*)
  | (?P<value>%(?:"(?:[^"\\]|\\.)*"|[A-Za-z0-9_.$]+))
  | (?P<string>'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")
  | (?P<size>\{[^{}\n]+\})
  | (?P<number>-?(?:inf|nan|\d+(?:\.(?!\.)\d*)?(?:e[+-]?\d+)?)(?![A-Za-z0-9_]))
  | (?P<dtype>![A-Za-z0-9]+) | (?P<device>@[a-z]+(?::\d+)?)
  | (?P<word>[A-Za-z_][A-Za-z0-9_.$]*)
  | (?P<mark>\.\.|<-|->|[-()\[\]{},:=<>/*+%;])
""", re.VERBOSE)
_LOCATION = re.compile(r"#\s*(.+?):(\d+)(?: \| (.*))?\s*\Z")
_WORDS = {"True": True, "False": False, "None": None}


class Reader:
    """Tokens of a text and the pieces that graphs and programs share."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[tuple[str, str, int]] = []
        self.place = 0
        self.variables: dict[str, sym.Var] = {}
        at, line = 0, 1
        while at < len(text):
            m = _TOKEN.match(text, at)
            if m is None:
                raise TextError(f"line {line}: cannot read {text[at:at + 30]!r}")
            kind = str(m.lastgroup)
            line += kind == "line"
            if kind not in ("space", "line"):
                self.tokens.append((kind, m[0], line))
            at = m.end()
        self.tokens.append(("end", "", line))

    def fail(self, wanted: str) -> TextError:
        kind, text, line = self.tokens[self.place]
        return TextError(f"line {line}: expected {wanted}, found {text or kind!r}")

    def peek(self, *texts: str) -> bool:
        return self.tokens[self.place][1] in texts

    def kind(self) -> str:
        return self.tokens[self.place][0]

    def take(self, kind: str, wanted: str = "") -> str:
        if self.kind() != kind:
            raise self.fail(wanted or f"a {kind}")
        self.place += 1
        return self.tokens[self.place - 1][1]

    def accept(self, text: str) -> bool:
        if self.peek(text) and self.kind() != "string":
            self.place += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.accept(text):
            raise self.fail(repr(text))

    def several(self, item: Callable[[], Any], close: str) -> list[Any]:
        """`item`s separated by commas up to `close`, which is taken too."""
        found = []
        while not self.accept(close):
            found.append(item())
            if not self.accept(","):
                self.expect(close)
                break
        return found

    def name(self) -> str:
        if self.kind() == "string":
            return str(json.loads(self.take("string")))
        return self.take("word", "a name")

    def integer(self) -> int:
        return int(self.take("number", "an integer"))

    def symbol(self) -> sym.Var:
        name = self.take("word", "a symbol")
        self.expect(":")
        lo = self.integer() if self.kind() == "number" else None
        self.expect("..")
        hi = self.integer() if self.kind() == "number" else None
        var = sym.Var(name, lo, hi, self.integer() if self.accept("/") else 1)
        self.variables[name] = var
        return var

    def symbols(self) -> list[sym.Var]:
        return self.several(self.symbol, ">") if self.accept("<") else []

    def size(self, text: str) -> Any:
        try:
            return sym.parse(text, self.variables)
        except ValueError as error:
            raise TextError(f"line {self.tokens[self.place - 1][2]}: {error}") from None

    def sizes(self, text: str) -> tuple[Any, ...]:
        """Sizes separated by commas that stand in no parentheses."""
        parts, depth, start = [], 0, 0
        for i, ch in enumerate(text):
            depth += (ch == "(") - (ch == ")")
            if ch == "," and not depth:
                parts.append(text[start:i])
                start = i + 1
        parts.append(text[start:])
        return tuple(map(self.size, parts)) if text.strip() else ()

    def bracketed(self) -> tuple[Any, ...]:
        """`[sizes]`."""
        self.expect("[")
        start = self.place
        while not self.peek("]", ""):
            self.place += 1
        inside = "".join(text for _, text, _ in self.tokens[start:self.place])
        self.expect("]")
        return self.sizes(inside)

    def tensor(self) -> TensorType:
        dtype = self.dtype(self.take("word", "a tensor type"))
        shape = self.bracketed()
        device = Device(self.take("device")[1:]) if self.kind() == "device" else CPU
        return TensorType(shape, dtype, device)

    def dtype(self, name: str) -> DType:
        if name not in dt.BY_SHORT:
            raise TextError(f"line {self.tokens[self.place - 1][2]}: no dtype {name!r}")
        return dt.BY_SHORT[name]

    def location(self) -> Location | None:
        """The comment that follows, where it names a place."""
        if self.kind() != "comment":
            return None
        text = self.take("comment")
        m = _LOCATION.match(text)
        return Location(m[1], int(m[2]), m[3] or "") if m else None

    def skip_comments(self) -> None:
        while self.kind() == "comment":
            self.place += 1

    def constant(self) -> Any:
        """A number, a string, a word of `_WORDS`, a dtype, a device or a size."""
        kind = self.kind()
        if kind == "number":
            text = self.take(kind)
            return int(text) if text.lstrip("-").isdigit() else float(text)
        if kind == "string":
            return ast.literal_eval(self.take(kind))
        if kind == "dtype":
            return self.dtype(self.take(kind)[1:])
        if kind == "device":
            return Device(self.take(kind)[1:])
        if kind == "size":
            return self.size(self.take(kind)[1:-1])
        if self.accept("complex"):
            self.expect("(")
            return complex(*map(float, self.several(self.constant, ")")))
        word = self.take("word", "an argument")
        if word not in _WORDS:
            self.place -= 1
            raise self.fail("an argument")
        return _WORDS[word]


def parse_graph(text: str) -> Graph:
    """The graph of a text. Types are taken as they stand (`verify` compares them with the rules).

    Raises TextError with the line for a malformed text, LookupError for an op that is not
    registered.
    """
    reader = Reader(text)
    reader.skip_comments()
    graph = _GraphReader(reader).graph()
    reader.skip_comments()
    reader.take("end", "the end")
    return graph


class _GraphReader:
    """One `graph ... { ... }`; regions make another reader over the same tokens."""

    def __init__(self, reader: Reader) -> None:
        self.r = reader
        self.values: dict[str, Value] = {}

    def graph(self) -> Graph:
        r = self.r
        r.expect("graph")
        name = r.name()
        symbols = r.symbols()
        r.expect("(")
        params = r.several(self.param, ")")
        r.expect("{")
        nodes: list[Node] = []
        r.skip_comments()
        while not r.peek("return"):
            nodes.append(self.node())
            r.skip_comments()
        r.expect("return")
        results: dict[str, tuple[Value, ...]] = {}
        for group in GROUPS[:3]:
            r.expect(group)
            r.expect("(")
            results[group] = tuple(r.several(self.value, ")"))
        r.expect("writebacks")
        r.expect("(")
        backs = r.several(self.writeback, ")")
        results["writebacks"] = tuple(v for _, v in backs)
        r.skip_comments()
        r.expect("}")
        return Graph(name, params, nodes, results, [t for t, _ in backs], symbols)

    def name(self) -> str:
        text = self.r.take("value")[1:]
        return str(json.loads(text)) if text[0] == '"' else text

    def param(self) -> Value:
        index = len(self.values)
        quoted = self.r.tokens[self.r.place][1]
        name = self.name()
        self.r.expect(":")
        value = Value(self.type(), None, index, name)
        self.values[quoted] = value
        return value

    def value(self) -> Value:
        text = self.r.take("value")
        if text not in self.values:
            self.r.place -= 1
            raise self.r.fail("a value that is defined above")
        return self.values[text]

    def writeback(self) -> tuple[Value, Value]:
        target = self.value()
        self.r.expect("<-")
        return target, self.value()

    def type(self) -> Type:
        r = self.r
        if r.accept("scalar"):
            name = r.take("word", "a dtype")
            if name not in _CATEGORY:
                raise TextError(f"no run-time number is passed as {name!r}")
            return ScalarType(_CATEGORY[name])
        if r.accept("ref"):
            tensor = r.tensor()
            return RefType(tensor, r.bracketed() if r.accept("strides") else None)
        if r.accept("future"):
            return FutureType(r.tensor())
        return r.tensor()

    def argument(self) -> Any:
        if self.r.kind() == "value":
            return self.value()
        if self.r.accept("("):
            return tuple(self.r.several(self.argument, ")"))
        if self.r.peek("graph") and self.r.kind() == "word":
            inner = _GraphReader(self.r)
            return inner.graph()
        return self.r.constant()

    def node(self) -> Node:
        r = self.r
        names = []
        while r.kind() == "value":
            names.append(r.take("value"))
            if not r.accept(","):
                r.expect("=")
        op = registry.get(r.take("word", "an op"))
        r.expect("(")
        args = tuple(r.several(self.argument, ")"))
        types: list[Type] = []
        if names:
            r.expect(":")
            types = [self.type()]
            while r.accept(","):
                types.append(self.type())
        if len(types) != len(names):
            raise r.fail(f"{len(names)} types")
        node = Node(op, args, types, r.location(), infer_effects(op, args))
        self.values.update(zip(names, node.results, strict=True))
        return node
