"""Data sets, orders, batches and loaders; the same under torch where nothing is random."""

from __future__ import annotations

import collections
import multiprocessing
import os

import numpy as np
import pytest

import lehr
from lehr.utils import data
from tests.nn.both import check

Pair = collections.namedtuple("Pair", "x y")


def rows(m):
    return m.utils.data.TensorDataset(m.arange(10), m.arange(20).reshape(10, 2))


class Squares(data.Dataset):
    def __init__(self, n=10):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return lehr.tensor([float(i * i)]), i


class Stream(data.IterableDataset):
    def __iter__(self):
        info = data.get_worker_info()
        yield from range(10) if info is None else range(info.id, 10, info.num_workers)


def _concat(m):
    d = m.utils.data
    a = d.ConcatDataset([rows(m), rows(m)]) + rows(m)
    return [len(a), a[0], a[15], a[-1], len(d.Subset(a, [1, 2])), d.Subset(a, [3, 4])[1],
            d.StackDataset(x=[1, 2], y=[3, 4])[1], d.StackDataset([1], [2])[0]]


def _collated(m):
    c = m.utils.data.default_collate
    return [c([1, 2]), c([1.5, 2.5]), c(["a", "b"]),
            c([{"x": 1, "y": [1, 2]}, {"x": 3, "y": [4, 5]}]),
            list(c([Pair(1, 2.0), Pair(3, 4.0)])), c([(1, "p"), (2, "q")]),
            c([m.ones(2), m.zeros(2)]), c([np.ones(2), np.zeros(2)]),
            c([np.float32(1), np.float32(2)]), c([True, False]),
            m.utils.data.default_convert({"a": np.ones(2), "b": [np.float64(1.0), "s"]})]


def _orders(m):
    d = m.utils.data
    s = d.SequentialSampler(range(7))
    return [list(d.BatchSampler(s, 3, False)), list(d.BatchSampler(s, 3, True)),
            len(d.BatchSampler(s, 3, False)), len(d.BatchSampler(s, 3, True)),
            list(d.DistributedSampler(range(7), 3, 1, shuffle=False)),
            list(d.DistributedSampler(range(7), 3, 2, shuffle=False, drop_last=True)),
            len(d.DistributedSampler(range(7), 3, 2, drop_last=True))]


