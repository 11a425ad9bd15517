"""The host's side of compiled calls: results, their memory, bound inputs, faults, threads."""

import functools
import gc
import threading

import numpy as np
import pytest

import lehr as torch
from lehr.compiler.run import memory
from lehr.tensor.leased import SMALL, BlockStorage, LeasedStorage


def program(function, *args):
    """The native program of a function's graph, and its inputs."""
    compiled = torch.compile(function)
    compiled(*args)
    entry = compiled.entries[0]
    return entry.compiled.report[0], entry.gather(args, {})


def test_small_and_large_results():
    for n, kind in ((8, BlockStorage), (SMALL, LeasedStorage)):
        x = torch.randn(n)
        y = torch.compile(lambda x: x * 2 + 1)(x)
        assert type(y._storage) is kind
        assert torch.equal(y, x * 2 + 1)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,), (2, 3)])
def test_shapes(shape):
    x = torch.ones(shape)
    y = torch.compile(lambda x: x + 1)(x)
    assert y.shape == shape and y.tolist() == (x + 1).tolist()
    assert y._storage.nbytes == 4 * y.numel()


def test_results_are_ordinary_tensors():
    x = torch.randn(64, 64)
    y = torch.compile(lambda x: x * 2)(x)
    twin, view = y.data, y[3]
    y.add_(1)
    assert torch.equal(view, x[3] * 2 + 1) and torch.equal(twin, y)
    y.resize_(80, 80)
    assert y.shape == (80, 80) and torch.equal(y.flatten()[:4096].view(64, 64), x * 2 + 1)


def test_memory_goes_back_once_nobody_sees_it():
    x = torch.randn(64, 64)
    f = torch.compile(lambda x: x * 2)
    f(x)
    gc.collect()
    before = memory.host.stats()
    y = f(x)
    assert memory.host.stats()["allocated"] == before["allocated"] + y._storage.nbytes
    array = y.numpy()
    del y
    gc.collect()
    assert memory.host.stats()["allocated"] > before["allocated"]
    want = array.copy()
    others = [f(x * 3) for _ in range(4)]
    assert (array == want).all()
    del array, others
    gc.collect()
    assert memory.host.stats()["allocated"] == before["allocated"]
    for _ in range(50):
        f(x)
    assert memory.host.stats()["fresh"] <= before["fresh"] + 5


def test_bound_inputs():
    x, w = torch.randn(5, 4), torch.randn(4, 3)
    native, inputs = program(lambda x, w: x @ w + 1, x, w)
    i = next(i for i, t in enumerate(inputs) if t is w)
    bound = native.host.bind({i: w})
    assert [n for n, *_ in bound.tensors] == [1 - i]
    for _ in range(3):
        inputs[1 - i] = x = torch.randn(5, 4)
        made, = bound(inputs)
        assert np.allclose(made.numpy(), x.numpy() @ w.numpy() + 1, atol=1e-5)
    w.mul_(2)
    assert np.allclose(bound(inputs)[0].numpy(), x.numpy() @ w.numpy() + 1, atol=1e-5)


def test_numbers_are_written_into_the_frame():
    p = torch.nn.Parameter(torch.ones(4))
    optimizer = torch.optim.SGD([p], lr=0.5)

    @torch.compile
    def step():
        p.grad = torch.ones_like(p)
        optimizer.step()

    want = 1.0
    for lr in (0.5, 0.25, 2.0, 1e-3):
        optimizer.param_groups[0]["lr"] = lr
        step()
        want -= lr
        assert p.tolist() == pytest.approx([want] * 4)
    assert len(step.entries) == 1


def test_a_fault_leaves_the_program_usable():
    x = torch.randn(5)
    f = torch.compile(lambda x, i: x[i])
    good, bad = torch.tensor([0, 4]), torch.tensor([0, 7])
    assert torch.equal(f(x, good), x[good])
    allocated = memory.host.stats()["allocated"]
    for _ in range(3):
        with pytest.raises(IndexError, match="7"):
            f(x, bad)
    assert torch.equal(f(x, good), x[good])
    assert memory.host.stats()["allocated"] == allocated


def test_threads():
    f = torch.compile(lambda x: (x * 2).sum(0) + x)
    f(torch.ones(64, 64))
    wrong = []

    def work(k):
        x = torch.full((64, 64), float(k))
        want = (x * 2).sum(0) + x
        wrong.extend(i for i in range(200) if not torch.equal(f(x), want))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong and len(f.entries) == 1


def test_an_array_is_made_once_among_threads():
    x = torch.randn(64, 64)
    f = torch.compile(lambda x: x * 2)
    f(x)
    gc.collect()
    before = memory.host.stats()["allocated"]
    for _ in range(20):
        y, seen = f(x), []
        look = functools.partial(lambda y, seen: seen.append(y._storage.owner), y, seen)
        threads = [threading.Thread(target=look) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert all(a is seen[0] for a in seen)
    del y, seen, threads, look
    gc.collect()
    assert memory.host.stats()["allocated"] == before
