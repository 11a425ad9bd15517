"""Writes that happen or not, as a tensor says: how a captured program skips an optimizer's step."""

from __future__ import annotations

from typing import Any

from lehr.tensor.state import STATE


def possible() -> bool:
    """Whether a program is being captured, so that Python cannot look at the condition."""
    return STATE.tracer is not None


def choose(condition: Any) -> None:
    """From here on, memory is written only where `condition`, a bool tensor of no dimension, holds.
    """
    STATE.tracer.choose(condition)


def chosen() -> None:
    """The end of what `choose` began. Python objects must not have changed in between."""
    STATE.tracer.chosen()
