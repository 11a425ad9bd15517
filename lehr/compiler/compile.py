"""`lehr.compile`: captures calls, compiles their graphs, and calls the result instead.

This is where the stages meet: capture gives a `Request`, `BACKENDS` turn it into a `Compiled`, an
`Entry` puts it in the place of the call. A `CompiledFunction` is the site where a call starts; see
`site` for graph breaks.
"""

from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Callable
from typing import Any

from lehr.base import options
from lehr.base.options import Options
from lehr.compiler import backend
from lehr.compiler.capture.tensors import COMPILED
from lehr.compiler.site import CallSite, Family, trimmed


class CompiledFunction(CallSite):
    """A function whose calls run compiled. Safe to call from several threads."""

    def __init__(self, function: Callable[..., Any], opts: Options, make: Any) -> None:
        super().__init__(Family(opts, make), function)
        functools.update_wrapper(self, self.function)
        self.options, self.backend_name = opts, make.__name__
        FUNCTIONS.add(self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.bound:
            args = self.bound + args
        try:
            for entry in self.entries:
                live = entry.check(args, kwargs)
                if live:
                    found = entry.run(args, kwargs, live)
                    if entry.segment is None:
                        return found
                    return self.family.go_on(entry, self.function, found)
            return self.call(args, kwargs)
        except BaseException as error:
            error.__traceback__ = trimmed(error.__traceback__)
            raise

    def __get__(self, obj: Any, owner: Any = None) -> Any:
        return self if obj is None else types.MethodType(self, obj)


FUNCTIONS: weakref.WeakSet[CompiledFunction] = weakref.WeakSet()


def reset() -> None:
    """Forgets every captured call: compiled functions start anew."""
    for each in list(FUNCTIONS):
        with each.lock:
            each.entries, each.eager, each.loose = [], False, frozenset()
            each.family.reset()


COMPILED.append(CompiledFunction)


def compile(model: Any = None, *, fullgraph: bool = False, dynamic: bool | None = None,
            backend: Any = "inductor", mode: str | None = None,
            options: dict[str, Any] | None = None, disable: bool = False) -> Any:
    """Compiles a function or a Module: the returned callable acts the same, faster.

    fullgraph: a graph break is an error; dynamic: True symbolic sizes, False static, None as they
    change; mode: a name of `lehr.base.options.MODES`; options: names and values of `Options`;
    disable: return `model`. As a decorator with arguments it is called without `model`.
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
