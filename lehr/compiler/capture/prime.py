"""State that a first call would make, made before the capture goes on (`__lehr_prime__`).

An optimizer makes a parameter's state at its first step. Made for real while that step is captured,
it is found by the capture, and the first step has the graph of all others. A capture that is given
up takes it back: the program may have asked before the step whether it is there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from lehr.compiler.capture.arithmetic import NumberValue
from lehr.compiler.capture.mapping import DictValue
from lehr.compiler.capture.modes import enter, leave
from lehr.compiler.capture.value import GONE, Const, Value
from lehr.tensor.tensor import Tensor

if TYPE_CHECKING:
    from lehr.compiler.capture.tensors import TensorMachine


def prime(m: TensorMachine, function: Callable[..., Any], args: Sequence[Value]) -> None:
    """Calls a marked function for real; it reads its arguments as this call would find them, and
    writes to objects outside alone. Where those cannot be told, the capture makes the state itself.
    The mark gives, for these arguments, what takes back what a call makes; None: it makes nothing.
    """
    reals = [at_hand(m, v.force(m)) for v in args]
    if all(r is not None for r in reals):
        held = enter(None)
        try:
            undo = function.__lehr_prime__(*reals)  # type: ignore[attr-defined]
            if undo is not None:
                m.primed.append(undo)
                function(*reals)
        finally:
            leave(held)


def take_back(primed: list[Callable[[], Any]]) -> None:
    """What was made is gone."""
    while primed:
        primed.pop()()


def at_hand(m: TensorMachine, value: Value) -> Any:
    """What an object outside is by now, to be read: a dictionary that the program wrote to is a
    copy with the values of this call. None where that is not known."""
    real = value.real
    if isinstance(real, Tensor) and id(m.tracer.twins.get(id(real))) in m.tracer.moves.known:
        return None
    if not isinstance(value, DictValue) or not value.log or real is None:
        return real
    made = dict(real)
    for key, entry in value.log:
        entry = entry.force(m)
        if entry is GONE:
            made.pop(key, None)
        elif isinstance(entry, NumberValue) and entry.number.hint is not None:
            made[key] = entry.number.hint
        elif isinstance(entry, Const):
            made[key] = entry.value
        else:
            return None
    return made


__all__ = ["prime", "take_back"]
