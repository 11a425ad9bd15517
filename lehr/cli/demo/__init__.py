"""`lehr demo`: train a small GPT on Python's own source, eager and compiled, and report."""

from __future__ import annotations

from pathlib import Path

import click

CHECKPOINT = "demo.ckpt"


@click.command("demo")
@click.option("--steps", default=300, show_default=True, type=click.IntRange(1), metavar="N")
@click.option("--seed", type=click.IntRange(0), help="Seed of weights and data order. [default: 0]")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the page and the checkpoint. [default: lehr-demo, or where --resume points]",
)
@click.option(
    "--resume",
    type=click.Path(exists=True, path_type=Path),
    help="Go on from a checkpoint, or from the one in a folder, up to --steps in all.",
)
@click.option(
    "--json",
    "record",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write losses, times and compiler statistics here.",
)
def command(
    steps: int, seed: int | None, out: Path | None, resume: Path | None, record: Path | None
) -> None:
    """Train a byte-level GPT on Python's standard library: 20 eager steps, then all compiled.

    Ctrl-C ends after the running step and saves; --resume goes on with the losses that an
    uninterrupted run has.
    """
    from lehr.cli.demo import flow

    if resume and seed is not None:
        raise click.UsageError("--seed belongs to a new run; a resumed one keeps its own")
    if resume and resume.is_dir():
        resume /= CHECKPOINT
    out = out or (resume.parent if resume else Path("lehr-demo"))
    try:
        finished = flow.run(flow.Plan(steps, seed or 0, out, resume, record))
    except (ValueError, OSError) as error:
        raise click.ClickException(str(error)) from error
    if not finished:
        raise SystemExit(130)
