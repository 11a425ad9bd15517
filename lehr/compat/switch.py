"""Switches of TorchScript's executor in `torch._C`, which programs set before they time something.

There is no such executor: as under PYTORCH_JIT=0 they switch nothing, and remember what they were
told.
"""

from __future__ import annotations

from collections.abc import Callable


def _remembering(name: str, first: bool) -> Callable[[bool], bool]:
    """A setter that returns the value before."""
    held = [first]

    def switch(value: bool) -> bool:
        before, held[0] = held[0], bool(value)
        return before
    switch.__name__ = name
    return switch


_jit_set_profiling_mode = _remembering("_jit_set_profiling_mode", True)
_jit_set_profiling_executor = _remembering("_jit_set_profiling_executor", True)
_jit_set_nvfuser_enabled = _remembering("_jit_set_nvfuser_enabled", False)


def _silent(name: str) -> Callable[[bool], None]:
    """A setter that returns nothing."""
    def switch(value: bool) -> None:
        bool(value)
    switch.__name__ = name
    return switch


_jit_override_can_fuse_on_cpu = _silent("_jit_override_can_fuse_on_cpu")
_jit_override_can_fuse_on_gpu = _silent("_jit_override_can_fuse_on_gpu")
_jit_set_texpr_fuser_enabled = _silent("_jit_set_texpr_fuser_enabled")


def _get_tracing_state() -> None:
    """None: nothing is ever traced by TorchScript."""
