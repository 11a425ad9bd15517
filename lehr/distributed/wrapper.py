"""Modules whose activations are computed again in the backward pass, as wrappers around them."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

from lehr.nn.module import Module
from lehr.utils.checkpoint import checkpoint


class CheckpointImpl(enum.Enum):
    """Which way of `utils.checkpoint.checkpoint` is used."""

    REENTRANT = enum.auto()
    NO_REENTRANT = enum.auto()


PREFIX = "_checkpoint_wrapped_module"


class CheckpointWrapper(Module):
    """Calls `mod` through `checkpoint_fn`. Its state is that of `mod`, under the same names;
    attributes and items are looked up there, too."""

    def __init__(self, mod: Module, checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
                 checkpoint_fn: Callable[..., Any] | None = None, **checkpoint_fn_kwargs: Any
                 ) -> None:
        super().__init__()
        self._checkpoint_wrapped_module = mod
        self.checkpoint_impl = checkpoint_impl
        self._words = checkpoint_fn_kwargs
        if checkpoint_fn is None:
            checkpoint_fn = checkpoint
            self._words = {"use_reentrant": checkpoint_impl is CheckpointImpl.REENTRANT,
                           **checkpoint_fn_kwargs}
        self.checkpoint_fn = checkpoint_fn
        self._register_state_dict_hook(_without_prefix)
        self.register_load_state_dict_pre_hook(_with_prefix)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__(PREFIX), name)

    def __getitem__(self, key: Any) -> Any:
        inner: Any = self._checkpoint_wrapped_module
        return inner[key]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if self.checkpoint_impl is CheckpointImpl.REENTRANT and kwargs:
            raise ValueError("reentrant checkpoints take no keyword arguments: use "
                             "CheckpointImpl.NO_REENTRANT")
        return self.checkpoint_fn(self._checkpoint_wrapped_module, *args, **self._words, **kwargs)

    def named_parameters(self, *args: Any, **kwargs: Any) -> Any:
        """The wrapped module's, under its names."""
        for name, p in super().named_parameters(*args, **kwargs):
            yield name.replace(f"{PREFIX}.", ""), p


def _without_prefix(module: Module, state: dict[str, Any], prefix: str, *rest: Any) -> None:
    inner = f"{prefix}{PREFIX}."
    for name in [k for k in state if k.startswith(inner)]:
        state[prefix + name[len(inner):]] = state.pop(name)


def _with_prefix(module: Module, state: dict[str, Any], prefix: str, *rest: Any) -> None:
    for name in [k for k in state if k.startswith(prefix)]:
        state[f"{prefix}{PREFIX}.{name[len(prefix):]}"] = state.pop(name)


def checkpoint_wrapper(module: Module,
                       checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
                       checkpoint_fn: Callable[..., Any] | None = None, **kwargs: Any
                       ) -> CheckpointWrapper:
    """The module, wrapped."""
    return CheckpointWrapper(module, checkpoint_impl, checkpoint_fn, **kwargs)


def apply_activation_checkpointing(
        model: Module, checkpoint_wrapper_fn: Callable[[Module], Module] = checkpoint_wrapper,
        check_fn: Callable[[Module], bool] = lambda module: True,
        auto_wrap_policy: Callable[..., bool] | None = None) -> None:
    """Wraps, in place, every module within `model` (not `model` itself) that `check_fn` chooses."""
    if auto_wrap_policy is not None:
        raise NotImplementedError("auto_wrap_policy: choose the modules with check_fn")
    for name, child in list(model.named_children()):
        apply_activation_checkpointing(child, checkpoint_wrapper_fn, check_fn)
        if check_fn(child):
            setattr(model, name, checkpoint_wrapper_fn(child))
