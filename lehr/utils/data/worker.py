"""The processes that fetch batches for a loader."""

from __future__ import annotations

import os
import pickle
import random as python_random
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np

from lehr.tensor import random

PATIENCE = 5.0  # seconds between looks whether the parent lives


@dataclass
class WorkerInfo:
    """What a worker may know: its number, how many there are, its seed, its copy of the data set.
    """

    id: int
    num_workers: int
    seed: int
    dataset: Any


_CURRENT: list[WorkerInfo] = []
_ASKED = False      # since the worker began


def get_worker_info() -> WorkerInfo | None:
    """The worker that this process is; None in the main process."""
    global _ASKED
    _ASKED = True
    return _CURRENT[-1] if _CURRENT else None


class _Text(str):
    """A KeyError's text that is shown as it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class ExceptionWrapper:
    """An exception of a worker, with its traceback as text."""

    def __init__(self, where: str) -> None:
        kind, error, trace = sys.exc_info()
        assert kind is not None
        self.kind: Any = kind
        self.name = kind.__name__
        self.text = "".join(traceback.format_exception(kind, error, trace))
        self.where = where

    def __getstate__(self) -> dict[str, Any]:
        try:
            pickle.dumps(self.kind)
        except Exception:  # noqa: BLE001  (a class that only the worker knows)
            return {**self.__dict__, "kind": RuntimeError}
        return self.__dict__

    def reraise(self) -> None:
        """Raises it again; as RuntimeError where its class cannot be made from a text, or is not
        known outside the worker."""
        # No local name may hold the exception: with its traceback it would keep the loader alive.
        raise self._again()

    def _again(self) -> BaseException:
        text = f"Caught {self.name} {self.where}.\nOriginal {self.text}"
        try:
            made: BaseException = self.kind(_Text(text) if self.kind is KeyError else text)
        except Exception:  # noqa: BLE001  (goes to the main process)
            made = RuntimeError(text)
        return made


class Fetcher:
    """Batches from indices, or from a stream."""

    def __init__(self, dataset: Any, stream: bool, auto: bool, collate_fn: Callable[..., Any],
                 drop_last: bool) -> None:
        self.dataset, self.auto, self.collate, self.drop_last = dataset, auto, collate_fn, drop_last
        self.source = iter(dataset) if stream else None
        self.ended = False

    def fetch(self, indices: Any) -> Any:
        """One batch; StopIteration at the end of a stream."""
        if self.source is not None:
            return self._next(indices)
        try:
            if not self.auto:
                return self.collate(self.dataset[indices])
            many = getattr(self.dataset, "__getitems__", None)
            return self.collate(
                many(indices) if callable(many) else [self.dataset[i] for i in indices])
        except StopIteration as error:  # it would end the pass, or leave the batch out
            raise RuntimeError(f"the data set raised StopIteration for {indices}") from error

    def _next(self, indices: Any) -> Any:
        if self.ended:
            raise StopIteration
        if not self.auto:
            return self.collate(next(self.source))  # type: ignore[arg-type]
        data = []
        for _ in indices:
            try:
                data.append(next(self.source))  # type: ignore[arg-type]
            except StopIteration:
                self.ended = True
                break
        if not data or (self.drop_last and len(data) < len(indices)):
            raise StopIteration
        return self.collate(data)


class End:
    """A worker's stream is over; `asked`: its data set looked which worker it is in."""

    def __init__(self, asked: bool) -> None:
        self.asked = asked


class Reset:
    """A new pass begins, with a seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed


def _seed(seed: int) -> None:
    python_random.seed(seed)
    np.random.seed(seed % 2 ** 32)
    random.manual_seed(seed)


def _ask(tasks: Any, parent: int) -> Any:
    """The next task; None once the parent is gone."""
    while not tasks.poll(PATIENCE):
        if os.getppid() != parent:
            return None
    try:
        return tasks.recv()
    except EOFError:
        return None


def run(number: int, count: int, dataset: Any, make: tuple[Any, ...], tasks: Any, results: Any,
        seed: int, init: Callable[[int], None] | None, parent: int) -> None:
    """A worker's life: tasks are (batch number, indices), a Reset, or None for the end."""
    where = f"in DataLoader worker process {number}"
    fetcher: Any = None
    problem: Any = None
    global _ASKED
    _CURRENT.append(WorkerInfo(number, count, seed, dataset))
    _ASKED = False
    try:
        _seed(seed)
        if init is not None:
            init(number)
        fetcher = Fetcher(dataset, *make)
    except Exception:  # noqa: BLE001  (goes to the main process)
        problem = ExceptionWrapper(where)
    while (task := _ask(tasks, parent)) is not None:
        if isinstance(task, Reset):
            _CURRENT[-1].seed = task.seed
            problem = None
            try:
                fetcher = Fetcher(dataset, *make)
            except Exception:  # noqa: BLE001  (goes to the main process)
                problem = ExceptionWrapper(where)
            continue
        batch, indices = task
        if problem is None:
            try:
                made = fetcher.fetch(indices)
            except StopIteration:
                made = End(_ASKED)
            except Exception:  # noqa: BLE001  (goes to the main process)
                made = ExceptionWrapper(where)
        else:
            made, problem = problem, None
        try:
            packed = ForkingPickler.dumps((batch, made))
        except Exception:  # noqa: BLE001  (goes to the main process)
            packed = ForkingPickler.dumps((batch, ExceptionWrapper(where)))
        results.send_bytes(packed)


__all__ = ["ExceptionWrapper", "Fetcher", "WorkerInfo", "get_worker_info"]
