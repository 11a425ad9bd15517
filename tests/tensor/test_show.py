"""The text of random tensors is torch's, character by character."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import lehr

torch = pytest.importorskip("torch")

VALUES = [0, 1, -1, 2.5, 1e-5, 1e9, 1e3, -1e-3, float("inf"), float("-inf"), float("nan"),
          123456.789, 1e-8, 3.0, 1e5, 100.0, -0.0]
SHAPES = [(), (1,), (3,), (7,), (30,), (2, 3), (3, 2, 4), (0,), (2, 0), (1001,), (40, 40),
          (2, 3, 4, 20), (12, 1, 90), (8, 7, 30)]
DTYPES = ["float32", "float64", "float16", "bfloat16", "int64", "int32", "bool", "uint8"]


def draw(rng: random.Random) -> tuple[Any, str]:
    shape = rng.choice(SHAPES)
    pool = (rng.sample(VALUES, rng.randint(1, 5)) if rng.random() < 0.7
            else [rng.gauss(0, 1) * 10 ** rng.uniform(-5, 6) for _ in range(5)])
    a = np.array([rng.choice(pool) for _ in range(int(np.prod(shape)))], np.float64).reshape(shape)
    name = rng.choice(DTYPES)
    if name in ("int64", "int32", "uint8"):
        a = np.nan_to_num(a, posinf=5, neginf=-5).clip(-1e6, 1e6)
    return (abs(a) % 200 if name == "uint8" else a), name


def compare(seed: int) -> None:
    rng = random.Random(seed)
    a, name = draw(rng)
    if name in ("float16", "bfloat16"):
        a = a.astype(np.float32)  # torch rounds twice on the way from float64
    t, x = (lib.tensor(a).to(getattr(lib, name)) for lib in (torch, lehr))
    if name.startswith("fl") and rng.random() < 0.3:
        t.requires_grad_()
        x.requires_grad_()
    assert repr(x) == repr(t), (seed, a, name)


@pytest.mark.parametrize("block", range(4))
def test_random_tensors(block: int) -> None:
    for seed in range(block * 200, block * 200 + 200):
        compare(seed)


@pytest.mark.parametrize("options", [
    {"precision": 2, "sci_mode": False, "edgeitems": 2, "threshold": 10, "linewidth": 60},
    {"sci_mode": True}, {"profile": "short"}, {"profile": "full"},
    {"edgeitems": 0, "threshold": 3}])
def test_options(options: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((10, 10)) * 1e6, rng.standard_normal(100), np.arange(5.0),
              rng.standard_normal(4) + 1j, np.zeros((3, 0))]
    try:
        for lib in (torch, lehr):
            lib.set_printoptions(**options)
        for a in arrays:
            assert repr(lehr.tensor(a)) == repr(torch.tensor(a))
    finally:
        for lib in (torch, lehr):
            lib.set_printoptions(profile="default")


def test_what_stands_after_the_numbers() -> None:
    def texts(t: Any) -> list[str]:
        x = t.ones(2, 2, requires_grad=True)
        d = t.ones(40, requires_grad=True, dtype=t.float64)
        return [repr(x), repr(x * 2), repr(x.view(4)), repr(d), repr(t.ones(2, device="meta")),
                repr(t.ones(2, 3, device="meta", dtype=t.float16)), str(x), f"{x}",
                repr(t.Size([1, 2])), repr(t.device("cuda:1")), repr(t.float16),
                repr(t.zeros(0, 2, dtype=t.int32))]
    assert texts(lehr) == texts(torch)
