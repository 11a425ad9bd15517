"""What a program says about its own capture: parts that stay eager, breaks on purpose, breaks
forbidden.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from lehr.tensor.mode import Mode
from lehr.tensor.state import STATE

REASON = "__lehr_reason__"


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """A function that always runs eagerly: a compiled function that calls it has a graph break
    there.

    fn: a function, a method or a Module (whose `forward` is replaced); without it, a decorator.
    recursive: compiled functions that it calls run eagerly, too. reason: shown in reports.
    """
    if fn is None:
        return lambda function: disable(function, recursive, reason=reason)
    if hasattr(type(fn), "forward") and hasattr(fn, "_modules"):
        fn.forward = disable(fn.forward, recursive, reason=reason)
        return fn
    if not callable(fn) or isinstance(fn, type):
        raise TypeError("disable() takes a function, a method or a Module, not "
                        f"{type(fn).__name__}")

    @functools.wraps(fn)
    def eager(*args: Any, **kwargs: Any) -> Any:
        held = STATE.disabled
        STATE.disabled = held or recursive
        try:
            return fn(*args, **kwargs)
        finally:
            STATE.disabled = held
    setattr(eager, REASON, reason or "")
    return eager


DISABLED = disable(len).__code__     # the code of every disabled function


def graph_break(msg: str = "") -> None:
    """A graph break at this line; nothing outside compiled code. msg: shown in reports."""


class error_on_graph_break(Mode):
    """A context manager or decorator: inside, a graph break is an error, or is none again
    (`False`).
    """

    def __init__(self, error: bool) -> None:
        self.error = error

    def fresh(self) -> error_on_graph_break:
        return error_on_graph_break(self.error)

    def __enter__(self) -> None:
        self.before = STATE.unbroken
        STATE.unbroken = self.error

    def __exit__(self, *exc: Any) -> None:
        STATE.unbroken = self.before


def refuse_disabled(m: Any, function: Any) -> None:
    reason = function.__dict__.get(REASON)
    name = f"{function.__qualname__} is marked with lehr.compiler.disable"
    m.stop("disabled", f"{name} ({reason})" if reason else name)


def refuse_break(m: Any, function: Any) -> None:
    m.stop("requested", "lehr.compiler.graph_break()")


# Code of a function -> what the machine does instead of interpreting a call of it.
DIRECTIVES: dict[Any, Callable[[Any, Any], None]] = {
    DISABLED: refuse_disabled, graph_break.__code__: refuse_break}
