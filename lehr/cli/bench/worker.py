"""One framework in a process of its own, fed commands as JSON lines.

Run by path, not as `lehr.cli.bench.worker`: a worker for another framework must not import lehr.
The cases are written against the name `lehr`; `stand` gives it to the module under test.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import resource
import sys
import time
import traceback
import types
from pathlib import Path

CLI = Path(__file__).resolve().parents[1]


def stand(name: str):
    """Import a module and let it answer to `lehr` here, with lehr's command line beside it."""
    module = importlib.import_module(name)
    if name != "lehr":
        sys.modules["lehr"] = module
        bare()
    return module


def bare() -> None:
    """Makes the packages that the cases lie in without running them: no worker needs a command
    line, and to import one takes time that is no framework's."""
    for part in ("", "bench", "demo"):
        package = types.ModuleType(f"lehr.cli.{part}".rstrip("."))
        package.__path__ = [str(CLI / part)]
        sys.modules[package.__name__] = package


def cpu_seconds() -> float:
    """Processor seconds of this process and of its children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def memory(what: str) -> int | None:
    """A line of this process's status in bytes, where the system has one: VmRSS, VmHWM."""
    try:
        with open("/proc/self/status") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith(what))
    except (OSError, StopIteration):
        return None


class Worker:
    """The commands. Each takes keyword arguments from JSON and gives a dict for JSON."""

    def __init__(self, module: str, cases: str, threads: int) -> None:
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
        begin = time.perf_counter()
        self.module = stand(module)
        self.cases = importlib.import_module(f"lehr.cli.bench.cases.{cases}")
        self.cases.threads(threads)
        self.import_seconds = time.perf_counter() - begin
        self.programs: dict[str, tuple] = {}

    def hello(self) -> dict:
        version = getattr(self.module, "__version__", None)
        return {"version": version, "import_seconds": self.import_seconds, "pid": os.getpid()}

    def open(self, name: str, mode: str, tuning: str, steps: int, save: str) -> dict:
        """Build a workload, run it `steps` times and save the results for comparison."""
        import numpy as np

        from lehr.cli.bench import workload

        begin, cpu = time.perf_counter(), cpu_seconds()
        arrays = workload.arrays(name)
        data = {"wall": time.perf_counter() - begin, "cpu": cpu_seconds() - cpu}
        counts = self.counts()
        begin = time.perf_counter()
        run, read = self.cases.build(name, mode, arrays, tuning)
        del arrays
        resident = memory("VmRSS")
        built = time.perf_counter()
        results = [np.asarray(read(run()))]
        first = time.perf_counter()
        results += [np.asarray(read(run())) for _ in range(steps - 1)]
        np.save(save, np.stack(results))
        self.programs[f"{name} {mode}"] = run, read
        counts = {k: n - counts[k] for k, n in self.counts().items() if n != counts[k]}
        return {"data": data, "build_seconds": built - begin, "first_seconds": first - built,
                "resident_bytes": resident, "counts": counts}

    def time(self, name: str, mode: str, calls: int) -> dict:
        """Mean wall and processor seconds of one call, over `calls` calls in a row."""
        run, _ = self.programs[f"{name} {mode}"]
        gc.collect()
        cpu, wall = cpu_seconds(), time.perf_counter()
        for _ in range(calls):
            run()
        wall, cpu = time.perf_counter() - wall, cpu_seconds() - cpu
        return {"wall": wall / calls, "cpu": cpu / calls}

    def close(self, name: str, mode: str) -> dict:
        self.programs.pop(f"{name} {mode}", None)
        gc.collect()
        return {}

    def weigh(self, name: str, mode: str, calls: int) -> dict:
        """Largest resident size during a few calls, in bytes."""
        run, _ = self.programs[f"{name} {mode}"]
        Path("/proc/self/clear_refs").write_text("5")       # the peak starts from here
        for _ in range(calls):
            run()
        return {"peak_bytes": memory("VmHWM")}

    def profile(self, name: str, mode: str, tuning: str, calls: int) -> dict:
        """The compiled program again, with a clock at every step: what each takes in a call.

        `steps`: name, the lines of the program that it comes from, seconds, bytes that kernels move
        and must move, why more; longest first.
        """
        from lehr.cli.bench import workload

        made, compile_ = [], self.module.compile

        def timed(f, **settings):
            settings["options"] = {**(settings.get("options") or {}), "profile": True}
            made.append(compile_(f, **settings))
            return made[-1]
        self.module.compile = timed
        try:
            run, _ = self.cases.build(name, mode, workload.arrays(name), tuning)
            for _ in range(calls + 1):
                run()
        finally:
            self.module.compile = compile_
        told = [self.module.compiler.explain(f).explanation() for f in made]
        steps = [(s.name, s.lines, s.seconds / s.calls, s.moved, s.least, s.why)
                 for e in told for g in e.graphs for s in g.longest]
        return {"steps": sorted(steps, key=lambda s: -s[2])}

    def counts(self) -> dict:
        """What the compiler counts, where it counts anything."""
        stats = getattr(getattr(self.module, "compiler", None), "stats", None)
        return stats() if callable(stats) else {}

    def peak(self) -> dict:
        """Largest resident size so far, in bytes, and the compiler's counts."""
        usage = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return {"peak_bytes": usage, "stats": self.counts()}


def main(module: str, cases: str, threads: str) -> None:
    """Answer one line for each line of standard input, until it ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    bare()
    os.dup2(2, 1)  # what a framework prints must not mix with the answers
    worker = None
    for line in sys.stdin:
        try:
            worker = worker or Worker(module, cases, int(threads))
            command = json.loads(line)
            answer = getattr(worker, command.pop("do"))(**command)
        except BaseException as error:  # noqa: BLE001 the parent shows it and goes on
            text = str(error).strip().partition("\n")[0] or "no message"
            answer = {"error": f"{type(error).__name__}: {text}", "trace": traceback.format_exc()}
        with contextlib.suppress(BrokenPipeError):
            answers.write(json.dumps(answer, default=str) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
