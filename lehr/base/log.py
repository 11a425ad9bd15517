"""What lehr tells while it works: channels printed on request, warnings given once, stage dumps.

`LEHR_LOG=fusion,guards` prints channels to standard error. `LEHR_DUMP=folder` makes one folder per
compiled graph with its stages as numbered text files.
"""

from __future__ import annotations

import difflib
import os
import sys
import threading
import time
import warnings

from lehr.base import options

CHANNELS = {
    "breaks": "graph breaks, with the user's line and the remedy",
    "cache": "hits, misses and why, evictions",
    "capture": "what the bytecode machine does",
    "emit": "generated source",
    "fusion": "what was fused, what was not, and why not",
    "graph": "the captured graphs",
    "guards": "guards made, and guards that failed",
    "memory": "memory plans and pools",
    "passes": "what each graph pass changed",
    "recompiles": "why a function was compiled again",
    "run": "foreign calls, threads, libraries",
    "toolchain": "compilers found and launched",
    "tune": "autotuning candidates and their times",
}


class LehrWarning(UserWarning):
    """A warning that lehr itself gives."""


class Channel:
    """One topic of messages. Falsy when it is not asked for, so that callers can skip work."""

    __slots__ = ("_on", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self._on: bool | None = None

    def __bool__(self) -> bool:
        if self._on is None:
            self._on = self.name in _wanted()
        return self._on

    def __call__(self, text: str, *args: object) -> None:
        """Print `text % args`, if the channel is asked for: one line of the text, one prefix."""
        if self:
            stamp = f"lehr {self.name} {time.monotonic() - _START:.3f}: "
            body = text % args if args else text
            sys.stderr.write("".join(f"{stamp}{line}\n" for line in body.splitlines() or [""]))


_START = time.monotonic()
_channels = {name: Channel(name) for name in CHANNELS}


def channel(name: str) -> Channel:
    """The channel of that name. Raises KeyError for a name not in CHANNELS."""
    return _channels[name]


def _wanted() -> frozenset[str]:
    names = [n.strip() for n in options.default().log.split(",") if n.strip()]
    for name in names:
        if name not in CHANNELS and name != "all":
            near = difflib.get_close_matches(name, CHANNELS, 1) or list(CHANNELS)
            warn_once(("log", name), f"LEHR_LOG: no channel {name!r}; is it {', '.join(near)}?")
    return frozenset(CHANNELS) if "all" in names else frozenset(names)


_said: set[object] = set()
_lock = threading.Lock()


def warn_once(key: object, text: str, category: type[Warning] = LehrWarning) -> bool:
    """Give a warning the first time this process sees `key`. True when it was given."""
    with _lock:
        if key in _said:
            return False
        _said.add(key)
    warnings.warn(text, category, stacklevel=3)
    return True


class Dump:
    """The stages of one compiled graph as files `00-capture.txt`, `01-...` in one folder.

    Falsy, and silent, when dumps are off.
    """

    __slots__ = ("_next", "folder")

    def __init__(self, folder: str = "") -> None:
        self.folder = folder
        self._next = 0

    def __bool__(self) -> bool:
        return bool(self.folder)

    def write(self, stage: str, data: str | bytes, suffix: str = "txt") -> str:
        """Write one stage and return the file's path; "" when off or when it cannot be written."""
        if not self.folder:
            return ""
        path = os.path.join(self.folder, f"{self._next:02d}-{_plain(stage)}.{suffix}")
        self._next += 1
        try:
            with open(path, "wb") as file:
                file.write(data.encode() if isinstance(data, str) else data)
        except OSError as error:
            warn_once(("dump", self.folder), f"stages are not dumped to {path}: {error.strerror}")
            return ""
        return path


def _plain(text: str) -> str:
    return "".join(c if c.isalnum() or c in "-_" else "-" for c in text)[:80] or "graph"


def dump(title: str, *, force: bool = False) -> Dump:
    """A new Dump under `LEHR_DUMP`; off where that is empty, unless `force` (after a failure)."""
    root = options.default().dump
    if not root and not force:
        return Dump()
    if not root:
        import tempfile

        root = tempfile.mkdtemp(prefix="lehr-dump-")
    try:
        os.makedirs(root, exist_ok=True)
        for number in range(len(os.listdir(root)), 1 << 30):  # another process may take a number
            folder = os.path.join(root, f"{number:04d}-{_plain(title)}")
            try:
                os.mkdir(folder)
                return Dump(folder)
            except FileExistsError:
                continue
    except OSError as error:
        warn_once(("dump", root), f"stages are not dumped to {root}: {error.strerror}")
    return Dump()


def reset() -> None:
    """Forget which warnings were given and which channels are on."""
    with _lock:
        _said.clear()
    refresh()


def refresh() -> None:
    """Forget which channels are on (after the options changed)."""
    for each in _channels.values():
        each._on = None
