"""Single layers and whole models: lehr, eager and compiled, against torch; forward and backward.

    python benchmarks/sweep [NAME ...] [--models] [--oracle] [--threads N] [--json FILE]

Where `lehr bench` measures a few workloads closely, this looks at many coarsely for what is slow.
Each column is a process of its own; the columns take turns, and medians of processor time (of wall
time with several threads) are compared. With `--oracle`, torch.compile is a column, too.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROUNDS, BURST = 7, 0.03  # turns of each column, seconds of one turn
COLUMNS = [("lehr", "compiled"), ("lehr", "eager"), ("torch", "eager")]


class Worker:
    """A process that holds the cases made with one framework."""

    def __init__(self, module: str, mode: str, cases: str, threads: int) -> None:
        argv = [sys.executable, __file__, "--serve", module, mode, cases, str(threads)]
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)

    def ask(self, *question: Any) -> Any:
        """The answer, or a text that says what went wrong."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline() or '"the process died"')


def serve(module: str, mode: str, cases: str, threads: str) -> None:
    """Answers ["open", name, backward] with null and ["time", calls] with seconds of a call."""
    torch = importlib.import_module(module)
    torch.set_num_threads(int(threads))
    clock = time.process_time if threads == "1" else time.perf_counter
    made = importlib.import_module(cases).cases(torch)
    call: Callable[[], Any] = list
    for line in sys.stdin:
        question = json.loads(line)
        try:
            if question[0] == "open":
                f, make = made[question[1]]
                call = opened(torch, f, make, mode == "compiled", question[2])
                answer: Any = None
            else:
                begin = clock()
                for _ in range(question[1]):
                    call()
                answer = (clock() - begin) / question[1]
        except Exception as error:  # noqa: BLE001 the table shows it
            answer = f"{type(error).__name__}: {error}"[:200]
        print(json.dumps(answer), flush=True)


def opened(torch: Any, f: Any, make: Callable[[], tuple[Any, ...]], compiled: bool, backward: bool
           ) -> Callable[[], Any]:
    """One call of a case, after three that warm it up."""
    torch.manual_seed(1)
    args = [x.clone().requires_grad_(backward) for x in make()]
    g = torch.compile(f) if compiled else f
    leaves = [*args, *(f.parameters() if hasattr(f, "parameters") else ())]

    def forward() -> None:
        with torch.no_grad():
            g(*args)

    def step() -> None:
        torch.autograd.grad(g(*args), leaves, tangent)

    tangent = torch.ones_like(f(*args)) if backward else None
    call = step if backward else forward
    for _ in range(3):
        call()
    return call


def measured(workers: list[Worker], name: str, backward: bool) -> list[float | str]:
    """Milliseconds of a call in each column, or why there are none."""
    problems = [w.ask("open", name, backward) for w in workers]
    calls = [0 if p else max(1, int(BURST / max(w.ask("time", 1), 1e-6)))
             for w, p in zip(workers, problems, strict=True)]
    times: list[list[float]] = [[] for _ in workers]
    for _ in range(ROUNDS):
        for n, worker in enumerate(workers):
            if calls[n]:
                times[n].append(worker.ask("time", calls[n]))
    return [p or statistics.median(t) * 1e3 for p, t in zip(problems, times, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="cases, all if none is given")
    parser.add_argument("--models", action="store_true", help="whole models, not single layers")
    parser.add_argument("--oracle", action="store_true", help="a column of torch.compile")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, help="a file for the record")
    options = parser.parse_args()
    cases = "models" if options.models else "layers"
    columns = COLUMNS + [("torch", "compiled")] * options.oracle
    workers = [Worker(module, mode, cases, options.threads) for module, mode in columns]
    import torch

    names = options.names or list(importlib.import_module(cases).cases(torch))
    record: dict[str, Any] = {
        "date": datetime.date.today().isoformat(), "threads": options.threads,
        "python": platform.python_version(), "torch": torch.__version__,
        "columns": [" ".join(c) for c in columns], "milliseconds": {}}
    print("compiled / best of torch, then milliseconds:", ", ".join(record["columns"]))
    for name in names:
        for backward in (False, True):
            row = measured(workers, name, backward)
            rivals = [t for t in row[2:] if isinstance(t, float)]
            known = isinstance(row[0], float) and rivals
            ratio = f"{row[0] / min(rivals):5.2f}" if known else "    -"     # type: ignore
            shown = " ".join(f"{t:9.3f}" if isinstance(t, float) else t for t in row)
            label = f"{name} {'step' if backward else 'forward'}"
            print(f"{label:28} {ratio} {shown}", flush=True)
            record["milliseconds"][label] = row
    if options.json:
        options.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(*sys.argv[2:])
    else:
        main()
