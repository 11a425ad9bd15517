"""What kernels compute: a reduction is made once, not again by each element that needs it.

A reduction computed by every element of its row makes a program thousands of times slower and not a
bit wrong. So the orders in which kernels run are looked at, for layers and losses, forward and
backward, at sizes at which kernels merge.
"""

import pytest

import lehr as torch
import lehr.nn.functional as F
from lehr.base import sym
from lehr.compiler.emit import c, order
from lehr.compiler.loop.ir import Expr

IMAGE, ROWS, HEADS = (16, 64, 24, 24), (256, 768), (2, 8, 128, 64)
LABELS = torch.arange(256) % 768


def layer(make):
    return lambda: (make(), [IMAGE])


PROGRAMS = {
    "group_norm": layer(lambda: torch.nn.GroupNorm(8, 64)),
    "group_norm_of_2": layer(lambda: torch.nn.GroupNorm(32, 64)),
    "instance_norm": layer(lambda: torch.nn.InstanceNorm2d(64, affine=True)),
    "batch_norm": layer(lambda: torch.nn.BatchNorm2d(64)),
    "batch_norm_eval": layer(lambda: torch.nn.BatchNorm2d(64).eval()),
    "channel_norm": layer(lambda: torch.nn.LayerNorm([64, 24, 24])),
    "response_norm": layer(lambda: torch.nn.LocalResponseNorm(5)),
    "squeeze_and_excite": layer(lambda: lambda x: x * x.mean((2, 3), keepdim=True).sigmoid()),
    "weights_standardised": layer(lambda: lambda x: (x - x.mean((1, 2, 3), keepdim=True))
                                  / (x.var((1, 2, 3), keepdim=True) + 1e-5).sqrt()),
    "channel_softmax": layer(lambda: lambda x: x.softmax(1)),
    "pixel_softmax": layer(lambda: lambda x: x.flatten(2).softmax(-1)),
    "global_pool": layer(lambda: torch.nn.AdaptiveAvgPool2d(1)),
    "average_pool": layer(lambda: torch.nn.AvgPool2d(3, 2, 1)),
    "max_pool": layer(lambda: torch.nn.MaxPool2d(2)),
    "layer_norm": lambda: (torch.nn.LayerNorm(768), [ROWS]),
    "rms_norm": lambda: (torch.nn.RMSNorm(768), [ROWS]),
    "softmax": lambda: (lambda x: x.softmax(-1), [ROWS]),
    "softmax_of_columns": lambda: (lambda x: x.softmax(0), [ROWS]),
    "log_softmax": lambda: (lambda x: x.log_softmax(-1), [ROWS]),
    "cross_entropy": lambda: (lambda x: F.cross_entropy(x, LABELS, label_smoothing=0.1), [ROWS]),
    "normalize": lambda: (F.normalize, [ROWS]),
    "normalize_columns": lambda: (lambda x: F.normalize(x, dim=0), [ROWS]),
    "standardise": lambda: (lambda x: (x - x.mean()) / x.std(), [ROWS]),
    "cosine": lambda: (F.cosine_similarity, [ROWS, ROWS]),
    "kl": lambda: (lambda x, y: F.kl_div(x.log_softmax(-1), y.softmax(-1)), [ROWS, ROWS]),
    "contrast": lambda: (lambda x, y: F.cross_entropy(
        F.normalize(x) @ F.normalize(y).t() * 10, LABELS), [ROWS, ROWS]),
    "attention": lambda: (lambda q, k, v: (q @ k.transpose(-1, -2) / 8).softmax(-1) @ v,
                          [HEADS] * 3),
    "linear_attention": lambda: (lambda q, k, v: q.softmax(-1) @ (k.softmax(-2).transpose(-1, -2)
                                                                  @ v), [HEADS] * 3),
    "heads_norm": lambda: (lambda q: F.layer_norm(q, (64,)).transpose(1, 2).flatten(2), [HEADS]),
    "gated": lambda: (lambda x, y: F.layer_norm(F.silu(x) * y, (768,)), [ROWS, ROWS]),
    "variance": lambda: (lambda x: x.var(-1) / x.mean(-1).square().add(1), [ROWS]),
    "logsumexp": lambda: (lambda x: (x - x.logsumexp(-1, keepdim=True)).exp() * x, [ROWS]),
    "cumulated": lambda: (lambda x: x.cumsum(-1) / x.sum(-1, keepdim=True).square().add(1), [ROWS]),
}


def again(nest, made):
    """How often the reductions of a kernel are made, at most, of what would do."""
    units = [*made.units, *made.serial]
    worst = 1
    for root in nest.roots:
        for e in nest.walk(root.values):
            if isinstance(e, Expr) and e.kind == "Reduce" and not any(
                    x.kind == "Load" and nest.state(x.fields[0])[0].role == "local"
                    for x in nest.walk([e]) if isinstance(x, Expr)):    # those are of one unit
                deps = nest.deps(e)
                last = max((n for n, a in enumerate(root.axes, 1) if a.var in deps), default=0)
                loops = [a.extent for a in (*units, *root.axes[:last]) if a.var not in deps]
                worst = max(worst, sym.prod(loops))
    return worst


@pytest.mark.parametrize("name", PROGRAMS)
def test_reductions_are_made_once(name, monkeypatch):
    seen = []

    def watched(nest, rows=0):
        made = order.order(nest, rows)
        seen.append((nest.name, again(nest, made)))
        return made
    monkeypatch.setattr(c, "order", watched)
    f, shapes = PROGRAMS[name]()
    compiled = torch.compile(f, options={"optimize": 1})
    args = [torch.randn(s, requires_grad=True) for s in shapes]
    result = compiled(*args)
    result.backward(torch.randn_like(result))
    assert seen and all(a.grad is not None for a in args)
    assert {kernel: times for kernel, times in seen if times > 1} == {}


@pytest.mark.parametrize("shape", [(16, 64, 24, 24), (4, 300, 50)])
def test_columns_are_one_kernel(shape):
    """A softmax over channels reads the image once, in blocks of columns; longer columns, which a
    cache would not keep, are kernels of their own."""
    def kernels(*shape):
        torch.compiler.reset()
        compiled = torch.compile(lambda x: x.softmax(1), options={"optimize": 1})
        x, before = torch.randn(shape), torch.compiler.stats()["kernels"]
        assert torch.allclose(compiled(x), x.softmax(1), atol=1e-6)
        return torch.compiler.stats()["kernels"] - before

    assert kernels(*shape) == 1 < kernels(2, 3000, 40)
