"""Generators and the functions that draw from them."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import lehr
from lehr.base import philox


def test_seeds_repeat() -> None:
    lehr.manual_seed(3)
    first = lehr.randn(5), lehr.rand(3), lehr.randperm(7)
    lehr.manual_seed(3)
    again = lehr.randn(5), lehr.rand(3), lehr.randperm(7)
    assert all(lehr.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not lehr.equal(lehr.randn(5), first[0])


def test_states_are_taken_and_put_back() -> None:
    state = lehr.get_rng_state()
    a = lehr.rand(4)
    lehr.set_rng_state(state)
    assert lehr.equal(lehr.rand(4), a)
    g = lehr.Generator().manual_seed(5)
    h = g.clone_state()
    assert lehr.equal(lehr.rand(3, generator=g), lehr.rand(3, generator=h))
    assert pickle.loads(pickle.dumps(g)).state.tolist() == g.state.tolist()
    with pytest.raises(TypeError):
        g.set_state(lehr.zeros(16))
    with pytest.raises(RuntimeError, match="wrong size"):
        g.set_state(lehr.zeros(3, dtype=lehr.uint8))


def test_each_call_takes_one_count() -> None:
    g = lehr.Generator().manual_seed(9)
    lehr.rand(1000, generator=g)
    lehr.randn(2, 3, generator=g)
    lehr.zeros(4).uniform_(generator=g)
    assert g.state.tolist() == [9, 3]
    assert g.initial_seed() == 9
    words = philox.words(9, 3, 4)
    assert lehr.rand(4, generator=g).tolist() == pytest.approx((words >> 8) * 2.0 ** -24)


def test_seed_ranges() -> None:
    assert lehr.Generator().manual_seed(-1).initial_seed() == 2 ** 64 - 1
    assert lehr.Generator().manual_seed(2 ** 63).initial_seed() == 2 ** 63
    with pytest.raises(RuntimeError):
        lehr.manual_seed(2 ** 64)
    assert lehr.seed() == lehr.initial_seed()
    lehr.manual_seed(0)


def test_fork_rng() -> None:
    lehr.manual_seed(1)
    want = lehr.rand(2)
    lehr.manual_seed(1)
    with lehr.random.fork_rng():
        lehr.rand(100)
    assert lehr.equal(lehr.rand(2), want)


@pytest.mark.parametrize("name, args, mean, std", [
    ("uniform_", (-1, 3), 1.0, 4 / 12 ** 0.5), ("normal_", (2, 3), 2.0, 3.0),
    ("exponential_", (2.0,), 0.5, 0.5), ("geometric_", (0.25,), 4.0, 12 ** 0.5),
    ("bernoulli_", (0.3,), 0.3, 0.21 ** 0.5), ("log_normal_", (0.0, 0.25), 1.0317, 0.2621),
    ("random_", (10,), 4.5, 8.25 ** 0.5)])
def test_in_place_distributions(name: str, args: tuple[float, ...], mean: float,
                                std: float) -> None:
    lehr.manual_seed(11)
    x = lehr.empty(200, 100)
    assert getattr(x, name)(*args) is x
    assert x.mean().item() == pytest.approx(mean, abs=0.05 + 0.02 * mean)
    assert x.std().item() == pytest.approx(std, rel=0.05)


def test_integers_over_the_whole_range() -> None:
    x = lehr.empty(1000, dtype=lehr.int8).random_()
    assert x.min() >= 0 and x.max() == 127
    assert lehr.empty(100, dtype=lehr.bool).random_().float().mean() < 1
    assert lehr.empty(1000).random_().max() > 2 ** 20
    assert set(lehr.zeros(100, dtype=lehr.int32).random_(3, 5).tolist()) == {3, 4}


def test_draws_ignore_layout() -> None:
    """Numbers belong to logical elements: a transposed target gets the same ones."""
    g, h = lehr.Generator().manual_seed(2), lehr.Generator().manual_seed(2)
    x, y = lehr.empty(4, 3).t(), lehr.empty(3, 4)
    assert lehr.equal(x.normal_(generator=g), y.normal_(generator=h))


def test_multinomial_dropout_and_the_like() -> None:
    lehr.manual_seed(0)
    p = lehr.tensor([0.0, 1.0, 3.0])
    drawn = lehr.multinomial(p, 4000, replacement=True)
    counts = np.bincount(drawn.numpy(), minlength=3)
    assert counts[0] == 0 and counts[2] / counts[1] == pytest.approx(3, rel=0.15)
    assert sorted(lehr.multinomial(p, 2).tolist()) == [1, 2]
    x = lehr.ones(10000)
    y = lehr.dropout(x, 0.25, True)
    assert (y == 0).float().mean().item() == pytest.approx(0.25, abs=0.02)
    assert y.unique().tolist() == pytest.approx([0.0, 4 / 3])
    assert lehr.dropout(x, 0.25, False) is x
    assert lehr.bernoulli(lehr.full((100,), 1.0)).sum() == 100
    assert lehr.poisson(lehr.full((2000,), 3.0)).mean().item() == pytest.approx(3, abs=0.2)
    assert lehr.binomial(lehr.full((2000,), 10.0), lehr.full((2000,), 0.5)).mean().item() == \
        pytest.approx(5, abs=0.2)


def test_dropout_backward_uses_the_same_mask() -> None:
    x = lehr.ones(1000, requires_grad=True)
    y = lehr.dropout(x, 0.5, True)
    y.sum().backward()
    assert lehr.equal(x.grad, y.detach())


def test_writes_are_recorded_and_checked() -> None:
    w = lehr.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="a leaf Variable"):
        w.normal_()
    y = w * 2
    y.uniform_()
    y.sum().backward()
    assert w.grad is None or w.grad.tolist() == [0, 0, 0]
    with lehr.no_grad():
        assert w.fill_(2).normal_() is w and w._version == 2
