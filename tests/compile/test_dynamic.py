"""Sizes that change from call to call: one graph serves them all, and gives what eager gives."""

import re
from typing import Any

import numpy as np
import pytest

import lehr as torch
from lehr.compiler import stats
from lehr.tensor.state import STATE
from tests.compile import loops

F = torch.nn.functional
SIZES = (5, 7, 3, 2, 16, 9)


def fresh(n, *shape, dtype=torch.float32):
    """Numbers in [-1, 1] that depend on `n`; a 0 in the shape stands for n."""
    shape = [n if s == 0 else s for s in shape]
    values = np.random.default_rng(n).uniform(-1, 1, shape)
    if dtype is torch.int64:
        return torch.tensor(np.floor(values * 4).astype(np.int64))
    return torch.tensor(values.astype(np.float32))


def args_of(shapes, n):
    return [torch.tensor(np.random.default_rng(n + 31 * i).uniform(
        -1, 1, [n if s == 0 else s for s in shape]).astype(np.float32))
        for i, shape in enumerate(shapes)]


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
    "len": (lambda x: x * len(x), [(0, 4)], 1),
    "topk": (lambda x: x.topk(2, 0)[0], [(0, 4)], 1),
    "sort": (lambda x: x.sort(0)[0], [(0, 4)], 1),
    "interpolate": (lambda x: F.interpolate(x, scale_factor=2), [(1, 2, 0, 0)], 1),
    "convolution": (lambda x, w: F.conv2d(x, w, padding=1), [(0, 3, 6, 6), (4, 3, 3, 3)], 1),
    "average pool": (lambda x: F.avg_pool2d(x, 2), [(2, 3, 0, 6)], 2),
    "max pool": (lambda x: F.max_pool2d(x, 2, padding=1), [(2, 3, 0, 6)], 1),
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
        args = args_of(shapes, n)
        same(compiled(*args), function(*args), n)
    assert (count.graphs, count.fallbacks, count.specialised) == (graphs, 0, 0)


BACKWARD = {name: PROGRAMS[name] for name in (
    "pointwise", "two", "broadcast", "broadcast one", "outer", "scalar size", "mean by hand", "sum",
    "mean", "var", "softmax", "softmax rows", "log softmax", "layer norm", "matmul",
    "matmul inner", "gram", "batched", "linear", "view split", "reshape", "reshape copy",
    "flatten", "permute", "expand", "slice", "slice by size", "narrow", "cat", "cat both", "stack",
    "pad", "mask", "cumsum", "where", "clamp", "repeat", "strided", "einsum", "attention", "norm",
    "mse", "compare", "inplace", "average pool", "max pool", "convolution")}


@pytest.mark.parametrize("name", BACKWARD)
def test_backward(name):
    function, shapes, graphs = BACKWARD[name]

    def loss(*args):
        found = leaves(function(*args))
        return sum((t.sum() * (i + 1) for i, t in enumerate(found)), start=0.0)
    compiled, count = torch.compile(loss, dynamic=True), Count()
    for n in SIZES:
        made = []
        for run in (compiled, loss):
            args = [t.requires_grad_() for t in args_of(shapes, n)]
            found = run(*args)
            found.backward()
            made.append([found, *(a.grad for a in args)])
        same(*made, n)
    graphs += name in ("slice", "narrow")       # parts of one row have a graph of their own
    assert (count.graphs, count.fallbacks, count.specialised) == (graphs, 0, 0)


@pytest.mark.parametrize("backend", ["inductor", "reference"])
@pytest.mark.parametrize("name", ["two", "softmax", "matmul", "view split", "returned view", "cat"])
def test_seen_to_change(name, backend):
    """Without being asked, the second distinct size becomes a symbol."""
    function, shapes, _ = PROGRAMS[name]
    compiled, count = torch.compile(function, backend=backend), Count()
    for n in (*SIZES, 1, 64, 65, 1, 0, 11):
        args = args_of(shapes, n)
        if n == 0 and name == "view split":
            continue    # -1 stands for any size there
        same(compiled(*args), function(*args), n)
    assert count.fallbacks == 0 and count.graphs <= 4


