"""Threads and matrix products for generated code: `runtime.h` is what a kernel sees.

The thread pool (`pool.c`) is compiled once per toolchain and reached through the table of function
pointers that every kernel gets, so all kernels of a process share its threads.
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
from collections.abc import Callable

from lehr.base.options import Options, default
from lehr.compiler.run import library, target
from lehr.compiler.run.blas import blas

_FOLDER = os.path.dirname(os.path.abspath(__file__))
_lock = threading.Lock()
_wanted = 0  # what set_num_threads was told; 0: nothing yet

FLAGS = ("-pthread", "-D_GNU_SOURCE")
TASK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


def text(name: str) -> str:
    """A C source of this folder."""
    with open(os.path.join(_FOLDER, name), encoding="utf-8") as file:
        return file.read()


@functools.cache
def header() -> str:
    """The C text that generated sources begin with: `lehr_task`, `lehr_runtime`."""
    return text("runtime.h")


def level(most: int) -> Options:
    """The options in force, with the C compiler's level of optimisation at most so high."""
    options = default()
    return options.replace(optimize=min(options.optimize, most))


class Pool:
    """The loaded runtime. `table` is the address of the `lehr_runtime` to pass to kernels."""

    def __init__(self, threads: int) -> None:
        source = header() + text("product.c") + text("pool.c") + text("word.c")
        # Nothing here is worth the time of a thorough optimizer.
        built = self.library = library.build([source], "pool", level(1), FLAGS)
        setup = built.function(
            "lehr_setup", ctypes.c_void_p, ctypes.c_int64, *[ctypes.c_void_p] * 2
        )
        found = blas()
        if found is None:
            self.table: int = setup(0, None, None)
        else:
            self.table = setup(found.bits, found.sgemm, found.dgemm)
            if found.own and found.set_threads is not None:
                found.set_threads(1)  # products are cut into tasks of the pool
        self._resize = built.function("lehr_resize", ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
        self._started = built.function("lehr_started", ctypes.c_int64)
        slot = ctypes.c_void_p.from_address(self.table).value
        self._parallel = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(
            slot or 0
        )
        self.threads = 0
        self.resize(threads)

    def resize(self, threads: int, spin_ns: int = -1) -> None:
        """Use that many threads, the caller among them; waits for a job that runs.

        `spin_ns`: how long a thread looks out for more work before it sleeps; -1: as before.
        RuntimeError from within a task.
        """
        got = self._resize(threads, spin_ns)
        if got < 0:
            raise RuntimeError("the number of threads cannot be changed from within a kernel")
        self.threads = got

    @property
    def started(self) -> int:
        """Worker threads that exist: none before the first job, nor after a fork."""
        return self._started()

    def parallel(self, task: Callable[[int, int], object] | int, chunks: int, ctx: int = 0) -> None:
        """Run `task(chunk, worker)` for each chunk: a Python function, or a C function's address.

        For tests and tools: kernels call the table's `parallel` themselves.
        """
        if isinstance(task, int):
            self._parallel(task, ctx, chunks)
            return
        body = TASK(lambda _, chunk, worker: task(chunk, worker) and None)
        self._parallel(ctypes.cast(body, ctypes.c_void_p), None, chunks)


_pool: Pool | None = None


def pool() -> Pool:
    """The pool of this process, built or fetched from the cache at first use.

    Raises what `library.build` raises.
    """
    global _pool
    if _pool is None:
        with _lock:
            if _pool is None:
                _pool = Pool(get_num_threads())
    return _pool


def set_num_threads(threads: int) -> None:
    """How many CPU threads compiled code uses, from the next call on. ValueError below 1."""
    global _wanted
    if threads < 1:
        raise ValueError(f"set_num_threads expects a positive number, not {threads}")
    with _lock:
        _wanted = threads
        if _pool is not None:
            _pool.resize(threads)


def get_num_threads() -> int:
    """How many CPU threads compiled code uses: what was set, LEHR_THREADS, or what is allowed."""
    return _wanted or default().threads or target.processors()


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
