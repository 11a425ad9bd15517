"""Sites: the places where capture starts, and how a call moves from one to the next.

A compiled function is a `Family` of sites that share options and back end: the function itself,
the points behind its graph breaks (`PointSite`) and the functions that its breaks call
(`CodeSite`). A site keeps its entries, captured and compiled, and tries the newest first, those
with symbolic sizes last.
"""

from __future__ import annotations

import functools
import itertools
import os
import sysconfig
import threading
import time
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lehr.base import log, options
from lehr.base.options import Options
from lehr.compiler import collector
from lehr.compiler.capture import guard
from lehr.compiler.capture.attempt import Attempt, capture_call
from lehr.compiler.capture.breaks import CaptureBreak
from lehr.compiler.capture.bytecode import ASYNC_GENERATOR, COROUTINE, GENERATOR
from lehr.compiler.capture.check import Check
from lehr.compiler.capture.directive import DISABLED
from lehr.compiler.capture.entry import Captured, Entry
from lehr.compiler.capture.fact import Fact
from lehr.compiler.capture.later import Late
from lehr.compiler.capture.machine import Machine, Outcome
from lehr.compiler.capture.prime import take_back
from lehr.compiler.capture.resume import Point, line_at, make_resume
from lehr.compiler.capture.segment import Link, Segment
from lehr.compiler.capture.size import Policy, Resize
from lehr.compiler.capture.source import Source, local
from lehr.compiler.capture.stopped import Stopped, Unconfirmed, confirmed, watched
from lehr.compiler.capture.tensors import is_native
from lehr.compiler.capture.tracer import NeedsFlat
from lehr.compiler.capture.value import SCALARS
from lehr.compiler.counters import COUNTERS
from lehr.compiler.journal import Fallback, Journal, Made, Place, Recompile, place_of
from lehr.compiler.run import word
from lehr.compiler.stance import CURRENT
from lehr.tensor.state import STATE
from lehr.tensor.tensor import Tensor

FUNCTION = "<function>"
EAGER_ONLY = GENERATOR | COROUTINE | ASYNC_GENERATOR
LIBRARY = tuple(os.path.join(sysconfig.get_path(key), "") for key in ("stdlib", "platstdlib"))
PACKAGES = tuple(os.path.join(sysconfig.get_path(key), "") for key in ("purelib", "platlib"))
LARGEST = 1 << 31       # numbers up to this may become inputs of a graph
NUMBERS = frozenset((int, float))
CHANGING = frozenset((int, float, str, bytes, range, complex, *SCALARS))
NOTHING: dict[str, Any] = {}


class CompilerError(RuntimeError):
    """What the compiler itself raises in the place of a result."""


class Unsupported(CompilerError):
    """A call cannot be compiled and falling back is not allowed (`fullgraph`, `LEHR_STRICT=1`)."""


class RecompileLimit(Unsupported):
    """A function was compiled as often as it may be."""


class Bare:
    """An entry without a graph: under its guards the call runs natively."""

    segment: Segment | None = None

    def __init__(self, site: Site, facts: list[Fact], positional: tuple[str, ...],
                 names: tuple[str, ...], fallback: bool, fault: Any = None) -> None:
        self.site, self.facts, self.positional, self.fallback = site, facts, positional, fallback
        self.fault = fault      # the exception that capture foresaw
        self.calls = 0
        self.checker = Check(facts, positional, names, (), word.same(), lambda inputs, fixed: None,
                             lambda: self.calls)
        self.check = self.checker.quick

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any], live: Any = True) -> Any:
        self.calls += 1
        if self.fallback:
            COUNTERS.add("fallbacks")
        if self.fault is None or not self.site.family.options.strict:
            return self.site.native(args, kwargs)
        found, errors = watched(lambda: self.site.native(args, kwargs))
        if not errors:      # else data stopped an op, which the program caught before that
            raise Unsupported(f"the compiler foresaw {self.fault}, which {self.site.name} did not "
                              "raise: capture does not do here what Python does")
        return found


