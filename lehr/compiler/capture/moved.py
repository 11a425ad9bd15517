"""`t.data = other` in a captured program: from there on a tensor stands on other memory.

The twin moves at once. Of a tensor from outside the move is an effect, replayed when all results
are built; what would have to tell its memory before from that after ends the graph before the
assignment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from lehr.compiler.capture.later import Late
from lehr.tensor.memory import move, same
from lehr.tensor.node import Saved
from lehr.tensor.tensor import Tensor

if TYPE_CHECKING:
    from lehr.compiler.capture.machine import Effect
    from lehr.compiler.capture.tracer import Traced


class Move(NamedTuple):
    """A tensor from outside that was moved: its twin, its memory and version at first, the effect.
    """

    twin: Tensor
    trace: Traced
    version: int
    effect: Effect


class Moves:
    """The moves of a capture, by the ids of twins; the last of each is replayed."""

    def __init__(self, tracer: Any) -> None:
        self.tracer = tracer
        self.known: dict[int, Move] = {}
        self.before: dict[int, Move] = {}       # by the id of the memory that was left

    def add(self, t: Tensor, new: Tensor) -> bool:
        """Whether the assignment could be followed."""
        tracer, machine = self.tracer, self.tracer.machine
        t, new = tracer.lift(None, (t, new))
        if same(t, new):
            return True
        outside, earlier = id(t) in tracer.reals, self.known.get(id(t))
        alike = new.dtype is t.dtype and new._shape == t._shape and new.device is t.device
        if not alike or t._view is not None or not t.is_leaf or tracer.choice is not None or (
                t.requires_grad and not outside) or (
                earlier is not None and earlier.version != t._storage.version):
            return False
        if machine.walking is not None:
            raise Late(machine.walking)
        trace, given = t._storage.trace, new.data
        if trace.tensor is t:       # views of the memory go on from it
            trace.tensor = Tensor._make(t._storage, t.dtype, t._shape, t._strides, t._offset)
            tracer._keep.append(trace.tensor)
        move(t, given)
        if outside:
            if earlier is not None:
                machine.effects.remove(earlier.effect)
                trace = earlier.trace
            machine.effect("data", machine.tensor_value(t), machine.tensor_value(given))
            made = Move(t, trace, t._storage.version, machine.effects[-1])
            self.known[id(t)] = self.before[id(trace)] = made
            machine.born(made)
        return True

    def shown(self, t: Tensor) -> None:
        """A tensor is handed out: not one on memory that another left, or a view of one that moved.
        """
        if not self.known:
            return
        found = self.before.get(id(t._storage.trace))
        base: Tensor | None = t
        while base is not None and found is None:
            found = self.known.get(id(base))
            view = base._view
            base = None if view is None else view.base if view.base is not None else (
                view.root if view.root is not base else None)
        if found is not None:
            self.stop(found)

    def settle(self, nodes: Iterable[Any]) -> None:
        """The capture is over; nodes: of the tape that results lead to."""
        for made in self.known.values():
            if any(t._storage.version != made.version for t in (made.twin, made.trace.tensor)):
                self.stop(made)     # written since: versions are counted before effects
        if self.known:
            for node in nodes:
                for t in saved(node.args):
                    if id(t) in self.known:
                        self.stop(self.known[id(t)])    # backward would read what is there then

    def stop(self, made: Move) -> None:
        self.tracer.machine.frame = None
        self.tracer.machine.stop("tensor-change", "data =", made)


def saved(args: Any) -> Iterator[Tensor | None]:
    """The tensors that a node keeps for its backward."""
    if isinstance(args, Saved):
        yield args.tensor
    elif isinstance(args, tuple | list):
        for a in args:
            yield from saved(a)


__all__ = ["Move", "Moves"]
