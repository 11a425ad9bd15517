"""The check of an entry: guards in full, and the quick way to know that they still hold.

When the guards hold, a `Live` takes down what they saw: the objects behind every path, and the
words of memory that decide that the paths still lead there and that the facts still hold (`pin`).
From then on a check looks at the facts about arguments, finds the `Live` of the objects that came
as arguments (a module, an optimizer), and compares its words. Where one differs, the guards are
checked in full and, if they hold, a new `Live` is taken. Paths and facts whose words differ at
almost every call (a counter that `forward` writes, say) are looked at one by one from then on.
"""

from __future__ import annotations

import functools
import threading
import types
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from lehr.base import log
from lehr.compiler.capture import guard, pin
from lehr.compiler.capture.fact import Fact, beside
from lehr.compiler.capture.finish import Finish
from lehr.compiler.capture.source import KINDS, Source
from lehr.tensor.tensor import Tensor

# How far a path is trusted: its words; that it leads to the same object; not at all.
PINNED, ANCHORED, FREE = range(3)
MOST = 32       # lives of one entry
SOON = 8        # calls: words that differ again after so few are not worth watching
DEATHS = 3      # of objects that came as an argument, until it is taken to be a new one every time

_tell = log.channel("guards")
Bind = Callable[[Sequence[Any], Collection[int]], Any]


class Path:
    """A source, one object for each."""

    __slots__ = ("base", "key", "source")

    def __init__(self, source: Source, base: Path | None, key: Any) -> None:
        self.source, self.base, self.key = source, base, key


class Claim:
    """A fact with its path and those that its detail names."""

    __slots__ = ("fact", "others", "path")

    def __init__(self, fact: Fact, path: Path, others: dict[Source, Path]) -> None:
        self.fact, self.path, self.others = fact, path, others


class Live:
    """What the guards saw when they held, for certain arguments.

    table    words as they were; see `lehr.compiler.run.word`
    values   the objects that the generated check looks at; `parts` those of `gather`, `ends` those
             of `finish`
    inputs   the graph's inputs, None where `gather` reads them at each call
    forward  runs the graph on inputs
    fixed    numbers of the inputs whose memory stays; `edges`: where their gradients go
    finish   (args, kwargs, live, outputs) -> the call's result, after its effects; or None
    """

    __slots__ = ("edges", "ends", "expected", "finish", "fixed", "forward", "gather", "inputs",
                 "kept", "key", "objects", "parts", "refs", "second", "table", "values", "words")

    table: Any
    values: tuple[Any, ...]
    parts: tuple[Any, ...]
    ends: tuple[Any, ...]
    inputs: list[Any]
    gather: Callable[..., list[Any]]
    forward: Any
    finish: Any
    fixed: frozenset[int]
    edges: dict[int, Any]
    key: tuple[int, ...]                        # what `Shape.lives` knows it by
    kept: dict[int, Any]
    refs: list[Any]
    objects: dict[Path, int]                    # ids of what is behind the paths
    words: dict[Any, tuple[int, ...]]           # path or claim -> addresses
    expected: dict[int, int]                    # address -> word
    second: set[int]                            # see `Pins.second`


    def changes(self, objects: Objects, anchors: Sequence[Path]) -> Iterator[tuple[Any, bool]]:
        """What differs now, and whether it is a path that leads to another object."""
        changed = {a for a, value in self.expected.items()
                   if a not in self.second and pin.word(a) != value}
        for what, words in self.words.items():
            if not changed.isdisjoint(words) or any(
                    pin.word(a) != self.expected[a] for a in words if a in self.second):
                yield what, isinstance(what, Path) and self.objects[what] != id(objects.read(what))
        for path in anchors:
            if self.objects[path] != id(objects.read(path)):
                yield path, True


class Unpinned(Exception):
    """A fact rests on a path that may lead elsewhere."""