def test_never_where_not_wanted():
    compiled, count = torch.compile(lambda x: x * 2, dynamic=False), Count()
    for n in SIZES:
        compiled(fresh(n, 0, 4))
    assert count.graphs == len(SIZES)


def test_equal_sizes_that_come_apart():
    """Equal sizes share a symbol until they differ."""
    def main(x, y):
        return x.sum(0) + y.sum(0)
    compiled, count = torch.compile(main, dynamic=True), Count()
    for a, b in ((5, 5), (7, 7), (3, 8), (9, 2), (4, 4), (6, 11)):
        x, y = fresh(a, 0, 4), fresh(b, 0, 4)
        same(compiled(x, y), main(x, y))
    assert count.graphs == 2 and count.fallbacks == 0


def test_loop_over_a_size():
    """The number of iterations is a constant of the graph."""
    def main(x):
        total = torch.zeros(4)
        for i in range(x.shape[0]):
            total = total + x[i] * i
        return total
    compiled, count = torch.compile(main), Count()
    for n in (2, 3, 5, 3, 2):
        same(compiled(fresh(n, 0, 4)), main(fresh(n, 0, 4)), n)
    assert count.graphs == 3 and count.fallbacks == 0


def test_texts_of_sizes():
    def main(x, names):
        names.append(f"{x.shape[0]} rows")
        return x + 1
    compiled = torch.compile(main, dynamic=True)
    for n in (2, 3, 5):
        names = []
        same(compiled(fresh(n, 0, 4), names), fresh(n, 0, 4) + 1)
        assert names == [f"{n} rows"]


@pytest.mark.parametrize("text", [
    lambda x: f"{x.shape}", lambda x: str(x.shape), lambda x: f"{x.size()!r:>24}",
    lambda x: f"{x.shape} {[x.shape]}", lambda x: f"{ {'shape': x.shape[:1]} }"])
def test_texts_of_shapes(text):
    """Also in front of a break, and where the size is an input of the graph."""
    def main(x, said):
        said.append(text(x))
        print(end="")
        return x + 1
    compiled = torch.compile(main)
    for n in SIZES:
        x, said = fresh(n, 0, 4), []
        same(compiled(x, said), x + 1)
        assert said == [text(x)]


def test_growing_cache():
    """Keys of earlier steps, longer at each: two or three graphs for twenty lengths."""
    def step(q, k, cache):
        cache = torch.cat([cache, k], 1)
        weights = torch.softmax(q @ cache.transpose(1, 2) / q.shape[-1] ** 0.5, -1)
        return weights @ cache, cache
    compiled, count = torch.compile(step), Count()
    have = want = fresh(99, 2, 1, 8)
    for n in range(2, 22):
        q, k = fresh(n, 2, 1, 8), fresh(n + 50, 2, 1, 8)
        a, have = compiled(q, k, have)
        b, want = step(q, k, want)
        same((a, have), (b, want), n)
    assert count.graphs <= 3 and count.fallbacks == 0


def test_list_of_tensors():
    def main(parts):
        return torch.cat([p * 2 for p in parts]).sum(), [p.shape[0] for p in parts]
    compiled, count = torch.compile(main, dynamic=True), Count()
    for sizes in ((2, 3, 5), (4, 6, 7), (9, 2, 3), (3, 8, 2)):
        parts = [fresh(n, 0, 17) for n in sizes]
        same(compiled(parts), main(parts))
    assert count.graphs == 1 and count.fallbacks == 0


def test_sizes_behind_a_break():
    def main(x):
        y = x * 2
        torch._dynamo.graph_break()
        return y + x.shape[0]
    compiled, count = torch.compile(main, dynamic=True), Count()
    for n in SIZES:
        same(compiled(fresh(n, 0, 4)), main(fresh(n, 0, 4)), n)
    assert count.fallbacks == 0 and count.graphs <= 3


