"""What a compiled call costs: guards, inputs, the foreign call, results, in microseconds.

    python benchmarks/calls.py [--oracle]

With `--oracle`, the same programs run through torch.compile where torch is installed, in a process
of their own. Each figure is the least of several repeats, so that other load counts little.
"""

from __future__ import annotations

import argparse
import importlib
import resource
import subprocess
import sys
import timeit
from collections.abc import Callable
from typing import Any

N = 12          # layers of the GPT


def least(call: Callable[[], Any], seconds: float = 0.2, repeats: int = 9) -> float:
    """Microseconds of one call."""
    once = max(min(timeit.repeat(call, number=1, repeat=3)), 1e-7)
    number = max(1, int(seconds / repeats / once))
    return min(timeit.repeat(call, number=number, repeat=repeats)) / number * 1e6


def tiny(x: Any) -> Any:
    return x * 2 + 1


def gpt(torch: Any, n: int = N, d: int = 32, heads: int = 2) -> Any:
    """A small GPT: what it costs beside the arithmetic shows."""
    nn, F = torch.nn, torch.nn.functional

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)

        def forward(self, x: Any) -> Any:
            b, t, c = x.shape
            q, k, v = (y.view(b, t, heads, c // heads).transpose(1, 2)
                       for y in self.qkv(x).split(c, dim=2))
            a = F.softmax((q @ k.transpose(-2, -1)) * (c // heads) ** -0.5, dim=-1)
            return self.out((a @ v).transpose(1, 2).reshape(b, t, c))

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before, self.attention = nn.LayerNorm(d), Attention()
            self.between = nn.LayerNorm(d)
            self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

        def forward(self, x: Any) -> Any:
            x = x + self.attention(self.before(x))
            return x + self.mlp(self.between(x))

    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(64, d), nn.Embedding(16, d)
            self.blocks = nn.ModuleList([Block() for _ in range(n)])
            self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, 64, bias=False)

        def forward(self, index: Any) -> Any:
            x = self.tokens(index) + self.places(torch.arange(index.shape[1]))
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    return GPT().eval()


def training(torch: Any) -> tuple[Any, Any]:
    """A whole step of a small network, and its input."""
    nn = torch.nn
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, torch.randn(8, 16)


def show(name: str, **figures: float) -> None:
    print(f"{name:<14}" + "".join(f"  {k} {v:9.2f}" for k, v in figures.items()), flush=True)


def measure(torch: Any) -> None:
    """The figures that both frameworks give."""
    x = torch.randn(8)
    f = torch.compile(tiny)
    for _ in range(3):
        f(x)
    show("tiny_call", call=least(lambda: f(x)), eager=least(lambda: tiny(x)))
    model = gpt(torch)
    index = torch.randint(0, 64, (1, 8))
    g = torch.compile(model)
    with torch.no_grad():
        for _ in range(3):
            g(index)
        show("gpt12", call=least(lambda: g(index)), eager=least(lambda: model(index)))
    step, batch = training(torch)
    s = torch.compile(step)
    for _ in range(3):
        s(batch)
    show("step", call=least(lambda: s(batch)), eager=least(lambda: step(batch)))
    if torch.__name__ == "lehr":
        parts("tiny_call", f.entries[0], (x,), torch)
        with torch.no_grad():
            parts("gpt12", g.compiled_call.entries[0], (*g.compiled_call.bound, index), torch)
        parts("step", s.entries[0], (batch,), torch)


def parts(name: str, entry: Any, args: tuple[Any, ...], torch: Any) -> None:
    """What the parts of one call cost."""
    checker = entry.checker
    live = entry.check(args, {})
    inputs = live.gather(args, {}, live)
    show(name, check=least(lambda: entry.check(args, {})),
         full=least(lambda: checker.full(args, {})),
         same=least(lambda: checker.same(live.table)),
         gather=least(lambda: live.gather(args, {}, live)),
         forward=least(lambda: live.forward(inputs)), run=least(lambda: entry.run(args, {}, live)))
    shape = checker.shape
    print(f"{'':<14}  {len(checker.claims)} facts, {len(live.expected)} words, {checker.renewals} "
          f"full checks, {len(shape.explicit)} facts looked at one by one", flush=True)


def growth(torch: Any, calls: int = 100_000) -> None:
    """Memory that many calls leave behind."""
    x = torch.randn(8)
    f = torch.compile(tiny)
    for _ in range(calls // 10):
        f(x)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(calls):
        f(x)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"{calls} calls grew the process by {after - before} KiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--oracle", action="store_true", help="also measure torch.compile")
    parser.add_argument("--framework", default="lehr", help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch = importlib.import_module(args.framework)
    print(f"{args.framework}, microseconds")
    measure(torch)
    if args.framework == "lehr":
        growth(torch)
    if args.oracle:
        subprocess.run([sys.executable, __file__, "--framework", "torch"], check=False)


if __name__ == "__main__":
    main()
