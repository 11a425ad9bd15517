"""`lehr bench`: eager and compiled lehr beside other frameworks, results compared, then timed."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import click

KINDS = ("cold", "warm", "memory")


def chosen(text: str | None) -> list[str]:
    """The frameworks to run, lehr first. Without a choice: those that are installed."""
    from lehr.cli.bench.process import FRAMEWORKS

    rivals = [name for name in FRAMEWORKS if name != "lehr"]
    if text is None:
        return ["lehr", *(name for name in rivals if FRAMEWORKS[name].installed())]
    names = [name for name in text.split(",") if name and name != "none"]
    for name in names:
        if name not in rivals:
            raise click.UsageError(f"--vs {name}: not one of {', '.join(rivals)}")
        if not FRAMEWORKS[name].installed():
            raise click.UsageError(f"--vs {name}: not installed (pip install {name})")
    return ["lehr", *names]


def processors() -> int:
    from lehr.compiler.run import target

    return target.processors()


@click.command("bench")
@click.argument("workloads", nargs=-1)
@click.option("--vs", help="Compare with these of torch,jax,tinygrad; none. [default: installed]")
@click.option(
    "--threads",
    type=click.IntRange(1),
    default=processors,
    help="Threads of every framework. [default: all processors]",
)
@click.option("--rounds", default=15, show_default=True, type=click.IntRange(1))
@click.option("--seconds", default=10.0, show_default=True, help="Timing of one cell, at most.")
@click.option("--timeout", default=600.0, show_default=True, help="Seconds for any one answer.")
@click.option("--starts", default=1, show_default=True, help="Repeats of cold and warm.")
@click.option("--mode", "tuning", default="default", show_default=True,
              help="compile's mode, or freezing: constant weights, where that is known.")
@click.option("--library", type=click.Choice(["onednn"]),
              help="A column more: compiled lehr with products and convolutions by it.")
@click.option("--json", "record", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--html", "page_path", type=click.Path(dir_okay=False, path_type=Path),
              help="The same as one HTML file, with charts.")
def command(
    workloads, vs, threads, rounds, seconds, timeout, starts, tuning, library, record, page_path
) -> None:
    """Time WORKLOADS, or all: mlp vit_block gpt_step gpt_model resnet18_step bn_relu softmax
    ln_gelu_add pointwise6 tiny_call; cold and warm, which time a new process up to its first
    result; memory, which weighs training steps.

    Each framework runs in its own process. Results are compared before anything is timed: a wrong
    one is shown in place of its time, and the exit code is 1. Rounds are interleaved. Shown are
    medians of wall time and of processor time over all threads, with half the quartile distance;
    then how close each workload comes to what the machine can do, which two yardsticks measure,
    and in which steps lehr's compiled programs spend their time.
    The record is written after each workload; Ctrl-C ends the run with what there is.
    """
    from rich.console import Console

    from lehr.cli.bench import measure, report
    from lehr.cli.bench.workload import WORKLOADS

    known = [*WORKLOADS, *KINDS]
    for name in workloads:
        if name not in known:
            raise click.UsageError(f"no workload {name!r}: {' '.join(known)}")
    if library:
        from lehr.compiler.run import onednn

        if not onednn.find():
            raise click.UsageError("--library onednn: not installed (pip install 'lehr[onednn]')")
    names = [name for name in WORKLOADS if not workloads or name in workloads]
    kinds = [kind for kind in KINDS if not workloads or kind in workloads]
    settings = measure.Settings(threads, rounds, seconds, timeout, starts, tuning, library)
    console, progress = Console(), Console(stderr=True)
    results: dict = {}
    stopped = False
    kept: dict = {}
    if not console.is_terminal:
        console.width = 160
    with (
        tempfile.TemporaryDirectory() as cache,
        progress.status("starting", refresh_per_second=4) as status,
    ):
        bench = measure.Bench(chosen(vs), settings, Path(cache), status.update)
        try:
            for name, cells in measure.run(bench, names, kinds):
                results[name] = cells
                kept = report.record(results, settings, bench.versions, bench.peaks())
                if record:  # after each, so that a run that is stopped has not been for nothing
                    record.write_text(json.dumps(kept, indent=1, default=str) + "\n", "utf-8")
        except KeyboardInterrupt:
            stopped = True
            progress.print(f"stopped: what follows is what was measured of {len(results)} rows")
        finally:
            bench.kill()
    columns = measure.columns(bench.frameworks)
    console.print(report.table(results, columns, settings))
    console.print(report.details(results))
    if kept:
        console.print(report.where(kept["results"]))
    if page_path:
        from lehr.cli.bench import page

        page_path.write_text(page.page(kept), "utf-8")
    if any(cell.wrong for cells in results.values() for cell in cells.values()):
        raise SystemExit(1)
    if stopped:
        raise SystemExit(130)  # as a shell says of a program that Ctrl-C ended
