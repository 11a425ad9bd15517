"""What a program says about its own capture: parts that stay eager, breaks on purpose, breaks
forbidden.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from lehr.base import options, tree
from lehr.tensor.create import from_numpy
from lehr.tensor.legacy import set_default_tensor_type
from lehr.tensor.mode import Mode
from lehr.tensor.promote import set_default_dtype
from lehr.tensor.setting import set_num_threads
from lehr.tensor.show import get_printoptions, set_printoptions
from lehr.tensor.state import STATE
from lehr.tensor.tensor import Tensor

REASON = "__lehr_reason__"
WHOLE = "__lehr_whole__"            # attribute of a function that runs on symbolic tensors
CONSTANT = "__lehr_fixed__"         # attribute of a function whose results never change


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


def allow_in_graph(fn: Any) -> Any:
    """Marks a function, or each of several: capture does not look into it but runs it on symbolic
    tensors; the ops that it calls become part of the graph.

    Its Python effects happen at capture alone, and no guard is made for what it reads. TypeError
    for what is no Python function.
    """
    return mark(fn, WHOLE, "allow_in_graph")


def assume_constant_result(fn: Any) -> Any:
    """Marks a function that always returns the same for the same arguments: it runs at capture,
    and compiled code holds its result.

    The arguments must be constants or objects from outside, no tensors that the program computes.
    """
    return mark(fn, CONSTANT, "assume_constant_result")


def mark(fn: Any, name: str, what: str) -> Any:
    if isinstance(fn, list | tuple):
        return [mark(f, name, what) for f in fn]
    function = getattr(fn, "__func__", fn)
    if not isinstance(function, types.FunctionType):
        raise TypeError(f"{what}() takes a Python function, not {type(fn).__name__}")
    setattr(function, name, True)
    return fn


def nested_compile_region(fn: Any = None) -> Any:
    """Marks a region that is compiled once however often it is called: equal kernels always are."""
    return nested_compile_region if fn is None else fn


def wrap_numpy(fn: Callable[..., Any]) -> Any:
    """A function of NumPy arrays as one of tensors; it runs eagerly, and nothing is recorded for
    backward.
    """
    def arrays(*args: Any, **kwargs: Any) -> Any:
        found = fn(*to_arrays(args), **to_arrays(kwargs))
        return tree.map(lambda x: from_numpy(x) if isinstance(x, np.ndarray) else x, found)
    functools.update_wrapper(arrays, fn)
    return disable(arrays, reason="wrap_numpy")


def to_arrays(given: Any) -> Any:
    return tree.map(lambda x: x.numpy() if isinstance(x, Tensor) else x, given)


def is_exporting() -> bool:
    """Whether a program is being exported: not by `lehr.compile`."""
    return False


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


def refuse_setting(m: Any, function: Any) -> None:
    m.stop("process-setting", f"{function.__name__}()")


# Code of a function -> what the machine does instead of interpreting a call of it.
DIRECTIVES: dict[Any, Callable[[Any, Any], None]] = {
    DISABLED: refuse_disabled, graph_break.__code__: refuse_break,
    **{f.__code__: refuse_setting for f in (
        set_default_dtype, set_default_tensor_type, set_printoptions, get_printoptions,
        set_num_threads, options.default, options.set_default)}}
