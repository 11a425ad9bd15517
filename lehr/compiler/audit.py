"""`options={"audit": True}`, `LEHR_AUDIT=1`: every compiled call is also made eagerly, and
compared.

The eager call comes first; then all it did is undone (see `world`), and the compiled call is made
on the same state. Results, exceptions, everything reachable that either has changed, printed text,
random states and gradients have to be the same but for rounding. What a call does to files, or
other things outside of Python, happens twice.
"""

from __future__ import annotations

import contextlib
import io
import math
import re
import reprlib
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np

from lehr.base import log
from lehr.compiler import check
from lehr.compiler.capture.tensors import COMPILED
from lehr.compiler.compile import CompiledFunction
from lehr.compiler.locate import Fault, locate
from lehr.compiler.site import CompilerError
from lehr.compiler.stance import CURRENT
from lehr.compiler.world import (
    Item,
    Saved,
    Shown,
    Unreadable,
    World,
    show_tensor,
    tensors,
)
from lehr.tensor import gradient
from lehr.tensor.state import STATE
from lehr.tensor.tensor import Tensor

CLOSE = 1e-4        # relative, for Python numbers and printed ones
LOOSE = 100.0       # how much more rounding may be where every compiled program is sound
NUMBER = re.compile(r"[-+]?\d+\.\d*(?:[eE][-+]?\d+)?|[-+]?\d+[eE][-+]?\d+|\bnan\b|[-+]?\binf\b")


class AuditError(CompilerError, AssertionError):
    """A compiled call is not what the eager call is.

    path   what differs first: `result[0]`, `self.weight`, `gradient of x`, `printed text`
    text   how
    fault  what the compiler did wrong, None where its programs do what their graphs say
    """

    def __init__(self, name: str, place: Any, path: str, text: str, fault: Fault | None) -> None:
        self.path, self.text, self.fault = path, text, fault
        why = str(fault) if fault is not None else (
            "Every compiled program computes what its graph says: capture is at fault, by a guard, "
            "an effect, or an op recorded wrongly.")
        where = f"{place}\n" if place.file else ""
        super().__init__(f"{name}, compiled, is not what it is eagerly\n{where}"
                         f"  {path}: {text}\n{why}")


class Outcome(NamedTuple):
    """What a call gave: its result, or the error that it raised; and what it printed."""

    result: Any
    error: Exception | None
    printed: str

    def roots(self) -> dict[str, Any]:
        return {"result": self.result} if self.error is None else {"the exception": self.error}


class Auditing(threading.local):
    """Whether this thread is inside an audited call."""

    inside = False


AUDITING = Auditing()


