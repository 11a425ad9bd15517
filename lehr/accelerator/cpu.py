"""`torch.cpu`: the CPU seen as a device with streams, of which each op is done when it returns."""

from __future__ import annotations

import contextlib
from typing import Any


class Stream:
    """The one stream of the CPU."""

    def wait_stream(self, stream: Any) -> None:
        """Every op is done already."""

    def synchronize(self) -> None:
        """Every op is done already."""


class Event:
    """A moment; every op before it is done."""

    def query(self) -> bool:
        """True."""
        return True

    def record(self, stream: Any = None) -> None:
        """Every op is done already."""

    def synchronize(self) -> None:
        """Every op is done already."""

    def wait(self, stream: Any = None) -> None:
        """Every op is done already."""


_THE = Stream()


def is_available() -> bool:
    """True."""
    return True


def device_count() -> int:
    """1."""
    return 1


def current_device() -> str:
    """"cpu"."""
    return "cpu"


def set_device(device: Any) -> None:
    """There is one."""


def synchronize(device: Any = None) -> None:
    """Every op is done already."""


def is_initialized() -> bool:
    """True."""
    return True


def current_stream(device: Any = None) -> Stream:
    """The one stream."""
    return _THE


def stream(stream: Any) -> Any:
    """A context in which the one stream is in use."""
    return contextlib.nullcontext()
