"""What the demo says: the record that every report is made from, and its form on a terminal."""

from __future__ import annotations

import platform
import resource
import statistics
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from lehr.cli import release
from lehr.cli.demo.train import History, Trainer

BARS = "▁▂▃▄▅▆▇█"
COLUMNS = 60


def peak_bytes() -> int:
    """Largest resident size of this process so far, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def median(values: list[float]) -> float | None:
    return statistics.median(values) if values else None


def record(trainer: Trainer, history: History, sample: tuple[bytes, bytes], stats: dict) -> dict:
    """Everything about a finished run, ready for JSON. Losses in nats a byte, times in seconds."""
    config = trainer.config
    pairs = list(zip(history.eager_losses, history.losses, strict=False))
    step = median(history.seconds)
    return {
        "config": asdict(config),
        "parameters": sum(p.numel() for p in trainer.model.parameters()),
        "corpus": {
            "files": trainer.corpus.files,
            "train_bytes": len(trainer.corpus.train),
            "held_bytes": len(trainer.corpus.held),
            "digest": trainer.corpus.digest,
        },
        "steps": trainer.done,
        "losses": history.losses,
        "held": history.held,
        "held_out_loss": history.held[-1][1],
        "first": {
            "eager": [eager for eager, _ in pairs],
            "compiled": [compiled for _, compiled in pairs],
            "largest_difference": max((abs(a - b) for a, b in pairs), default=None),
        },
        "seconds": {
            "eager_step": median(history.eager_seconds),
            "compiled_step": step,
            "first_compiled_step": history.first_seconds,
            "eager_steps": history.eager_seconds,
            "compiled_steps": history.seconds,
        },
        "bytes_a_second": config.batch * config.context / step if step else None,
        "peak_memory_bytes": peak_bytes(),
        "compiler": {"step": dict(history.counts), "all": dict(stats)},
        "sample": [part.decode("utf-8", "replace") for part in sample],
        "versions": {
            "lehr": release(),
            "python": platform.python_version(),
            "numpy": np.__version__,
            "platform": platform.platform(),
        },
    }


def figures(record: dict) -> list[tuple[str, str]]:
    """The record's main figures as (name, text), the same on terminal and page."""
    seconds, difference = record["seconds"], record["first"]["largest_difference"]
    eager, compiled = seconds["eager_step"], seconds["compiled_step"]
    rows = [
        ("held-out loss", f"{record['held_out_loss']:.3f} nats a byte, step {record['steps']}"),
        ("eager step", milliseconds(eager)),
        ("compiled step", milliseconds(compiled)),
        ("speed-up", f"{eager / compiled:.2f} times" if eager and compiled else "not measured"),
        ("first compiled step", ", ".join(f"{s:.2f} s" for s in seconds["first_compiled_step"])),
        ("throughput", amount(record["bytes_a_second"], "{:,.0f} bytes a second")),
        ("peak memory", f"{record['peak_memory_bytes'] / 1e6:,.0f} MB, the whole process"),
        (
            "compiled against eager",
            amount(difference, "losses of the first steps differ by {:.1e} at most"),
        ),
    ]
    plain = {k: v for k, v in record["compiler"]["step"].items() if isinstance(v, int | float)}
    counts = ", ".join(f"{k} {v:,}" for k, v in plain.items())
    rows.append(("the step, compiled", counts or "no counts"))
    return rows


def amount(value: float | None, form: str) -> str:
    return "not measured" if value is None else form.format(value)


def milliseconds(seconds: float | None) -> str:
    return amount(None if seconds is None else seconds * 1e3, "{:.1f} ms")


def curve(losses: list[float]) -> str:
    """The losses as one line of block characters, each the mean of its share of the steps."""
    groups = np.array_split(np.asarray(losses), min(COLUMNS, len(losses)))
    means = np.array([group.mean() for group in groups])
    span = np.ptp(means) or 1.0
    return "".join(BARS[int(7 * (mean - means.min()) / span)] for mean in means)


def opening(console: Console, trainer: Trainer, steps: int) -> None:
    """Says what will be trained, on what, and from where."""
    config, corpus = trainer.config, trainer.corpus
    size = sum(p.numel() for p in trainer.model.parameters())
    console.print(
        f"[bold]lehr demo[/]: a byte-level GPT, {config.layers} layers, width {config.width}, "
        f"{config.heads} heads, {size / 1e6:.2f} M parameters; AdamW, rate {config.rate:g}"
    )
    console.print(
        f"Text: {corpus.files} files of Python's standard library, "
        f"{len(corpus.train) / 1e6:.1f} MB to train on, {len(corpus.held) / 1e6:.1f} MB held out. "
        f"Steps {trainer.done + 1} to {steps}, batches of {config.batch} x {config.context} bytes."
    )


def stopped(done: int, path: Path) -> str:
    return f"Stopped after step {done}. Go on with: lehr demo --resume {path}"


def closing(console: Console, record: dict, page: Path) -> None:
    """The finished run on a terminal."""
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, value in figures(record):
        table.add_row(Text(name, "bold"), Text(value))
    losses = record["losses"]
    if "utf" in console.encoding.lower():
        table.add_row(Text("loss", "bold"), Text(curve(losses), "cyan"))
    table.add_row(Text("", "bold"), Text(f"{losses[0]:.3f} to {losses[-1]:.3f}"))
    console.print(table)
    prompt, drawn = record["sample"]
    console.print(Panel(Text(prompt, "dim") + Text(drawn), title="held-out text, then the model"))
    console.print(Text(f"Page: {page}"))
