"""The benchmark's record as one HTML file that needs nothing besides itself."""

from __future__ import annotations

import base64
from html import escape
from pathlib import Path
from string import Template

from lehr.cli import chart
from lehr.cli.bench import report

COLOURS = {"lehr eager": "#9fc5e8", "lehr compiled": "#2f6fb0", "torch eager": "#f0b8a8",
           "torch compiled": "#d1495b", "jax compiled": "#2e8b57", "tinygrad compiled": "#9a7bb5"}
OTHER = "#9aa5b1"


def page(record: dict) -> str:
    """HTML text made from `report.record`: a chart for each workload, and both tables."""
    machine, settings = record["machine"], record["settings"]
    about = (f"{machine['processor']}, {settings['threads']} threads, compile mode "
             f"{settings['tuning']}, {settings['rounds']} rounds; ended {record['ended']}")
    versions = ", ".join(f"{k} {v}" for k, v in record["versions"].items())
    images = [f'<img alt="{escape(name)}" src="{uri}">' for name, uri in charts(record)]
    template = Template(Path(__file__).with_name("page.html").read_text("utf-8"))
    return template.substitute(
        about=escape(about), charts="\n".join(images), versions=escape(versions),
        ceilings=escape(report.ceiling_text(record["ceilings"])),
        analysis=rows(report.HEADINGS, report.lines(record["analysis"])),
        steps=rows(report.STEPS, report.steps(record["results"])))


def rows(headings: list[str], lines: list[list[str]]) -> str:
    head = "".join(f"<th>{escape(h)}</th>" for h in headings)
    body = ("".join(f"<td>{escape(text)}</td>" for text in line) for line in lines)
    return f"<tr>{head}</tr>" + "\n".join(f"<tr>{line}</tr>" for line in body)


def charts(record: dict) -> list[tuple[str, str]]:
    """(workload, data URI): the medians of every column that was measured."""
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
        made.append((name, "data:image/png;base64," + base64.b64encode(png).decode()))
    return made
