"""`autograd.forward_ad`: forward mode, which lehr does not have; each entry says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def _refusal(name: str) -> Callable[..., Any]:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            f"torch.autograd.forward_ad.{name}: forward mode differentiation is not supported. For "
            "a directional derivative use torch.autograd.functional.jvp or torch.func.jvp, which "
            "differentiate backward twice.")
    refuse.__name__ = name
    refuse.__doc__ = "Raises: forward mode is not supported."
    return refuse


dual_level, make_dual, unpack_dual = (_refusal(n) for n in (
    "dual_level", "make_dual", "unpack_dual"))
enter_dual_level, exit_dual_level = (_refusal(n) for n in ("enter_dual_level", "exit_dual_level"))
