"""The modes of the framework around a capture: what a program turns on holds for it alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lehr.tensor.state import STATE

if TYPE_CHECKING:
    from lehr.compiler.capture.tracer import Tracer


def enter(tracer: Tracer | None) -> dict[str, Any]:
    """Puts a tracer in force; returns the modes to give to `leave`."""
    held = {k: getattr(STATE, k) for k in ("grad", "inference", "tracer", "autocast", "anomaly",
                                           "unbroken", "device")}
    STATE.tracer = tracer
    return held


def leave(held: dict[str, Any]) -> dict[str, Any]:
    """Restores the modes; returns those that the captured program left behind."""
    after = {k: getattr(STATE, k) for k in held if k != "tracer"}
    for k, v in held.items():
        setattr(STATE, k, v)
    return after


__all__ = ["enter", "leave"]
