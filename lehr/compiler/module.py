"""Compiled modules: the module itself, with a call that runs compiled code."""

from __future__ import annotations

import copy
import functools
from typing import Any


class OptimizedModule:
    """What compiled modules are, beside being modules of their own class."""

    __slots__ = ()

    plain: Any
    compiled_call: Any

    @property
    def _orig_mod(self) -> Any:
        """The module that was compiled; both share all their state."""
        return self.plain


def is_module(model: Any) -> bool:
    return hasattr(type(model), "forward") and hasattr(model, "_modules")


def make_module(module: Any, call: Any) -> Any:
    """An object of a subclass of the module's class, on the module's own `__dict__`.

    call: the compiled function of `module.__call__`
    """
    made = object.__new__(compiled_class(type(module)))  # type: ignore[arg-type, var-annotated]
    object.__setattr__(made, "__dict__", module.__dict__)
    object.__setattr__(made, "compiled_call", call)
    object.__setattr__(made, "plain", module)
    return made


@functools.cache
def compiled_class(cls: type) -> type:
    """The subclass of a Module class whose objects call compiled code; it is named as the class,
    and calling it makes a plain module.
    """
    def new(made: type, *args: Any, **kwargs: Any) -> Any:
        return cls(*args, **kwargs)

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self.compiled_call(*args, **kwargs)

    def reduce(self: Any, protocol: Any) -> Any:
        return recompiled, (self.plain, *self.compiled_call.recipe)

    def shallow(self: Any) -> Any:
        return recompiled(copy.copy(self.plain), *self.compiled_call.recipe)

    body = {"__slots__": ("compiled_call", "plain"), "__new__": new, "__call__": call,
            "__reduce_ex__": reduce, "__copy__": shallow, "__module__": cls.__module__,
            "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
    return type(cls)(cls.__name__, (cls, OptimizedModule), body)


def recompiled(plain: Any, changes: dict[str, Any], backend: Any) -> Any:
    """A compiled module, or function, from its copy or pickle.

    changes, backend: the options and the back end that `lehr.compile` was given
    """
    from lehr.compiler.compile import compile
    return compile(plain, backend=backend, options=changes)
