"""Random programs, eager against compiled: `python -m tests.compile.fuzz --count N --seed S`.

Each program is called several times (the same arguments again, other sizes and flags, the first
ones again); results, arguments afterwards, gradients, exceptions, printed text and the generator's
state have to be what eager gives. A program that differs is made smaller before it is shown.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import math
import signal
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import lehr
from lehr.compiler import check
from lehr.compiler.capture.tape import ELSEWHERE, HIDDEN
from lehr.compiler.counters import COUNTERS, stats
from lehr.ops.registry import Op
from lehr.tensor import dispatch
from lehr.tensor.hook import PAST
from lehr.tensor.state import STATE
from lehr.tensor.tensor import Tensor
from tests.compile import assigned, grammar, handling, idioms, loops, phrases, rounding

assert loops
NAMED = (PAST, ELSEWHERE, HIDDEN)     # what compiled calls refuse by name
CALLS = ("first", "again", "other", "anew", "larger", "smaller")
MORE = (4, 2)   # what the inputs of the last calls are made from, where sizes are symbols


class Outcome(NamedTuple):
    """What one call did: description trees (see `describe`)."""

    result: Any
    arguments: Any
    gradients: Any
    said: str
    draw: Any


def describe(value: Any, seen: dict[int, Any]) -> Any:
    """A tree of plain tuples and arrays that says all that a program could see, aliasing included.

    `seen` numbers objects and storages in the order in which they are met.
    """
    if isinstance(value, Tensor):
        first = id(value) not in seen
        number = seen.setdefault(id(value), len(seen))
        if not first:
            return ("same", number)
        memory = seen.setdefault(id(value._storage), len(seen))
        seen.setdefault((id(value), "kept"), (value, value._storage))
        with lehr.no_grad():
            array = np.array(value.detach()._array)
        grad = describe(value.grad, seen) if value.is_leaf else None
        if grad is not None and grad[0] == "tensor":
            # How the gradient of a compiled call's result was laid out decides what stands there.
            grad = (*grad[:5], tuple(s if n != 1 else 1 for n, s in zip(*grad[4:6], strict=True)),
                    *grad[6:])
        return ("tensor", number, memory, value._offset, tuple(value.shape), value.stride(),
                str(value.dtype), value.requires_grad, value.is_leaf, Array(array), grad)
    if isinstance(value, tuple):    # equal ones may be one object
        return (type(value).__name__, [describe(v, seen) for v in value])
    if isinstance(value, (list, dict, grammar.Box)):
        if id(value) in seen:
            return ("same", seen[id(value)])
        seen[id(value)] = len(seen)
        seen[id(value), "kept"] = value
        if isinstance(value, dict):
            inside: Any = [(k, describe(v, seen)) for k, v in value.items()]
        elif isinstance(value, grammar.Box):
            inside = [(k, describe(v, seen)) for k, v in vars(value).items()]
        else:
            inside = [describe(v, seen) for v in value]
        return (type(value).__name__, seen[id(value)], inside)
    if isinstance(value, BaseException):
        return ("raises", type(value).__name__, str(value))
    if isinstance(value, lehr.nn.Module):
        return ("module", repr(value), describe(dict(value.named_parameters()), seen),
                describe(dict(value.named_buffers()), seen),
                [describe({k: v for k, v in vars(m).items() if k[0] != "_"}, seen)
                 for m in value.modules()])
    if isinstance(value, (lehr.optim.Optimizer, lehr.optim.lr_scheduler.LRScheduler)):
        return (type(value).__name__, describe(value.state_dict(), seen))
    if isinstance(value, phrases.Pair):
        return ("pair", describe(vars(value), seen))
    if callable(value):
        return "callable"
    if " at 0x" in repr(value) and hasattr(value, "__dict__"):
        return (type(value).__name__, describe(vars(value), seen))
    return (type(value).__name__, repr(value))


class Array(NamedTuple):
    array: Any


def differing(have: Any, want: Any, path: str = "",
              difference: Callable[[Any, Any], str] = check.difference) -> str:
    """Empty where two descriptions agree; else where they do not. difference: of two arrays."""
    if isinstance(have, Array) and isinstance(want, Array):
        text = difference(have.array, want.array)
        return f"{path}: {text}" if text else ""
    if type(have) is type(want) and isinstance(want, (list, tuple)):
        raised = "raises" in (*have[:1], *want[:1]) and have[:1] != want[:1]
        if len(have) != len(want) or raised:
            return f"{path}: {have!r:.300}, expected {want!r:.300}"
        for i, (a, b) in enumerate(zip(have, want, strict=True)):
            text = differing(a, b, f"{path}.{i}", difference)
            if text:
                return text
        return ""
    return "" if have == want else f"{path}: {have!r:.300}, expected {want!r:.300}"


class Endless(BaseException):
    """A program whose loops grow and grow; no handler of its own catches this."""


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Ends what takes longer: a list can grow without an op. In the main thread alone."""
    def late(*_: Any) -> None:
        raise Endless("too long")
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Count:
    """Counts the tensor ops that run one by one: what a program calls, not what ops are made of."""

    def __init__(self) -> None:
        self.ops, self.most = 0, math.inf

    def __call__(self, op: Op, args: tuple[Any, ...]) -> Any:
        self.ops += 1
        if self.ops > self.most:
            raise Endless("too many ops")
        STATE.profile = None
        try:
            return dispatch.call(op, args)
        finally:
            STATE.profile = self