def test_strided_inputs():
    def main(x):
        return x.t() @ x
    compiled, count = torch.compile(main, dynamic=True), Count()
    for n in SIZES:
        same(compiled(fresh(n, 4, 0).t()), main(fresh(n, 4, 0).t()), n)
    for n in SIZES:
        same(compiled(fresh(n, 0, 8)[:, :4]), main(fresh(n, 0, 8)[:, :4]), n)
    assert count.graphs == 2 and count.fallbacks == 0


def test_gradients_in_the_layout_of_their_leaves():
    def main(x):
        (x.masked_fill(x > 2, 1) * 2).sum().backward()
    compiled, count = torch.compile(main, dynamic=True), Count()
    for n in SIZES:
        made = []
        for run in (compiled, main):
            x = fresh(n, 0, 3, 2).permute(2, 0, 1).requires_grad_()
            run(x)
            made.append(x.grad)
        same(*made, n)
    assert count.graphs <= 2 and count.fallbacks == 0


def test_number_as_size():
    """A number that changes becomes a symbol where it is taken for a size."""
    def main(x, n):
        return x.view(n, -1).sum(1)
    compiled, count = torch.compile(main), Count()
    for n in (2, 3, 4, 6, 12, 8):
        same(compiled(fresh(1, 24), n), main(fresh(1, 24), n), n)
    assert count.graphs <= 2 and count.fallbacks == 0


NUMBERS = {
    "slice": lambda x, n: x[:n] * n,
    "zeros": lambda x, n: torch.zeros(n, 2) + x.sum(),
    "arange": lambda x, n: torch.arange(n) + x[0, 0],
    "expand": lambda x, n: x[:1].expand(n, -1).sum(0) + torch.arange(n).sum(),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers(name):
    compiled, count = torch.compile(NUMBERS[name]), Count()
    for n in (5, 3, 7, 12, 2):
        same(compiled(fresh(1, 40, 2), n), NUMBERS[name](fresh(1, 40, 2), n), n)
    assert count.graphs == 2 and count.fallbacks == 0


def test_marks():
    def main(x):
        return x.exp().sum(1)
    compiled, count = torch.compile(main), Count()
    for n in SIZES:
        x = fresh(n, 0, 4)
        torch._dynamo.mark_dynamic(x, 0)
        same(compiled(x), main(x), n)
    assert count.graphs == 1
    compiled, count = torch.compile(main, dynamic=True), Count()
    for n in (3, 5):
        x = fresh(n, 0, 4)
        torch._dynamo.mark_static(x, 0)
        compiled(x)
    assert count.graphs == 2


def test_dropout_draws_what_eager_draws():
    def main(x):
        return F.dropout(x, 0.5) + torch.rand(x.shape[0], 1)
    compiled, count = torch.compile(main, dynamic=True), Count()
    for n in SIZES:
        made = []
        for run in (compiled, main):
            torch.manual_seed(n)
            made.append((run(fresh(n, 0, 4)), torch.rand(3)))
        same(*made, n)
    assert count.graphs == 1 and count.fallbacks == 0


class Block(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).split(c, dim=2)
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).contiguous().view(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Model(torch.nn.Module):
    def __init__(self, words=17, width=16, longest=80):
        super().__init__()
        self.words, self.places = torch.nn.Embedding(words, width), torch.nn.Embedding(longest,
                                                                                       width)
        self.blocks = torch.nn.ModuleList([Block(width, 2) for _ in range(2)])
        self.head = torch.nn.Linear(width, words)

    def forward(self, tokens, targets=None):
        t = tokens.size(1)
        assert t <= self.places.weight.shape[0]
        x = self.words(tokens) + self.places(torch.arange(t))
        for block in self.blocks:
            x = block(x)
        scores = self.head(x)
        if targets is None:
            return scores
        return F.cross_entropy(scores.view(-1, scores.size(-1)), targets.view(-1))


def tokens_of(b, t, seed):
    return torch.tensor(np.random.default_rng(seed).integers(0, 17, (b, t)))


@pytest.mark.parametrize("dynamic", [True, None])
def test_model(dynamic):
    """A small GPT with batches and lengths of any size, forward and backward."""
    torch.manual_seed(0)
    model = Model()
    compiled, count = torch.compile(model, dynamic=dynamic), Count()
    for i, (b, t) in enumerate(((2, 5), (3, 7), (4, 2), (7, 3), (2, 64), (3, 65))):
        x, y = tokens_of(b, t, i), tokens_of(b, t, i + 100)
        made = []
        for run in (compiled, model):
            model.zero_grad()
            loss = run(x, y)
            loss.backward()
            made.append([loss, *(p.grad.clone() for p in model.parameters())])
        same(*made, (b, t))
    assert count.fallbacks == 0 and count.specialised == 0
    assert count.graphs <= (1 if dynamic else 2)


def test_train_step():
    """Forward, backward and optimizer in one graph, batches of any size."""
    def trained(compile):
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(),
                                    torch.nn.Linear(16, 1))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

        def step(x, y):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            return loss
        step = torch.compile(step, dynamic=True) if compile else step
        losses = [step(fresh(n, 0, 8), fresh(n + 7, n, 1)).item() for n in (*SIZES, 64, 65)]
        return losses, [p.detach() for p in model.parameters()]
    count = Count()
    have, want = trained(True), trained(False)
    np.testing.assert_allclose(have[0], want[0], 1e-4, 1e-5)
    same(have[1], want[1])
    assert count.graphs == 1 and count.fallbacks == 0