PROGRAMS = {
    "concat": _concat, "collated": _collated, "orders": _orders,
    "batches": lambda m: [list(b) for b in m.utils.data.DataLoader(rows(m), 4)],
    "dropped": lambda m: [list(b) for b in m.utils.data.DataLoader(rows(m), 4, drop_last=True)],
    "unbatched": lambda m: list(m.utils.data.DataLoader([1, 2.5, "x"], batch_size=None)),
    "own_sampler": lambda m: list(m.utils.data.DataLoader(list(range(5)), 2, sampler=[4, 0, 2])),
    "own_batches": lambda m: list(m.utils.data.DataLoader(list(range(5)),
                                                          batch_sampler=[[4, 0], [2]])),
    "own_collate": lambda m: list(m.utils.data.DataLoader(list(range(5)), 2, collate_fn=sum)),
    "length": lambda m: [len(m.utils.data.DataLoader(range(10), 3, drop_last=x)) for x in (True,
                                                                                           False)],
    "split": lambda m: [len(s) for s in m.utils.data.random_split(range(11), [0.5, 0.25, 0.25])],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_same(name):
    check(PROGRAMS[name])


ERRORS = {
    "uncollatable": ("TypeError", lambda m: m.utils.data.default_collate([object(), object()])),
    "unequal": ("RuntimeError", lambda m: m.utils.data.default_collate([[1, 2], [3]])),
    "sizes": ("AssertionError", lambda m: m.utils.data.TensorDataset(m.ones(2), m.ones(3))),
    "two_orders": ("ValueError",
                   lambda m: m.utils.data.DataLoader(range(3), shuffle=True, sampler=[0])),
    "negative": ("ValueError", lambda m: m.utils.data.DataLoader(range(3), num_workers=-1)),
    "fixed": ("ValueError", lambda m: setattr(m.utils.data.DataLoader(range(3)), "batch_size", 2)),
    "split": ("ValueError", lambda m: m.utils.data.random_split(range(3), [1, 1])),
    "batch_size": ("ValueError", lambda m: m.utils.data.DataLoader(range(3), batch_size=0)),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    check(ERRORS[name][1], error=ERRORS[name][0])


def test_shuffling_depends_on_the_seed_alone():
    def order(seed):
        lehr.manual_seed(seed)
        loader = data.DataLoader(range(20), shuffle=True)
        return [[int(b) for b in loader] for _ in range(2)]
    first = order(3)
    assert first == order(3) != order(4) and first[0] != first[1]
    assert all(sorted(p) == list(range(20)) for p in first)
    g = lehr.Generator().manual_seed(5)
    a = list(data.RandomSampler(range(9), generator=g))
    assert a == list(data.RandomSampler(range(9), generator=lehr.Generator().manual_seed(5)))


def test_random_samplers():
    lehr.manual_seed(0)
    drawn = list(data.RandomSampler(range(4), replacement=True, num_samples=2000))
    assert len(drawn) == 2000 and np.abs(np.bincount(drawn) / 500 - 1).max() < 0.2
    drawn = list(data.WeightedRandomSampler([1.0, 0.0, 3.0], 2000))
    counts = np.bincount(drawn, minlength=3)
    assert counts[1] == 0 and abs(counts[2] / 1500 - 1) < 0.1
    assert sorted(data.SubsetRandomSampler([5, 7, 9])) == [5, 7, 9]
    assert sorted(data.WeightedRandomSampler([1.0, 1.0, 1.0], 3, False)) == [0, 1, 2]


def test_distributed_shares_cover_everything():
    parts = [list(data.DistributedSampler(range(10), 3, r)) for r in range(3)]
    assert set(sum(parts, [])) == set(range(10)) and {len(p) for p in parts} == {4}
    s = data.DistributedSampler(range(10), 3, 0)
    before = list(s)
    s.set_epoch(1)
    assert list(s) != before


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_give_the_same_batches(workers):
    loader = data.DataLoader(Squares(), 3, num_workers=workers)
    for _ in range(2):
        got = [(x.reshape(-1).tolist(), i.tolist()) for x, i in loader]
        assert got == [([float(k * k) for k in b], b) for b in ([0, 1, 2], [3, 4, 5], [6, 7, 8],
                                                                [9])]


def test_persistent_workers_and_streams():
    loader = data.DataLoader(Stream(), 2, num_workers=2, persistent_workers=True)
    for _ in range(2):
        assert sorted(sum((b.tolist() for b in loader), [])) == list(range(10))
    assert sorted(int(x) for x in data.DataLoader(Stream(), None)) == list(range(10))
    pids = {w.process.pid for w in loader._iterator.workers}
    next(iter(loader))
    list(loader)
    assert pids == {w.process.pid for w in loader._iterator.workers}


class Noisy(data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        return float(lehr.rand(())), float(np.random.rand()), data.get_worker_info().id


def test_workers_are_seeded():
    def drawn(seed):
        lehr.manual_seed(seed)
        return [tuple(map(float, b)) for b in data.DataLoader(Noisy(), num_workers=2)]
    first = drawn(1)
    assert first == drawn(1) != drawn(2)
    assert len({b[0] for b in first}) == 4 and {b[2] for b in first} == {0.0, 1.0}


class Failing(data.Dataset):
    def __init__(self, what):
        self.what = what

    def __len__(self):
        return 6

    def __getitem__(self, i):
        if i == 3:
            self.what()
        return i


def _key():
    raise KeyError("no such label")


def _die():
    os._exit(3)


def _slow():
    import time
    time.sleep(30)


def test_errors_of_workers_keep_type_and_traceback():
    with pytest.raises(KeyError) as error:
        list(data.DataLoader(Failing(_key), num_workers=2))
    assert "no such label" in str(error.value) and "_key" in str(error.value)
    with pytest.raises(KeyError):
        list(data.DataLoader(Failing(_key)))


def _local():
    raise type("Local", (Exception,), {})("told anyway")


def _stop():
    raise StopIteration


def test_errors_that_cannot_travel_and_those_that_would_end_the_pass():
    with pytest.raises(RuntimeError, match="Caught Local in DataLoader worker(?s:.*)told anyway"):
        list(data.DataLoader(Failing(_local), num_workers=1))
    for workers in (0, 2):
        with pytest.raises(RuntimeError, match="raised StopIteration for"):
            list(data.DataLoader(Failing(_stop), num_workers=workers))


def test_dead_and_late_workers_are_reported():
    with pytest.raises(RuntimeError, match="exited unexpectedly with exit code 3"):
        list(data.DataLoader(Failing(_die), num_workers=2))
    with pytest.raises(RuntimeError, match="timed out after 0.5 seconds"):
        list(data.DataLoader(Failing(_slow), num_workers=1, timeout=0.5))


def test_no_worker_is_left_behind():
    it = iter(data.DataLoader(Squares(200), num_workers=2))
    next(it)
    mine = [w.process for w in it.workers]
    del it
    assert not any(p.is_alive() for p in mine)
    assert not set(mine) & set(multiprocessing.active_children())


class Shared(data.IterableDataset):
    def __init__(self, shares):
        self.shares = shares

    def __iter__(self):
        info = data.get_worker_info() if self.shares else None
        return iter(range(4) if info is None else range(info.id, 4, info.num_workers))


def test_streams_that_workers_repeat_are_told():
    import warnings
    with pytest.warns(UserWarning, match="each of the 2 workers went through the whole stream"):
        assert len(list(data.DataLoader(Shared(False), num_workers=2))) == 8
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(list(data.DataLoader(Shared(True), num_workers=2))) == 4
        assert len(list(data.DataLoader(Shared(False), num_workers=1))) == 4