# Ops that ran one by one: without `lehr.compile`, and with it (those are outside of graphs).
EAGER, OUTSIDE = Count(), Count()


def outcome(main: Callable[..., Any], arguments: tuple[Any, ...], seed: int, count: Count = EAGER
            ) -> Outcome:
    lehr.manual_seed(seed)
    said = io.StringIO()
    with contextlib.redirect_stdout(said), np.errstate(all="ignore"):
        STATE.profile = count
        try:
            result = main(*arguments)
        except Exception as error:
            result = error.with_traceback(None)
        finally:
            STATE.profile = None
        grads = backward(result)
    seen: dict[int, Any] = {}
    made = Outcome(describe(result, seen), describe(list(arguments), seen), grads, said.getvalue(),
                   lehr.rand(2).tolist())
    lehr.set_grad_enabled(True)
    return made


def backward(result: Any) -> Any:
    """Backward from all results that carry gradients; they arrive in the arguments."""
    live = [t for t in tensors(result) if t.requires_grad and t.dtype.is_floating_point
            and t.grad_fn is not None]
    if not live:
        return None
    try:
        if LIKE[0]:
            lehr.autograd.backward(live, [lehr.full_like(t.detach(), i + 1)
                                          for i, t in enumerate(live)])
        else:
            total = sum((t.double() * (i + 1)).sum() for i, t in enumerate(live))
            total.backward()
    except RuntimeError as error:
        return next((e for e in REFUSED + NAMED if e in str(error)), type(error).__name__)
    return "backward"


LIKE = [False]      # whether the gradients of results are laid out as they are


# What backward refuses either eagerly or compiled: a compiled call keeps what its backward needs
# apart from its results, and frees it as a whole.
REFUSED = ("modified by an inplace operation", "backward through the graph a second time")


def excused(have: Outcome, want: Outcome) -> bool:
    """Whether one of two calls could not go backward, or only in part, for such a reason."""
    return have.gradients in REFUSED or want.gradients in REFUSED


def tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for x in value:
            yield from tensors(x)
    elif isinstance(value, dict):
        yield from tensors(list(value.values()))


