"""Guards: the facts a capture assumed, as one flat Python function.

Facts are data (`machine.Fact`: a source, a kind, a detail). `generate` writes them out as readable
source in
which every path is read once, cheap and likely-to-fail facts first; `explain` evaluates them one by
one and
says which one fails now and why.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from lehr.base import dtype as dt
from lehr.compiler.capture.fact import FACTS, Fact, cell_filled
from lehr.compiler.capture.source import Source
from lehr.tensor.state import STATE

# What reading a path may raise when the program's objects have changed.
MISSING = (AttributeError, KeyError, IndexError, TypeError, ValueError)

# Kind -> condition over {x}, the value, and {d}, the detail.
CONDITIONS = {
    "type": "type({x}) is {d}", "is": "{x} is {d}", "is not": "{x} is not {d}",
    "equals": "({x} == {d} or {x} != {x}) and type({x}) is type({d})",
    "len": "len({x}) == {d}", "maxlen": "{x}.maxlen == {d}", "truth": "bool({x}) is {d}",
    "keys": "tuple({x}) == {d}", "absent": "{d} not in {x}", "elements": "{x} == {d}",
    "no attribute": "not hasattr({x}, {d})", "returns": "{x}() == {d}",
    "empty cell": "not {cell}({x})",
    "alias": "{x} is {o}",
    "storage": "{x}._storage is {o}._storage", "apart": "{x}._storage is not {o}._storage",
}
LITERALS = (int, str, bool, bytes, type(None))


class Writer:
    """Turns facts into source; objects become names of the function's namespace."""

    def __init__(self, params: Mapping[str, str]) -> None:
        self.params = params                    # argument name -> expression
        self.space: dict[str, Any] = {}
        self.lines: list[str] = []
        self.read: dict[Source, str] = {}
        self.bound: dict[int, str] = {}
        self.kept: list[Any] = []

    def bind(self, obj: Any, label: str = "o") -> str:
        """A name for an object."""
        found = self.bound.get(id(obj))
        if found is None:
            stem = "".join(c if c.isalnum() else "_" for c in label)[:24] or "o"
            stem = stem if not stem[0].isdigit() else "o"
            found = self.bound[id(obj)] = f"{stem}_{len(self.bound)}"
            self.space[found] = obj
            self.kept.append(obj)
        return found

    def path(self, source: Source) -> str:
        """An expression that reads a source; every step is read once."""
        found = self.read.get(source)
        if found is not None:
            return found
        if source.kind == "local":
            text = self.params[source.key]
            if not text.isidentifier():
                text = self.keep(source, text)
            self.read[source] = text
            return text
        if source.kind == "const":
            return source.expr(self.bind)
        base = None if source.base is None else self.path(source.base)
        held = source if base is None else source._replace(base=_Named("named", None, base))
        if isinstance(source.key, Source):
            held = held._replace(key=_Named("named", None, self.path(source.key)))
        return self.keep(source, held.expr(self.bind))

    def keep(self, source: Source, text: str) -> str:
        name = f"v{len(self.read)}"
        self.lines.append(f"{name} = {text}")
        self.read[source] = name
        return name

    def fact(self, fact: Fact) -> None:
        """The check of one fact."""
        x = self.path(fact.source)
        d = fact.detail
        if fact.kind == "tensor":
            self.tensor(x, d)
            return
        if fact.kind == "readable":
            return
        if fact.kind == "distinct":
            test = " and ".join(f"{x} is not {self.path(other)}" for other in d)
        elif fact.kind == "function":
            code, space = self.bind(d[0], "code"), self.bind(d[1], "globals")
            test = f"{x}.__code__ is {code} and {x}.__globals__ is {space}"
        elif fact.kind == "class":
            test = f"{self.bind(owner_of, 'owner_of')}({x}, {d[0]!r}) is {self.bind(d[1], 'owner')}"
        elif isinstance(d, Source):
            test = CONDITIONS[fact.kind].format(x=x, o=self.path(d))
        elif fact.kind == "equals" and type(d) in LITERALS:
            test = f"{x} is {d!r}" if d is None or type(d) is bool else (
                f"{x} == {d!r} and type({x}) is {type(d).__name__}")
        else:
            text = repr(d) if type(d) in LITERALS else self.bind(d, fact.kind)
            test = CONDITIONS[fact.kind].format(x=x, d=text, cell=self.bind(cell_filled, "cell"))
        self.lines.append(f"if not ({test}): return False")

    def tensor(self, x: str, d: Any) -> None:
        grad = f"{x}._meta is not None and {x}._meta.grad is not None"
        tests = [f"type({x}) is {self.bind(d.type_, 'T')}", f"{x}.dtype is "
                                                            f"{self.bind(d.dtype, 'dtype')}",
                 f"{x}._shape == {d.shape!r}", f"{x}._strides == {d.strides!r}",
                 f"{x}._storage.device is {self.bind(d.device, 'device')}"]
        if d.requires_grad or not d.leaf:
            tests.append(f"{x}.requires_grad is {d.requires_grad}")
            tests.append(f"({grad}) is {d.grad}")
        else:
            tests.append(f"({x}._meta is None and {x}._view is None or not {x}.requires_grad)")
        self.lines.append(f"if not ({' and '.join(tests)}): return False")


