"""`DataLoader`: batches of a data set, fetched here or by worker processes."""

from __future__ import annotations

import itertools
import math
import multiprocessing
import multiprocessing.connection
import os
import pickle
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from lehr.utils.data import worker as working
from lehr.utils.data.collate import default_collate, default_convert
from lehr.utils.data.dataset import IterableDataset
from lehr.utils.data.sampler import (
    BatchSampler,
    RandomSampler,
    SequentialSampler,
    seed_of,
)
from lehr.utils.data.worker import ExceptionWrapper, get_worker_info

T_co = TypeVar("T_co", covariant=True)

# Settings that the running iterators have taken over.
FIXED = ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers")


class Forever:
    """The sampler of streams: no indices, without end."""

    def __iter__(self) -> Iterator[None]:
        return itertools.repeat(None)


class DataLoader(Generic[T_co]):
    """Batches of a data set.

    batch_size       samples a batch; None gives the samples themselves
    shuffle          a new random order each pass
    sampler          one's own order of indices; batch_sampler: of lists of indices
    num_workers      processes that fetch; 0: this process does
    collate_fn       makes a batch of a list of samples
    drop_last        leaves out a short last batch
    timeout          seconds to wait for a worker; 0: for ever
    worker_init_fn   called in each worker with its number
    generator        draws the order and the workers' seeds
    prefetch_factor  batches that each worker fetches ahead (2)
    persistent_workers  keeps the workers from one pass to the next
    in_order         batches come in the order of the sampler
    """

    __initialized = False

    def __init__(self, dataset: Any, batch_size: int | None = 1, shuffle: bool | None = None,
                 sampler: Any = None, batch_sampler: Any = None, num_workers: int = 0,
                 collate_fn: Callable[..., Any] | None = None, pin_memory: bool = False,
                 drop_last: bool = False, timeout: float = 0,
                 worker_init_fn: Callable[[int], None] | None = None,
                 multiprocessing_context: Any = None, generator: Any = None, *,
                 prefetch_factor: int | None = None, persistent_workers: bool = False,
                 pin_memory_device: str = "", in_order: bool = True) -> None:
        _check_workers(num_workers, timeout, prefetch_factor, persistent_workers)
        self.dataset, self.num_workers = dataset, num_workers
        self.prefetch_factor = 2 if num_workers > 0 and prefetch_factor is None else prefetch_factor
        self.pin_memory, self.pin_memory_device = pin_memory, pin_memory_device
        self.timeout, self.worker_init_fn, self.in_order = timeout, worker_init_fn, in_order
        self.multiprocessing_context = multiprocessing_context
        self._stream = isinstance(dataset, IterableDataset)
        if self._stream:
            _check_stream(shuffle, sampler, batch_sampler)
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError("batch_sampler option is mutually exclusive with batch_size, "
                                 "shuffle, sampler, and drop_last")
            batch_size, drop_last = None, False
        elif batch_size is None and drop_last:
            raise ValueError("batch_size=None option disables auto-batching and is mutually "
                             "exclusive with drop_last")
        if sampler is None:
            if self._stream:
                sampler = Forever()
            elif shuffle:
                sampler = RandomSampler(dataset, generator=generator)
            else:
                sampler = SequentialSampler(dataset)
        if batch_size is not None and batch_sampler is None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size, self.drop_last = batch_size, drop_last
        self.sampler, self.batch_sampler, self.generator = sampler, batch_sampler, generator
        if collate_fn is None:
            collate_fn = default_convert if batch_sampler is None else default_collate
        self.collate_fn, self.persistent_workers = collate_fn, persistent_workers
        self._iterator: Any = None
        self._warned = False
        self.__initialized = True

    def __setattr__(self, name: str, value: Any) -> None:
        if self.__initialized and name in FIXED:
            raise ValueError(f"{name} attribute should not be set after {type(self).__name__} is "
                             "initialized")
        super().__setattr__(name, value)

    @property
    def _auto_collation(self) -> bool:
        return self.batch_sampler is not None

    @property
    def _index_sampler(self) -> Any:
        return self.batch_sampler if self._auto_collation else self.sampler

    def __iter__(self) -> Iterator[Any]:
        if self.num_workers == 0:
            return _Here(self)
        if self.persistent_workers:
            if self._iterator is None:
                self._iterator = _Workers(self)
            else:
                self._iterator.reset()
            return self._iterator  # type: ignore[no-any-return]
        return _Workers(self)

    def __len__(self) -> int:
        if not self._stream:
            return len(self._index_sampler)
        n = len(self.dataset)
        if self.batch_size is None:
            return n
        return n // self.batch_size if self.drop_last else math.ceil(n / self.batch_size)

    def _fetching(self) -> tuple[Any, ...]:
        return self._stream, self._auto_collation, self.collate_fn, self.drop_last


