"""`lehr.compile`: captures calls, compiles their graphs, and calls the result instead.

This is where the stages meet: capture gives a `Request`, `BACKENDS` turn it into a `Compiled`, an
`Entry` puts
it in the place of the call. A `CompiledFunction` keeps its entries and tries them in order of last
use.
"""

from __future__ import annotations

import functools
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any

from lehr.base import log, options
from lehr.base.options import Options
from lehr.compiler import backend
from lehr.compiler.capture import guard
from lehr.compiler.capture.entry import CaptureBreak, Entry, capture_call
from lehr.compiler.counters import COUNTERS
from lehr.tensor.state import STATE


class Unsupported(RuntimeError):
    """A call cannot be compiled and falling back is not allowed (`fullgraph`, `LEHR_STRICT=1`)."""


class CompiledFunction:
    """A function whose calls run compiled. Safe to call from several threads."""

    def __init__(self, function: Callable[..., Any], opts: Options, make: Any) -> None:
        self.bound: tuple[Any, ...] = ()
        if isinstance(function, types.MethodType):
            self.bound, function = (function.__self__,), function.__func__
        functools.update_wrapper(self, function)
        self.function, self.options, self.backend = function, opts, make
        self.backend_name = make.__name__
        self.entries: list[Entry] = []
        self.lock = threading.RLock()
        self.eager = False      # the recompile limit is reached
        FUNCTIONS.add(self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.bound:
            args = self.bound + args
        for entry in self.entries:
            if entry.check(args, kwargs):
                return entry.run(args, kwargs)
        if STATE.tracer is not None or self.eager:
            return self.function(*args, **kwargs)
        return self.miss(args, kwargs)

    def __get__(self, obj: Any, owner: Any = None) -> Any:
        return self if obj is None else types.MethodType(self, obj)

    def miss(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """No entry is valid: captures the call, or runs it eagerly."""
        with self.lock:
            for entry in self.entries:
                if entry.check(args, kwargs):
                    return entry.run(args, kwargs)
            entry = self.capture(args, kwargs)  # type: ignore[assignment]
        if entry is None:
            COUNTERS.add("fallbacks")
            return self.function(*args, **kwargs)
        return entry.run(args, kwargs)

    def capture(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Entry | None:
        """A new entry; None where the call must run eagerly (said once)."""
        name = getattr(self.function, "__qualname__", repr(self.function))
        COUNTERS.add("captures")
        if self.entries:
            COUNTERS.add("recompiles")
            if len(self.entries) >= self.options.recompile_limit:
                self.limit(name, args, kwargs)
                return None
        try:
            captured = capture_call(self.function, args, kwargs)
            COUNTERS.add("bytecodes", captured.machine.count)
            if captured.fault is not None:
                return None  # the call raises: let it raise natively
            positional = positional_names(self.function, len(args))
            make = functools.partial(self.backend, options=self.options)
            entry = Entry(captured, make, positional, tuple(kwargs))
        except CaptureBreak as error:
            COUNTERS.add("breaks")
            if self.options.fullgraph or self.options.strict:
                raise Unsupported(str(error)) from None
            log.warn_once(f"break:{name}:{error.code}", f"{name} runs eagerly: {error}")
            return None
        except Exception as error:
            if self.options.strict or not self.options.suppress_errors:
                raise
            log.warn_once(f"failed:{name}", f"the compiler failed on {name}, which runs eagerly: "
                          f"{type(error).__name__}: {error}. Set LEHR_STRICT=1 to see where.")
            return None
        COUNTERS.add("graphs")
        COUNTERS.add("ops_captured", captured.tracer.ops)
        self.entries = [entry, *self.entries]
        return entry

    def limit(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The recompile limit: one warning that names the guard and both values."""
        entry = self.entries[0]
        arguments = {**dict(zip(entry.positional, args, strict=False)), **kwargs}
        why = guard.explain(entry.captured.facts, arguments) or "other arguments"
        text = (f"{name} was compiled {len(self.entries)} times, the limit (recompile_limit); "
                f"from now on it "
                f"runs eagerly. The last recompile was asked for because {why}.")
        if self.options.strict:
            raise Unsupported(text)
        log.warn_once(f"limit:{name}:{id(self)}", text)
        self.eager = True


FUNCTIONS: weakref.WeakSet[CompiledFunction] = weakref.WeakSet()


def reset() -> None:
    """Forgets every captured call: compiled functions start anew."""
    for each in list(FUNCTIONS):
        with each.lock:
            each.entries, each.eager = [], False


def positional_names(function: Callable[..., Any], count: int) -> tuple[str, ...]:
    """The names under which the machine knows the positional arguments."""
    code = getattr(function, "__code__", None)
    if code is not None and count <= code.co_argcount:
        return tuple(code.co_varnames[:count])
    return tuple(f"arg{i}" for i in range(count))


def compile(model: Any = None, *, fullgraph: bool = False, dynamic: bool | None = None,
            backend: Any = "inductor", mode: str | None = None,
            options: dict[str, Any] | None = None, disable: bool = False) -> Any:
    """Compiles a function or a Module: the returned callable acts the same, faster.

    fullgraph: a graph break is an error; dynamic: True symbolic sizes, False static, None as they
    change;
    mode: a name of `lehr.base.options.MODES`; options: names and values of `Options`; disable:
    return `model`.
    As a decorator with arguments it is called without `model`.
    """
    if model is None:
        return lambda m: compile(m, fullgraph=fullgraph, dynamic=dynamic, backend=backend,
                                 mode=mode, options=options, disable=disable)
    if disable:
        return model
    if not callable(model):
        raise TypeError(f"compile() takes a function or a Module, not {type(model).__name__}")
    changes: dict[str, Any] = dict(options or {})
    changes.update({k: v for k, v in (("fullgraph", fullgraph or None), ("dynamic", dynamic),
                                      ("mode", mode)) if v is not None})
    opts = default_options().replace(**changes)
    make = find_backend(backend)
    if hasattr(type(model), "forward") and hasattr(model, "_modules"):
        return compile_module(model, opts, make)
    return CompiledFunction(model, opts, make)


def default_options() -> Options:
    return options.default()


def find_backend(name: Any) -> Any:
    """A back end by name."""
    if callable(name):
        raise TypeError("custom back ends are registered with lehr.compiler.backend.register, by "
                        "name")
    try:
        return backend.BACKENDS[name]
    except KeyError:
        raise ValueError(f"unknown backend {name!r}; there are "
                         f"{', '.join(sorted(backend.BACKENDS))}"
                         ) from None


def compile_module(module: Any, opts: Options, make: Any) -> Any:
    """The module itself with a compiled call: an object of a subclass, on the same `__dict__`."""
    made = object.__new__(compiled_class(type(module)))  # type: ignore[arg-type, var-annotated]
    object.__setattr__(made, "__dict__", module.__dict__)
    object.__setattr__(made, "compiled_call", CompiledFunction(module.__call__, opts, make))
    object.__setattr__(made, "plain", module)
    return made


@functools.cache
def compiled_class(cls: type) -> type:
    """The subclass of a Module class whose objects call compiled code; named and pickled as the
    class.
    """
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self.compiled_call(*args, **kwargs)

    def reduce(self: Any, protocol: Any) -> Any:
        return recompiled, (self.plain, self.compiled_call.options, self.compiled_call.backend_name)

    body = {"__slots__": ("compiled_call", "plain"), "__call__": call, "__reduce_ex__": reduce,
            "__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
    return type(cls)(cls.__name__, (cls,), body)


def recompiled(plain: Any, opts: Options, name: str) -> Any:
    """A compiled module from its copy or pickle."""
    return compile_module(plain, opts, find_backend(name))