class _Named(Source):
    """A step whose expression is known: a variable of the generated function."""

    def expr(self, bind: Any) -> str:
        return str(self.key)


def owner_of(cls: Any, name: str) -> Any:
    """The class in the MRO that holds a name, or None."""
    return next((k for k in cls.__mro__ if name in k.__dict__), None)


def modes() -> tuple[Any, ...]:
    """The thread's modes that every capture depends on."""
    s = STATE
    autocast = None if s.autocast is None else getattr(s.autocast, "key", s.autocast)
    return (s.grad, s.inference, autocast,
            dt.Default.dtype, len(s.modes), s.anomaly)


def generate(facts: Iterable[Fact], count: int, names: tuple[str, ...], positional: tuple[str, ...]
             ) -> tuple[Callable[..., bool], str, Writer]:
    """(check(args, kwargs), its source, the writer).

    positional: the argument names in order; names: the keyword names. `count` is len(positional).
    """
    params = {p: f"a{i}" for i, p in enumerate(positional)}
    params |= {k: f"kwargs[{k!r}]" for k in names}
    w = Writer(params)
    order = sorted(facts, key=_rank)
    for fact in order:
        w.fact(fact)
    unpack = f"    ({''.join(f'a{i}, ' for i in range(count))}) = args\n" if count else ""
    keys = f" or kwargs.keys() != {set(names)!r}" if names else " or kwargs"
    body = "\n".join(f"        {line}" for line in w.lines) or "        pass"
    source = (f"def check(args, kwargs):\n"
              f"    if len(args) != {count}{keys}: return False\n"
              f"    if modes() != expected: return False\n{unpack}"
              f"    try:\n{body}\n    except missing:\n        return False\n    return True\n")
    w.space.update(modes=modes, expected=modes(), missing=MISSING)
    exec(compile(source, "<guards>", "exec"), w.space)
    return w.space["check"], source, w


# Facts about arguments change oftenest, those about functions and classes hardly ever.
_LATE = {"class": 3, "function": 3, "type": 1, "tensor": 0, "equals": 0, "len": 0}


def _rank(fact: Fact) -> tuple[int, int]:
    depth, step = 0, fact.source
    while step.base is not None:
        depth, step = depth + 1, step.base
    rooted = 0 if step.kind == "local" else 2
    return rooted + _LATE.get(fact.kind, 1), depth


def explain(facts: Iterable[Fact], arguments: Mapping[str, Any]) -> str | None:
    """The first fact that fails now, in the user's terms; None where all hold."""
    for fact in facts:
        name = fact.source.name()
        try:
            now = fact.source.read(arguments)
        except MISSING as error:
            return f"{name} can no longer be read ({type(error).__name__}: {error})"
        try:
            if FACTS[fact.kind](now, fact.detail, arguments):
                continue
        except MISSING as error:
            return f"{name}: {type(error).__name__}: {error}"
        return f"{name}: {_difference(fact, now)}"
    return None


def _difference(fact: Fact, now: Any) -> str:
    d = fact.detail
    if fact.kind == "tensor":
        have = {f: getattr(now, g, None) for f, g in (
            ("dtype", "dtype"), ("shape", "_shape"), ("strides", "_strides"), ("device", "device"),
            ("requires_grad", "requires_grad"))}
        parts = [f"{k} was {getattr(d, k)}, is {v}" for k, v in have.items() if getattr(d, k) != v]
        return "; ".join(parts) or f"was {d}, is {type(now).__name__}"
    if fact.kind == "equals":
        return f"was {d!r}, is {now!r}"
    if fact.kind == "type":
        return f"type was {d.__name__}, is {type(now).__name__}"
    if fact.kind == "len":
        return f"length was {d}, is {len(now)}"
    if isinstance(d, types.FunctionType | type):
        return f"'{fact.kind}' no longer holds ({d.__name__})"
    return f"'{fact.kind}' no longer holds"
