"""Measuring: check results against each other, then time all columns in interleaved rounds."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from lehr.cli.bench.process import FRAMEWORKS, Client, Failure, Framework
from lehr.cli.bench.workload import MEMORY, STARTS, WORKLOADS, YARDSTICKS, Workload

SAMPLE_SECONDS = 0.05
FEWEST_ROUNDS = 3
PROFILED = 5  # calls with clocks


@dataclass(frozen=True)
class Settings:
    """How to measure. `seconds` bounds the timing of one cell, `timeout` any one command."""

    threads: int
    rounds: int = 15
    seconds: float = 10.0
    timeout: float = 600.0
    starts: int = 1
    tuning: str = "default"
    library: str | None = None  # of one more column of lehr


@dataclass
class Cell:
    """One workload in one column. Times are seconds of one call; `problem` says why there are none.

    The samples are means of short bursts, `wall` and `cpu` in pairs; `cpu` counts every thread.
    `size` holds bytes, where memory is what is measured.
    """

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    size: list[float] = field(default_factory=list)
    detail: dict = field(default_factory=dict)
    problem: str | None = None
    wrong: bool = False

    def median(self, what: str) -> float | None:
        values = getattr(self, what)
        return statistics.median(values) if values else None

    def spread(self, what: str) -> float | None:
        """Half the distance between the quartiles, as a share of the median."""
        values = getattr(self, what)
        if len(values) < 2:
            return None
        low, _, high = statistics.quantiles(values, n=4, method="inclusive")
        return (high - low) / 2 / statistics.median(values)

    def summary(self) -> dict:
        kinds = ("size",) if self.size else ("wall", "cpu")
        figures = {f"{w}_{f}": getattr(self, f)(w) for w in kinds for f in FIGURES}
        samples = {w: getattr(self, w) for w in kinds}
        state = {"problem": self.problem, "wrong": self.wrong}
        return {**figures, **state, "samples": samples, **self.detail}


FIGURES = ("median", "spread")
Column = tuple[str, str]  # framework, mode
Say = Callable[[str], None]


def columns(frameworks: list[Framework]) -> list[Column]:
    return [(framework.name, mode) for framework in frameworks for mode in framework.modes]


def difference(got: np.ndarray, want: np.ndarray, row: Workload) -> str | None:
    """Why two results differ by more than the workload allows, or None."""
    if got.shape != want.shape:
        return f"shape {list(got.shape)} where {list(want.shape)} was expected"
    if np.allclose(got, want, row.relative, row.absolute):
        return None
    return f"differs by {np.abs(got.astype(np.float64) - want).max():.2e} at most"


class Bench:
    """Workers for some frameworks, kept alive over all workloads."""

    def __init__(self, names: list[str], settings: Settings, cache: Path, say: Say) -> None:
        self.frameworks = [FRAMEWORKS[name] for name in names]
        if settings.library:
            lehr = self.frameworks[0]
            self.frameworks[0] = replace(lehr, modes=(*lehr.modes, settings.library))
        self.settings, self.cache, self.say = settings, cache, say
        self.clients: dict[str, Client] = {}
        self.versions: dict[str, str | None] = {}
        self.holders: dict[Column, Client] = {}  # the worker in which a column is open

    def client(self, name: str) -> Client:
        """The framework's worker, started again where it has died."""
        client = self.clients.get(name)
        if client is None or not client.alive():
            client = self.clients[name] = self.start(FRAMEWORKS[name], self.cache)
            self.versions[name] = client.ask("hello")["version"]
        return client

    def start(self, framework: Framework, cache: Path) -> Client:
        return Client(framework, self.settings.threads, cache, self.settings.timeout)

    def open(self, row: Workload, column: Column, path: Path) -> dict:
        """Build the column's program in its worker, with the results of its first calls at path."""
        framework, mode = column
        client = self.client(framework)
        order = {"mode": mode, "tuning": self.settings.tuning, "steps": row.steps}
        detail = client.ask("open", name=row.name, save=str(path), **order)
        self.holders[column] = client
        return detail

    def workload(self, name: str) -> dict[Column, Cell]:
        """Every column of one workload: opened, compared with the first that ran, then timed."""
        row = WORKLOADS[name]
        cells = {column: Cell() for column in columns(self.frameworks)}
        self.holders.clear()
        with tempfile.TemporaryDirectory() as folder:
            path, reference = Path(folder) / "result.npy", None
            for column, cell in cells.items():
                self.say(f"{name}: {' '.join(column)}")
                try:
                    cell.detail = self.open(row, column, path)
                except Failure as failure:
                    cell.problem = str(failure)
                    continue
                result = np.load(path)
                reference = result if reference is None else reference
                cell.problem = difference(result, reference, row)
                cell.wrong = cell.problem is not None
            self.time(row, {c: cell for c, cell in cells.items() if not cell.problem}, path)
        for column, client in self.holders.items():
            if client.alive():
                client.ask("close", name=name, mode=column[1])
        self.profile(name, cells.get(("lehr", "compiled")))
        return cells

    def profile(self, name: str, cell: Cell | None) -> None:
        """Adds where the time of lehr's compiled program goes."""
        if cell is None or cell.problem:
            return
        self.say(f"{name}: where the time goes")
        order = {"mode": "compiled", "tuning": self.settings.tuning, "calls": PROFILED}
        try:
            cell.detail |= self.client("lehr").ask("profile", name=name, **order)
        except Failure as failure:
            cell.detail["steps"] = []
            cell.detail["profile_problem"] = str(failure)

    def time(self, row: Workload, cells: dict[Column, Cell], spare: Path) -> None:
        """Interleaved rounds: each column's sample stands next to the others' in time."""
        calls, spent = dict.fromkeys(cells, row.burst), dict.fromkeys(cells, 0.0)
        for number in range(-1, self.settings.rounds):  # the first round warms up and calibrates
            self.say(f"{row.name}: round {number + 1} of {self.settings.rounds}")
            for column, cell in cells.items():
                late = number >= FEWEST_ROUNDS and spent[column] > self.settings.seconds
                if cell.problem or late:
                    continue
                try:
                    answer = self.sample(row, column, calls[column], spare)
                except Failure as failure:
                    cell.problem = str(failure)
                    continue
                if number < 0:
                    wanted = round(SAMPLE_SECONDS / max(answer["wall"], 1e-9))
                    calls[column] = max(row.burst, wanted)
                    continue
                cell.wall.append(answer["wall"])
                cell.cpu.append(answer["cpu"])
                spent[column] += answer["wall"] * calls[column]

    def sample(self, row: Workload, column: Column, calls: int, spare: Path) -> dict:
        """One burst of calls. A column whose worker another column has killed is opened again."""
        if not self.holders[column].alive():
            self.open(row, column, spare)
        client, mode = self.holders[column], column[1]
        return client.ask("time", name=row.name, mode=mode, calls=calls)

    def starting(self, name: str) -> dict[str, dict[Column, Cell]]:
        """New processes to their first result: `cold` on an empty cache, `warm` on a filled one."""
        compiled = [(f.name, "compiled") for f in self.frameworks]
        cells = {kind: {column: Cell() for column in compiled} for kind in ("cold", "warm")}
        for number in range(self.settings.starts):
            for column in compiled:
                with tempfile.TemporaryDirectory() as folder:
                    for kind, table in cells.items():
                        self.say(f"{kind} {name}: {column[0]}, {number + 1}")
                        self.begin(name, column, table[column], Path(folder))
        return cells

    def begin(self, name: str, column: Column, cell: Cell, cache: Path) -> None:
        """One start: wall time to the first result, processor time of the whole process tree.

        What it took to make the inputs in numpy is taken off both.
        """
        framework, mode = column
        client = self.start(FRAMEWORKS[framework], cache)
        order = {"mode": mode, "tuning": self.settings.tuning, "steps": 1}
        try:
            opened = client.ask("open", name=name, save=str(cache / "first.npy"), **order)
            wall = time.perf_counter() - client.began
            imported = client.ask("hello")["import_seconds"]
            cpu = client.end()
        except Failure as failure:
            cell.problem = str(failure)
            client.kill()
            return
        cell.wall.append(wall - opened["data"]["wall"])
        cell.cpu.append(cpu - opened["data"]["cpu"])
        cell.detail = {**opened, "import_seconds": imported}

    def weighing(self, name: str) -> dict[Column, Cell]:
        """Memory of one workload: a new process for each column, what the compilers made at hand.

        The largest resident size during later calls, less the size once the model was built.
        """
        cells = {column: Cell() for column in columns(self.frameworks)}
        for (framework, mode), cell in cells.items():
            self.say(f"memory {name}: {framework} {mode}")
            order = {"mode": mode, "tuning": self.settings.tuning, "steps": 2}
            spare = str(self.cache / "result.npy")
            for _ in range(2 if mode == "compiled" else 1):     # the first one fills the cache
                client = self.start(FRAMEWORKS[framework], self.cache)
                try:
                    opened = client.ask("open", name=name, save=spare, **order)
                    peak = client.ask("weigh", name=name, mode=mode, calls=3)["peak_bytes"]
                except Failure as failure:
                    cell.problem = str(failure)
                    break
                finally:
                    client.kill()
            else:
                cell.size.append(peak - opened["resident_bytes"])
        return cells

    def peaks(self) -> dict[str, dict]:
        """Peak memory and compiler counts of each worker that still runs."""
        living = {name: self.clients[name] for name in self.versions if self.clients[name].alive()}
        return {name: client.ask("peak") for name, client in living.items()}

    def kill(self) -> None:
        for client in self.clients.values():
            client.kill()


def run(bench: Bench, names: list[str], starts: list[str]
        ) -> Iterator[tuple[str, dict[Column, Cell]]]:
    """The yardsticks and every workload asked for, then the starts and weights, each in processes
    of its own; each as soon as it is measured.
    """
    for name in [*YARDSTICKS, *(n for n in names if n not in YARDSTICKS)] if names else []:
        yield name, bench.workload(name)
    kinds = [kind for kind in starts if kind != "memory"]
    for name in STARTS if kinds else ():
        found = bench.starting(name)
        for kind in kinds:
            yield f"{kind} {name}", found[kind]
    for name in MEMORY if "memory" in starts else ():
        yield f"memory {name}", bench.weighing(name)
