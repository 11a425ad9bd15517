"""`lehr.compile`: captures calls, compiles their graphs, and calls the result instead.

This is where the stages meet: capture gives a `Request`, `BACKENDS` turn it into a `Compiled`, an
`Entry` puts it in the place of the call. A `CompiledFunction` is the site where a call starts; see
`site` for graph breaks.
"""

from __future__ import annotations

import functools
import sys
import threading
import types
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from lehr.base import options
from lehr.base.options import Options
from lehr.compiler import backend, custom, setting, stance
from lehr.compiler.capture import directive
from lehr.compiler.capture.stopped import Stopped
from lehr.compiler.capture.tensors import COMPILED
from lehr.compiler.counters import COUNTERS
from lehr.compiler.module import OptimizedModule, is_module, make_module, recompiled
from lehr.compiler.run import onednn
from lehr.compiler.site import CallSite, Family, trimmed
from lehr.compiler.stance import CURRENT


class CompiledFunction(CallSite):
    """A function whose calls run compiled. Safe to call from several threads.

    recipe: (options given, back end), what `lehr.compile` needs to make it again
    """

    def __init__(self, function: Callable[..., Any], changes: Mapping[str, Any], chosen: Any
                 ) -> None:
        super().__init__(Family(changes, find_backend(chosen)), function)
        functools.update_wrapper(self, self.function)
        self.recipe = dict(changes), chosen
        self._torchdynamo_orig_callable = function
        with LOCK:
            FUNCTIONS.add(self)

    @property
    def options(self) -> Options:
        return self.family.options

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.bound:
            args = self.bound + args
        try:
            if CURRENT.skip:
                return self.native(args, kwargs)
            error = None
            for entry in self.entries:
                live = entry.check(args, kwargs)
                if live:
                    try:
                        found = entry.run(args, kwargs, live)
                    except Stopped as stopped:
                        error = stopped.__cause__
                        break
                    COUNTERS.tick("calls")
                    if entry.segment is None:
                        return found
                    return self.family.go_on(entry, self.function, found)
            else:
                return self.call(args, kwargs)
            return self.instead(args, kwargs, error)
        except BaseException as error:
            error.__traceback__ = trimmed(error.__traceback__)
            raise

    def __get__(self, obj: Any, owner: Any = None) -> Any:
        return self if obj is None else types.MethodType(self, obj)

    def __reduce__(self) -> Any:
        """A function that is found under its name is pickled as that name."""
        place: Any = sys.modules.get(getattr(self.function, "__module__", None) or "")
        for part in self.name.split("."):
            place = getattr(place, part, None)
        if place is self:
            return self.name
        return recompiled, (self._torchdynamo_orig_callable, *self.recipe)

    def __copy__(self) -> CompiledFunction:
        return self

    def __repr__(self) -> str:
        return f"<compiled function {self.name}>"


LOCK = threading.Lock()
FUNCTIONS: weakref.WeakSet[CompiledFunction] = weakref.WeakSet()


def reset() -> None:
    """Forgets every captured call: compiled functions start anew."""
    with LOCK:
        every = list(FUNCTIONS)
    for each in every:
        with each.lock:
            each.restart()
            each.family.reset()


def refuse_stance(m: Any, function: Any) -> None:
    m.stop("requested", "lehr.compiler.set_stance() acts on the calls that follow")


COMPILED.append(CompiledFunction)
directive.DIRECTIVES[stance.change.__code__] = refuse_stance


def compile(model: Any = None, *, fullgraph: bool = False, dynamic: bool | None = None,
            backend: Any = "inductor", mode: str | None = None,
            options: dict[str, Any] | None = None, disable: bool = False) -> Any:
    """Compiles a function or a Module: the returned callable acts the same, faster.

    model: compiled once more where it is compiled already; without it, a decorator is returned.
    fullgraph: a graph break is an error. dynamic: True symbolic sizes, False static, None as they
    change. backend: a name of `list_backends(())`, or a callable, see `lehr.compiler.custom`.
    mode: a name of `lehr.base.options.MODES`. options: names and values of `Options`, or of
    `torch._inductor.config`. disable: return `model`.

    OptionError (a ValueError) for an unknown option, mode or value, ValueError for an unknown back
    end, TypeError for what cannot be called.
    """
    if model is None:
        return lambda m: compile(m, fullgraph=fullgraph, dynamic=dynamic, backend=backend,
                                 mode=mode, options=options, disable=disable)
    if disable:
        return model
    if not callable(model):
        raise TypeError(f"compile() takes a function or a Module, not {type(model).__name__}")
    changes = setting.translate(options or {})
    changes.update({k: v for k, v in (("fullgraph", fullgraph or None), ("dynamic", dynamic),
                                      ("mode", mode)) if v is not None})
    opts = default_options().replace(**changes)     # raises what is wrong with them
    onednn.parts(opts)
    if isinstance(model, OptimizedModule):
        model = model.plain
    if isinstance(model, CompiledFunction):
        model = model._torchdynamo_orig_callable
    kind = function_kind(opts)
    if is_module(model):
        return make_module(model, kind(model.__call__, changes, backend))
    return kind(model, changes, backend)


def function_kind(opts: Options) -> type[CompiledFunction]:
    if not opts.audit:
        return CompiledFunction
    from lehr.compiler.audit import AuditedFunction
    return AuditedFunction


def default_options() -> Options:
    return options.default()


def find_backend(chosen: Any) -> Any:
    """A back end by name, or the one that a callable is."""
    if callable(chosen):
        return custom.backend(chosen)
    try:
        return backend.BACKENDS[chosen]
    except (KeyError, TypeError):
        raise ValueError(f"unknown backend {chosen!r}; there are "
                         f"{', '.join(sorted(backend.BACKENDS))}, or a callable") from None


def list_backends(exclude_tags: Any = ("debug", "experimental")) -> list[str]:
    """The names of back ends, without those of some tags."""
    hidden = set(exclude_tags or ())
    return sorted(n for n in backend.BACKENDS if hidden.isdisjoint(backend.TAGS.get(n, ())))


def register_backend(compiler_fn: Any = None, name: str | None = None, tags: Any = ()) -> Any:
    """Gives a callable back end a name; without it, a decorator. See `lehr.compiler.custom`."""
    if compiler_fn is None:
        return lambda fn: register_backend(fn, name, tags)
    key = name or compiler_fn.__name__
    backend.BACKENDS[key], backend.TAGS[key] = custom.backend(compiler_fn), tuple(tags)
    return compiler_fn


def lookup_backend(compiler_fn: Any) -> Any:
    """The back end of a name."""
    return find_backend(compiler_fn)
