"""Many threads call compiled functions at once, the first call included."""

import random
import sys
import threading

import pytest

import lehr as torch
from lehr.compiler.counters import stats

THREADS = 8
X = torch.arange(12, dtype=torch.float32).reshape(3, 4)


@pytest.fixture(autouse=True)
def _impatient():
    """Threads change places often."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def together(work, count=THREADS):
    """Runs work(number) in threads that start at once; the first error is raised."""
    barrier, errors = threading.Barrier(count), []

    def run(number):
        barrier.wait()
        try:
            work(number)
        except BaseException as error:
            errors.append(error)
    threads = [threading.Thread(target=run, args=(n,), daemon=True) for n in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
    assert not any(t.is_alive() for t in threads), "a thread hangs"
    if errors:
        raise errors[0]


@pytest.mark.parametrize("backend", ["inductor", "eager"])
def test_the_first_call_is_captured_once(backend):
    def f(x, n):
        return (x * 2 + n).relu().sum()
    compiled = torch.compile(f, backend=backend)
    before = stats()

    def work(number):
        for _ in range(20):
            assert compiled(X, 1).item() == (X * 2 + 1).sum().item()
    together(work)
    after = stats()
    assert after["captures"] - before["captures"] == 1
    assert after["fallbacks"] == before["fallbacks"]


@pytest.mark.parametrize("backend", ["inductor", "eager"])
def test_threads_have_their_own_shapes(backend):
    def f(x):
        return x.sin().sum(0) + x.shape[0]
    compiled = torch.compile(f, backend=backend, dynamic=False,
                             options={"recompile_limit": 100})
    given = [torch.ones(n + 1, 3) for n in range(THREADS)]
    want = [f(x) for x in given]

    def work(number):
        order = random.Random(number).choices(range(THREADS), k=30)
        for n in order:
            assert torch.allclose(compiled(given[n]), want[n])
    before = stats()["captures"]
    together(work)
    assert stats()["captures"] - before == THREADS


def test_graph_breaks_in_threads():
    lock, seen = threading.Lock(), []

    def f(x, number):
        y = x + number
        with lock:
            seen.append(float(y.sum()))
        z = y * 2
        if z.sum() > 50:
            return inner(z) - number
        return inner(z) + number

    def inner(z):
        total = z.sum()
        return z / total.item()
    compiled = torch.compile(f, backend="eager")
    want = [f(X, n) for n in range(THREADS)]
    seen.clear()

    def work(number):
        for _ in range(10):
            assert torch.allclose(compiled(X, number), want[number])
    together(work)
    assert sorted(seen) == sorted(float((X + n).sum()) for n in range(THREADS) for _ in range(10))


def test_reset_while_others_call():
    def f(x, n):
        y = x * n
        torch.compiler.graph_break()
        return y.sum() + n
    compiled = torch.compile(f, backend="eager")
    want = {n: f(X, n).item() for n in range(1, 4)}

    def work(number):
        if number == 0:
            for _ in range(10):
                torch.compiler.reset()
            return
        for i in range(15):
            n = 1 + (i + number) % 3
            assert compiled(X, n).item() == want[n]
    together(work, 5)


def test_functions_are_made_and_called_in_every_thread():
    def work(number):
        for i in range(5):
            compiled = torch.compile(lambda x, k=number * 10 + i: x + k, backend="eager")
            assert compiled(X).equal(X + number * 10 + i)
            if i == 2:
                torch.compiler.reset()
    together(work)


def test_gradients_in_threads():
    net = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1))
    compiled = torch.compile(net)
    params = list(net.parameters())

    def grads(call, x):
        return torch.autograd.grad(call(x).sum(), params)
    given = [X + n for n in range(THREADS)]
    want = [grads(net, x) for x in given]

    def work(number):
        for _ in range(15):
            for a, b in zip(grads(compiled, given[number]), want[number], strict=True):
                assert torch.allclose(a, b, atol=1e-5)
    together(work)


def test_modes_are_each_threads_own():
    w = torch.ones(4, requires_grad=True)

    def f(x):
        return (x * w).sum()
    compiled = torch.compile(f, backend="eager")

    def work(number):
        for _ in range(10):
            if number % 2:
                with torch.no_grad():
                    assert not compiled(X).requires_grad
            else:
                assert compiled(X).requires_grad
    together(work)


def test_one_module_trained_and_read_by_several():
    """Attributes change between calls: the quick checks see it, in every thread."""
    class Net(torch.nn.Module):
        scale = 1

        def forward(self, x):
            return x * self.scale + self.training
    nets = [Net() for _ in range(3)]

    @torch.compile(backend="eager", options={"recompile_limit": 200})
    def run(net, x):
        return net(x)

    def work(number):
        net = nets[number]
        for i in range(25):
            net.scale = 1 + i % 3
            net.train(i % 2 == 0)
            assert run(net, X).equal(X * (1 + i % 3) + (i % 2 == 0))
    together(work, 3)


def test_quick_checks_taken_down_by_several_threads():
    """Entries take new lives, and write their checks anew, while others run them."""
    nets = [torch.nn.Linear(4, 2) for _ in range(THREADS)]

    @torch.compile(backend="eager", options={"recompile_limit": 200})
    def run(net, x, note):
        note.append(net.in_features)
        return net(x)
    want = [net(X) for net in nets]

    def work(number):
        pick = random.Random(number)
        for _ in range(60):
            n, note = pick.randrange(THREADS), []
            assert torch.allclose(run(nets[n], X, note), want[n]) and note == [4]
    together(work)


def test_random_numbers_of_own_generators():
    def f(x, generator):
        return x + torch.rand(x.shape, generator=generator)
    compiled = torch.compile(f, backend="eager")

    def draws(call, number):
        generator = torch.Generator().manual_seed(number)
        return [call(X, generator) for _ in range(10)]
    want = [draws(f, n) for n in range(4)]

    def work(number):
        for a, b in zip(draws(compiled, number), want[number], strict=True):
            assert a.equal(b)
    together(work, 4)
