"""The demo's report in HTML."""

from __future__ import annotations

import json
from html import escape

from lehr.cli import chart
from lehr.cli import page as frame
from lehr.cli.demo import report

TRAIN, HELD, EAGER, COMPILED = "#2f6fb0", "#d1495b", "#9aa5b1", "#2e8b57"


def page(record: dict) -> str:
    """HTML text made from a run's record (see `report.record`)."""
    prompt, drawn = record["sample"]
    rows = [f"<tr><th>{escape(n)}</th><td>{escape(v)}</td></tr>" for n, v in report.figures(record)]
    config = ", ".join(f"{k} {v}" for k, v in record["config"].items())
    counts = escape(json.dumps(record["compiler"], indent=1, default=str))
    return frame.page(
        "lehr demo",
        "A byte-level GPT trained on the source of Python's standard library. "
        f"{record['parameters'] / 1e6:.2f} M parameters; {config}",
        ["<table>", *rows, "</table>", *charts(record),
         "<h2>Sampled text</h2>",
         "<p>Grey: held-out text that the model was given. Black: what it wrote.</p>",
         f'<pre><span class="prompt">{escape(prompt)}</span>{escape(drawn)}</pre>',
         f"<details><summary>Compiler statistics</summary><pre>{counts}</pre></details>"],
        record["versions"])


def charts(record: dict) -> list[str]:
    """The charts, as HTML."""
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
    return [frame.image(name, png) for name, png in made]
