"""Functions of the program that a backward calls: hooks, rules of `lehr.tensor.function`.

Where the backward is part of the captured call they are interpreted in their turn, like any
function. Where it comes later, its graph is made when the call has been captured, and all that such
a function may add to it are ops: what else it does (effects, errors, decisions on data) has its
place in that backward. The call is then captured anew with a graph break where the function is
handed over (`Late`).
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from lehr.compiler.capture.breaks import CaptureBreak
from lehr.compiler.capture.objects import FunctionValue, MethodValue
from lehr.compiler.capture.size import Resize
from lehr.compiler.capture.tracer import NeedsFlat
from lehr.compiler.capture.value import Signal, Value
from lehr.compiler.capture.wrapping import Base

if TYPE_CHECKING:
    from lehr.compiler.capture.calling import Args, Kwargs

OPEN = "__lehr_open__"      # attribute of a function of the framework's that is interpreted


class Late(Signal):
    """A function does more than compute gradients."""

    def __init__(self, code: types.CodeType) -> None:
        self.code = code
        super().__init__(f"{code.co_qualname} does more than compute gradients")


def code_of(value: FunctionValue | MethodValue) -> types.CodeType:
    inner: Any = value
    while isinstance(inner, MethodValue):
        inner = inner.function
    return inner.code  # type: ignore[no-any-return]


class Later(Base):
    """The part of the machine that calls such functions.

    late     the code of those that do more than compute gradients
    walking  the code of the one that runs behind the captured call
    packers  the code of saved-tensor hooks, whose effects come at the call
    """

    late: frozenset[types.CodeType] = frozenset()
    walking: types.CodeType | None = None
    packers: frozenset[types.CodeType] = frozenset()

    def hand_over(self, value: FunctionValue | MethodValue) -> None:
        """Native code gets a function of the program's."""
        code = code_of(value)
        if code in self.late:
            self.stop("late", code.co_qualname)

    def walk(self, value: FunctionValue | MethodValue, args: Args, kwargs: Kwargs) -> Value:
        """Calls one behind the captured call."""
        if code_of(value) in self.packers:
            return self.call(value, args, kwargs).force(self)
        effects, held, self.walking = len(self.effects), self.walking, code_of(value)
        try:
            made = self.call(value, args, kwargs).force(self)
        except (Resize, NeedsFlat, Late):
            raise
        except Exception as error:
            raise Late(self.walking) from error
        finally:
            code, self.walking = self.walking, held
        if len(self.effects) != effects:
            raise Late(code)
        return made

    def stop(self, code: str, detail: str = "", value: Any = None) -> Any:
        """Breaks inside an open function of the framework's are breaks where the program called
        it: what it has begun has no place outside."""
        if self.frame is not None and id(value) not in self.births:
            frames = self.frame.chain()
            for i, frame in enumerate(frames):
                if frame.code in OPEN_CODES:
                    raise CaptureBreak(code, detail, frames[:i], spots=tuple(
                        (f.program.code, f.line) for f in (*frames[:i], *frames[i + 1:])))
        return super().stop(code, detail, value)


OPEN_CODES: set[types.CodeType] = set()


def is_open(function: Any) -> bool:
    """Whether a function of the framework's is interpreted."""
    if OPEN not in function.__dict__:
        return False
    OPEN_CODES.add(function.__code__)
    return True


__all__ = ["OPEN", "Late", "Later", "code_of", "is_open"]
