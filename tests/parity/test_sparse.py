"""Sparse tensors against torch's: what they are, arithmetic, products, gradients, optimizers."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
import torch

import lehr
import lehr.compiler

warnings.filterwarnings("ignore", message="Sparse")
PLACES, VALUES = [[0, 1, 1, 0], [2, 0, 2, 2]], [3.0, 4.0, 5.0, 6.0]


def shown(x: Any) -> Any:
    """Numbers, or for a sparse tensor its dense form and whether it is coalesced."""
    if hasattr(x, "to_dense") and x.is_sparse:
        return ["sparse", x.is_coalesced(), str(x.dtype), x.to_dense().tolist()]
    return [str(x.dtype), x.tolist()] if hasattr(x, "tolist") else x


def same(f: Any) -> None:
    want, have = ([shown(x) for x in f(m)] for m in (torch, lehr))
    assert len(have) == len(want)
    for h, w in zip(have, want, strict=True):
        if isinstance(w, list):
            assert h[:-1] == w[:-1]
            np.testing.assert_allclose(h[-1], w[-1], rtol=1e-5, atol=1e-6)
        else:
            assert h == w


def matrix(m: Any, **words: Any) -> Any:
    return m.sparse_coo_tensor(PLACES, VALUES, (2, 3), **words)


def test_construction() -> None:
    def run(m: Any) -> list[Any]:
        s, block = matrix(m), m.sparse_coo_tensor([[1, 0, 1]], m.arange(6.0).reshape(3, 2))
        empty = m.sparse_coo_tensor((2, 3))
        return [s, s.coalesce(), s._indices(), s._values(), s._nnz(), s.coalesce().indices(),
                s.coalesce().values(), s.sparse_dim(), s.dense_dim(), tuple(s.shape), s.numel(),
                str(s.layout), s.is_sparse, block, block.dense_dim(), tuple(block.shape),
                empty._nnz(), tuple(empty.shape), m.ones(2).is_sparse, matrix(m, dtype=m.float64)]
    same(run)


@pytest.mark.parametrize(("places", "values", "size"), [
    ([[0, 2]], [1.0, 2.0], (2,)), ([[0, -1]], [1.0, 2.0], (2,)), ([[0, 1]], [1.0], (2,)),
    ([[0, 1]], [1.0, 2.0], (2, 2))])
def test_bad_construction(places: Any, values: Any, size: Any) -> None:
    """PyTorch checks only where it is asked to."""
    with pytest.raises(RuntimeError, match=r"size|values"):
        lehr.sparse_coo_tensor(places, values, size)


def test_text() -> None:
    def run(m: Any) -> list[Any]:
        s = matrix(m)
        return [repr(s), repr(s.double()), str(m.sparse_coo_tensor((2, 3))),
                repr(m.sparse_coo_tensor([[1, 0]], m.arange(4.0).reshape(2, 2)))]
    assert run(lehr) == run(torch)


def test_arithmetic() -> None:
    def run(m: Any) -> list[Any]:
        s, x = matrix(m), m.arange(6.0).reshape(2, 3)
        c = s.coalesce()
        held = x.clone()
        held.add_(s, alpha=2)
        return [s + s, s - c, c * 2, 2 * c, c / 2, -c, abs(-c), x + s, s.t(), c.transpose(0, 1),
                m.sparse.sum(s), m.sparse.sum(s, 0), m.sparse.sum(s, 1), held, c * x, c.sqrt(),
                m.sin(c), c.double(), c.to(m.float16), (x + s) - x, m.add(x, s, alpha=3)]
    same(run)


def test_conversions() -> None:
    def run(m: Any) -> list[Any]:
        x = m.tensor([[0.0, 2, 0], [3, 0, 4]])
        s, rows = x.to_sparse(), x.to_sparse(1)
        block = m.stack([x, x * 0, x]).to_sparse(1)
        return [s, rows, rows._values(), block, block._nnz(), s.to_dense(), x.to_dense(),
                (x + 1).sparse_mask(s), m.eye(3).to_sparse().indices()]
    same(run)


def test_products_and_gradients() -> None:
    def run(m: Any) -> list[Any]:
        v = m.tensor(VALUES, requires_grad=True)
        s, x = m.sparse_coo_tensor(PLACES, v, (2, 3)), m.arange(12.0).reshape(3, 4)
        x.requires_grad_()
        out = m.sparse.mm(s, x)
        (out ** 2).sum().backward()
        plain = s.detach()
        return [out, v.grad, x.grad, s @ x, m.spmm(plain, x), m.mv(plain, x[:, 0]), x.t() @ s.t(),
                m.sparse.mm(plain, plain.t()), m.sparse.addmm(m.ones(2, 4), s, x, beta=2, alpha=3),
                m.matmul(plain, x[:, 1])]
    same(run)


def test_product_of_sparse_matrices_with_many_places() -> None:
    def run(m: Any) -> list[Any]:
        draw = np.random.default_rng(0)
        a, b = (np.where(draw.random(s) < 0.2, draw.normal(size=s), 0) for s in ((20, 30), (30, 9)))
        return [m.sparse.mm(m.tensor(a).to_sparse(), m.tensor(b).to_sparse())]
    same(run)


def test_sampled_product() -> None:
    a, b = lehr.arange(8.0).reshape(2, 4), lehr.arange(12.0).reshape(4, 3)
    out = lehr.sparse.sampled_addmm(matrix(lehr), a, b, beta=2.0, alpha=0.5)
    want = (matrix(lehr).to_dense() * 2 + (a @ b) * 0.5) * (matrix(lehr).to_dense() != 0)
    assert out.to_dense().tolist() == want.tolist()


@pytest.mark.parametrize("padding", [None, 1, -1])
def test_embedding(padding: int | None) -> None:
    """Gradients, their sums with sparse and dense ones, hooks and `zero_grad`."""
    def run(m: Any) -> list[Any]:
        table = m.nn.Parameter(m.arange(18.0).reshape(6, 3))
        index = m.tensor([[0, 1, 2], [2, 5, 1]])

        def rows() -> Any:
            return m.nn.functional.embedding(index, table, padding, sparse=True)
        (rows() ** 2).sum().backward()
        found = [table.grad.coalesce(), table.grad._nnz()]
        (rows() ** 3).sum().backward()
        found += [table.grad.coalesce()]
        (table ** 2).sum().backward()
        found += [table.grad]
        table.grad = None
        ((rows() ** 2).sum() + (table ** 2).sum()).backward()
        found += [table.grad, m.autograd.grad((rows() ** 2).sum(), table)[0].coalesce()]
        table.grad = None
        seen = []
        table.register_hook(lambda g: seen.append(g.is_sparse) or g * 2)
        (rows() ** 2).sum().backward()
        return [*found, table.grad.coalesce(), seen[0]]
    same(run)


@pytest.mark.parametrize("words", [{"mode": "sum"}, {"mode": "mean", "padding_idx": 2}, {}])
def test_bags(words: Any) -> None:
    def run(m: Any) -> list[Any]:
        bag = m.nn.EmbeddingBag(6, 3, sparse=True, **words)
        with m.no_grad():
            bag.weight.copy_(m.arange(18.0).reshape(6, 3))
        out = bag(m.tensor([0, 2, 2, 5, 1]), m.tensor([0, 3]))
        (out ** 2).sum().backward()
        return [out, bag.weight.grad.coalesce().to_dense(), bag.weight.grad.is_sparse]
    same(run)


@pytest.mark.parametrize(("name", "words"), [
    ("SGD", {}), ("SGD", {"maximize": True}), ("Adagrad", {"lr_decay": 0.1}),
    ("SparseAdam", {}), ("SparseAdam", {"maximize": True, "betas": (0.7, 0.9)})])
def test_optimizers(name: str, words: Any) -> None:
    def run(m: Any) -> list[Any]:
        table = m.nn.Parameter(m.arange(18.0).reshape(6, 3))
        optimizer = getattr(m.optim, name)([table], lr=0.1, **words)
        found = []
        for index in ([0, 2, 2], [5, 0, 1]):
            optimizer.zero_grad()
            (m.nn.functional.embedding(m.tensor(index), table, sparse=True) ** 2).sum().backward()
            optimizer.step()
            found.append(table.detach().clone())
        found += [v for s in optimizer.state_dict()["state"].values()
                  for k, v in sorted(s.items()) if k != "step"]
        return found
    same(run)


@pytest.mark.parametrize("name", ["Adam", "RMSprop"])
def test_other_optimizers_refuse(name: str) -> None:
    table = lehr.nn.Parameter(lehr.ones(3, 2))
    lehr.nn.functional.embedding(lehr.tensor([0]), table, sparse=True).sum().backward()
    with pytest.raises(RuntimeError, match="SparseAdam"):
        getattr(lehr.optim, name)([table]).step()
    with pytest.raises(RuntimeError, match="momentum"):
        lehr.optim.SGD([table], momentum=0.9).step()


@pytest.mark.parametrize("use", [
    lambda s: s.exp(), lambda s: s == 1, lambda s: s[0], lambda s: s.numpy(), lambda s: s.view(-1),
    lambda s: lehr.softmax(s, 1), lambda s: lehr.cat([s, s]), lambda s: s.exp_(),
    lambda s: lehr.Tensor.F.exp(s), lambda s: s.to_sparse(1), lambda s: s * s.t()])
def test_what_has_no_sparse_form_raises(use: Any) -> None:
    with pytest.raises((NotImplementedError, RuntimeError), match=r"sparse|sizes"):
        use(matrix(lehr))


def test_copies() -> None:
    s = matrix(lehr, requires_grad=True)
    for made in (copy.deepcopy(s), pickle.loads(pickle.dumps(s))):
        assert made is not s and made.requires_grad and made.is_leaf
        assert made.to_dense().tolist() == s.to_dense().tolist()


class Model(lehr.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rows, self.out = lehr.nn.Embedding(20, 4, sparse=True), lehr.nn.Linear(4, 2)

    def forward(self, index: Any) -> Any:
        return self.out(self.rows(index)).mean(1)


def train(compiled: bool) -> Any:
    lehr.manual_seed(0)
    model, index, goal = Model(), lehr.randint(0, 20, (5, 3)), lehr.randn(5, 2)
    optimizers = [lehr.optim.SparseAdam(model.rows.parameters(), lr=0.1),
                  lehr.optim.Adam(model.out.parameters(), lr=0.1)]

    def step() -> Any:
        for o in optimizers:
            o.zero_grad()
        loss = ((model(index) - goal) ** 2).mean()
        loss.backward()
        for o in optimizers:
            o.step()
        return loss
    run = lehr.compile(step) if compiled else step
    return [float(run().detach()) for _ in range(4)], model.rows.weight.tolist()


def test_compiled_training_breaks_at_the_lookup() -> None:
    for have, want in zip(train(True), train(False), strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-5)


def test_captures() -> None:
    """Sparse arguments and results; no gradient, no break; `fullgraph` says what stands in the way.
    """
    x, s = lehr.randn(3, 2), matrix(lehr)
    f = lehr.compile(lambda s, x: s @ x + x.sum() * 2)
    for one in (s, s * 3):
        np.testing.assert_allclose(f(one, x).numpy(), (one @ x + x.sum() * 2).numpy(), rtol=1e-6)
    back = lehr.compile(lambda x: x.to_sparse().to_dense() * 2)
    assert back(x).tolist() == (x * 2).tolist()
    model = Model()
    with lehr.no_grad():
        lehr.compile(model, fullgraph=True)(lehr.tensor([[1, 2]]))
    with pytest.raises(Exception, match="sparse-tensor"):
        lehr.compile(model, fullgraph=True)(lehr.tensor([[1, 2]]))
