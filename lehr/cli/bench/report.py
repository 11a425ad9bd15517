"""The benchmark's results as a table on the terminal and as a record for JSON."""

from __future__ import annotations

import os
import platform
import textwrap
import time

from rich.table import Table
from rich.text import Text

from lehr.cli.bench.cost import COSTS, least_seconds
from lehr.cli.bench.measure import Cell, Column, Settings

UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
PROBLEM = 60  # columns of a problem on the terminal; JSON has it whole
Results = dict[str, dict[Column, Cell]]
LEHR: Column = ("lehr", "compiled")


def duration(seconds: float) -> str:
    """Three significant digits in the unit that fits."""
    size, unit = next((u for u in UNITS if seconds >= 0.9995 * u[0]), UNITS[-1])
    value = seconds / size
    return f"{value:.3g} {unit}" if value < 1000 else f"{value:.0f} {unit}"


def size(count: float) -> str:
    """Bytes in MB."""
    return f"{count / 1e6:.3g} MB" if count < 1e9 else f"{count / 1e6:.0f} MB"


def cell(given: Cell | None, base: Cell | None) -> Text:
    """Wall time with its spread and processor time, each with its ratio to the base's."""
    if given is None:
        return Text("")
    if given.wrong:
        return Text(f"WRONG: {given.problem}", "bold red")
    if given.problem:
        return Text(textwrap.shorten(given.problem, PROBLEM, placeholder=" ..."), "dim")
    lines = []
    kinds = (("wall", "", duration), ("cpu", "cpu ", duration))
    for what, name, show in (("size", "", size),) if given.size else kinds:
        value, spread = given.median(what), given.spread(what)
        if value is None:
            return Text("not measured", "dim")
        text = name + show(value) + (f" ±{spread:.0%}" if spread is not None else "")
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
    for name, cells in results.items():
        first = cells.get(LEHR)
        shown.add_row(name, *(cell(cells.get(column), first) for column in columns))
    return shown


def ceilings(results: Results) -> dict[str, float | None]:
    """What the machine can do: operations a second in the best product of two matrices, bytes a
    second in the best copy. None where it was not measured.
    """
    found = {}
    for name, what in (("gemm", "flops"), ("copy", "moved")):
        walls = [c.median("wall") for c in results.get(name, {}).values() if not c.problem]
        best = min((t for t in walls if t), default=None)
        found[what] = getattr(COSTS[name](), what) / best if best else None
    return found


def analysis(results: Results) -> dict[str, dict]:
    """For each workload what it needs at least, and how close lehr compiled comes.

    `flops` and `moved` (bytes) see `cost`; `share`: the time that the machine's ceilings allow over
    the time taken; `counts`: what the compiler made, `excess` its bytes over the least.
    """
    rates, found = ceilings(results), {}
    for name, cells in results.items():
        if name not in COSTS:
            continue
        cost, given = COSTS[name](), cells.get(LEHR)
        time_taken = given.median("wall") if given else None
        least = least_seconds(cost, rates["flops"], rates["moved"])
        counts = given.detail.get("counts", {}) if given else {}
        share = least / time_taken if least and time_taken else None
        moved = counts.get("moved")
        excess = moved / cost.moved if moved else None
        found[name] = {**cost._asdict(), "least_seconds": least, "share": share, "counts": counts,
                       "excess": excess}
    return found


HEADINGS = ["workload", "least time", "share of ceiling", "kernels", "library calls", "host calls",
            "MB moved", "x least", "arena MB"]


def lines(found: dict[str, dict]) -> list[list[str]]:
    """The cells of `details`, from an `analysis`."""
    made = []
    for name, row in found.items():
        counts, share, excess = row["counts"], row["share"], row["excess"]
        parts = [str(counts.get(k, 0)) if counts else "" for k in ("kernels", "externs",
                                                                   "host_calls")]
        made.append([
            name, duration(row["least_seconds"]) if row["least_seconds"] else "",
            f"{share:.0%}" if share else "", *parts,
            f"{counts['moved'] / 1e6:.4g}" if "moved" in counts else "",
            f"{excess:.2f}" if excess else "",
            f"{counts['arena'] / 1e6:.3g}" if "arena" in counts else ""])
    return made


def ceiling_text(rates: dict[str, float | None]) -> str:
    known = [f"the best {what} of this run: {rate / 1e9:.4g} {unit}/s"
             for key, what, unit in (("flops", "product of matrices", "GFLOP"),
                                     ("moved", "copy", "GB")) if (rate := rates[key])]
    return "; ".join(known) or "no ceiling measured"


def details(results: Results) -> Table:
    """What lehr's compiled programs are made of, and how close they come to the machine."""
    shown = Table(title=f"lehr compiled; {ceiling_text(ceilings(results))}")
    for title in HEADINGS:
        shown.add_column(title, justify="left" if title == "workload" else "right")
    for line in lines(analysis(results)):
        shown.add_row(*line)
    return shown


STEPS = ["workload", "share", "time", "moved", "step", "from"]
MOST, LEAST = 5, 0.03  # steps of a workload that are shown; the share of one that is
LEAN = 1.3  # times the least bytes: a kernel that moves more says why


def steps(rows: dict[str, dict]) -> list[list[str]]:
    """The cells of `where`: the longest steps of lehr's compiled programs, and those that move more
    than they must, from a record's results."""
    made = []
    for name, columns in rows.items():
        given = columns.get(" ".join(LEHR), {}).get("steps") or []
        total = sum(row[2] for row in given)
        for place, (step, lines_, seconds, moved, least, why) in enumerate(given):
            lean = moved <= LEAN * least
            if not lean or place < MOST and seconds >= LEAST * total and len(given) > 1:
                more = f" and {len(lines_) - 1} more" if len(lines_) > 1 else ""
                bytes_ = size(moved) if moved else ""
                if not lean:
                    bytes_ += f", {moved / least:.2f}x the least: {'; '.join(why)}"
                made.append([name, f"{seconds / total:.0%}", duration(seconds), bytes_,
                             textwrap.shorten(step, PROBLEM, placeholder=" ..."),
                             "".join(lines_[:1]) + more])
                name = ""
    return made


def where(rows: dict[str, dict]) -> Table:
    """Where lehr's compiled programs spend their time, by the lines that steps come from."""
    shown = Table(title="Where the time goes")
    for title in STEPS:
        shown.add_column(title, justify="right" if title in ("share", "time") else "left")
    for line in steps(rows):
        shown.add_row(*line)
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
        "ceilings": ceilings(results),
        "analysis": analysis(results),
        "results": rows,
        "workers": peaks,
    }
