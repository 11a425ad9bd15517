"""What data stops: a compiled call that raises is made again eagerly, and has to raise there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lehr.ops.registry import Op
from lehr.tensor import dispatch
from lehr.tensor.state import STATE

# What a program raises because of data.
DATA_ERRORS = (IndexError, RuntimeError, ValueError, ZeroDivisionError)


class Stopped(Exception):
    """The compiled program stopped and left nothing written: the call can run eagerly instead.

    Its cause is the error.
    """


class Unconfirmed(RuntimeError):
    """A compiled call raised where the same call does not raise eagerly: a fault of lehr's."""


class Watch:
    """The errors of ops that run one by one; stands in the place of a profile."""

    def __init__(self, before: Any) -> None:
        self.before = before
        self.raised: list[BaseException] = []

    def __call__(self, op: Op, args: tuple[Any, ...]) -> Any:
        STATE.profile = self.before
        try:
            return dispatch.call(op, args)
        except DATA_ERRORS as error:
            self.raised.append(error)
            raise
        finally:
            STATE.profile = self


def watched(run: Callable[[], Any]) -> tuple[Any, list[BaseException]]:
    """What `run` gives, and what its ops raised."""
    watch = Watch(STATE.profile)
    STATE.profile = watch
    try:
        return run(), watch.raised
    finally:
        STATE.profile = watch.before


def confirmed(error: BaseException, run: Callable[[], Any], told: Callable[[str], None]) -> Any:
    """What `run` gives or raises, which makes eagerly what `error` stopped; `told` is called with a
    text where none of its ops raises the like, before an error of its own goes on."""
    watch = Watch(STATE.profile)
    STATE.profile = watch
    try:
        made = run()
    except Exception as other:
        STATE.profile = watch.before
        watch.raised.append(other)
        compare(error, watch.raised, told)
        raise
    finally:
        STATE.profile = watch.before
    compare(error, watch.raised, told)
    return made


def compare(error: BaseException, found: list[BaseException], told: Callable[[str], None]) -> None:
    """Calls `told` where none of the errors `found` is what `error` was about."""
    # Eager ops tell of an index now by one type, now by another.
    wanted = DATA_ERRORS if type(error) is IndexError else type(error)
    if not any(isinstance(e, wanted) for e in found):
        told(f"the compiled call raised {type(error).__name__}: {error}, but the same call made "
             "eagerly did not")


__all__ = ["DATA_ERRORS", "Stopped", "Unconfirmed", "Watch", "confirmed", "watched"]
