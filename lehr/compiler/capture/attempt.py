"""Capturing a call: as a whole, or up to a place where its state can be handed on."""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import NamedTuple

from lehr.compiler.capture.array import MODELS
from lehr.compiler.capture.breaks import CaptureBreak
from lehr.compiler.capture.entry import Captured
from lehr.compiler.capture.fact import Fact
from lehr.compiler.capture.forget import abandon
from lehr.compiler.capture.generator import check_dropped
from lehr.compiler.capture.machine import Outcome
from lehr.compiler.capture.modes import enter, leave
from lehr.compiler.capture.prime import take_back
from lehr.compiler.capture.resume import CannotResume
from lehr.compiler.capture.segment import make_segment
from lehr.compiler.capture.size import Policy, Resize
from lehr.compiler.capture.source import Source
from lehr.compiler.capture.tensors import TensorMachine
from lehr.compiler.capture.tracer import NeedsFlat
from lehr.tensor.state import STATE

STATIC = Policy(dynamic=False)
TensorMachine.followed.update(MODELS)
Begin = Callable[[TensorMachine], Outcome]


class Attempt(NamedTuple):
    """What came of capturing a call.

    captured  None: the call must run natively, as long as the facts hold
    steps     instructions interpreted, over all runs of the machine
    """

    captured: Captured | None
    facts: list[Fact]
    steps: int


def capture_call(begin: Begin, loose: frozenset[Source] = frozenset(), brittle: bool = False,
                 broke: Callable[[CaptureBreak], None] | None = None,
                 policy: Policy = STATIC, flat: frozenset[int] = frozenset(),
                 late: frozenset[CodeType] = frozenset()) -> Attempt:
    """Captures one call; nothing outside changes.

    begin: starts the call on a machine; loose, brittle, policy, flat, late: see `TensorMachine`;
    broke: called with the first graph break. At a break, the call is captured anew up to the
    instruction of the outermost frame, or up to an earlier one if the state there cannot be handed
    on.
    """
    first: CaptureBreak | None = None
    halt, count = -1, 0
    while True:
        machine = TensorMachine(halt, flat, loose, brittle, policy, late)
        try:
            captured = capture_once(machine, begin, first)
            return Attempt(captured, captured.facts, count + machine.count)
        except Resize as needs:
            policy = policy.but(needs)
        except NeedsFlat as needs:
            flat = flat | {id(needs.storage.origin)}
        except CaptureBreak as error:
            error.__traceback__ = error.__context__ = None
            if first is None:
                first = error
                if broke is not None:
                    broke(error)
            if error.count < 0 or 0 <= halt <= error.count:
                facts, first.frames = machine.guards(), ()
                abandon(machine)
                return Attempt(None, facts, count + machine.count)
            halt = error.count
        abandon(machine)
        count += machine.count


def capture_once(machine: TensorMachine, begin: Begin, broke: CaptureBreak | None) -> Captured:
    """One run of the machine; `broke` is the break that it halts for."""
    held, hooks = enter(machine.tracer), (STATE.saved, STATE.no_hooks)
    captured = None
    try:
        segment = None
        with machine.sizes.deciding(True):
            try:
                value, fault = begin(machine)
            except CaptureBreak as stop:
                if stop.code != "halt" or broke is None:
                    raise
                machine.halt = -1   # hooks may yet be interpreted, where the tape is walked
                segment, value = make_segment(stop.frames[0], machine.handling[-1], broke)
                fault = None
            machine.frame = None
            check_dropped(machine, value, fault)
            after = leave(held)
            STATE.tracer = machine.tracer
            captured = Captured(machine, value, fault, after, held, segment)
            return captured
    except CaptureBreak as error:
        error.forbidden = STATE.unbroken
        raise
    except CannotResume as error:
        raise CaptureBreak("unmodelled", str(error)) from None
    finally:
        leave(held)
        if captured is None:    # given up, perhaps between `__enter__` and `__exit__`
            STATE.saved, STATE.no_hooks = hooks
            take_back(machine.primed)
