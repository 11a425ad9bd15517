"""The demo from start to end: eager steps, compiled steps, scoring, sampling, reports."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from tqdm import tqdm

import lehr as torch
from lehr.cli.demo import CHECKPOINT, page, report, text
from lehr.cli.demo.train import Config, History, Trainer, interruption, resume

EAGER_STEPS = 20
SCORE_EVERY = 100
SAVE_EVERY = 50
SAMPLE_BYTES = 400
PAGE = "demo.html"


@dataclass(frozen=True)
class Plan:
    """What to run: `steps` in all, a seed for a new run, and where things go."""

    steps: int
    seed: int
    out: Path
    resume: Path | None = None
    record: Path | None = None
    config: Config | None = None  # another model than the demo's


def run(plan: Plan, console: Console | None = None) -> bool:
    """Run the plan. False where Ctrl-C ended it; its state is saved then."""
    console = console or Console()
    plan.out.mkdir(parents=True, exist_ok=True)
    corpus = text.corpus()
    if plan.resume:
        trainer, history = resume(plan.resume, corpus)
    else:
        trainer = Trainer(plan.config or Config(seed=plan.seed), corpus)
        history = History()
    report.opening(console, trainer, plan.steps)
    with interruption() as interrupted:
        wanted = min(EAGER_STEPS, plan.steps)
        if not trainer.done and len(history.eager_losses) < wanted:
            eager(trainer.config, corpus, history, wanted, interrupted)
        finished = not interrupted() and compiled(trainer, history, plan, interrupted)
        trainer.save(plan.out / CHECKPOINT, history)
    if not finished:
        console.print(report.stopped(trainer.done, plan.out / CHECKPOINT))
        return False
    conclude(console, trainer, history, plan)
    return True


def conclude(console: Console, trainer: Trainer, history: History, plan: Plan) -> None:
    """Sample, then write every report of a finished run."""
    sample = trainer.sample(torch.compile(trainer.model), SAMPLE_BYTES)
    record = report.record(trainer, history, sample, torch.compiler.stats())
    target = plan.out / PAGE
    target.write_text(page.page(record), "utf-8")
    if plan.record:
        plan.record.parent.mkdir(parents=True, exist_ok=True)
        plan.record.write_text(json.dumps(record, indent=1, default=str) + "\n", "utf-8")
    report.closing(console, record, target)


def bar(total: int, done: int, name: str) -> tqdm:
    """A progress bar on a terminal, nothing in a pipe."""
    return tqdm(total=total, initial=done, desc=name, unit="step", file=sys.stderr, disable=None)


def eager(config: Config, corpus: text.Corpus, history: History, steps: int, interrupted) -> None:
    """The first steps without the compiler, from the same start as the compiled run."""
    rng = torch.get_rng_state()
    trainer = Trainer(config, corpus)
    history.eager_losses, history.eager_seconds = [], []
    with bar(steps, 0, "eager") as shown:
        while trainer.done < steps and not interrupted():
            loss, seconds = trainer.advance(trainer.step)
            history.eager_losses.append(loss)
            history.eager_seconds.append(seconds)
            shown.set_postfix(loss=f"{loss:.3f}")
            shown.update()
    torch.set_rng_state(rng)


def compiled(trainer: Trainer, history: History, plan: Plan, interrupted) -> bool:
    """Train to the plan's last step with the whole step compiled. False where interrupted."""
    step = torch.compile(trainer.step)
    forward = torch.compile(trainer.model)
    first = True
    with bar(plan.steps, trainer.done, "compiled") as shown:
        while trainer.done < plan.steps:
            if interrupted():
                return False
            before = torch.compiler.stats()
            loss, seconds = trainer.advance(step)
            for name, count in torch.compiler.stats().items():
                history.counts[name] = history.counts.get(name, 0) + count - before[name]
            history.losses.append(loss)
            (history.first_seconds if first else history.seconds).append(seconds)
            first = False
            shown.set_postfix(loss=f"{loss:.3f}")
            shown.update()
            if trainer.done % SCORE_EVERY == 0 and trainer.done < plan.steps:
                history.held.append([trainer.done, trainer.score(forward)])
            if trainer.done % SAVE_EVERY == 0 and trainer.done < plan.steps:
                trainer.save(plan.out / CHECKPOINT, history)
    if not history.held or history.held[-1][0] < trainer.done:
        history.held.append([trainer.done, trainer.score(forward)])
    return True
