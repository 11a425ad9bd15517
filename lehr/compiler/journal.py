"""What happened to the calls of one compiled function, as data: what `explain` reports.

Nothing of the program is kept: texts, lines, counts, and the compiled calls themselves, which the
function keeps anyway.
"""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Sequence
from typing import Any, NamedTuple

from lehr.compiler.capture.breaks import CaptureBreak, Place, place

OWN = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")


class Break(NamedTuple):
    """A graph break.

    name    the function that was captured
    code    a stable name of the kind of break, see `lehr.compiler.capture.breaks.REGISTRY`
    title, detail   what happened, and to what
    why, remedy     why capture cannot go on; what to write instead
    places  lines of the program, outermost call first, without lehr's own
    """

    name: str
    code: str
    title: str
    detail: str
    why: str
    remedy: str
    places: tuple[Place, ...]

    @property
    def reason(self) -> str:
        return f"{self.title}: {self.detail}" if self.detail else self.title

    @property
    def file(self) -> str:
        return self.places[-1].file if self.places else ""

    @property
    def line(self) -> int:
        return self.places[-1].line if self.places else 0

    @property
    def text(self) -> str:
        return self.places[-1].text if self.places else ""

    @property
    def user_stack(self) -> list[traceback.FrameSummary]:
        """The places as `traceback` has them."""
        return [traceback.FrameSummary(p.file, p.line, p.function, line=p.text)
                for p in self.places]


class Recompile(NamedTuple):
    """A call for which nothing that was compiled before is valid.

    name, place  the function and its line
    changes      (what the user calls it, how it differs from what the newest was compiled for)
    """

    name: str
    place: Place
    changes: tuple[tuple[str, str], ...]


class Fallback(NamedTuple):
    """A call that runs eagerly from now on, or as long as it is as it was."""

    name: str
    place: Place
    why: str


class Made(NamedTuple):
    """A compiled call: its `Entry`, and the seconds that capture and compilation took."""

    name: str
    place: Place
    entry: Any
    seconds: float


class Journal:
    """The events of one compiled function, in order."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.began = time.perf_counter()

    def add(self, event: Any) -> None:
        self.events.append(event)

    def broke(self, name: str, error: CaptureBreak) -> None:
        row = error.row
        places = tuple(p for p in error.places if not p.file.startswith(OWN)) or error.places
        self.add(Break(name, row.code, row.title, error.detail, row.explain, row.hint, places))

    def of(self, kind: type) -> list[Any]:
        return [e for e in list(self.events) if type(e) is kind]

    def clear(self) -> None:
        self.events = []


def place_of(code: Any, line: int = 0) -> Place:
    """The line where a code object begins, or another one of it."""
    if code is None:
        return Place("", 0, "", "")
    return place(code.co_filename, line or code.co_firstlineno, code.co_qualname)


__all__: Sequence[str] = ("Break", "Fallback", "Journal", "Made", "Recompile", "place_of")