def test_capture_given_up_leaves_nothing():
    """A capture that begins anew inside a `with` leaves its hooks behind nowhere."""
    def main(x):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
            y = x * x
            for _ in range(x.shape[0]):
                y = y * x
        return y.sum()
    before = STATE.saved
    x = fresh(3, 0, 4).requires_grad_()
    found = torch.compile(main, dynamic=True)(x)
    same(found, main(x))
    assert STATE.saved == before == ()


def test_texts_of_errors():
    """What an error says of sizes is what it says in eager mode."""
    def main(x, y):
        try:
            return x + y
        except RuntimeError as error:
            return x * 2, str(error)
    compiled = torch.compile(main, dynamic=True)
    for n in (3, 5):
        same(compiled(fresh(n, 0, 2), fresh(n, 0, 7)), main(fresh(n, 0, 2), fresh(n, 0, 7)))


TOO_SMALL: dict[str, Any] = {
    "glu": (lambda x: F.glu(x, 0), (4, 3), (6, 3), (5, 3)),
    "max_pool1d": (lambda x: F.max_pool1d(x, 3), (2, 6), (2, 9), (2, 2)),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 3), (2, 6, 6), (2, 9, 9), (2, 2, 2)),
    "conv1d": (lambda x: F.conv1d(x, torch.ones(1, 2, 4)), (2, 6), (2, 9), (2, 3)),
    "unfold": (lambda x: F.unfold(x, 3), (2, 6, 6), (2, 9, 9), (2, 2, 2)),
    "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2), (4, 2, 2), (8, 3, 3), (6, 3, 3)),
    "pixel_unshuffle": (lambda x: F.pixel_unshuffle(x, 2), (2, 4, 4), (3, 6, 6), (3, 5, 5)),
    "channel_shuffle": (lambda x: F.channel_shuffle(x, 2), (1, 4, 2), (3, 6, 3), (3, 5, 3)),
    "group_norm": (lambda x: F.group_norm(x, 2), (3, 4, 2), (2, 6, 3), (2, 5, 3)),
    "interpolate": (lambda x: F.interpolate(x, scale_factor=0.25), (2, 3, 8), (3, 2, 12),
                    (3, 2, 3)),
    "stft": (lambda x: torch.stft(x, 4, center=False, return_complex=True), (8,), (12,), (3,)),
    "repeat": (lambda x: x.repeat(x.shape[0] - 3), (4,), (6,), (2,)),
    "zeros": (lambda x: torch.zeros(x.shape[0] - 3), (4,), (6,), (2,)),
    "split": (lambda x: x.split([x.shape[0] - 3, 3]), (4,), (6,), (2,)),
    "narrow": (lambda x: x.narrow(0, 1, 3), (4,), (6,), (3,)),
    "view": (lambda x: x.view(-1, 2), (4, 1), (3, 4), (5, 3)),
    "unflatten": (lambda x: x.unflatten(0, (2, -1)), (4,), (6,), (5,)),
    "pad": (lambda x: F.pad(x, (2, 2), mode="reflect"), (3, 4), (2, 6), (4, 2)),
    "cat": (lambda x: torch.cat([x, torch.ones(1, 3)]), (4, 3), (5, 3), (5, 4)),
}


