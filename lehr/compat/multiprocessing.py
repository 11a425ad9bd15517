"""`torch.multiprocessing`: Python's own, and `spawn`. Tensors travel by value, those whose memory
is shared (`share_memory_()`) by reference within a fork.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from multiprocessing import *  # noqa: F403
from typing import Any, NoReturn


class ProcessException(Exception):
    """A process of `spawn` failed. `error_index` is its rank, `error_pid` its process."""

    def __init__(self, msg: str, error_index: int, pid: int) -> None:
        super().__init__(msg)
        self.msg, self.error_index, self.pid, self.error_pid = msg, error_index, pid, pid

    def __reduce__(self) -> Any:
        return type(self), (self.msg, self.error_index, self.pid)


class ProcessRaisedException(ProcessException):
    """It raised an exception, whose traceback is in the message."""


class ProcessExitedException(ProcessException):
    """It ended with `exit_code`, by the signal `signal_name` where that is not None."""

    def __init__(self, msg: str, error_index: int, error_pid: int, exit_code: int,
                 signal_name: str | None = None) -> None:
        super().__init__(msg, error_index, error_pid)
        self.exit_code, self.signal_name = exit_code, signal_name

    def __reduce__(self) -> Any:
        return type(self), (self.msg, self.error_index, self.pid, self.exit_code, self.signal_name)


def get_all_sharing_strategies() -> set[str]:
    """{"file_system"}: the one way."""
    return {"file_system"}


def get_sharing_strategy() -> str:
    """"file_system"."""
    return "file_system"


def set_sharing_strategy(new_strategy: str) -> None:
    """Accepted for PyTorch's names: tensors travel by value here."""
    if new_strategy not in ("file_system", "file_descriptor"):
        raise AssertionError(f"unknown sharing strategy {new_strategy!r}")


def _wrap(fn: Callable[..., Any], i: int, args: tuple[Any, ...], path: str) -> None:
    try:
        fn(i, *args)
    except KeyboardInterrupt:
        pass
    except Exception:  # noqa: BLE001  (its text goes to the parent)
        with open(path, "w") as file:
            file.write(traceback.format_exc())
        sys.exit(1)


class ProcessContext:
    """The processes of `spawn` and the files that they write their errors to."""

    def __init__(self, processes: list[Any], files: list[str]) -> None:
        self.processes, self.error_files = processes, files
        self.sentinels = {p.sentinel: i for i, p in enumerate(processes)}

    def pids(self) -> list[int]:
        """The processes' numbers."""
        return [int(p.pid) for p in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Waits at most `timeout` seconds for a process to end; True when all have.

        The first failure ends the others (after grace_period seconds) and is raised.
        """
        if not self.sentinels:
            return True
        ready = multiprocessing.connection.wait(list(self.sentinels), timeout=timeout)
        failed = None
        for sentinel in ready:
            index = self.sentinels.pop(sentinel)  # type: ignore[arg-type]
            self.processes[index].join()
            if self.processes[index].exitcode != 0:
                failed = index
                break
        if failed is None:
            if not self.sentinels:
                self._clean()
            return not self.sentinels
        for p in self.processes:
            if grace_period is not None:
                p.join(grace_period)
            if p.is_alive():
                p.terminate()
            p.join()
        try:
            self._raise(failed)
        finally:
            self._clean()

    def _clean(self) -> None:
        for path in self.error_files:
            if os.path.exists(path):
                os.unlink(path)

    def _raise(self, index: int) -> NoReturn:
        process = self.processes[index]
        code, pid = process.exitcode, process.pid
        if os.path.exists(self.error_files[index]) and os.path.getsize(self.error_files[index]):
            with open(self.error_files[index]) as file:
                text = file.read()
            raise ProcessRaisedException(
                f"\n\n-- Process {index} terminated with the following error:\n{text}", index, pid)
        if code < 0:
            name = signal.Signals(-code).name
            raise ProcessExitedException(f"process {index} terminated with signal {name}", index,
                                         pid, code, name)
        raise ProcessExitedException(f"process {index} terminated with exit code {code}", index,
                                     pid, code)


SpawnContext = ProcessContext


def start_processes(fn: Callable[..., Any], args: tuple[Any, ...] = (), nprocs: int = 1,
                    join: bool = True, daemon: bool = False, start_method: str = "spawn",
                    numa_options: Any = None) -> ProcessContext | None:
    """Runs fn(rank, *args) in `nprocs` processes; with `join` waits for all of them.

    ProcessRaisedException or ProcessExitedException for the first that fails.
    """
    context: Any = multiprocessing.get_context(start_method)
    files, processes = [], []
    for i in range(nprocs):
        handle, path = tempfile.mkstemp(prefix="lehr-spawn-", suffix=".txt")
        os.close(handle)
        files.append(path)
        process = context.Process(target=_wrap, args=(fn, i, args, path), daemon=daemon)
        process.start()
        processes.append(process)
    made = ProcessContext(processes, files)
    while join and not made.join():
        pass
    return None if join else made


def spawn(fn: Callable[..., Any], args: tuple[Any, ...] = (), nprocs: int = 1, join: bool = True,
          daemon: bool = False, start_method: str = "spawn") -> ProcessContext | None:
    """`start_processes` in fresh interpreters."""
    return start_processes(fn, args, nprocs, join, daemon, start_method)
