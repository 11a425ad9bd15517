"""Counters of what the compiler did in this process: `lehr.compiler.stats()`."""

from __future__ import annotations

import threading
from collections.abc import Mapping

NAMES = {
    "captures": "calls that were captured",
    "graphs": "graphs compiled",
    "calls": "calls run by a compiled graph",
    "ops_captured": "tensor ops inside graphs, counted at capture",
    "breaks": "graph breaks met",
    "recompiles": "captures of a function that had one already",
    "specialised": "graphs compiled for their very sizes since a stage could not do otherwise",
    "fallbacks": "calls that ran eagerly because capture or compilation failed",
    "kernels": "kernels in compiled programs",
    "externs": "library calls in compiled programs",
    "host_calls": "ops that compiled programs run through their eager kernel",
    "launches": "steps of compiled programs: kernels, groups of kernels, library calls, host calls",
    "moved": "bytes that these steps read and write, where sizes are known",
    "weights_packed": "weights that were packed for later calls",
    "packed_calls": "calls run with weights that were packed before",
    "set_aside": "bytes that calls copied first, since data may stop them after writing there",
    "arena": "bytes of working memory that compiled programs lease",
    "bytecodes": "bytecode instructions interpreted by capture",
}


class Counters:
    """Thread-safe counts by name."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.lock = threading.Lock()
        self.counts = dict.fromkeys(names, 0)

    def add(self, name: str, n: int = 1) -> None:
        with self.lock:
            self.counts[name] += n

    def tick(self, name: str) -> None:
        """Adds 1 at the cost of nothing much, for every call: threads may lose some."""
        self.counts[name] += 1

    def reset(self) -> None:
        with self.lock:
            self.counts = dict.fromkeys(self.counts, 0)


COUNTERS = Counters(NAMES)


def stats() -> dict[str, int]:
    """A copy of the counts, see `NAMES`."""
    with COUNTERS.lock:
        return dict(COUNTERS.counts)
