"""`torch.version`: which PyTorch lehr's API follows, and what it was built with."""

from __future__ import annotations

import functools
import re
from typing import Any

from lehr import __version__ as own

# The release of PyTorch whose names, defaults and checks lehr follows.
API = "2.9.0"


@functools.total_ordering
class Version(str):
    """A text that compares as a version, with texts, tuples of numbers and versions.

    Versions are compared by their release numbers (PEP 440); what follows them only breaks ties.
    """

    def _key(self) -> tuple[int, ...]:
        return _numbers(self)

    def __eq__(self, other: Any) -> bool:
        if isinstance(other, tuple):
            return self._key()[: len(other)] == other
        return str.__eq__(self, other)

    def __lt__(self, other: Any) -> bool:
        if isinstance(other, tuple):
            return self._key() < other
        return _numbers(self) < _numbers(str(other))

    def __gt__(self, other: Any) -> bool:
        if isinstance(other, tuple):
            return self._key() > other
        return _numbers(self) > _numbers(str(other))

    def __le__(self, other: Any) -> bool:
        return not self > other

    def __ge__(self, other: Any) -> bool:
        return not self < other

    __hash__ = str.__hash__


def _numbers(text: str) -> tuple[int, ...]:
    match = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(int(n) for n in match.group().split(".")) if match else ()


__version__ = Version(f"{API}+lehr{own}")
debug = False
cuda: str | None = None
hip: str | None = None
xpu: str | None = None
rocm: str | None = None
git_version: str | None = None
