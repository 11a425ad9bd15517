"""What compiled functions keep, and what many calls leave behind."""

import gc
import threading
import weakref

import pytest

import lehr as torch
from lehr import nn
from lehr.compiler.run import memory

BACKENDS = ("inductor", "reference")


def resident():
    """Bytes of this process that are in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def test_100_000_calls_do_not_grow_the_process():
    x, big = torch.randn(8), torch.randn(64, 64)
    m = nn.Linear(8, 8)
    f = torch.compile(lambda x: x * 2 + 1)
    g = torch.compile(lambda x: m(x).sum())
    h = torch.compile(lambda x: (x * 2, [x + 1]))

    def calls(n):
        for _ in range(n):
            f(x)
            f(x)
            g(x)
            h(big)

    calls(2_000)
    gc.collect()
    before = resident()
    calls(25_000)
    gc.collect()
    assert resident() - before < 1 << 20
    assert len(f.entries) == len(g.entries) == len(h.entries) == 1


def test_a_training_loop_does_not_grow_the_process():
    m = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.AdamW(m.parameters(), lr=1e-3)

    @torch.compile
    def step(x):
        optimizer.zero_grad()
        loss = m(x).square().sum()
        loss.backward()
        optimizer.step()
        return loss

    x = torch.randn(4, 8)
    for _ in range(500):
        step(x)
    gc.collect()
    before, leased = resident(), memory.host.stats()["allocated"]
    for _ in range(5_000):
        step(x)
    gc.collect()
    assert resident() - before < 1 << 20
    assert memory.host.stats()["allocated"] == leased
    assert len(step.entries) == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_arguments_of_the_first_call_are_not_kept(backend):
    f = torch.compile(lambda x, many: (x * 2).sum() + many["a"][0], backend=backend)
    x, y = torch.randn(8), torch.randn(8)
    refs = [weakref.ref(t) for t in (x, y)]
    storages = [weakref.ref(t._storage) for t in (x, y)]
    for _ in range(3):
        f(x, {"a": [y]})
    del x, y
    gc.collect()
    assert [r() for r in refs + storages] == [None] * 4


class Thing:
    n = 2


@pytest.mark.parametrize("end", ["print", "item", "nothing"])
def test_an_attempt_that_was_given_up_keeps_nothing(end, capsys):
    """Nor a cycle that only the collector would find: what the program lets go is gone at once."""
    made = []

    @torch.compiler.disable
    def make():
        thing = Thing()
        thing.part = torch.ones(2)
        made.extend((weakref.ref(thing), weakref.ref(thing.part)))
        return thing

    @torch.compile
    def f(x):
        thing = make()
        y = x * thing.n + thing.part
        if end == "print":
            print(thing.n)
        elif end == "item" and y.sum() > 100:
            y = y + 1
        return y * 2
    gc.collect()
    gc.disable()
    try:
        assert f(torch.ones(2)).tolist() == [6.0, 6.0]
        assert [r() for r in made] == [None, None]
    finally:
        gc.enable()


@pytest.mark.parametrize("backend", BACKENDS)
def test_results_and_saved_values_are_not_kept(backend):
    m = nn.Linear(8, 8)
    f = torch.compile(m, backend=backend)
    x = torch.randn(4, 8, requires_grad=True)
    for _ in range(3):
        y = f(x)
    ref, node = weakref.ref(y._storage), weakref.ref(y.grad_fn)
    y.sum().backward()
    del y
    gc.collect()
    assert ref() is None and node() is None


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_compiled_module_dies_with_its_last_user(backend):
    m = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))
    f = torch.compile(m, backend=backend)
    x = torch.randn(4, 8)
    for _ in range(3):
        f(x).sum().backward()
    refs = [weakref.ref(o) for o in (m, f, m[0].weight, m[1].running_mean, f.compiled_call)]
    del m, f
    gc.collect()
    assert [r() for r in refs] == [None] * 5


def test_a_step_does_not_keep_the_model_that_was_global():
    space = {"torch": torch, "model": nn.Linear(4, 4)}
    exec("def f(x):\n    return model(x) * 2", space)
    f = torch.compile(space["f"], backend="reference")
    x = torch.randn(2, 4)
    for _ in range(3):
        f(x)
    ref = weakref.ref(space["model"])
    space["model"] = nn.Linear(4, 4)
    gc.collect()
    assert ref() is None
    assert torch.allclose(f(x), space["model"](x) * 2)
    assert len(f.entries) == 1


def test_effects_and_results_still_reach_their_objects():
    """Entries that have forgotten the first call read everything anew."""
    class Box:
        pass

    @torch.compile(backend="reference")
    def f(box, items, x):
        box.last = x * 2
        box.seen = (box.seen[0] + 1, items)
        items.append(box)
        return {"box": box, "x": x, "new": [x + 1, (box.last, None)]}

    for n in range(6):
        box, items, x = Box(), [], torch.full((2,), float(n))
        box.seen = (0, None)
        out = f(box, items, x)
        assert out["box"] is box and out["x"] is x and items == [box]
        assert box.seen[1] is items and box.seen[0] == 1
        assert box.last.tolist() == [2.0 * n] * 2 and out["new"][1][0] is box.last
        assert out["new"][0].tolist() == [n + 1.0] * 2 and out["new"][1][1] is None


def test_reset_frees_what_entries_hold():
    m = nn.Linear(4, 4)
    f = torch.compile(lambda x: m(x), backend="reference")
    for _ in range(3):
        f(torch.randn(2, 4))
    entry = weakref.ref(f.entries[0])
    torch.compiler.reset()
    gc.collect()
    assert entry() is None


def test_threads_with_models_of_their_own():
    """Quick checks of several models at once, while their parts are replaced."""
    f = torch.compile(lambda m, x: m(x) * 2)
    models = [nn.Linear(4, 4) for _ in range(4)]
    f(models[0], torch.randn(2, 4))
    wrong = []

    def work(m, seed):
        x = torch.full((2, 4), float(seed))
        for n in range(150):
            if n % 10 == 0:
                m.weight.data = torch.full((4, 4), float(n + seed))
            if n % 30 == 7:
                m.bias = nn.Parameter(torch.full((4,), float(n)))
            with torch.no_grad():
                if not torch.allclose(f(m, x), m(x) * 2, atol=1e-4):
                    wrong.append((seed, n))
                if not f(m, x).requires_grad:
                    continue
                wrong.append((seed, n, "grad"))

    threads = [threading.Thread(target=work, args=(m, i)) for i, m in enumerate(models)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
