"""Guards: the facts a capture assumed, as one flat Python function.

Facts are data (`machine.Fact`: a source, a kind, a detail). `generate` writes them out as readable
source in which every path is read once, cheap and likely-to-fail facts first; `explain` evaluates
them one by one and says which one fails now and why.
"""

from __future__ import annotations

import reprlib
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from lehr.base import dtype as dt
from lehr.compiler.capture.fact import FACTS, Fact, apart, cell_filled, owner_of
from lehr.compiler.capture.source import Source
from lehr.compiler.capture.tracer import lone
from lehr.tensor.state import STATE
from lehr.tensor.tensor import Tensor

# What reading a path may raise when the program's objects have changed.
MISSING = (AttributeError, KeyError, IndexError, TypeError, ValueError, ArithmeticError,
           RuntimeError)    # the last: the truth of a tensor of several elements

# Kind -> condition over {x}, the value, and {d}, the detail.
CONDITIONS = {
    "type": "type({x}) is {d}", "is": "{x} is {d}", "is not": "{x} is not {d}",
    "equals": "({x} == {d} or {x} != {x}) and type({x}) is type({d})",
    "len": "len({x}) == {d}", "maxlen": "{x}.maxlen == {d}", "truth": "bool({x}) is {d}",
    "keys": "tuple({x}) == {d}", "absent": "{d} not in {x}", "elements": "{x} == {d}",
    "no attribute": "not hasattr({x}, {d})", "returns": "{x}() == {d}",
    "empty cell": "not {cell}({x})", "small": "-0x80000000 < {x} < 0x80000000",
    **dict.fromkeys(("no hooks", "no post_hooks"),
                    "{x}._meta is None or not getattr({x}._meta, {d})"),
    "member": "({x} in {d}[0]) is {d}[1]", "alias": "{x} is {o}",
    "storage": "{x}._storage.origin is {o}._storage.origin", "offset": "{x}._offset == {d}",
    "view": "{x}._is_view() is {d}",
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
        self.failed = "return False"

    def bind(self, obj: Any, label: str = "o") -> str:
        """A name for an object."""
        found = self.bound.get(id(obj))
        if found is None:
            stem = "".join(c if c.isalnum() else "_" for c in label)[:24] or "o"
            stem = "o" if stem[0].isdigit() else stem
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
        elif fact.kind == "apart":
            others = ", ".join([x, *(self.path(other) for other in d)])
            test = f"{self.bind(apart, 'apart')}({others})"
        elif fact.kind in ("relation", "size"):
            test = d.text(self.path, lambda number: self.bind(number, "number"))
        elif fact.kind == "function":
            code, space = self.bind(d[0], "code"), self.bind(d[1], "globals")
            test = f"{x}.__code__ is {code} and {x}.__globals__ is {space}"
        elif fact.kind == "class":
            after = "" if d[2] is None else f", {self.bind(d[2], 'after')}"
            test = (f"{self.bind(owner_of, 'owner_of')}({x}, {d[0]!r}{after}) is "
                    f"{self.bind(d[1], 'owner')}")
        elif isinstance(d, Source):
            test = CONDITIONS[fact.kind].format(x=x, o=self.path(d))
        elif fact.kind == "equals" and type(d) in LITERALS:
            test = f"{x} is {d!r}" if d is None or type(d) is bool else (
                f"{x} == {d!r} and type({x}) is {type(d).__name__}")
        else:
            text = repr(d) if type(d) in LITERALS else self.bind(d, fact.kind)
            test = CONDITIONS[fact.kind].format(x=x, d=text, cell=self.bind(cell_filled, "cell"))
        self.test(test)

    def test(self, condition: str) -> None:
        self.lines.append(f"if not ({condition}): {self.failed}")

    def tensor(self, x: str, d: Any) -> None:
        tests = [f"type({x}) is {self.bind(d.type_, 'T')}",
                 f"{x}.dtype is {self.bind(d.dtype, 'dtype')}",
                 *sized(f"{x}._shape", d.shape), *sized(f"{x}._strides", d.strides),
                 f"{x}._storage.device is {self.bind(d.device, 'device')}"]
        if d.requires_grad or not d.leaf:
            tests.append(f"{x}.requires_grad is {d.requires_grad}")
            if d.type_ is Tensor:   # a Parameter is a leaf
                tests.append(f"{x}.is_leaf is {d.leaf}")
                test = f"{self.bind(lone, 'lone')}({x})"
                tests.append(test if d.lone else f"({x}._view is None or not {test})")
        else:
            tests.append(f"({x}._meta is None and {x}._view is None or not {x}.requires_grad)")
        self.test(" and ".join(tests))


def sized(x: str, wanted: tuple[Any, ...]) -> list[str]:
    """Tests of a shape or of strides; facts of their own say what symbols in them are."""
    if all(type(n) is int for n in wanted):
        return [f"{x} == {wanted!r}"]
    return [f"len({x}) == {len(wanted)}",
            *(f"{x}[{i}] == {n}" for i, n in enumerate(wanted) if type(n) is int)]


class _Named(Source):
    """A step whose expression is known: a variable of the generated function."""

    def expr(self, bind: Any) -> str:
        return str(self.key)


def modes() -> tuple[Any, ...]:
    """The thread's modes that every capture depends on."""
    s = STATE
    return (s.grad, s.inference, autocast(s.autocast), dt.Default.dtype, len(s.modes), s.anomaly,
            s.disabled, s.unbroken, s.device)


# The texts of `modes`, over {s} and {d}.
MODES = ("{s}.grad", "{s}.inference", "autocast({s}.autocast)", "{d}.dtype", "len({s}.modes)",
         "{s}.anomaly", "{s}.disabled", "{s}.unbroken", "{s}.device")


def autocast(mode: Any) -> Any:
    """What of an autocast mode a capture depends on."""
    return None if mode is None else getattr(mode, "key", mode)


def mode_test(w: Writer, values: tuple[Any, ...]) -> str:
    """The condition that `modes` gives what is wanted."""
    s, d = w.bind(STATE, "state"), w.bind(dt.Default, "default")
    w.space["autocast"] = autocast
    tests = []
    for text, value in zip(MODES, values, strict=True):
        now = text.format(s=s, d=d)
        if value is None and now.startswith("autocast"):
            tests.append(f"{s}.autocast is None")
        elif value is None or type(value) is bool:
            tests.append(f"{now} is {value}")
        elif isinstance(value, dt.DType):
            tests.append(f"{now} is {w.bind(value, 'dtype')}")
        else:
            wanted = repr(value) if type(value) is int else w.bind(value, "mode")
            tests.append(f"{now} == {wanted}")
    return " and ".join(tests)


def generate(facts: Iterable[Fact], names: tuple[str, ...], positional: tuple[str, ...],
             wanted: tuple[Any, ...]) -> Callable[..., bool]:
    """check(args, kwargs).

    positional: the argument names in order; names: the keyword names. wanted: `modes` of the call.
    """
    params = {p: f"a{i}" for i, p in enumerate(positional)}
    params |= {k: f"kwargs[{k!r}]" for k in names}
    w = Writer(params)
    for fact in sorted(facts, key=rank):
        w.fact(fact)
    body = "\n".join(f"        {line}" for line in w.lines) or "        pass"
    source = (f"{head('check', positional, names)}"
              f"    if not ({mode_test(w, wanted)}): return False\n"
              f"    try:\n{body}\n    except missing:\n        return False\n    return True\n")
    w.space["missing"] = MISSING
    exec(compile(source, "<guards>", "exec"), w.space)
    return w.space["check"]  # type: ignore[no-any-return]


def head(name: str, positional: Sequence[str], names: Sequence[str]) -> str:
    """The beginning of a check: which arguments there are."""
    count = len(positional)
    keys = f" or kwargs.keys() != {set(names)!r}" if names else " or kwargs"
    unpack = f"    ({''.join(f'a{i}, ' for i in range(count))}) = args\n" if count else ""
    return f"def {name}(args, kwargs):\n    if len(args) != {count}{keys}: return False\n{unpack}"


def others(fact: Fact) -> list[Source]:
    """The sources that a fact's detail names."""
    found: list[Source] = []

    def visit(detail: Any) -> None:
        if isinstance(detail, Source):
            found.append(detail)
        elif isinstance(detail, tuple) and fact.kind in SEVERAL:
            for part in detail:
                visit(part)
    visit(fact.detail)
    return found


# Kinds of facts whose detail holds sources in tuples.
SEVERAL = frozenset(("distinct", "apart", "relation", "size"))


# Facts about arguments change oftenest, those about functions and classes hardly ever.
_LATE = {"class": 3, "function": 3, "type": 1, "tensor": 0, "equals": 0, "len": 0}


def rank(fact: Fact) -> tuple[int, int]:
    depth, step = 0, fact.source
    while step.base is not None:
        depth, step = depth + 1, step.base
    rooted = 0 if step.kind == "local" else 2
    return rooted + _LATE.get(fact.kind, 1), depth


def failing(facts: Iterable[Fact], arguments: Mapping[str, Any]) -> list[tuple[Fact, Any]]:
    """The facts that fail now, each with what its source reads; what can not be read is None."""
    found = []
    for fact in facts:
        now = None
        try:
            now = fact.source.read(arguments)
            if FACTS[fact.kind](now, fact.detail, arguments):
                continue
        except MISSING:     # a part of the path is gone: the fact fails
            now = None
        found.append((fact, now))
    return found


def changes(facts: Iterable[Fact], arguments: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What differs now: (how the user would write it, from what to what), once each."""
    found: dict[str, str] = {}
    for fact, now in failing(facts, arguments):
        found.setdefault(fact.source.name(), _difference(fact, now))
    return list(found.items())


def told(fact: Fact) -> str:
    """A fact in the user's terms."""
    d = fact.detail
    if fact.kind == "tensor":
        grad = ", requires grad" if d.requires_grad else ""
        return (f"{fact.source.name()}: {d.type_.__name__} {d.dtype} {list(d.shape)}, strides "
                f"{list(d.strides)}, {d.device}{grad}")
    if fact.kind == "function":
        return f"{fact.source.name()}: the function {d[0].co_qualname}"
    if fact.kind == "readable":
        return f"{fact.source.name()}: is there"
    if isinstance(d, tuple):
        d = ", ".join(x.name() if isinstance(x, Source) else reprlib.repr(x) for x in d)
    shown = d.name() if isinstance(d, Source) else d if isinstance(d, str) else reprlib.repr(d)
    return f"{fact.source.name()}: {fact.kind} {shown}"


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


def same(wanted: Any, found: Any) -> bool:
    """Whether a part of a tensor is as it was; symbols stand for any size."""
    if isinstance(wanted, tuple) and isinstance(found, tuple) and len(wanted) == len(found):
        return all(type(w) is not int or w == n for w, n in zip(wanted, found, strict=True))
    return bool(wanted == found)


def _difference(fact: Fact, now: Any) -> str:
    d = fact.detail
    if fact.kind == "tensor":
        have = {f: getattr(now, g, None) for f, g in (
            ("dtype", "dtype"), ("shape", "_shape"), ("strides", "_strides"), ("device", "device"),
            ("requires_grad", "requires_grad"))}
        parts = [f"{k} was {getattr(d, k)}, is {v}" for k, v in have.items()
                 if not same(getattr(d, k), v)]
        return "; ".join(parts) or f"was {d}, is {type(now).__name__}"
    if fact.kind == "equals":
        return f"was {d!r}, is {now!r}"
    if fact.kind == "type":
        return f"type was {d.__name__}, is {type(now).__name__}"
    if fact.kind in ("relation", "size"):
        return f"{d} no longer holds"
    if fact.kind == "len":
        size = len(now) if hasattr(now, "__len__") else f"that of a {type(now).__name__}"
        return f"length was {d}, is {size}"
    if isinstance(d, types.FunctionType | type):
        return f"'{fact.kind}' no longer holds ({d.__name__})"
    return f"'{fact.kind}' no longer holds"
