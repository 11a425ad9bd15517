"""A lock between processes that dies with its holder, by the package filelock.

A lock only saves double work, so where it cannot be had (no flock on the file system, a holder that
hangs) the caller goes on without it. Its file is removed by the holder; two processes that meet in
that moment may both get it.
"""

from __future__ import annotations

import contextlib
import os
import time
from types import TracebackType
from typing import Any

from lehr.base import log

PATIENCE = 300.0    # seconds to wait for a holder that lives

_tell = log.channel("cache")


class Lock:
    """`with Lock(folder, name):` waits until no other process or thread is within."""

    def __init__(self, folder: str, name: str, patience: float = PATIENCE) -> None:
        self.path = os.path.join(folder, name)
        self.patience = patience
        self._held: Any = None

    def __enter__(self) -> None:
        start, pause = time.monotonic(), 0.0
        while not self._take(pause):
            if not pause:
                _tell("waiting for another process that builds %s", os.path.basename(self.path))
            if time.monotonic() - start > self.patience:
                _tell("not waiting any longer for %s", self.path)
                return
            pause = min(1.0, self.patience)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 at: TracebackType | None) -> None:
        if self._held is not None:
            with contextlib.suppress(OSError):
                os.unlink(self.path)
            self._held.release()
            self._held = None

    def _take(self, wait: float) -> bool:
        """Whether the lock is ours, or cannot be had here at all."""
        import filelock
        try:
            os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
            found = filelock.FileLock(self.path, timeout=wait, mode=0o600, thread_local=False)
            found.acquire(poll_interval=0.02)
            self._held = found
        except filelock.Timeout:
            return False
        except (OSError, NotImplementedError) as error:
            _tell("no lock %s: %s", self.path, error)
        return True

    @classmethod
    def idle(cls, path: str) -> bool:
        """Whether nobody holds the lock of this file."""
        lock = cls(*os.path.split(path))
        taken = lock._take(0.0)
        if lock._held is not None:
            lock._held.release()
        return taken
