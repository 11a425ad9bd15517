"""The demo's report as one HTML file that needs nothing besides itself."""

from __future__ import annotations

import base64
import json
from html import escape
from pathlib import Path
from string import Template

from lehr.cli import chart
from lehr.cli.demo import report

TRAIN, HELD, EAGER, COMPILED = "#2f6fb0", "#d1495b", "#9aa5b1", "#2e8b57"


def page(record: dict) -> str:
    """HTML text made from a run's record (see `report.record`)."""
    prompt, drawn = record["sample"]
    rows = (f"<tr><th>{escape(n)}</th><td>{escape(v)}</td></tr>" for n, v in report.figures(record))
    config = ", ".join(f"{k} {v}" for k, v in record["config"].items())
    versions = ", ".join(f"{k} {v}" for k, v in record["versions"].items())
    template = Template(Path(__file__).with_name("page.html").read_text("utf-8"))
    return template.substitute(
        about=escape(f"{record['parameters'] / 1e6:.2f} M parameters; {config}"),
        figures="\n".join(rows),
        charts="\n".join(f'<img alt="{escape(name)}" src="{uri}">' for name, uri in charts(record)),
        prompt=escape(prompt),
        drawn=escape(drawn),
        versions=escape(versions),
        counts=escape(json.dumps(record["compiler"], indent=1, default=str)),
    )


def charts(record: dict) -> list[tuple[str, str]]:
    """(name, data URI) of each chart."""
    curves = [
        chart.Series("training", list(enumerate(record["losses"], 1)), TRAIN),
        chart.Series("held out", record["held"], HELD, marks=True),
    ]
    both = [
        chart.Series(name, list(enumerate(record["first"][name], 1)), colour, marks=name == "eager")
        for name, colour in (("eager", EAGER), ("compiled", COMPILED))
    ]
    made = [("loss curve", chart.lines(curves, "Loss, nats a byte", "step"))]
    if record["first"]["eager"]:
        title = "First steps from the same start: loss, nats a byte"
        made.append(("compiled against eager", chart.lines(both, title, "step", (760, 300))))
    seconds = record["seconds"]
    times = [
        (f"{name} step", seconds[f"{name}_step"] * 1e3, colour)
        for name, colour in (("eager", EAGER), ("compiled", COMPILED))
        if seconds[f"{name}_step"]
    ]
    if times:
        made.append(("step time", chart.bars(times, "Median wall time of one step", "ms")))
    return [(n, "data:image/png;base64," + base64.b64encode(png).decode()) for n, png in made]
