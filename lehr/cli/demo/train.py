"""The demo's training: steps, held-out score, sampling, and a state that resumes exactly."""

from __future__ import annotations

import os
import signal
import statistics
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import lehr as torch
from lehr.cli.demo import text
from lehr.cli.demo.model import GPT

FORMAT = 1
SCORED_BATCHES = 16
# Keys of the data order: training uses (seed, step), scoring this fixed key and the batch's number.
SCORE_KEY = 1 << 32


@dataclass(frozen=True)
class Config:
    """Everything that the losses depend on, besides the text."""

    seed: int = 0
    layers: int = 4
    width: int = 256
    heads: int = 4
    context: int = 128
    batch: int = 8
    rate: float = 1e-3


@dataclass
class History:
    """What a run has seen so far. Times are wall seconds of one whole step, loss read back."""

    losses: list[float] = field(default_factory=list)
    held: list[list[float]] = field(default_factory=list)  # [step, loss]
    eager_losses: list[float] = field(default_factory=list)
    eager_seconds: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    first_seconds: list[float] = field(default_factory=list)  # one a process: it compiles
    counts: dict[str, int] = field(default_factory=dict)  # what the compiler did for the step


class Trainer:
    """Model, optimizer and the step over them, from a seed."""

    def __init__(self, config: Config, corpus: text.Corpus) -> None:
        torch.manual_seed(config.seed)
        self.config, self.corpus = config, corpus
        self.model = GPT(config.layers, config.width, config.heads, config.context)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=config.rate)
        self.done = 0

    def step(self, tokens, targets):
        """One whole training step; gives its loss. This is what gets compiled."""
        loss = self.model(tokens, targets)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()

    def windows(self, data, *key: int):
        """Tokens and targets of one batch, int64 [batch, context]."""
        arrays = text.batch(data, self.config.batch, self.config.context, *key)
        return tuple(torch.from_numpy(array) for array in arrays)

    def advance(self, step: Callable) -> tuple[float, float]:
        """Run the next step; gives (loss, wall seconds)."""
        tokens, targets = self.windows(self.corpus.train, self.config.seed, self.done)
        begin = time.perf_counter()
        loss = step(tokens, targets).item()
        seconds = time.perf_counter() - begin
        self.done += 1
        return loss, seconds

    def score(self, forward: Callable) -> float:
        """Mean held-out loss over fixed windows, in nats a byte."""
        with torch.no_grad():
            return statistics.fmean(
                forward(*self.windows(self.corpus.held, SCORE_KEY, number)).item()
                for number in range(SCORED_BATCHES)
            )

    def sample(self, forward: Callable, count: int, warmth: float = 0.8) -> tuple[bytes, bytes]:
        """(prompt, continuation): a context of held-out text, and `count` bytes drawn after it."""
        context = self.config.context
        window, _ = text.batch(self.corpus.held, 1, context, SCORE_KEY, SCORED_BATCHES)
        tokens = torch.from_numpy(window)
        prompt, drawn = window[0].astype("uint8").tobytes(), bytearray()
        draw = torch.Generator().manual_seed(self.config.seed)
        with torch.no_grad():
            for _ in range(count):
                weights = (forward(tokens)[:, -1] / warmth).softmax(-1)
                token = torch.multinomial(weights, 1, generator=draw)
                drawn.append(token.item())
                tokens = torch.cat([tokens[:, 1:], token], 1)
        return prompt, bytes(drawn)

    def save(self, path: Path, history: History) -> None:
        """Write the whole state, or leave the old file as it was."""
        state = {
            "format": FORMAT,
            "config": asdict(self.config),
            "corpus": self.corpus.digest,
            "done": self.done,
            "history": asdict(history),
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "rng": torch.get_rng_state(),
        }
        part = path.with_name(f"{path.name}.{os.getpid()}.part")
        try:
            with part.open("wb") as file:
                torch.save(state, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)


def resume(path: Path, corpus: text.Corpus) -> tuple[Trainer, History]:
    """The run that `Trainer.save` wrote. Raises ValueError where it cannot be continued exactly."""
    state = torch.load(path)
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise ValueError(f"{path} is not a checkpoint of this demo")
    if state["corpus"] != corpus.digest:
        raise ValueError(
            f"{path} was trained on another standard library: "
            "resume it with the Python that began it"
        )
    trainer = Trainer(Config(**state["config"]), corpus)
    trainer.model.load_state_dict(state["model"])
    trainer.optimizer.load_state_dict(state["optimizer"])
    trainer.done = state["done"]
    torch.set_rng_state(state["rng"])
    return trainer, History(**state["history"])


@contextmanager
def interruption():
    """Gives a function that says whether Ctrl-C came; a second Ctrl-C raises as usual.

    The running step ends first: cut in half, it would leave weights that no whole run has.
    """
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return

    def note(*_):
        asked.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    old = signal.signal(signal.SIGINT, note)
    try:
        yield asked.is_set
    finally:
        signal.signal(signal.SIGINT, old)
