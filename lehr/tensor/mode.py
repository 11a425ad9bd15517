"""Gradient and inference modes: context managers, decorators of functions and of generators."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from lehr.tensor.state import STATE


class Mode:
    """A context manager that also decorates: a function runs inside it, a generator at each of its steps."""

    def __call__(self, function: Callable[..., Any]) -> Any:
        if inspect.isclass(function):
            raise RuntimeError(f"Cannot decorate classes; it is ambiguous whether or not only the constructor "
                               f"or all methods should have the context manager applied; additionally, "
                               f"decorating a class as a context-manager will prevent using it as a class. "
                               f"To decorate {function.__name__}, decorate its methods.")
        if inspect.isgeneratorfunction(function):
            return _steps(self, function)

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with self.fresh():
                return function(*args, **kwargs)
        return wrapped

    def fresh(self) -> Any:
        """A mode of the same settings that is not entered yet: decorated functions may recurse."""
        return type(self)()

    def __enter__(self) -> Any:
        raise NotImplementedError

    def __exit__(self, *exc: Any) -> None:
        raise NotImplementedError


def _steps(mode: Mode, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        run = function(*args, **kwargs)
        try:
            with mode.fresh():
                value = run.send(None)
            while True:
                try:
                    given = yield value
                except GeneratorExit:
                    with mode.fresh():
                        run.close()
                    raise
                except BaseException as error:
                    with mode.fresh():
                        value = run.throw(error)
                else:
                    with mode.fresh():
                        value = run.send(given)
        except StopIteration as end:
            return end.value
    return wrapped


class _Recording(Mode):
    """Turns recording on or off inside."""

    record: bool
    before: bool

    def __new__(cls, function: Callable[..., Any] | None = None) -> Any:
        made = object.__new__(cls)
        return made if function is None else made(function)

    def __enter__(self) -> None:
        self.before = STATE.grad
        STATE.grad = self.record

    def __exit__(self, *exc: Any) -> None:
        STATE.grad = self.before


class no_grad(_Recording):
    """Nothing inside is recorded for backward."""

    record = False


class enable_grad(_Recording):
    """Operations inside are recorded again, within `no_grad`."""

    record = True


class set_grad_enabled(Mode):
    """Turns recording on or off at once; as a context manager, until its end."""

    def __init__(self, mode: bool) -> None:
        self.before = STATE.grad
        self.mode = mode
        STATE.grad = bool(mode)

    def __call__(self, function: Callable[..., Any]) -> Any:
        STATE.grad = self.before  # a decorator acts inside the function alone
        return super().__call__(function)

    def fresh(self) -> set_grad_enabled:
        return set_grad_enabled(self.mode)

    def __enter__(self) -> None:
        STATE.grad = bool(self.mode)

    def __exit__(self, *exc: Any) -> None:
        STATE.grad = self.before


class inference_mode(Mode):
    """`no_grad` whose results can never be recorded later, either."""

    def __new__(cls, mode: Any = True) -> Any:
        made = object.__new__(cls)
        if isinstance(mode, bool):
            made.mode = mode
            return made
        made.mode = True
        return made(mode)

    mode: bool

    def fresh(self) -> inference_mode:
        return inference_mode(self.mode)  # type: ignore[no-any-return]

    def __enter__(self) -> None:
        self.before = STATE.grad, STATE.inference
        STATE.inference = self.mode
        STATE.grad = not self.mode

    def __exit__(self, *exc: Any) -> None:
        STATE.grad, STATE.inference = self.before


def is_grad_enabled() -> bool:
    return STATE.grad


def is_inference_mode_enabled() -> bool:
    return STATE.inference