def _check_workers(workers: int, timeout: float, prefetch: int | None, persistent: bool) -> None:
    if workers < 0:
        raise ValueError("num_workers option should be non-negative; use num_workers=0 to disable "
                         "multiprocessing.")
    if timeout < 0:
        raise ValueError("timeout option should be non-negative")
    if workers == 0 and prefetch is not None:
        raise ValueError("prefetch_factor option could only be specified in multiprocessing.let "
                         "num_workers > 0 to enable multiprocessing, otherwise set prefetch_factor "
                         "to None.")
    if prefetch is not None and prefetch < 0:
        raise ValueError("prefetch_factor option should be non-negative")
    if persistent and workers == 0:
        raise ValueError("persistent_workers option needs num_workers > 0")


def _check_stream(shuffle: Any, sampler: Any, batch_sampler: Any) -> None:
    if shuffle not in (False, None):
        raise ValueError("DataLoader with IterableDataset: expected unspecified shuffle option, "
                         "but "
                         f"got shuffle={shuffle}")
    if sampler is not None:
        raise ValueError("DataLoader with IterableDataset: expected unspecified sampler option, "
                         "but "
                         f"got sampler={sampler}")
    if batch_sampler is not None:
        raise ValueError("DataLoader with IterableDataset: expected unspecified batch_sampler "
                         f"option, but got batch_sampler={batch_sampler}")


class _BaseDataLoaderIter:
    """One pass over a loader."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        self.loader = loader
        self._base_seed = seed_of(loader.generator)
        self._sampler_iter = iter(loader._index_sampler)
        self._num_yielded = 0

    def __iter__(self) -> Any:
        return self

    def __len__(self) -> int:
        return len(self.loader._index_sampler)

    def _next_data(self) -> Any:
        raise NotImplementedError

    def __next__(self) -> Any:
        data = self._next_data()
        self._num_yielded += 1
        self._warn_if_longer()
        return data

    def _warn_if_longer(self) -> None:
        """A stream that gives more than its length says."""
        loader = self.loader
        if not loader._stream or loader._warned or not hasattr(loader.dataset, "__len__"):
            return
        if self._num_yielded > len(loader):
            loader._warned = True
            warnings.warn(f"Length of IterableDataset {loader.dataset} was reported to be "
                          f"{len(loader)} (when accessing len(dataloader)), but "
                          f"{self._num_yielded} "
                          "samples have been fetched. ", stacklevel=3)


class _Here(_BaseDataLoaderIter):
    """Fetches in this process."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        super().__init__(loader)
        self._fetcher = working.Fetcher(loader.dataset, *loader._fetching())

    def _next_data(self) -> Any:
        return self._fetcher.fetch(next(self._sampler_iter))


_SingleProcessDataLoaderIter = _Here


class _Worker:
    """One worker process and the two pipes to it."""

    def __init__(self, context: Any, number: int, loader: DataLoader[Any], seed: int) -> None:
        theirs, self.tasks = context.Pipe(duplex=False)
        self.results, results = context.Pipe(duplex=False)
        self.number, self.open = number, True
        self.process = context.Process(
            target=working.run, daemon=True,
            args=(number, loader.num_workers, loader.dataset, loader._fetching(), theirs, results,
                  seed, loader.worker_init_fn, os.getpid()))
        self.process.start()
        theirs.close()
        results.close()

    def send(self, task: Any) -> None:
        try:
            self.tasks.send(task)
        except (BrokenPipeError, OSError):
            raise RuntimeError(self.death()) from None

    def death(self) -> str:
        """What to say of a worker that is gone."""
        self.process.join(1)
        return (f"DataLoader worker (pid(s) {self.process.pid}) exited unexpectedly with exit code "
                f"{self.process.exitcode}. It was killed, ended itself, or ran out of memory; "
                "num_workers=0 runs the data set in this process and shows more.")

    def stop(self) -> None:
        if self.process.is_alive():
            try:
                self.tasks.send(None)
            except OSError:
                self.process.terminate()
        self.tasks.close()


    def drain(self, patience: float = 5.0) -> None:
        """Reads what is still coming until the process has ended."""
        end = time.monotonic() + patience
        while self.process.is_alive() and time.monotonic() < end:
            try:
                if self.results.poll(0.02):
                    self.results.recv_bytes()
            except (EOFError, OSError):
                break
        self.process.join(0.5)
        if self.process.is_alive():
            self.process.terminate()
            self.process.join(1)
        self.results.close()