class AuditedFunction(CompiledFunction):
    """A compiled function that is audited at every call."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if AUDITING.inside or STATE.tracer is not None or STATE.disabled or CURRENT.skip:
            return super().__call__(*args, **kwargs)
        given = self.bound + args
        names = self.positional(given)
        world = World({**dict(zip(names, given, strict=True)), **kwargs, self.name: self.function})
        try:
            before = world.save()
        except Unreadable as error:
            log.warn_once(f"audit:{self.name}", f"{self.name} is not audited: {error}, which "
                          "cannot be read twice")
            return super().__call__(*args, **kwargs)
        AUDITING.inside = True
        try:
            outcome = self.compared(world, before, lambda: self.native(given, kwargs),
                                    lambda: super(AuditedFunction, self).__call__(*args, **kwargs))
        finally:
            AUDITING.inside = False
        sys.stdout.write(outcome.printed)
        if outcome.error is not None:
            raise outcome.error
        return outcome.result

    def compared(self, world: World, before: Saved, eager: Callable[[], Any],
                 compiled: Callable[[], Any]) -> Outcome:
        """The compiled call, once it is known to be what the eager one is."""
        known = {path: (t, t.grad_fn) for path, t in tensors(world.walk())}
        STATE.disabled = True
        try:
            outcome = made_by(eager)
            printed, items = outcome.printed, list(world.picture(outcome.roots()))
            grads = list(gradients(world, outcome, known))
        finally:
            STATE.disabled = False
            before.load()
        del outcome
        runs: list[check.Run] = []
        check.RUNS.active = runs
        try:
            outcome = made_by(compiled)
            if isinstance(outcome.error, CompilerError | check.StageError):
                raise outcome.error     # the compiler's own
            refused = any(isinstance(item.shown, Exception) for item in grads)

            def differs(factor: float) -> tuple[str, str] | None:
                found = first_difference(items, world.picture(outcome.roots()), factor)
                if found is None and not alike(outcome.printed, printed, factor):
                    found = "printed text", f"{outcome.printed!r}, expected {printed!r}"
                if found is None and not refused:
                    after = world.save(outcome.roots())
                    found = first_difference(grads, gradients(world, outcome, known), factor)
                    after.load()
                return found
            found = differs(1.0)
        except check.StageError as error:
            fault = Fault(error.stage, str(error), None, None)
            raise AuditError(self.name, self.place(), "a stage", error.stage, fault) from None
        finally:
            check.RUNS.active = None
        if found is not None:
            at_fault = locate(runs)
            # Sound programs, and a step that makes much of little: rounding alone.
            if at_fault is not None or differs(LOOSE) is not None:
                raise AuditError(self.name, self.place(), *found, at_fault)
        return outcome


COMPILED.append(AuditedFunction)


def made_by(call: Callable[[], Any]) -> Outcome:
    with contextlib.redirect_stdout(io.StringIO()) as text:
        try:
            result, error = call(), None
        except Exception as raised:  # noqa: BLE001  (compared, and raised again)
            result, error = None, raised
    return Outcome(result, error, text.getvalue())


def gradients(world: World, outcome: Outcome, known: dict[str, Any]) -> Iterator[Item]:
    """The gradients of what the call made, for fixed tangents, with respect to the tensors that
    were there before. known: path -> (tensor, its grad_fn before)
    """
    before = {id(t): fn for t, fn in known.values()}
    ends = [t for _, t in tensors(world.walk(outcome.roots()))
            if t.grad_fn is not None and before.get(id(t)) is not t.grad_fn]
    starts = [(path, t) for path, (t, _) in known.items() if t.requires_grad]
    if not ends or not starts:
        return
    try:
        found = gradient.grad(ends, [t for _, t in starts], [tangent(t) for t in ends],
                              retain_graph=True, allow_unused=True)
    except check.StageError:
        raise
    except Exception as error:  # noqa: BLE001  (where eager refuses, nothing is compared)
        yield Item("the gradients", error)
        return
    for (path, _), g in zip(starts, found, strict=True):
        yield Item(f"the gradient of {path}", None if g is None else show_tensor(g)._replace(
            strides=()))


def tangent(t: Tensor) -> Tensor:
    """A tangent without regularities, the same at every call."""
    numbers = np.cos(np.arange(t.numel()) * 0.7 + 0.3).reshape(tuple(t.shape))
    return Tensor._from_array(np.asarray(numbers)).to(t.dtype)


# -- comparing

def first_difference(want: Iterable[Item], have: Iterable[Item], factor: float = 1.0
                     ) -> tuple[str, str] | None:
    """(path, how it differs) of the first items that are not alike. factor: for rounding."""
    for a, b in zip_longest(want, have):
        if a is None or b is None or a.path != b.path:
            there = (b or a).path
            return there, ("is there when compiled" if a is None else
                           "is not there when compiled" if b is None else f"expected {a.path}")
        if a.first != b.first:
            texts = [f"the same as {x.first}" if x.first else "an object of its own"
                     for x in (b, a)]
            return a.path, f"{texts[0]}, expected {texts[1]}"
        text = unlike(b.shown, a.shown, factor)
        if text:
            return a.path, text
    return None


def unlike(have: Any, want: Any, factor: float = 1.0) -> str:
    """How two things differ beyond rounding; empty where they do not."""
    if type(have) is not type(want):
        return f"{short(have)}, expected {short(want)}"
    if isinstance(want, Shown):
        for name in want._fields[:-1]:
            a, b = getattr(have, name), getattr(want, name)
            if a != b:
                return f"{name} is {a}, expected {b}"
        have, want = have.array, want.array
    if isinstance(want, np.ndarray):
        if want.dtype.kind in "OSUMm" or want.dtype.names:
            return "" if np.array_equal(have, want) else "other elements"
        return check.difference(have, want, 0.0, factor)
    if type(want) in (tuple, list):
        if len(have) != len(want):
            return f"{short(have)}, expected {short(want)}"
        return next((text for a, b in zip(have, want, strict=True)
                     if (text := unlike(a, b, factor))), "")
    return "" if alike(have, want, factor) else f"{short(have)}, expected {short(want)}"


def short(value: Any) -> str:
    if isinstance(value, Shown):
        return f"a {value.type.__name__}"
    return value.__qualname__ if isinstance(value, type) else reprlib.repr(value)


def alike(have: Any, want: Any, factor: float = 1.0) -> bool:
    """Whether two constants are equal but for rounding; texts where the numbers in them are."""
    if isinstance(want, str):
        a, b = NUMBER.findall(have), NUMBER.findall(want)
        return have == want or NUMBER.split(have) == NUMBER.split(want) and all(
            alike(float(x), float(y), factor) for x, y in zip(a, b, strict=True))
    if isinstance(want, float | np.floating):
        close = factor * CLOSE
        return math.isclose(have, want, rel_tol=close, abs_tol=close * CLOSE) or (
            math.isnan(have) and math.isnan(want))
    if isinstance(want, complex):
        return alike(have.real, want.real, factor) and alike(have.imag, want.imag, factor)
    return bool(have == want)