class Graphed(Entry):
    """An entry with a graph, or with a segment behind it."""

    crossing: Crossing | None = None

    def __init__(self, captured: Captured, backend: Any, positional: tuple[str, ...],
                 names: tuple[str, ...]) -> None:
        self.ahead = len(captured.tracer.builder.nodes)     # what gradients need comes behind
        super().__init__(captured, backend, positional, names)
        self.facts, self.segment = captured.facts, captured.segment

    def set_aside(self, inputs: list[Any]) -> list[tuple[Tensor, Any]]:
        kept = super().set_aside(inputs)
        COUNTERS.add("set_aside", sum(array.nbytes for _, array in kept))
        return kept


class Family:
    """The sites of one compiled function."""

    def __init__(self, changes: Mapping[str, Any], make: Any) -> None:
        self.changes, self.backend = dict(changes), make
        self.base: Options | None = None
        self.lock = threading.RLock()
        self.journal = Journal()
        self.points: dict[Any, PointSite] = {}
        self.codes: dict[int, CodeSite] = {}

    @property
    def options(self) -> Options:
        """The process's options as they are now, changed by those that `lehr.compile` was given."""
        now = options.default()
        if now is not self.base:
            self.made, self.base = now.replace(**self.changes), now
        return self.made

    def point(self, link: Link) -> PointSite:
        point = link.point
        key = id(point.code), *point[1:]
        with self.lock:
            found = self.points.get(key)
            if found is None:
                found = self.points[key] = PointSite(self, point, link.new)
        return found

    def code(self, function: types.FunctionType) -> CodeSite:
        code = function.__code__
        found = self.codes.get(id(code))
        if found is None:
            with self.lock:
                found = self.codes.setdefault(id(code), CodeSite(self, code))
        return found

    def callee(self, real: Any) -> Any:
        """What a bridge calls instead of `real`: its own site where it is a Python function."""
        lead: tuple[Any, ...] = ()
        function = real
        if type(real) is types.MethodType:
            lead, function = (real.__self__,), real.__func__
        elif type(real) is not types.FunctionType:
            lead, function = (real,), getattr(type(real), "__call__", None)  # noqa: B004
        if type(function) is not types.FunctionType or not worth_capture(function):
            return real
        return Callee(self.code(function), (function, *lead))

    def go_on(self, entry: Any, function: Any, state: Any) -> Any:
        """The rest of a call that the segment of `entry` stands before."""
        while True:
            segment = entry.segment
            if segment.bridge is None:
                return segment.rest.call(function, state)
            crossing = entry.crossing
            if crossing is None or crossing.function is not function:
                crossing = entry.crossing = Crossing(self, segment, function)
            site, args = crossing.step(state)
            entry, live = site.find(args, NOTHING)
            if entry is None:
                return site.native(args, NOTHING)
            error = None
            try:
                state = entry.run(args, NOTHING, live)
                COUNTERS.tick("calls")
            except Stopped as stopped:
                error = stopped.__cause__
            if error is not None:   # not in the handler: the program's errors would have a context
                return site.instead(args, NOTHING, error)
            if entry.segment is None:
                return state

    def reset(self) -> None:
        with self.lock:
            self.points.clear()
            self.codes.clear()
            self.journal.clear()


def worth_capture(function: types.FunctionType) -> bool:
    """Whether a function that a break calls is the user's (or a package's), and may be captured."""
    code = function.__code__
    if code.co_flags & EAGER_ONLY or code is DISABLED or is_native(function):
        return False
    name, file = function.__globals__.get("__name__", ""), code.co_filename
    if name.startswith(("lehr.compiler", "numpy")) or file.startswith("<frozen"):
        return False
    return file.startswith(PACKAGES) or not file.startswith(LIBRARY)


class Callee:
    """A function that a break calls, on its own site."""

    __slots__ = ("args", "site")

    def __init__(self, site: CodeSite, args: tuple[Any, ...]) -> None:
        self.site, self.args = site, args

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self.site.call((*self.args, *args), kwargs)