@pytest.mark.parametrize("dynamic", [True, None])
@pytest.mark.parametrize("name", TOO_SMALL)
def test_sizes_that_an_op_refuses(name: str, dynamic: bool | None) -> None:
    """A graph for many sizes does not take the place of an error about some of them."""
    f, *shapes = TOO_SMALL[name]
    made = torch.compile(f, backend="reference", dynamic=dynamic)
    for shape in (*shapes, shapes[0]):
        x = torch.rand(*shape)
        try:
            want = f(x)
        except (RuntimeError, ValueError) as error:
            with pytest.raises(type(error)) as found:
                made(x)
            assert str(found.value) == str(error)
        else:
            for a, b in zip(*(t if isinstance(t, tuple) else (t,) for t in (made(x), want)),
                            strict=True):
                assert a.shape == b.shape


@pytest.mark.parametrize("backend", ["loops", pytest.param("inductor", marks=pytest.mark.slow)])
@pytest.mark.parametrize("f", [
    lambda c: c + c[::2], lambda c: c[::2] * c, lambda c: c[1:] - c, lambda c: c.t()[:, 1:] + 1,
    lambda c: torch.where(c[2:, :1] > 0, 1, c[2:]), lambda c: (c[::2] + c.exp()[::2]).sum(0) + c,
    lambda c: c[::2, None] @ torch.ones(4, 3, 2), lambda c: torch.lerp(c, c[::2], c[:, :1]),
    lambda c: c.addcmul(c[::2], c), lambda c: c.t().contiguous().t()[::2] + c.exp(),
    lambda c: F.linear(c, c[::2], c.sum(1)[::2]), lambda c: torch.cat([c[::2] * c, c[::2]]),
], ids=["strided", "first", "one less", "columns", "none", "sum", "product", "lerp", "addcmul",
        "turned", "linear", "joined"])
def test_sizes_that_come_out_as_one_broadcast(f, backend):
    """Seed 4001323: half of a size of 2 is 1, and is read from where that one row is."""
    assert loops
    g = torch.compile(f, backend=backend, dynamic=True)
    for n in (2, 4, 2, 3, 1):
        x = fresh(n, 0, 3)
        try:
            want = f(x)
        except RuntimeError as error:
            with pytest.raises(RuntimeError, match=re.escape(str(error))):
                g(x)
            continue
        same(g(x), want, n)


def test_sizes_in_errors_of_a_later_backward_are_those_of_the_call():
    """Seed 13101161: what a backward behind the call refuses tells the size that it had."""
    def f(x):
        y = x.exp()
        with torch.no_grad():
            y.detach().mul_(2)
        return y
    texts = []
    for g in (f, torch.compile(f, dynamic=True)):
        for n in (3, 4, 5):
            with pytest.raises(RuntimeError) as caught:
                g(torch.ones(n, 2, requires_grad=True)).sum().backward()
            texts.append(str(caught.value))
    assert texts[:3] == texts[3:] and "[5, 2]" in texts[-1]


@pytest.mark.parametrize("first", [4, 30])
def test_distances_are_of_the_form_that_their_number_asks_for(first):
    """Seed 13103570. Many come from a product, which rounds far more; up to 25 rows do not."""
    def f(x):
        return torch.cdist(x, x)
    compiled = torch.compile(f, dynamic=True)
    for n in (first, 3, 24, 26, 40, 5):
        x = 100 + fresh(n, 0, 3)
        assert np.abs((compiled(x) - f(x)).numpy()).max() <= 1e-6 * (1 if n <= 25 else 1e6)
