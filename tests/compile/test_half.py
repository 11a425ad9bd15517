"""bfloat16 products in compiled programs: as eager ones, and never of weights of before."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import lehr as torch
from lehr import nn


def same(got, want):
    """Equal but for the order of float32 sums: a few results are rounded the other way."""
    got, want = (t.detach().float().numpy() for t in (got, want))
    np.testing.assert_allclose(got, want, rtol=2e-2, atol=2e-2 * abs(want).max())
    assert (got == want).mean() > 0.9


SIZES = [(1, 1, 1), (7, 33, 5), (130, 70, 300), (600, 64, 100)]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_layouts_and_sizes(sizes):
    m, k, n = sizes
    torch.manual_seed(m)
    x, y = torch.randn(m, k).bfloat16(), torch.randn(k, n).bfloat16()
    wide = torch.randn(m, 2 * k).bfloat16()
    product = torch.compile(lambda x, y: x @ y)
    turned = [t.t().contiguous().t() for t in (x, y)]
    for a, b in ((x, y), (turned[0], y), (x, turned[1]), (wide[:, ::2], y)):
        same(product(a, b), a @ b)
    batch = torch.randn(3, m, k).bfloat16(), torch.randn(3, k, n).bfloat16()
    same(torch.compile(torch.bmm)(*batch), torch.bmm(*batch))


@pytest.mark.parametrize("batch", [1, 2, 3])
@pytest.mark.parametrize("m", [289, 700])
def test_the_same_bits_on_any_number_of_threads(m, batch):
    """Rows are cut into as many blocks for each thread, and none is left out or done twice."""
    x, y = torch.randn(batch, m, 200).bfloat16(), torch.randn(batch, 200, 260).bfloat16()
    product = torch.compile(lambda x, y: torch.relu(x @ y) + 1)
    before = torch.get_num_threads()
    made = []
    try:
        for n in (1, 2, 3):
            torch.set_num_threads(n)
            made.append(product(x, y).float().numpy())
    finally:
        torch.set_num_threads(before)
    for other in made[1:]:
        np.testing.assert_array_equal(made[0], other)
    same(product(x, y), torch.relu(x @ y) + 1)


def test_symbolic_sizes():
    product = torch.compile(lambda x, y: torch.relu(x @ y) + 1, dynamic=True)
    for m in (3, 50, 700):
        x, y = torch.randn(m, 40).bfloat16(), torch.randn(40, m + 1).bfloat16()
        same(product(x, y), torch.relu(x @ y) + 1)


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(48, 100), nn.GELU(), nn.Linear(100, 20)).eval()


def autocast(function):
    def run(*args):
        with torch.autocast("cpu", torch.bfloat16):
            return function(*args)
    return run


def scaled(model):
    with torch.no_grad():
        model[0].weight.mul_(1.5)


def behind(model):
    model[0].weight.data.mul_(-0.5)


def beneath(model):
    model[2].weight.detach().numpy()[:] *= 2


def swapped(model):
    model[2].weight.data = torch.randn(20, 100)


def replaced(model):
    model[0].weight = nn.Parameter(torch.randn(100, 48))


def loaded(model):
    model.load_state_dict({k: v * 0.3 for k, v in model.state_dict().items()})


def stepped(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    model(torch.randn(8, 48)).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()


@pytest.mark.parametrize("rows", [8, 400])
def test_weights_are_those_of_now(model, rows):
    x = torch.randn(rows, 48)
    eager, compiled = autocast(model), autocast(torch.compile(model))
    with torch.no_grad():
        before = compiled(x)
        same(before, eager(x))
    for change in (scaled, behind, beneath, swapped, replaced, loaded, stepped, scaled):
        change(model)
        with torch.no_grad():
            after = compiled(x)
            same(after, eager(x))
        assert not (after == before).all()
        before = after


def test_threads_have_weights_of_their_own(model):
    """Calls of several threads, of two models that share one compiled function."""
    other = nn.Sequential(nn.Linear(48, 100), nn.GELU(), nn.Linear(100, 20)).eval()
    function = torch.compile(autocast(lambda m, x: m(x)))
    x = torch.randn(300, 48)
    failed: list[str] = []

    def work(m):
        try:
            with torch.no_grad():
                want = autocast(m)(x)
                for _ in range(10):
                    same(function(m, x), want)
        except BaseException as error:
            failed.append(repr(error))

    threads = [threading.Thread(target=work, args=(m,)) for m in (model, other)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed


def test_training_rounds_weights_as_it_reads_them():
    def losses(compiled):
        torch.manual_seed(1)
        net = nn.Sequential(nn.Linear(33, 70), nn.GELU(), nn.Linear(70, 10))
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
        x, t = torch.randn(400, 33), torch.randn(400, 10)

        def step(x, t):
            with torch.autocast("cpu", torch.bfloat16):
                loss = ((net(x) - t) ** 2).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss.detach()

        run = torch.compile(step) if compiled else step
        return [float(run(x, t)) for _ in range(10)]

    eager = losses(False)
    np.testing.assert_allclose(losses(True), eager, rtol=1e-2)
    assert eager[-1] < eager[0]


def test_casts_of_weights_end_no_graph():
    """Autocast keeps them by their version, which no program asked for."""
    layer, x = nn.Linear(8, 8), torch.randn(4, 8)
    with torch.autocast("cpu", torch.bfloat16):
        got = torch.compile(layer, fullgraph=True)(x)
        same(got, layer(x))
