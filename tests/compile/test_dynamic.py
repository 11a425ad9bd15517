"""Sizes that change from call to call: one graph serves them all, and gives what eager gives."""

import numpy as np
import pytest

import lehr as torch
from lehr.compiler import stats

F = torch.nn.functional
SIZES = (5, 7, 3, 2, 16, 9)


def fresh(n, *shape, dtype=torch.float32):
    """Numbers in [-1, 1] that depend on `n`; a 0 in the shape stands for n."""
    shape = [n if s == 0 else s for s in shape]
    values = np.random.default_rng(n).uniform(-1, 1, shape)
    if dtype is torch.int64:
        return torch.tensor(np.floor(values * 4).astype(np.int64))
    return torch.tensor(values.astype(np.float32))


def leaves(found):
    if isinstance(found, tuple | list):
        return [x for part in found for x in leaves(part)]
    return [found]


def same(have, want, what=""):
    have, want = leaves(have), leaves(want)
    assert len(have) == len(want), what
    for a, b in zip(have, want, strict=True):
        assert type(a) is type(b), what
        if isinstance(a, torch.Tensor):
            assert a.dtype is b.dtype and a.shape == b.shape, (what, a.shape, b.shape)
            assert a.stride() == b.stride() or 0 in a.shape, (what, a.stride(), b.stride())
            np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), 1e-4, 1e-5,
                                       err_msg=str(what))
        else:
            assert a == b, what


class Count:
    """What compiling did since."""

    def __init__(self):
        self.before = stats()

    def __getattr__(self, name):
        return stats()[name] - self.before[name]


