"""Gradient and inference modes: context managers, decorators of functions and of generators."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any

from lehr.tensor.state import STATE


class Mode:
    """A context manager that also decorates: functions run inside it, generators at each step."""

    def __call__(self, function: Callable[..., Any]) -> Any:
        if inspect.isclass(function):
            raise RuntimeError(
                "Cannot decorate classes; it is ambiguous whether or not only the constructor or "
                "all methods should have the context manager applied; additionally, decorating a "
                "class as a context-manager will prevent using it as a class. To decorate "
                f"{function.__name__}, decorate its methods.")
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
                except BaseException as error:  # noqa: BLE001  (the generator gets it)
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
        STATE.grad = self.record and not STATE.inference

    def __exit__(self, *exc: Any) -> None:
        STATE.grad = self.before


class no_grad(_Recording):
    """Nothing inside is recorded for backward."""

    record = False


class enable_grad(_Recording):
    """Operations inside are recorded again, within `no_grad`; not within `inference_mode`."""

    record = True


class set_grad_enabled(Mode):
    """Turns recording on or off at once; as a context manager, until its end."""

    def __init__(self, mode: bool) -> None:
        self.before = STATE.grad
        self.mode = mode
        STATE.grad = bool(mode) and not STATE.inference

    def __call__(self, function: Callable[..., Any]) -> Any:
        STATE.grad = self.before  # a decorator acts inside the function alone
        return super().__call__(function)

    def fresh(self) -> set_grad_enabled:
        return set_grad_enabled(self.mode)

    def __enter__(self) -> None:
        STATE.grad = bool(self.mode) and not STATE.inference

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
        return inference_mode(self.mode)

    def __enter__(self) -> None:
        self.before = STATE.grad, STATE.inference
        STATE.inference = self.mode
        STATE.grad = not self.mode

    def __exit__(self, *exc: Any) -> None:
        STATE.grad, STATE.inference = self.before


class set_detect_anomaly(Mode):
    """Turns anomaly detection on or off at once; as a context manager, until its end.

    Recorded calls remember their place, and (with `check_nan`) a NaN gradient raises.
    """

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self.before = STATE.anomaly, STATE.check_nan
        self.mode, self.check_nan = mode, check_nan
        STATE.anomaly, STATE.check_nan = mode, check_nan

    def fresh(self) -> set_detect_anomaly:
        return type(self)(self.mode, self.check_nan)

    def __enter__(self) -> None:
        STATE.anomaly, STATE.check_nan = self.mode, self.check_nan

    def __exit__(self, *exc: Any) -> None:
        STATE.anomaly, STATE.check_nan = self.before


class detect_anomaly(set_detect_anomaly):
    """Anomaly detection inside the block."""

    def __init__(self, check_nan: bool = True) -> None:
        warnings.warn("Anomaly Detection has been enabled. This mode will increase the runtime and "
                      "should only be enabled for debugging.", stacklevel=2)
        self.before = STATE.anomaly, STATE.check_nan
        self.mode, self.check_nan = True, check_nan

    def fresh(self) -> detect_anomaly:
        return type(self)(self.check_nan)


def is_anomaly_enabled() -> bool:
    """Whether recorded calls remember their place."""
    return STATE.anomaly


def is_anomaly_check_nan_enabled() -> bool:
    """Whether NaN gradients raise in anomaly detection."""
    return STATE.check_nan


def is_grad_enabled() -> bool:
    """Whether operations are recorded."""
    return STATE.grad


def is_inference_mode_enabled() -> bool:
    """Whether results are inference tensors."""
    return STATE.inference


def is_compiling() -> bool:
    """Whether the code that asks is being captured by `lehr.compile`."""
    return STATE.tracer is not None