class Crossing:
    """A segment at run time, for one function object."""

    __slots__ = ("cross", "family", "function", "segment", "sites", "thrown")

    def __init__(self, family: Family, segment: Segment, function: Any) -> None:
        assert segment.bridge is not None
        self.family, self.segment, self.function = family, segment, function
        self.cross = segment.bridge.function(function)
        self.sites: list[PointSite | None] = [None] * len(segment.links)
        self.thrown: PointSite | None = None

    def step(self, state: Sequence[Any]) -> tuple[PointSite, tuple[Any, ...]]:
        """Runs the instruction; the site where the call goes on, and its arguments."""
        segment = self.segment
        given = state
        if segment.callee is not None:
            given = list(state)
            given[segment.callee] = self.family.callee(given[segment.callee])
        try:
            *new, number = self.cross(given)
        except BaseException as error:
            link = segment.thrown
            if link is None:
                raise
            error.__traceback__ = trimmed(error.__traceback__)
            site = self.thrown = self.thrown or self.family.point(link)
            return site, (self.function, *link.state(state, (error,)))
        link = segment.links[number]
        site = self.sites[number] or self.family.point(link)
        self.sites[number] = site
        return site, (self.function, *link.state(state, new))


class Site:
    """A place where capture starts. Safe to use from several threads."""

    called: bool
    eager: bool

    def __init__(self, family: Family, name: str) -> None:
        self.family, self.name = family, name
        self.lock = threading.RLock()
        self.restart()

    # -- what kinds of sites differ in

    def begin(self, machine: Machine, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Outcome:
        raise NotImplementedError

    def native(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        raise NotImplementedError

    def positional(self, args: tuple[Any, ...]) -> tuple[str, ...]:
        """The names under which the machine knows the positional arguments."""
        raise NotImplementedError

    def function_of(self, args: tuple[Any, ...]) -> types.FunctionType:
        return args[0]  # type: ignore[no-any-return]

    def place(self) -> Place:
        """The line where it begins, for reports."""
        raise NotImplementedError

    # -- calls

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        entry, live = self.find(args, kwargs)
        if entry is None:
            return self.instead(args, kwargs)
        error = None
        try:
            found = entry.run(args, kwargs, live)
            COUNTERS.tick("calls")
        except Stopped as stopped:
            error = stopped.__cause__
        if error is not None:   # not in the handler: the program's errors would have a context
            return self.instead(args, kwargs, error)
        if entry.segment is None:
            return found
        return self.family.go_on(entry, self.function_of(args), found)

    def instead(self, args: tuple[Any, ...], kwargs: dict[str, Any],
                error: BaseException | None = None) -> Any:
        """The call, run natively; `error`: what stopped the compiled one."""
        COUNTERS.add("fallbacks")
        if error is None:
            return self.native(args, kwargs)
        return confirmed(error, lambda: self.native(args, kwargs), self.unconfirmed)

    def unconfirmed(self, text: str) -> None:
        """A compiled call raised what its program does not: a fault that must not stay hidden."""
        if self.family.options.strict:
            raise Unconfirmed(f"{self.name}: {text}")
        log.warn_once(f"unconfirmed:{self.name}:{id(self)}",
                      f"{self.name}: {text}; its result is that of the eager call")

    def find(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        """The entry that is valid for a call, captured now if need be, and what its check gave;
        None: run it natively."""
        for entry in self.entries:
            live = entry.check(args, kwargs)
            if live:
                return entry, live
        if STATE.tracer is not None or STATE.disabled or self.eager:
            return None, None
        if CURRENT.action != "compile" and self.held_back(args, kwargs):
            return None, None
        with self.lock:
            for entry in self.entries:
                live = entry.check(args, kwargs)
                if live:
                    return entry, live
            return self.capture(args, kwargs), True

    def held_back(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether the stance in force keeps a call from being captured."""
        if CURRENT.action == "fail":
            why = self.why(args, kwargs) if self.entries else "it was not compiled yet"
            raise RuntimeError(f"{self.name} would be compiled (stance 'fail_on_recompile'): {why}")
        if CURRENT.action != "later":
            return True
        first = not self.called
        self.called = True
        return first

    def restart(self) -> None:
        """Forgets what was captured."""
        self.entries: list[Any] = []
        self.newest: Any = None
        self.eager = False      # the recompile limit is reached
        self.called = False     # there was a call that the stance kept from being captured
        self.loose: frozenset[Source] = frozenset()     # values that were seen to change
        self.brittle = False    # half of the limit is reached: they must not become constants

    def capture(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A new entry; None where the call must run natively (said once)."""
        opts = self.family.options
        COUNTERS.add("captures")
        if self.entries:
            COUNTERS.add("recompiles")
            if len(self.entries) >= opts.recompile_limit:
                self.limit(args, kwargs)
                return None
            self.note_recompile(args, kwargs)
            self.loosen(args, kwargs)
        began = time.perf_counter()
        try:
            with collector.rare():
                attempt, entry = self.attempt(args, kwargs)
            self.note(attempt, entry, time.perf_counter() - began)
        except Unsupported:
            raise
        except Exception as error:
            if opts.strict or not opts.suppress_errors:
                raise
            log.warn_once(f"failed:{self.name}", f"the compiler failed on {self.name}, which runs "
                          f"eagerly: {type(error).__name__}: {error}. Set LEHR_STRICT=1 to see "
                          "where.")
            self.stay_eager(f"the compiler failed: {type(error).__name__}: {error}")
            return None
        # A graph for certain sizes is the better one where it is valid.
        general = [e for e in (entry, *self.entries) if is_general(e)]
        self.entries = [*[e for e in (entry, *self.entries) if not is_general(e)], *general]
        self.newest = entry
        return entry

    def attempt(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Attempt, Any]:
        """A captured call and its entry; where a stage cannot do without a size, anew."""
        policy = self.policy()
        flat: frozenset[int] = frozenset()
        late: frozenset[types.CodeType] = frozenset()
        while True:
            attempt = capture_call(lambda m: self.begin(m, args, kwargs), self.loose, self.brittle,
                                   self.broke, policy, flat, late)
            COUNTERS.add("bytecodes", attempt.steps)
            captured = attempt.captured
            made = None
            try:
                if captured and captured.fault is not None and captured.machine.sizes.hints:
                    raise Resize(everything=True)   # is it the program's, or ours?
                made = self.entry(attempt, self.positional(args), tuple(kwargs))
                return attempt, made
            except Resize as needs:
                policy = policy.but(needs)
            except NeedsFlat as needs:      # found where the gradients' graph was made
                flat |= {id(needs.storage.origin)}
            except Late as needs:
                if needs.code in late:
                    raise
                late |= {needs.code}
            except Exception as error:
                if captured is None or not captured.machine.sizes.hints:
                    raise
                log.channel("capture")("%s: not with symbolic sizes: %s: %s", self.name,
                                       type(error).__name__, error)
                COUNTERS.add("specialised")
                policy = policy.but(Resize(everything=True))
            finally:
                if captured is not None and not isinstance(made, Graphed):
                    take_back(captured.machine.primed)

    def policy(self) -> Policy:
        """Which sizes are symbols in the next capture: those that were seen to change, too."""
        dynamic = self.family.options.dynamic
        if self.family.options.check or self.family.options.audit:
            return Policy(False, off=True)      # stages are compared at the sizes of a call
        if dynamic is False or not self.entries:
            return Policy(dynamic)
        seen: dict[Any, tuple[int, ...]] = {}
        for entry in self.entries:
            for source, kind, detail in entry.facts:
                if kind == "tensor":
                    rank = len(detail.seen)
                    for d, n in enumerate(detail.seen):
                        seen[source, rank, d] = (*seen.get((source, rank, d), ()), n)
        return Policy(dynamic, seen)

    def entry(self, attempt: Attempt, positional: tuple[str, ...], names: tuple[str, ...]) -> Any:
        """What was captured, compiled; a call without a graph simply runs natively."""
        captured = attempt.captured
        if captured is None:
            return Bare(self, attempt.facts, positional, names, True)
        ops = captured.tracer.ops
        if captured.fault is not None or not ops and captured.segment is None:
            return Bare(self, attempt.facts, positional, names, False,
                        None if captured.fault is None else repr(captured.fault))
        backend = functools.partial(self.family.backend, options=self.family.options)
        made = Graphed(captured, backend, positional, names)
        if ops:
            COUNTERS.add("graphs")
            COUNTERS.add("ops_captured", ops)
        return made

    def broke(self, error: CaptureBreak) -> None:
        """A graph break is met for the first time."""
        COUNTERS.add("breaks")
        self.family.journal.broke(self.name, error)
        if self.family.options.fullgraph or error.forbidden:
            raise Unsupported(str(error)) from None
        log.channel("breaks")("%s: %s", self.name, error)

    def loosen(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Numbers that differ from what an entry assumed become inputs of the next graph; later
        on, other constants are no longer looked at, either."""
        arguments = {**dict(zip(self.positional(args), args, strict=True)), **kwargs}
        self.brittle = len(self.entries) >= max(2, self.family.options.recompile_limit // 2)
        kinds = CHANGING if self.brittle else NUMBERS
        self.loose |= {fact.source for entry in self.entries
                       for fact, now in guard.failing(entry.facts, arguments)
                       if fact.kind == "equals" and type(now) in kinds
                       and type(now) is type(fact.detail) and is_small(now)}

    def limit(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The recompile limit: one warning that names the guard and both values."""
        if not any(isinstance(e, Graphed) and e.captured.tracer.ops for e in self.entries):
            self.eager = True
            return      # nothing is lost: there were no graphs
        text = (f"{self.name} was compiled {len(self.entries)} times, the limit (recompile_limit); "
                "from now on it runs eagerly. The last recompile was asked for because "
                f"{self.why(args, kwargs)}.")
        self.stay_eager(text)
        if self.family.options.strict:
            raise RecompileLimit(text)
        log.warn_once(f"limit:{self.name}:{id(self)}", text)

    def why(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """Why the newest entry is not valid, in the user's terms."""
        arguments = {**dict(zip(self.positional(args), args, strict=True)), **kwargs}
        return guard.explain(self.newest.facts, arguments) or "other arguments"


    # -- reports

    def stay_eager(self, why: str) -> None:
        self.eager = True
        self.family.journal.add(Fallback(self.name, self.place(), why))

    def note_recompile(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Reports what differs from the call that the newest entry was made for."""
        arguments = {**dict(zip(self.positional(args), args, strict=True)), **kwargs}
        place, changes = self.place(), tuple(guard.changes(self.newest.facts, arguments))
        changes = changes or (("", self.why(args, kwargs)),)
        self.family.journal.add(Recompile(self.name, place, changes))
        log.channel("recompiles")("%s", describe(f"{self.name} is compiled again", place, [
            f"{what}: {how}" if what else how for what, how in changes]))

    def note(self, attempt: Attempt, entry: Any, seconds: float) -> None:
        """Reports a captured call."""
        place = self.place()
        if isinstance(entry, Graphed):
            self.family.journal.add(Made(self.name, place, entry, seconds))
            if log.channel("graph"):
                log.channel("graph")("%s", describe(f"{self.name}:", place, [
                    str(entry.request.graph)]))
        elif entry.fallback:
            self.family.journal.add(Fallback(self.name, place, "the state at the graph break "
                                             "cannot be handed on"))
        log.channel("capture")("%s", describe(
            f"{self.name} is captured: {attempt.steps} instructions, {len(entry.facts)} guards, "
            f"{'a graph' if isinstance(entry, Graphed) else 'no graph'}, {seconds:.3f} s", place))
        if log.channel("guards"):
            log.channel("guards")("%s", describe(f"{self.name} is compiled for", place, [
                guard.told(fact) for fact in entry.facts]))


def describe(head: str, place: Place, lines: Sequence[str] = ()) -> str:
    """A message with the user's line."""
    shown = [str(place)] if place.file else []
    return "\n".join([head, *shown, *(f"  {line}" for line in lines)])


def is_general(entry: Any) -> bool:
    """Whether an entry has symbolic sizes."""
    return isinstance(entry, Graphed) and bool(entry.request.sizes)


def is_small(value: Any) -> bool:
    """Whether a graph can compute with a number: sums and products have to fit into 64 bits."""
    return type(value) is not int or abs(value) < LARGEST


class CallSite(Site):
    """Calls of one function, or of one bound method."""

    def __init__(self, family: Family, function: Callable[..., Any]) -> None:
        self.bound: tuple[Any, ...] = ()
        if isinstance(function, types.MethodType):
            self.bound, function = (function.__self__,), function.__func__
        super().__init__(family, getattr(function, "__qualname__", repr(function)))
        self.function = function

    def begin(self, machine: Machine, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Outcome:
        return machine.capture(self.function, args, kwargs)

    def native(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.function(*args, **kwargs)

    def positional(self, args: tuple[Any, ...]) -> tuple[str, ...]:
        return parameters(getattr(self.function, "__code__", None), len(args))

    def function_of(self, args: tuple[Any, ...]) -> types.FunctionType:
        return self.function  # type: ignore[return-value]

    def place(self) -> Place:
        return place_of(getattr(self.function, "__code__", None))


class CodeSite(Site):
    """Calls of the functions that share one code object; the function is the first argument."""

    def __init__(self, family: Family, code: types.CodeType) -> None:
        super().__init__(family, code.co_qualname)
        self.code = code

    def begin(self, machine: Machine, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Outcome:
        return machine.capture(args[0], args[1:], kwargs, local(FUNCTION))

    def native(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return args[0](*args[1:], **kwargs)

    def positional(self, args: tuple[Any, ...]) -> tuple[str, ...]:
        return (FUNCTION, *parameters(self.code, len(args) - 1))

    def place(self) -> Place:
        return place_of(self.code)


class PointSite(Site):
    """What is left of calls behind a graph break; the arguments are the function and the state."""

    def __init__(self, family: Family, point: Point, new: int) -> None:
        line = line_at(point.code, point.offset)
        super().__init__(family, f"{point.code.co_qualname}, from line {line}")
        self.point, self.names, self.new = point, point.names, new

    def place(self) -> Place:
        return place_of(self.point.code, line_at(self.point.code, self.point.offset))

    def capture(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Numbers that the instruction in between gave are taken to differ from call to call."""
        given = zip(reversed(self.names), reversed(args), strict=True)
        for name, value in itertools.islice(given, self.new):
            if type(value) in NUMBERS and is_small(value):
                self.loose |= {local(name)}
        return super().capture(args, kwargs)

    @functools.cached_property
    def resume(self) -> Any:
        return make_resume(self.point)

    def begin(self, machine: Machine, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Outcome:
        return machine.resume(self.point, args[0], args[1:])

    def native(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.resume.call(args[0], args[1:])

    def positional(self, args: tuple[Any, ...]) -> tuple[str, ...]:
        return self.names


def parameters(code: types.CodeType | None, count: int) -> tuple[str, ...]:
    if code is not None and count <= code.co_argcount:
        return tuple(code.co_varnames[:count])
    return tuple(f"arg{i}" for i in range(count))


# -- tracebacks

HOST = os.path.dirname(os.path.abspath(__file__))


def trimmed(trace: types.TracebackType | None) -> types.TracebackType | None:
    """A traceback without the frames of the compiler, unless the error is the compiler's own."""
    found = []
    while trace is not None:
        found.append(trace)
        trace = trace.tb_next
    own = [t.tb_frame.f_code.co_filename.startswith(HOST) for t in found]
    if not found or own[-1]:
        return found[0] if found else None
    made = None
    for each, hidden in zip(reversed(found), reversed(own), strict=True):
        if not hidden:
            made = each if each.tb_next is made else types.TracebackType(
                made, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return made