# Name -> (function, shapes of its arguments, 0 for the size that changes; graphs over all SIZES).
PROGRAMS = {
    "pointwise": (lambda x: torch.relu(x) * 2 + 1, [(0, 4)], 1),
    "two": (lambda x, y: x * y - x / (y * y + 1), [(0, 4), (0, 4)], 1),
    "broadcast": (lambda x, y: x + y, [(0, 4), (4,)], 1),
    "broadcast one": (lambda x, y: x + y, [(0, 4), (0, 1)], 1),
    "outer": (lambda x, y: x[:, None] * y, [(0,), (0,)], 1),
    "scalar size": (lambda x: x * x.shape[0] + x.shape[0], [(0, 3)], 1),
    "mean by hand": (lambda x: x.sum() / x.shape[0], [(0, 3)], 1),
    "root of size": (lambda x: x / x.shape[0] ** 0.5, [(0, 3)], 1),
    "sum": (lambda x: (x.sum(), x.sum(0), x.sum(1)), [(0, 4)], 1),
    "mean": (lambda x: (x.mean(), x.mean(0), x.mean(1, keepdim=True)), [(0, 4)], 1),
    "max": (lambda x: (x.max(), x.max(0)[0], x.argmax(1)), [(0, 4)], 1),
    "var": (lambda x: (x.var(), x.std(0)), [(0, 4)], 1),
    "softmax": (lambda x: torch.softmax(x, -1), [(4, 0)], 1),
    "softmax rows": (lambda x: torch.softmax(x, 0), [(0, 4)], 1),
    "log softmax": (lambda x: torch.log_softmax(x, 1), [(3, 0)], 1),
    "layer norm": (lambda x: F.layer_norm(x, (8,)), [(0, 3, 8)], 1),
    "layer norm of sizes": (lambda x: F.layer_norm(x, x.shape[1:]), [(3, 0)], 1),
    "matmul": (lambda x, w: x @ w, [(0, 8), (8, 4)], 1),
    "matmul inner": (lambda x, y: x @ y, [(4, 0), (0, 3)], 1),
    "gram": (lambda x: x @ x.t(), [(0, 4)], 1),
    "batched": (lambda x, y: x @ y, [(0, 3, 4), (0, 4, 6)], 1),
    "linear": (lambda x, w, b: F.linear(x, w, b), [(0, 3, 8), (4, 8), (4,)], 1),
    "view flat": (lambda x: x.view(-1) + 1, [(0, 4)], 1),
    "view sizes": (lambda x: x.view(x.shape[0] * 2, 2) * 2, [(0, 4)], 1),
    "view split": (lambda x: x.view(x.size(0), 2, -1).transpose(0, 1) + 0, [(0, 8)], 1),
    "reshape": (lambda x: x.reshape(4, -1).sum(1), [(0, 4)], 1),
    "reshape copy": (lambda x: x.t().reshape(-1) + 1, [(0, 4)], 1),
    "flatten": (lambda x: x.flatten(1) * 2, [(0, 2, 3)], 1),
    "unflatten": (lambda x: x.unflatten(1, (2, 3)).sum(2), [(0, 6)], 1),
    "transpose": (lambda x: x.t() + 1, [(0, 4)], 1),
    "permute": (lambda x: x.permute(2, 0, 1).contiguous(), [(0, 2, 3)], 1),
    "expand": (lambda x: x[None].expand(3, -1, -1) * 2, [(0, 4)], 1),
    "expand as": (lambda x, y: x.expand_as(y) + y, [(1, 4), (0, 4)], 1),
    "squeeze": (lambda x: x[:, None].squeeze(1) + x, [(0, 4)], 1),
    "returned view": (lambda x: (x[1:], x.t(), x * 2), [(0, 4)], 1),
    "returned size": (lambda x: (x + 1, x.shape[0] * 2, x.shape), [(0, 4)], 1),
    "slice": (lambda x: x[1:] - x[:-1], [(0, 4)], 1),
    "slice by size": (lambda x, y: y[: x.shape[0]] + x, [(0, 4), (32, 4)], 1),
    "slice step": (lambda x: x[::2] * 2, [(0, 4)], 2),
    "last": (lambda x: x[-1] + x[0], [(0, 4)], 1),
    "select by size": (lambda x: x[:, x.shape[1] - 1] * 2, [(3, 0)], 1),
    "narrow": (lambda x: x.narrow(0, 1, x.shape[0] - 1) * 2, [(0, 4)], 1),
    "cat": (lambda x, y: torch.cat([x, y, x], 0), [(0, 4), (3, 4)], 1),
    "cat both": (lambda x, y: torch.cat([x, y], 1), [(0, 4), (0, 2)], 1),
    "stack": (lambda x, y: torch.stack([x, y], 1), [(0, 4), (0, 4)], 1),
    "pad": (lambda x: F.pad(x, (1, 2)), [(3, 0)], 1),
    "pad by size": (lambda x: F.pad(x, (0, 32 - x.shape[1])), [(3, 0)], 1),
    "arange": (lambda x: torch.arange(x.shape[0]) + x, [(0,)], 1),
    "zeros": (lambda x: torch.zeros(x.shape[0], 2) + x.sum(), [(0, 4)], 1),
    "ones like": (lambda x: torch.ones_like(x) - x, [(0, 4)], 1),
    "new zeros": (lambda x: x.new_zeros(x.shape[0], 3) + 1, [(0, 4)], 1),
    "full": (lambda x: torch.full((x.shape[0],), 2.0) + x[:, 0], [(0, 4)], 1),
    "mask": (lambda x: x.masked_fill(torch.ones(x.shape[0], x.shape[0]).tril() == 0, -1.0),
             [(0, 0)], 1),
    "tril": (lambda x: torch.tril(x) + torch.triu(x, 1), [(0, 0)], 1),
    "cumsum": (lambda x: x.cumsum(0), [(0, 4)], 1),
    "where": (lambda x, y: torch.where(x > 0, x, y), [(0, 4), (0, 4)], 1),
    "clamp": (lambda x: x.clamp(-0.5, 0.5).abs().sum(1), [(0, 4)], 1),
    "flip": (lambda x: x.flip(0) + x, [(0, 4)], 1),
    "roll": (lambda x: x.roll(1, 0), [(0, 4)], 1),
    "repeat": (lambda x: x.repeat(2, 1), [(0, 4)], 1),
    "repeat interleave": (lambda x: x.repeat_interleave(2, 0), [(0, 4)], 1),
    "strided": (lambda x: x[:, ::2].sum(1) + x[:, 1], [(0, 6)], 1),
    "diagonal": (lambda x: x.diagonal() * 2, [(0, 0)], 1),
    "einsum": (lambda x, y: torch.einsum("bij,bjk->bik", x, y), [(0, 3, 4), (0, 4, 2)], 1),
    "attention": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
                  [(2, 2, 0, 4)] * 3, 1),
    "norm": (lambda x: x / x.norm(dim=1, keepdim=True), [(0, 4)], 1),
    "mse": (lambda x, y: F.mse_loss(x, y), [(0, 4), (0, 4)], 1),
    "compare": (lambda x: x + 1 if x.shape[0] > 4 else x - 1, [(0, 4)], 2),
    "even": (lambda x: x + 1 if x.shape[0] % 2 == 0 else x - 1, [(0, 4)], 2),
    "compare sizes": (lambda x, y: x + 1 if x.shape[0] == y.shape[0] else x - 1,
                      [(0, 4), (0, 4)], 1),
    "inplace": (lambda x: x.clone().mul_(2).add_(x), [(0, 4)], 1),
    "write slice": (lambda x: torch.zeros(x.shape[0] + 1, 4).index_put(
        (torch.arange(x.shape[0]),), x), [(0, 4)], 1),
    "max of sizes": (lambda x, y: x.sum() * max(x.shape[0], y.shape[0]), [(0, 2), (3, 2)], 2),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_forward(name):
    function, shapes, graphs = PROGRAMS[name]
    compiled, count = torch.compile(function, dynamic=True), Count()
    for n in SIZES:
        args = [fresh(n + 31 * i, *[n if s == 0 else s for s in shape])
                for i, shape in enumerate(shapes)]
        same(compiled(*args), function(*args), n)
    assert (count.graphs, count.fallbacks, count.specialised) == (graphs, 0, 0)
