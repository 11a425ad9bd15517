"""The benchmark's results as a table on the terminal and as a record for JSON."""

from __future__ import annotations

import os
import platform
import textwrap
import time

from rich.table import Table
from rich.text import Text

from lehr.cli.bench.measure import Cell, Column, Settings

UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
PROBLEM = 60  # columns of a problem on the terminal; JSON has it whole
Results = dict[str, dict[Column, Cell]]


def duration(seconds: float) -> str:
    """Three significant digits in the unit that fits."""
    size, unit = next((u for u in UNITS if seconds >= 0.9995 * u[0]), UNITS[-1])
    value = seconds / size
    return f"{value:.3g} {unit}" if value < 1000 else f"{value:.0f} {unit}"


def cell(given: Cell | None, base: Cell | None) -> Text:
    """Wall time with its spread and processor time, each with its ratio to the base's."""
    if given is None:
        return Text("")
    if given.wrong:
        return Text(f"WRONG: {given.problem}", "bold red")
    if given.problem:
        return Text(textwrap.shorten(given.problem, PROBLEM, placeholder=" ..."), "dim")
    lines = []
    for what, name in (("wall", ""), ("cpu", "cpu ")):
        value, spread = given.median(what), given.spread(what)
        if value is None:
            return Text("not measured", "dim")
        text = name + duration(value) + (f" ±{spread:.0%}" if spread is not None else "")
        unit = base.median(what) if base is not None and base is not given else None
        if unit:
            text += f"  {value / unit:.2f}x"
        lines.append(text)
    return Text("\n".join(lines))


def table(results: Results, columns: list[Column], settings: Settings) -> Table:
    """Workloads down, frameworks across. A ratio above 1 means slower than lehr compiled."""
    shown = Table(
        title=f"Median of one call, {settings.threads} threads; x: times lehr compiled's",
        show_lines=True,
    )
    shown.add_column("workload")
    for framework, mode in columns:
        shown.add_column(f"{framework}\n{mode}", justify="right")
    base = ("lehr", "compiled")
    for name, cells in results.items():
        first = cells.get(base)
        shown.add_row(name, *(cell(cells.get(column), first) for column in columns))
    return shown


def processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            names = [line for line in file if line.startswith("model name")]
        return names[0].partition(":")[2].strip()
    except (OSError, IndexError):
        return platform.processor() or "unknown"


def record(results: Results, settings: Settings, versions: dict, peaks: dict) -> dict:
    """All samples and the circumstances that they were taken in. Seconds of one call, bytes."""
    rows = {
        name: {" ".join(column): cell.summary() for column, cell in cells.items()}
        for name, cells in results.items()
    }
    return {
        "settings": vars(settings),
        "versions": {"python": platform.python_version(), **versions},
        "machine": {
            "processor": processor(),
            "processors": os.cpu_count(),
            "load": os.getloadavg(),
            "platform": platform.platform(),
        },
        "ended": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "results": rows,
        "workers": peaks,
    }
