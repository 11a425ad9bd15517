"""Programs about gradients against what torch makes of them (see `scenarios`)."""

from __future__ import annotations

import pytest

import lehr
from tests.tensor import scenarios

WANT = scenarios.golden()


@pytest.mark.parametrize("name", scenarios.SCENARIOS)
def test_scenario(name: str) -> None:
    assert scenarios.evaluate(lehr, name) == WANT[name]


def test_golden_is_torch() -> None:
    torch = pytest.importorskip("torch")
    for name in scenarios.SCENARIOS:
        assert scenarios.evaluate(torch, name) == WANT[name], name
