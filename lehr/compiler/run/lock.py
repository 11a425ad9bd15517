"""A lock between processes that dies with its holder.

flock on a small file: the kernel drops it when the holder is killed. The file is removed by the
holder; whoever then got the lock of a removed file notices and takes it again. A lock only saves
double work, so where it cannot be had (no flock on the file system, a holder that hangs) the
caller goes on without it.
"""

from __future__ import annotations

import contextlib
import os
import time
from types import TracebackType

from lehr.base import log

PATIENCE = 300.0  # seconds to wait for a holder that lives

_tell = log.channel("cache")


class Lock:
    """`with Lock(folder, name):` waits until no other process or thread is within."""

    def __init__(self, folder: str, name: str, patience: float = PATIENCE) -> None:
        self.path = os.path.join(folder, name)
        self.patience = patience
        self._file = -1

    def __enter__(self) -> None:
        start, pause, waited = time.monotonic(), 0.001, False
        while True:
            try:
                if self._take():
                    return
            except OSError as error:
                _tell("no lock %s: %s", self.path, error)
                return
            if not waited:
                _tell("waiting for another process that builds %s", os.path.basename(self.path))
                waited = True
            spent = time.monotonic() - start
            if spent > self.patience or spent > 1.0 and self._orphan():
                _tell("not waiting any longer for %s", self.path)
                return
            time.sleep(pause)
            pause = min(pause * 1.5, 0.05)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if self._file < 0:
            return
        import fcntl

        with contextlib.suppress(OSError):
            os.unlink(self.path)
        with contextlib.suppress(OSError):
            fcntl.flock(
                self._file, fcntl.LOCK_UN
            )  # a forked child shares it: closing is not enough
        os.close(self._file)
        self._file = -1

    def _take(self) -> bool:
        try:
            import fcntl
        except ImportError as error:
            raise OSError("this system has no flock") from error
        os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(file).st_ino != os.stat(self.path).st_ino:
                raise BlockingIOError
            os.truncate(file, 0)
            os.write(file, f"{os.getpid()} {os.uname().nodename}".encode())
        except (BlockingIOError, FileNotFoundError):  # held, or removed while we took it
            os.close(file)
            return False
        except OSError:
            os.close(file)
            raise
        self._file = file
        return True

    def _orphan(self) -> bool:
        """Whether the holder is dead while a forked child keeps its lock alive."""
        try:
            with open(self.path, encoding="utf-8") as file:
                words = file.read().split()
            if len(words) == 2 and words[1] == os.uname().nodename:
                os.kill(int(words[0]), 0)
        except ProcessLookupError:
            return True
        except (OSError, ValueError):
            return False
        return False

    @staticmethod
    def idle(path: str) -> bool:
        """Whether nobody holds the lock of this file."""
        import fcntl

        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(file)
        return True
