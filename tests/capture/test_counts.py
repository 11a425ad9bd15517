"""What capture counts: instructions, captures, kernels of equal parts."""

import re

import pytest

import lehr as torch
from lehr import nn
from lehr.compiler.counters import COUNTERS
from lehr.compiler.emit import c


class Block(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.attn = nn.MultiheadAttention(d, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def forward(self, x):
        h = self.norm1(x)
        x = x + self.attn(h, h, h, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


def counted(layers, step, **options):
    torch.manual_seed(0)
    m = nn.Sequential(*[Block() for _ in range(layers)])
    opt = torch.optim.SGD(m.parameters(), lr=0.01)

    def train(x):
        loss = m(x).pow(2).mean()
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss

    f = torch.compile(train if step else m, options=options or None)
    x = torch.randn(2, 5, 16)
    torch.compiler.reset()
    COUNTERS.reset()
    for _ in range(3):
        f(x)
    stats = torch.compiler.stats()
    assert stats["captures"] == stats["graphs"] == 1 and stats["breaks"] == 0
    entry, = getattr(f, "compiled_call", f).entries
    return stats["bytecodes"], entry


@pytest.mark.parametrize("step", [False, True])
def test_instructions_grow_with_the_layers_and_no_faster(step):
    """Twelve equal layers cost twelve times one layer, in one capture and one graph."""
    counts = [counted(n, step)[0] for n in (2, 4, 12)]
    per_layer = (counts[1] - counts[0]) / 2
    assert counts[2] - counts[1] == pytest.approx(8 * per_layer, rel=0.01)


def test_calls_after_the_first_interpret_nothing():
    torch.manual_seed(0)
    f = torch.compile(nn.Sequential(*[Block() for _ in range(3)]))
    x = torch.randn(2, 5, 16)
    f(x)
    COUNTERS.reset()
    for _ in range(5):
        f(x)
    assert torch.compiler.stats()["bytecodes"] == 0


def test_equal_layers_are_compiled_once(monkeypatch):
    """The C text of nine layers has as many functions as that of three."""
    emit, found = c.emit, []

    def recorded(*args, **kwargs):
        code = emit(*args, **kwargs)
        found.append(len(set(re.findall(r"\bk_\w+(?=\(void)", "\n".join(code.sources)))))
        return code
    monkeypatch.setattr(c, "emit", recorded)
    counts = []
    for n in (3, 9):        # others than above: programs are kept in the process, too
        found.clear()
        counted(n, True, cache=False)
        counts.append(sum(found))
    assert counts[0] == counts[1] > 0