class Check:
    """The check of one entry. `quick(args, kwargs)` gives a `Live`, or True or False.

    inputs  of the graph: a source each, or the object itself
    same    `same(table)`, see `lehr.compiler.run.word`; None: guards are always checked in full
    bind    (inputs, numbers of those that stay) -> what runs the graph
    calls   () -> how often the entry has run
    finish  writes the end of a call, where it can
    """

    def __init__(self, facts: Sequence[Fact], positional: tuple[str, ...], names: tuple[str, ...],
                 inputs: Sequence[Any], same: Any, bind: Bind, calls: Callable[[], int],
                 finish: Finish | None = None) -> None:
        self.positional, self.names, self.same, self.bind = positional, names, same, bind
        self.calls, self.finish = calls, finish
        self.facts, self.modes = facts, guard.modes()
        self.full: Callable[[tuple[Any, ...], dict[str, Any]], bool] = self.first
        self.paths: dict[Source, Path] = {}
        self.claims = [self.claim(fact) for fact in facts]
        self.inputs = [self.path(s) if isinstance(s, Source) else s for s in inputs]
        self.ends = [] if finish is None else [self.path(s) for s in finish.sources]
        self.levels: dict[Any, int] = {}        # of paths and claims
        self.restless: dict[Any, int] = {}
        self.lock = threading.Lock()
        self.before = -SOON
        self.renewals = self.deaths = self.shapes = 0
        self.shape: Shape | None = None
        self.space: dict[str, Any] = {"renew": self.renew}
        self.quick: Callable[[tuple[Any, ...], dict[str, Any]], Any] = self.whole
        if same is not None and pin.trusted():
            self.quick = types.FunctionType(_first.__code__, self.space, "check")

    def first(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Writes the guards: at their first use, since what is called once needs none."""
        self.full = guard.generate(self.facts, self.names, self.positional, self.modes)
        return self.full(args, kwargs)

    def whole(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        return self.full(args, kwargs)

    def path(self, source: Source) -> Path:
        found = self.paths.get(source)
        if found is None:
            base = None if source.base is None else self.path(source.base)
            key = self.path(source.key) if isinstance(source.key, Source) else source.key
            found = self.paths[source] = Path(source, base, key)
        return found

    def claim(self, fact: Fact) -> Claim:
        others = {s: self.path(s) for s in guard.others(fact)}
        return Claim(fact, self.path(fact.source), others)

    def renew(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The guards in full; where they hold, a new `Live`."""
        if not self.full(args, kwargs):
            return False
        if not self.lock.acquire(blocking=False):       # another thread takes a `Live`
            return True
        try:
            self.renewals += 1
            arguments = {**dict(zip(self.positional, args, strict=True)), **kwargs}
            live = self.take(Objects(arguments))
            # What was taken down is what the guards hold for: nothing has changed in between.
            if live is None or not self.full(args, kwargs) or not self.same(live.table):
                return self.full(args, kwargs)
            lives = self.shape.lives        # type: ignore[union-attr]
            lives[live.key] = live
            if None in [ref() for ref in live.refs]:        # one has died before it was known here
                lives.pop(live.key, None)
            return live
        except guard.MISSING as error:      # something changes while it is looked at
            _tell("no quick check: %s: %s", type(error).__name__, error)
        finally:
            self.lock.release()
        return self.full(args, kwargs)      # not before: facts look at the exception being handled

    def take(self, objects: Objects) -> Live | None:
        """Takes down what the guards saw."""
        if self.shape is not None:
            self.learn(self.shape, objects)
        for _ in range(8):      # these objects may have no words where others had
            if self.shape is None:
                self.shape = Shape(self, objects)
            live = self.shape.live(objects)
            if live is not None:
                return live
            self.change()
        return None

    def change(self) -> None:
        """Another shape is needed."""
        if self.shape is not None:
            self.shape.lives.clear()
        self.shape = None

    def learn(self, shape: Shape, objects: Objects) -> None:
        """Notes which paths and facts have changed since the last `Live` of these arguments."""
        calls = self.calls()
        soon, self.before = calls - self.before <= SOON, calls
        old = shape.lives.get(shape.key(objects))
        if not soon:
            self.restless.clear()
        elif old is None:
            if self.deaths >= DEATHS or len(shape.lives) >= MOST:
                self.levels.update(dict.fromkeys(shape.keyed, FREE))
                self.deaths = 0
                self.change()
        else:
            noted = [self.note(*change) for change in old.changes(objects, shape.anchors)]
            if True in noted:
                self.change()

    def note(self, what: Any, other: bool) -> bool:
        """Something has changed; `other`: a path leads to another object. True if it is to be
        trusted less from now on."""
        count = self.restless[what] = self.restless.get(what, 0) + 1
        if count < 2:
            return False
        level = FREE if other else self.levels.get(what, PINNED) + 1
        # Facts of a kind about one object rest on the same words.
        like = [what] if isinstance(what, Path) else [
            c for c in self.claims if c.path is what.path and c.fact.kind == what.fact.kind]
        self.levels.update(dict.fromkeys(like, level))
        del self.restless[what]
        return True


def _first(args: Any, kwargs: Any) -> Any:
    """The quick check before anything is known."""
    return renew(args, kwargs)  # type: ignore[name-defined]  # noqa: F821


class Objects:
    """What is behind the paths now; each is read once."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self.arguments = arguments
        self.known: dict[Path, Any] = {}

    def read(self, path: Path) -> Any:
        found = self.known.get(path, self)
        if found is self:
            found = self.known[path] = self.step(path)
        return found

    def step(self, path: Path) -> Any:
        base = None if path.base is None else self.read(path.base)
        key = self.read(path.key) if isinstance(path.key, Path) else path.key
        return KINDS[path.source.kind].read(self.arguments, base, key)


class Shape:
    """Which paths and facts are pinned, anchored or free, and the code that follows from it.

    keyed    anchored paths from arguments on: their objects tell which `Live` is asked for
    anchors  other anchored paths
    weak     paths whose objects no `Live` keeps: it goes when they go
    loose    numbers of the inputs that are read at each call
    """

    def __init__(self, check: Check, objects: Objects) -> None:
        self.check = check
        self.states: dict[Path, int] = {}
        self.pinned: list[Path] = []
        self.anchors: list[Path] = []
        self.keyed: list[Path] = []
        self.weak: set[Path] = set()
        self.lives: dict[tuple[int, ...], Live] = {}
        pins = pin.Pins()
        for claim in check.claims:
            self.state(claim.path, objects, pins)
        for item in (*check.inputs, *check.ends):
            if isinstance(item, Path):
                self.state(item, objects, pins)
        self.loose = [i for i, item in enumerate(check.inputs)
                      if isinstance(item, Path) and self.states[item] == FREE]
        self.beside: list[tuple[list[Path], list[Path]]] = []
        self.explicit: list[Claim] = []
        self.quiet: list[Claim] = []            # decided by words; one for each set of words
        seen: set[Any] = set()
        for claim in check.claims:
            claim = self.settled_part(claim, objects, pins)
            words = self.words_of(claim, objects, pins)
            what = claim.path, claim.fact.kind, *claim.others
            if words is None:
                self.explicit.append(claim)
            elif what not in seen and (words or claim.fact.kind not in SETTLED):
                seen.add(what)
                self.quiet.append(claim)
        self.write()

    # -- how far things are trusted

    def state(self, path: Path, objects: Objects, pins: pin.Pins) -> int:
        found = self.states.get(path)
        if found is None:
            found = self.states[path] = self.judge(path, objects, pins)
        return found

    def judge(self, path: Path, objects: Objects, pins: pin.Pins) -> int:
        kind = path.source.kind
        if kind == "const":
            return PINNED
        obj = objects.read(path)
        parts = [self.state(p, objects, pins) for p in (path.base, path.key) if isinstance(p, Path)]
        level = self.check.levels.get(path, PINNED)
        if kind == "local" or FREE in parts:
            self.states[path] = FREE
            if level == FREE or not self.from_arguments(path) or not (
                    lasting(obj) or type(obj) is types.FunctionType):
                return FREE
            self.keyed.append(path)
            self.weak.add(path)
            return ANCHORED
        if level == FREE or kind not in pin.STEPS:
            return FREE
        if level == PINNED and self.words(path, objects, pins) is not None:
            self.pinned.append(path)
            if kind in ("global", "cell") and lasting(obj):
                self.weak.add(path)
            return PINNED
        if type(obj) in pin.CONSTANT or objects.step(path) is not obj:
            return FREE
        self.anchors.append(path)
        return ANCHORED

    def words(self, path: Path, objects: Objects, pins: pin.Pins) -> pin.Words:
        """The words that decide where one step leads."""
        assert path.base is not None
        key = objects.read(path.key) if isinstance(path.key, Path) else path.key
        step = pin.STEPS[path.source.kind]
        return step(pins, objects.read(path.base), key, objects.read(path))

    def words_of(self, claim: Claim, objects: Objects, pins: pin.Pins) -> pin.Words:
        """The words that decide a fact."""
        rule = pin.CHECKS.get(claim.fact.kind)
        if rule is None or self.states[claim.path] == FREE or self.check.levels.get(claim, PINNED):
            return None

        def find(source: Source) -> Any:
            other = claim.others[source]
            if self.state(other, objects, pins) == FREE:
                raise Unpinned
            return objects.read(other)
        detail = claim.fact.detail if claim.fact.kind != "relation" else tuple(claim.others)
        try:
            return rule(pins, objects.read(claim.path), detail, find)
        except Unpinned:
            return None

    def settled_part(self, claim: Claim, objects: Objects, pins: pin.Pins) -> Claim:
        """Of tensors that share no memory, those that words can decide; `beside` notes the rest."""
        if claim.fact.kind != "apart":
            return claim
        every = [claim.path, *claim.others.values()]
        free = [p for p in every if self.state(p, objects, pins) == FREE]
        if not free or len(free) == len(every):
            return claim
        first, *rest = steady = [p for p in every if self.states[p] != FREE]
        self.beside.append((steady, free))
        others = {p.source: p for p in rest}
        return Claim(Fact(first.source, "apart", tuple(others)), first, others)

    # -- code

    def write(self) -> None:
        """Generates the quick check and `gather`."""
        check = self.check
        check.shapes += 1
        lives = f"lives_{check.shapes}"
        w = Writer(check, self)
        late = []
        for claim in sorted(self.explicit, key=lambda claim: guard.rank(claim.fact)):
            if self.independent(claim):
                w.fact(claim.fact)
            else:
                late.append(claim)
        keys = "".join([f"id({w.path(p.source)}), " for p in self.keyed])
        first, w.lines = w.lines, []
        w.failed = "return renew(args, kwargs)"
        for path in self.anchors:
            w.test(f"id({w.path(path.source)}) == {w.value(('id', path))}")
        for claim in late:
            w.fact(claim.fact)
        for steady, free in self.beside:
            tensors = ", ".join([w.path(p.source) for p in free])
            w.test(f"{w.bind(beside, 'beside')}({w.value(('storages', steady))}, {tensors})")
        values = "".join(f"{name}, " for name in w.values)
        w.space.update({lives: self.lives, "same": check.same, "missing": guard.MISSING})
        lines = [f"    if not ({guard.mode_test(w, check.modes)}): return False",
                 *block(first, "return False"),
                 f"    live = {lives}.get(({keys}))",
                 f"    if live is None or not same(live.table): {w.failed}",
                 *([f"    ({values}) = live.values"] if values else []),
                 *block(w.lines, w.failed), "    return live"]
        self.values = list(w.values.values())
        self.source = guard.head("check", check.positional, check.names) + "\n".join(lines) + "\n"
        self.source += self.gather_text(w) + self.finish_text(w)
        check.space.update(w.space)
        exec(compile(self.source, "<guards>", "exec"), check.space)
        self.gather, self.finish = check.space["gather"], check.space.get("finish")
        check.quick.__code__ = check.space["check"].__code__
        _tell("%s", self.source)

    def gather_text(self, check: Writer) -> str:
        """`gather` reads the inputs that a `Live` does not know."""
        w = check.beside()
        reads = [f"inputs[{i}] = {w.path(self.check.inputs[i].source)}" for i in self.loose]
        self.parts = list(w.values.values())
        return w.function("gather(args, kwargs, live)", "live.parts", [
            "inputs = live.inputs.copy()", *w.lines, *reads, "return inputs"])

    def finish_text(self, check: Writer) -> str:
        """`finish` makes the results and does what the program did outside."""
        self.ends: list[Any] = []
        if self.check.finish is None:
            return ""
        w = check.beside()
        lines = self.check.finish.write(w)
        self.ends = list(w.values.values())
        return w.function("finish(args, kwargs, live, outputs)", "live.ends", lines)

    def independent(self, claim: Claim) -> bool:
        """Whether a fact is about arguments alone, in whatever `Live`."""
        return all(self.from_arguments(p) for p in (claim.path, *claim.others.values()))

    def from_arguments(self, path: Path) -> bool:
        while path.base is not None:
            if self.states[path] != FREE or isinstance(path.key, Path):
                return False
            path = path.base
        return path.source.kind == "local"

    # -- taking a Live

    def key(self, objects: Objects) -> tuple[int, ...]:
        return tuple([id(objects.read(p)) for p in self.keyed])

    def live(self, objects: Objects) -> Live | None:
        """What is now, taken down; None where something has no words any more."""
        key = self.key(objects)
        weak = [objects.read(p) for p in self.weak]
        pins = pin.Pins(frozenset(map(id, weak)))
        words: dict[Any, Any] = {p: self.words(p, objects, pins) for p in self.pinned}
        words.update((claim, self.words_of(claim, objects, pins)) for claim in self.quiet)
        missing = [what for what, found in words.items() if found is None]
        if missing:
            self.check.levels.update(dict.fromkeys(missing, ANCHORED))
            return None
        made = Live()
        made.inputs = [objects.read(i) if isinstance(i, Path) else i for i in self.check.inputs]
        fixed = self.fix(made.inputs, pins, words)
        made.words = words
        every = {a for found in words.values() for a in found}
        made.expected, made.second = {a: pin.word(a) for a in every}, pins.second
        made.table = pin.table(every - pins.second, pins.second)
        made.values, made.parts, made.ends = (
            tuple([self.value(kind, what, objects) for kind, what in several])
            for several in (self.values, self.parts, self.ends))
        made.objects = {p: id(objects.read(p)) for p in (*self.pinned, *self.anchors)}
        made.kept, made.gather, made.finish = pins.kept, self.gather, self.finish
        made.refs = [weakref.ref(obj, functools.partial(self.died, key)) for obj in weak]
        made.forward = self.check.bind(made.inputs, fixed)
        made.fixed, made.edges = frozenset(fixed), {}
        for i in self.loose:
            made.inputs[i] = None
        made.key = key
        return made

    def fix(self, inputs: Sequence[Any], pins: pin.Pins, words: dict[Any, Any]) -> list[int]:
        """Numbers of the inputs whose memory stays where it is; the words for that."""
        fixed = []
        for i, t in enumerate(inputs):
            if i not in self.loose and isinstance(t, Tensor):
                found = pin.joined(pins.tensor(t), pins.address(t))
                if found is not None:
                    words["input", i] = found
                    fixed.append(i)
        return fixed

    def value(self, kind: str, what: Any, objects: Objects) -> Any:
        if kind == "storages":
            return frozenset([id(objects.read(p)._storage.origin) for p in what])
        found = objects.read(what)
        return id(found) if kind == "id" else found

    def died(self, key: Any, ref: Any) -> None:
        """An object that a `Live` rests on is gone."""
        if self.lives.pop(key, None) is not None:
            self.check.deaths += 1


# Facts that hold as long as their path leads to the same object; words of others depend on the path
# and on what the detail names.
SETTLED = frozenset(("is", "is not", "readable", "alias", "distinct", "equals", "type"))
CODE = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType)


def lasting(obj: Any) -> bool:
    """Whether an object is likely to come again: a module, an optimizer, a configuration."""
    return (type(obj).__weakrefoffset__ != 0 and hasattr(obj, "__dict__")
            and not issubclass(type(obj), (Tensor, *CODE)))


class Writer(guard.Writer):
    """Code over a `Live`: objects that do not change are its values."""

    def __init__(self, check: Check, shape: Shape) -> None:
        params = {p: f"a{i}" for i, p in enumerate(check.positional)}
        super().__init__(params | {k: f"kwargs[{k!r}]" for k in check.names})
        self.check, self.shape = check, shape
        self.values: dict[str, tuple[str, Any]] = {}

    state = guard.STATE

    def beside(self) -> Writer:
        """A writer of another function of the same module."""
        made = Writer(self.check, self.shape)
        made.space, made.bound, made.kept = self.space, self.bound, self.kept
        return made

    def function(self, head: str, values: str, lines: Sequence[str]) -> str:
        """The text of a function over arguments and some values of a `Live`."""
        unpack = "".join(f"a{i}, " for i in range(len(self.check.positional)))
        names = "".join(f"{name}, " for name in self.values)
        return "\n    ".join([f"def {head}:", *([f"({unpack}) = args"] if unpack else []),
                             *([f"({names}) = {values}"] if names else []), *lines]) + "\n"

    def path(self, source: Source) -> str:
        if source not in self.read and source.kind not in ("local", "const"):
            path = self.check.paths[source]
            if self.shape.states[path] == PINNED and path not in self.shape.weak:
                self.read[source] = self.value(("object", path))
        return super().path(source)

    def value(self, what: tuple[str, Any]) -> str:
        """The name of a value of the `Live`."""
        name = f"n{len(self.values)}"
        self.values[name] = what
        return name


def block(lines: Sequence[str], failed: str) -> list[str]:
    if not lines:
        return []
    return ["    try:", *(f"        {line}" for line in lines),
            "    except missing:", f"        {failed}"]