class _Workers(_BaseDataLoaderIter):
    """Hands out batches to workers in turn and collects them in order.

    `waiting` maps batch numbers that were handed out to their worker; `done` holds what came early.
    """

    def __init__(self, loader: DataLoader[Any]) -> None:
        super().__init__(loader)
        context = loader.multiprocessing_context
        if context is None or isinstance(context, str):
            context = multiprocessing.get_context(context)
        self.owner = os.getpid()
        self.workers: list[_Worker] = []
        try:
            for i in range(loader.num_workers):
                self.workers.append(_Worker(context, i, loader, self._base_seed + i))
        except BaseException:
            self._shutdown()
            raise
        self._begin()

    def _begin(self) -> None:
        self.sent = self.given = 0
        self.waiting: dict[int, _Worker] = {}
        self.done: dict[int, Any] = {}
        self.turn = itertools.cycle(self.workers)
        for _ in range((self.loader.prefetch_factor or 1) * len(self.workers)):
            self._hand_out()

    def reset(self) -> None:
        """A new pass with the same workers."""
        while self.waiting:
            self._receive()
        self._base_seed = seed_of(self.loader.generator)
        self._sampler_iter = iter(self.loader._index_sampler)
        self._num_yielded = 0
        for w in self.workers:
            w.open = True
            w.send(working.Reset(self._base_seed + w.number))
        self._begin()

    def _hand_out(self) -> None:
        """Gives the next indices to the next worker whose stream is not over."""
        for _ in range(len(self.workers)):
            target = next(self.turn)
            if target.open:
                break
        else:
            return
        try:
            indices = next(self._sampler_iter)
        except StopIteration:
            return
        target.send((self.sent, indices))
        self.waiting[self.sent] = target
        self.sent += 1

    def _receive(self) -> None:
        """Waits for one result."""
        live = {w.results: w for w in self.waiting.values()}
        deadline = time.monotonic() + self.loader.timeout if self.loader.timeout > 0 else None
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            ready = multiprocessing.connection.wait(
                [*live, *(w.process.sentinel for w in live.values())], left)
            arrived = [live[r] for r in ready if r in live]  # type: ignore[index]
            for w in arrived:
                try:
                    batch, made = pickle.loads(w.results.recv_bytes())
                except (EOFError, OSError):
                    text = w.death()
                    self._shutdown()
                    raise RuntimeError(text) from None
                del self.waiting[batch]
                self.done[batch] = made
                if isinstance(made, working.End):
                    w.open = False
            if arrived:
                return
            dead = [w for w in live.values() if w.process.sentinel in ready]
            self._shutdown()
            if dead:
                raise RuntimeError(dead[0].death())
            raise RuntimeError(f"DataLoader timed out after {self.loader.timeout} seconds")

    def _take(self) -> Any:
        """The next result in order, or (`in_order` False) whichever came first."""
        if not self.loader.in_order:
            if not self.done:
                self._receive()
            return self.done.pop(next(iter(self.done)))
        while self.given not in self.done:
            self._receive()
        self.given += 1
        return self.done.pop(self.given - 1)

    def _next_data(self) -> Any:
        while True:
            if not self.waiting and not self.done:
                self._over()
                raise StopIteration
            made = self._take()
            self._hand_out()
            if isinstance(made, working.End):
                self._warn_if_same(made)
                continue
            if isinstance(made, ExceptionWrapper):
                made.reraise()
            return made

    def _warn_if_same(self, end: working.End) -> None:
        """A stream that no worker shares out comes once from each."""
        if len(self.workers) > 1 and not end.asked and not self.loader._warned:
            self.loader._warned = True
            warnings.warn(
                f"{type(self.loader.dataset).__name__} never called get_worker_info(): each of the "
                f"{len(self.workers)} workers went through the whole stream, so its data came "
                f"{len(self.workers)} times. Let __iter__ take only this worker's share "
                "(get_worker_info().id of .num_workers).", stacklevel=3)

    def _over(self) -> None:
        if not self.loader.persistent_workers:
            self._shutdown()

    def _shutdown(self) -> None:
        workers, self.workers = self.workers, []
        for w in workers:
            w.stop()
        for w in workers:
            w.drain()

    def __del__(self) -> None:
        # A forked worker has copies of its parent's iterators, which it must leave alone.
        if self.__dict__.get("workers") and self.owner == os.getpid():
            self._shutdown()


_MultiProcessingDataLoaderIter = _Workers


class _DatasetKind:
    """Data by index or as a stream."""

    Map = 0
    Iterable = 1


__all__ = ["DataLoader", "default_collate", "default_convert", "get_worker_info"]
