"""A graph break as data: what was captured up to an instruction, and how the call goes on.

`make_segment` reads the frame of a machine that halted there. The values that are still needed
become the result of the captured part, a `Bridge` runs the instruction natively, and each way on
(also the way into the handler of an exception) is a `Link` to the point where the rest starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from lehr.compiler.capture.breaks import CaptureBreak
from lehr.compiler.capture.bridge import Bridge, make_bridge
from lehr.compiler.capture.bytecode import Program
from lehr.compiler.capture.frame import Frame, read_stack
from lehr.compiler.capture.liveness import live
from lehr.compiler.capture.resume import (
    CARRIED,
    NULL,
    CannotResume,
    Kind,
    Point,
    Resume,
    handler_of,
    make_resume,
)
from lehr.compiler.capture.sequence import TupleValue
from lehr.compiler.capture.value import Value

NATIVE = frozenset(("recursion",))      # breaks behind which the callee runs natively as a whole
CALLS = {"CALL": lambda arg: arg[0], "CALL_KW": lambda arg: arg + 1, "CALL_EX": lambda arg: arg + 1}


class Link(NamedTuple):
    """A way on: the point, the places in the state of what it takes, and how many values are new.
    """

    point: Point
    picks: tuple[int, ...]
    new: int

    def state(self, state: Sequence[Any], new: Sequence[Any]) -> tuple[Any, ...]:
        return (*[state[i] for i in self.picks], *new)


class Segment(NamedTuple):
    """What follows a captured part that a graph break ended.

    broke    the break, for reports
    bridge   runs the instruction on the state; None: `rest` runs all that is left of the call
    links    one for each exit of the bridge
    thrown   where an exception of the instruction goes; None: out of the call
    callee   index in the state of the function that the instruction calls, if capture entered it
    """

    broke: CaptureBreak
    bridge: Bridge | None
    rest: Resume | None
    links: tuple[Link, ...]
    thrown: Link | None
    callee: int | None


def make_segment(frame: Frame, handling: Value | None, broke: CaptureBreak
                 ) -> tuple[Segment, TupleValue]:
    """The segment of a halted frame, and the state that its captured part has to give.

    handling: the exception being handled
    """
    program, at = frame.program, frame.at
    spec, stack = read_stack(frame.stack, handling)
    bound = [i for i in range(program.own) if frame.slots[i] is not None]
    needed = live(program)
    offset = program.instructions[at].offset
    try:
        bridge = make_bridge(program, at, Point(program.code, offset, spec, tuple(bound)))
    except CannotResume:
        bits = needed[at]
        kept = tuple(i for i in bound if bits >> i & 1)
        values = TupleValue(tuple, [*[frame.slots[i] for i in kept], *stack])  # type: ignore[misc]
        rest = make_resume(Point(program.code, offset, spec, kept))
        return Segment(broke, None, rest, (), None, None), values
    handler = handler_of(program.code, offset)
    bits = 0
    for out in bridge.exits:
        bits |= needed[out.at]
    if handler is not None:
        bits |= needed[program.starts[handler[2]]]
    slots = tuple(i for i in bound if bits >> i & 1)
    bridge = make_bridge(program, at, Point(program.code, offset, spec, slots))
    links = tuple(link(program, out.offset, out.spec, out.kept, spec, slots, needed[out.at])
                  for out in bridge.exits)
    thrown = None
    if handler is not None:
        depth = handler[3]
        thrown = link(program, offset, spec[:depth], depth, spec, slots,
                      needed[program.starts[handler[2]]], True)
    callee = None
    if len(broke.frames) > 1 and broke.code not in NATIVE:
        callee = callee_of(frame, spec, len(slots))
    values = TupleValue(tuple, [*[frame.slots[i] for i in slots], *stack])  # type: ignore[misc]
    return Segment(broke, bridge, None, links, thrown, callee), values


def link(program: Program, offset: int, spec: tuple[Kind, ...], kept: int, before: tuple[Kind, ...],
         slots: tuple[int, ...], needed: int, raises: bool = False) -> Link:
    """The link to a point at which `kept` entries of the old stack remain."""
    bound = tuple(i for i in slots if needed >> i & 1)
    carried = sum(kind in CARRIED for kind in before[:kept])
    picks = (*[slots.index(i) for i in bound], *range(len(slots), len(slots) + carried))
    point = Point(program.code, offset, spec, bound, raises)
    return Link(point, picks, point.carried - len(picks))


def callee_of(frame: Frame, spec: tuple[Kind, ...], slots: int) -> int | None:
    """Where in the state the called function is, if the instruction is a call."""
    ins = frame.program.instructions[frame.at]
    size = CALLS.get(ins.op)
    if size is None:
        return None
    low = len(spec) - size(ins.arg) - 2
    place = low + 1 if spec[low] == NULL else low
    return slots + sum(kind in CARRIED for kind in spec[:place])


__all__ = ["Link", "Segment", "make_segment"]
