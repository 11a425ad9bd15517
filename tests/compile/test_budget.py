"""`activation_memory_budget` from the user's side: the same results with fewer bytes kept."""

from __future__ import annotations

import numpy as np
import pytest

import lehr
from lehr import nn
from lehr.compiler import backend
from lehr.compiler.passes import partition


@pytest.fixture
def kept(monkeypatch):
    """Bytes that each split keeps."""
    found = []
    plain = partition.split

    def split(*args):
        made = plain(*args)
        found.append(made.nbytes)
        return made
    monkeypatch.setattr(backend.partition, "split", split)
    return found


def model():
    lehr.manual_seed(0)
    return nn.Sequential(nn.TransformerEncoderLayer(32, 2, 64, dropout=0.25, batch_first=True),
                         nn.Linear(32, 64), nn.LayerNorm(64), nn.Dropout(0.5), nn.Linear(64, 8))


def step(options, x):
    """(loss, gradients) of one compiled call, with the same seed."""
    plain = model()
    compiled = lehr.compile(plain, options=options)
    lehr.manual_seed(1)
    loss = compiled(x).square().sum()
    loss.backward()
    return [loss.detach().numpy(), *(p.grad.numpy() for p in plain.parameters())]


def test_results_and_random_numbers_are_the_same(kept):
    x = lehr.randn(4, 16, 32)
    want = step(None, x)
    for share in (0.75, 0.5, 0.25, 0.0):
        for a, b in zip(step({"activation_memory_budget": share}, x), want, strict=True):
            assert np.array_equal(a, b)
    assert kept == sorted(kept, reverse=True) and len(set(kept)) == 5
    assert all(n <= share * kept[0] for n, share in zip(kept[1:4], (0.75, 0.5, 0.25), strict=True))
    assert kept[-1] <= kept[0] // 50


def test_config_of_functorch(kept):
    x = lehr.randn(4, 16, 32)
    step(None, x)
    with lehr._functorch.config.patch(activation_memory_budget=0.5):
        step(None, x)
    assert lehr._functorch.config.activation_memory_budget == 1
    assert kept[1] <= kept[0] / 2
    with pytest.raises(ValueError, match="activation_memory_budget"):
        lehr._functorch.config.activation_memory_budget = 2
