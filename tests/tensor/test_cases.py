"""Expressions against what torch makes of them (see `cases`)."""

from __future__ import annotations

import pytest

import lehr
from tests.tensor import cases

WANT = cases.golden()

# Where lehr differs on purpose.
DIFFERS = {
    # numpy's byte order, NaN and negative strides raise as in torch; these do more than torch:
}


@pytest.mark.parametrize("text", cases.CASES)
def test_expression(text: str) -> None:
    assert cases.evaluate(lehr, text) == DIFFERS.get(text, WANT[text])


def test_golden_is_torch() -> None:
    torch = pytest.importorskip("torch")
    stale = {t: (cases.evaluate(torch, t), WANT[t]) for t in cases.CASES}
    assert {t: pair for t, pair in stale.items() if pair[0] != pair[1]} == {}
