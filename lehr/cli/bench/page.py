"""The benchmark's report in HTML."""

from __future__ import annotations

from html import escape

from lehr.cli import chart
from lehr.cli import page as frame
from lehr.cli.bench import report

COLOURS = {"lehr eager": "#9fc5e8", "lehr compiled": "#2f6fb0", "torch eager": "#f0b8a8",
           "torch compiled": "#d1495b", "jax compiled": "#2e8b57", "tinygrad compiled": "#9a7bb5"}
OTHER = "#9aa5b1"


def page(record: dict) -> str:
    """HTML text made from `report.record`: a chart for each workload, and both tables."""
    machine, settings = record["machine"], record["settings"]
    return frame.page(
        "lehr bench",
        f"{machine['processor']}, {settings['threads']} threads, compile mode "
        f"{settings['tuning']}, {settings['rounds']} rounds; ended {record['ended']}",
        [*charts(record),
         "<h2>How close lehr compiled comes to the machine</h2>",
         f"<p>{escape(report.ceiling_text(record['ceilings']))}</p>",
         frame.table(report.HEADINGS, report.lines(record["analysis"])),
         "<h2>Where the time goes</h2>",
         frame.table(report.STEPS, report.steps(record["results"]))],
        record["versions"])


def charts(record: dict) -> list[str]:
    """A chart for each workload, as HTML: the medians of every column that was measured."""
    made = []
    for name, columns in record["results"].items():
        kind, scale = (("size", 1e6) if any("size_median" in c for c in columns.values())
                       else ("cpu", 1.0))
        found = {c: row.get(f"{kind}_median") for c, row in columns.items() if not row["problem"]}
        values = {c: v / scale for c, v in found.items() if v}
        if not values:
            continue
        if kind == "cpu":
            factor, unit = next(((f, u) for f, u in report.UNITS if max(values.values()) >= f),
                                report.UNITS[-1])
            values = {c: v / factor for c, v in values.items()}
        bars = [(c, v, COLOURS.get(c, OTHER)) for c, v in values.items()]
        what = ("processor time of all threads, one call" if kind == "cpu"
                else "memory above the built model")
        png = chart.bars(bars, f"{name}: {what}", unit if kind == "cpu" else "MB")
        made.append(frame.image(name, png))
    return made