def outcomes(text: str, wrap: Callable[[Any], Any], count: Count = EAGER) -> list[Outcome]:
    """The calls of a program, in a fresh module."""
    space = grammar.space()
    exec(compile(text, "<program>", "exec"), space)
    inputs, main = space["inputs"], wrap(space["main"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        first = inputs(0)
        return [outcome(main, arguments, i, count) for i, arguments in
                enumerate((first, first, inputs(1), inputs(0),
                           *([inputs(v) for v in MORE] if DYNAMIC[0] else ())))]


DYNAMIC: list[bool | None] = [None]     # what `lehr.compile` is told of sizes
MOST, LONGEST = 20_000, 30.0    # ops of the calls of a program, and seconds, eagerly
LEVEL = [2]     # optimisation level of the C compiler


def compiled(backend: str) -> Callable[[Any], Any]:
    return lambda main: lehr.compile(main, backend=backend, dynamic=DYNAMIC[0], options={
        "suppress_errors": False, "recompile_limit": 64, "optimize": LEVEL[0]})


class Unsuitable(Exception):
    """The arguments of a program cannot be made, or it would run too long."""


def fault(text: str, backend: str) -> str:
    """What is wrong with a compiled program; empty where nothing is."""
    EAGER.most = EAGER.ops + MOST
    try:
        with limited(LONGEST):
            want = outcomes(text, lambda main: main)
    except (Exception, Endless) as error:
        raise Unsuitable(str(error)) from error
    finally:
        EAGER.most = math.inf
    try:
        have = outcomes(text, compiled(backend), OUTSIDE)
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return (f"{type(error).__name__}: {error} (in "
                f"{last.filename.rpartition('/lehr/')[2]}:{last.lineno})")
    runs: list[list[Outcome]] = []
    rounded, seen = "", 0
    for i, (call, a, b) in enumerate(zip(CALLS, have, want, strict=False)):
        if excused(a, b):
            return rounded      # gradients add up: later calls cannot be compared, either
        if a.result[:2] == ("raises", "RuntimeError") and a.result[2].startswith(
                NAMED) or a.gradients in NAMED:
            return f"{PASSED}: in the {call} call"
        found = next((f"{name} of the {call} call: {d}" for name in Outcome._fields
                      if (d := differing(getattr(a, name), getattr(b, name), "",
                                         rounding.difference))), "")
        if not found:
            continue
        if laid_out(text, backend, found, have, want):
            return f"{LAID}: {found}"
        for seeds in (range(rounding.TRIALS), range(rounding.TRIALS, rounding.MORE)):
            if seeds.stop > seen:
                runs, seen = [*runs, *shaken(text, seeds)], seeds.stop
            if rounding.explained(a, b, [r[i] for r in runs]):
                break
        else:
            return found
        rounded = rounded or f"{ROUNDED}: {found}"
    return rounded


ROUNDED = "rounding alone"      # what a difference is called that `rounding` explains
PASSED = "refused"              # and a call that asks for what compiled ones refuse by name
LAID = "strides of gradients"   # and strides that come of how the gradient of a result lay
APART = (ROUNDED, PASSED, LAID)     # counted apart from faults


def bare(tree: Any) -> Any:
    """A description without strides."""
    if type(tree) is tuple and tree[:1] == ("tensor",):
        tree = (*tree[:5], (), *tree[6:])
    return type(tree)([bare(x) for x in tree]) if type(tree) in (tuple, list) else tree


def laid_out(text: str, backend: str, found: str, have: list[Outcome], want: list[Outcome]) -> bool:
    """Whether programs differ in strides alone, and agree where the gradients of their results lie
    as these do: for that layout compiled calls have theirs."""
    if "elements differ" in found or any(
            differing(bare(tuple(a)), bare(tuple(b)), "", rounding.difference)
            for a, b in zip(have, want, strict=True)):
        return False
    LIKE[0] = True
    try:
        return not any(differing(tuple(a), tuple(b), "", rounding.difference) for a, b in zip(
            outcomes(text, compiled(backend)), outcomes(text, lambda main: main), strict=True))
    finally:
        LIKE[0] = False


def shaken(text: str, seeds: range) -> list[list[Outcome]]:
    """The calls of a program eagerly, with errors of rounding."""
    runs = []
    for seed in seeds:
        EAGER.most = EAGER.ops + MOST
        try:
            with rounding.shaken(seed):
                runs.append(outcomes(text, lambda main: main))
        except (Exception, Endless):
            continue    # a branch took it elsewhere
        finally:
            EAGER.most = math.inf
    return runs


# Making programs smaller


def kind(text: str) -> str:
    """What two faults have in common if they are the same fault."""
    head, _, tail = text.partition(": ")
    return head if " of the " not in head else head.split(" of the ")[0]


def shrink(text: str, backend: str, tries: int = 300) -> str:
    """A smaller program with a fault of the same kind: statements and branches are left out."""
    want = kind(fault(text, backend))
    best = ast.parse(text)
    for _ in range(tries):
        for smaller in simpler(best):
            tries -= 1
            if tries < 0:
                return ast.unparse(best)
            try:
                found = fault(ast.unparse(smaller), backend)
            except (Unsuitable, SyntaxError, RecursionError):
                continue  # it no longer is a program
            if found and kind(found) == want:
                best = smaller
                break
        else:
            break
    return ast.unparse(best)


def simpler(tree: ast.Module) -> Iterator[ast.Module]:
    """Trees with one statement less, or one compound statement replaced by its body."""
    count = sum(isinstance(n, ast.stmt) for n in ast.walk(tree))
    for i in reversed(range(2, count)):
        for lift in (False, True):
            copy = ast.parse(ast.unparse(tree))
            cut = Cut(i, lift)
            made = ast.fix_missing_locations(cut.visit(copy))
            if cut.done:
                yield made


class Cut(ast.NodeTransformer):
    """Leaves out statement number `place`, or puts its body in its place."""

    def __init__(self, place: int, lift: bool) -> None:
        self.place, self.lift, self.count, self.done = place, lift, -1, False

    def visit(self, node: ast.AST) -> Any:
        if not isinstance(node, ast.stmt):
            return self.generic_visit(node)
        self.count += 1
        if self.count == self.place and not (
                isinstance(node, ast.FunctionDef) and node.name in ("main", "inputs")):
            body = getattr(node, "body", None)
            if self.lift:
                self.done = body is not None
                return body if body is not None else node
            self.done = not isinstance(node, ast.Pass)
            return ast.Pass()
        made = self.generic_visit(node)
        if len(getattr(made, "body", ())) > 1:
            made.body = [n for n in made.body if not isinstance(n, ast.Pass)] or [ast.Pass()]
        return made


# The command


class Report:
    """Counts of a run."""

    def __init__(self) -> None:
        self.programs = self.unsuitable = 0
        self.apart = dict.fromkeys(APART, 0)
        self.faults: list[tuple[int, str, str]] = []

    def text(self, seconds: float) -> str:
        s = stats()
        return (f"{self.programs} programs in {seconds:.0f} s, {len(self.faults)} faults, "
                f"{self.apart[ROUNDED]} differ by rounding alone, {self.apart[LAID]} by strides of "
                f"gradients, {self.apart[PASSED]} refused; "
                f"{s['captures']} captures, {s['graphs']} graphs, {s['ops_captured']} ops in "
                f"graphs, {s['breaks']} breaks, {s['fallbacks']} calls run eagerly, "
                f"{s['specialised']} graphs made static; "
                f"{1 - OUTSIDE.ops / max(EAGER.ops, 1):.1%} of {EAGER.ops} executed ops in graphs")


def texts(seeds: range, data: bool, wide: bool) -> Iterator[tuple[int, str]]:
    """Programs of the grammar."""
    return ((seed, grammar.write(seed, data, wide)) for seed in seeds)


def phrase_texts(count: int, start: int) -> Iterator[tuple[int, str]]:
    """Programs of one phrase each of `assigned`, `idioms` and `handling`, `count` times."""
    tables = (*idioms.IDIOMS, *handling.HANDLING, handling.STEPS, *assigned.ASSIGNED)
    for n, phrase in enumerate(p for table in tables for p in table):
        left = count
        for seed in range(start + 1000 * n, start + 1000 * n + 20 * count):
            with contextlib.suppress(grammar.Rejected):
                text = grammar.alone(phrase, seed)
                left -= 1
                yield seed, text
            if not left:
                break


def run(programs: Iterator[tuple[int, str]], backend: str, native: int, small: bool) -> Report:
    """Runs programs; every `native`-th through the C compiler."""
    report = Report()
    for n, (seed, text) in enumerate(programs):
        name = "inductor" if native and n % native == native - 1 else backend
        try:
            found = fault(text, name)
        except Unsuitable:
            report.unsuitable += 1
            continue
        report.programs += 1
        if not found:
            continue
        apart = kind(found) in APART
        if apart:
            report.apart[kind(found)] += 1
        else:
            report.faults.append((seed, name, found))
        print(f"seed {seed} ({name}): {' '.join(found.split())}", flush=True)
        if small and not apart:
            print(shrink(text, name), flush=True)
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0, help="the first program's number")
    parser.add_argument("--backend", default="loops", help="reference, loops or inductor")
    parser.add_argument("--native", type=int, default=0, help="every N-th program through C")
    parser.add_argument("--level", type=int, default=2, help="optimisation level of C")
    parser.add_argument("--no-data", action="store_true", help="programs without graph breaks")
    parser.add_argument("--show", action="store_true", help="print the program and stop")
    parser.add_argument("--small", action="store_true", help="make failing programs smaller")
    parser.add_argument("--wide", action="store_true", help="more kinds of phrases")
    parser.add_argument("--phrases", type=int, default=0,
                        help="programs of one phrase each, N of every newer phrase")
    parser.add_argument("--dynamic", action="store_true", help="all sizes are symbols")
    parser.add_argument("--static", action="store_true", help="no sizes are symbols")
    given = parser.parse_args()
    DYNAMIC[0] = True if given.dynamic else False if given.static else None
    LEVEL[0] = given.level
    if given.show:
        print(grammar.write(given.seed, not given.no_data, given.wide))
        return
    COUNTERS.reset()
    start = time.time()
    programs = phrase_texts(given.phrases, given.seed) if given.phrases else texts(
        range(given.seed, given.seed + given.count), not given.no_data, given.wide)
    report = run(programs, given.backend, given.native, given.small)
    print(report.text(time.time() - start))


if __name__ == "__main__":
    main()
