"""Cross entropy in blocks of rows, and CTC against torch."""

import numpy as np
import pytest

from lehr.ops import classify, execute, families, registry
from tests.ops.oracle import torch

assert families.FAMILIES


def run(name, *args):
    return execute.run(registry.get(name), args)


@pytest.mark.parametrize("block", [1, 7, 1 << 16])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("weighted", [False, True])
def test_blocks_of_rows(block, smoothing, weighted, monkeypatch):
    monkeypatch.setattr(classify, "BLOCK", block)
    random = np.random.default_rng(0)
    x, target = random.standard_normal((11, 5)) * 30, random.integers(0, 5, 11)
    target[3] = -100
    weight = random.random(5) if weighted else None
    loss, lse = run("class_loss", x, target, weight, -100, smoothing)
    log = x - np.logaddexp.reduce(x, 1, keepdims=True)
    w = np.ones(5) if weight is None else weight
    valid = target >= 0
    hot = np.eye(5)[np.where(valid, target, 0)]
    want = -((1 - smoothing) * hot * w + smoothing / 5 * w) * log
    want = want.sum(1) * valid
    np.testing.assert_allclose(loss, want, rtol=1e-12, atol=1e-12)
    g = random.standard_normal(11)
    have = run("class_loss_grad", g, x, lse, target, weight, -100, smoothing)
    p = np.exp(log)
    rows = (1 - smoothing) * (hot @ w)[:, None] * (p - hot) + smoothing / 5 * (p * w.sum() - w)
    np.testing.assert_allclose(have, rows * (g * valid)[:, None], rtol=1e-10, atol=1e-12)


def test_out_of_bounds_targets_name_themselves():
    with pytest.raises(IndexError, match="Target 7 is out of bounds"):
        run("class_loss", np.zeros((3, 5)), np.array([0, 7, 1]), None, -100, 0.0)


@pytest.mark.parity
@pytest.mark.skipif(torch is None, reason="torch is not installed")
@pytest.mark.parametrize("seed", range(40))
def test_ctc_against_torch(seed):
    """Lengths that fit and that do not, repeated labels, empty targets."""
    random = np.random.default_rng(seed)
    steps, n, classes, labels = (int(random.integers(a, b)) for a,
                                 b in ((2, 12), (1, 4), (2, 6), (1, 5)))
    scores = torch.tensor(random.standard_normal((steps, n,
                                                  classes))).log_softmax(-1).requires_grad_()
    targets, outs = random.integers(1, classes, (n, labels)), random.integers(0, labels + 1, n)
    ins, zero = random.integers(1, steps + 1, n), bool(random.integers(2))
    want = torch.nn.functional.ctc_loss(scores, *map(torch.tensor, (targets, ins, outs)), 0,
                                        "none", zero)
    have, grad = run("ctc_rows", scores.detach().numpy(), targets, ins, outs, 0, zero)
    np.testing.assert_allclose(have, want.detach())
    theirs = torch.autograd.grad(want.sum(), scores)[0].numpy()
    finite = np.isfinite(want.detach().numpy())
    np.testing.assert_allclose(grad[:, finite], theirs[:, finite], atol=1e-10)
