"""What a call copies before it begins, since data may stop it after it has written there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import lehr as torch
from lehr import nn
from lehr.compiler import stats

F = nn.functional


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.inner, self.out = nn.Embedding(11, 8), nn.Linear(8, 8), nn.Linear(8, 11)

    def forward(self, x: Any) -> Any:
        return self.out(F.gelu(self.inner(self.embed(x)))).flatten(0, 1)


def pooled(pool: Any) -> Any:
    """Layers behind the pool, whose weights are updated before its backward is done."""
    return nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), pool,
                         *(nn.Conv2d(4, 4, 3, padding=1) for _ in range(3)),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5))


IMAGES = torch.ones(2, 2, 14, 14), torch.tensor([1, 4])
STEPS: dict[str, tuple[Callable[[], Any], Any, Any]] = {
    "words": (Words, torch.zeros(2, 5, dtype=torch.int64), torch.arange(10)),
    "overlapping": (lambda: pooled(nn.MaxPool2d(3, 2, 1)), *IMAGES),
    "apart": (lambda: pooled(nn.MaxPool2d(2)), *IMAGES),
    "means": (lambda: pooled(nn.AvgPool2d(2)), *IMAGES),
}


def copied(f: Callable[..., Any], *args: Any) -> int:
    """Bytes that a later call copies."""
    f(*args)
    before = stats()["set_aside"]
    f(*args)
    return stats()["set_aside"] - before


@pytest.mark.parametrize("name", STEPS)
def test_training_steps_copy_nothing(name: str) -> None:
    make, x, y = STEPS[name]
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    @torch.compile(fullgraph=True)
    def step(x: Any, y: Any) -> Any:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    assert copied(step, x, y) == 0


def test_what_is_written_before_an_index_is_known_is_copied_and_put_back() -> None:
    @torch.compile(fullgraph=True)
    def f(a: Any, b: Any) -> Any:
        a.add_(1)
        return b[a.mean(0, keepdim=True).long()]

    a, b = torch.zeros(1000), torch.arange(3.0)
    assert copied(f, a, b) == 4000
    assert a[0] == 2
    with pytest.raises(IndexError):
        f(a, b)
    assert a[0] == 3    # as eagerly: the write came first
