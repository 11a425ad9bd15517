"""`torch.jit` as PyTorch itself has it under PYTORCH_JIT=0: scripted functions and modules are the
Python ones. `lehr.compile` is what makes them fast; saved TorchScript cannot be read.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any, Final, NoReturn, TypeVar

from lehr.nn.module import Module

__all__ = ["Final"]

F = TypeVar("F")


class TracerWarning(Warning):
    """Given by PyTorch's tracer, which lehr has no need of."""


class Attribute:
    """A value and its type."""

    def __init__(self, value: Any, type: Any) -> None:
        self.value, self.type = value, type


class ScriptModule(Module):
    """A module whose methods are scripted: in lehr an ordinary one."""


class ScriptFunction:
    """A function that was scripted: in lehr functions stay what they are, none is an instance."""


RecursiveScriptModule = ScriptModule
TopLevelTracedModule = ScriptModule


def script(obj: F, optimize: Any = None, _frames_up: int = 0, _rcb: Any = None,
           example_inputs: Any = None) -> F:
    """`obj` itself: a module, function or class runs as Python."""
    return obj


def trace(func: Any = None, example_inputs: Any = None, optimize: Any = None,
          check_trace: bool = True, check_inputs: Any = None, check_tolerance: float = 1e-5,
          strict: bool = True, *, _force_outplace: bool = False, example_kwarg_inputs: Any = None,
          **other: Any) -> Any:
    """`func` itself: a module or function runs as Python, also where its path depends on values."""
    return func


def trace_module(mod: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
    """`mod` itself."""
    return mod


def _decorator(fn: F) -> F:
    return fn


export = script_method = script_if_tracing = _script_if_tracing = _overload = _decorator
_overload_method = interface = _decorator


def unused(fn: F) -> F:
    """`fn` itself."""
    return fn


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """As a decorator, with or without arguments: the function itself."""
    return drop if callable(drop) else _decorator


def annotate(the_type: Any, the_value: F) -> F:
    """The value."""
    return the_value


def isinstance_(obj: Any, target_type: Any) -> bool:
    """Python's `isinstance`."""
    return isinstance(obj, target_type)


def is_scripting() -> bool:
    """False: code runs as Python."""
    return False


def is_tracing() -> bool:
    """False: code runs as Python."""
    return False


def freeze(mod: Any, preserved_attrs: Any = None, optimize_numerics: bool = True) -> Any:
    """The module itself, which must be in evaluation mode."""
    if isinstance(mod, Module) and mod.training:
        raise RuntimeError("Freezing is currently only implemented for modules in eval mode. "
                           "Please call .eval() on your module before freezing.")
    return mod


def optimize_for_inference(mod: Any, other_methods: Any = None) -> Any:
    """The module itself."""
    return mod


def fork(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Runs `func` at once; `wait` gives its result."""
    return types.SimpleNamespace(value=functools.partial(_given, func(*args, **kwargs)))


def _given(value: Any) -> Any:
    return value


def wait(future: Any) -> Any:
    """The result of `fork`."""
    return future.value()


@contextlib.contextmanager
def fuser(name: str) -> Iterator[None]:
    """Accepted: `lehr.compile` is what fuses."""
    yield


@contextlib.contextmanager
def optimized_execution(should_optimize: bool) -> Iterator[None]:
    """Accepted: `lehr.compile` is what optimizes."""
    yield


def set_fusion_strategy(strategy: Any) -> list[Any]:
    """Accepted: `lehr.compile` is what fuses."""
    return []


def enable_onednn_fusion(enabled: bool) -> None:
    """Accepted: `lehr.compile` is what fuses."""


def _refuse(what: str) -> NoReturn:
    raise NotImplementedError(
        f"{what}: lehr has no TorchScript files. Save and load weights: "
        "torch.save(model.state_dict(), path) and model.load_state_dict(torch.load(path))")


def save(m: Any, f: Any, _extra_files: Any = None) -> None:
    """NotImplementedError: there are no TorchScript files."""
    _refuse("torch.jit.save")


def load(f: Any, map_location: Any = None, _extra_files: Any = None,
         _restore_shapes: bool = False) -> Any:
    """NotImplementedError: there are no TorchScript files."""
    _refuse(f"torch.jit.load({inspect.cleandoc(str(f))})")
