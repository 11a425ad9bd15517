"""`testing.assert_close`: what it accepts and how it says what differs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from lehr.testing import assert_close, make_tensor

import lehr

T = lehr.tensor


@pytest.mark.parametrize("pair", [
    (1, 1), (1.0, 1.0 + 1e-9), (T([1.0]), T([1.0 + 1e-7])), ([T([1.0]), 2], [T([1.0]), 2]),
    ({"a": T([1])}, {"a": T([1])}), (T([float("inf")]), T([float("inf")])), (None, None),
    (T([1.0]), __import__("numpy").ones(1, "float32"))])
def test_close(pair: tuple[Any, Any]) -> None:
    assert_close(*pair)


MESSAGES = {
    lambda: assert_close(T([1.0, 2, 3]), T([1.0, 2, 4])):
        "Tensor-likes are not close!\n\nMismatched elements: 1 / 3 (33.3%)\nGreatest absolute "
        "difference: 1.0 at index (2,) (up to 1e-05 allowed)\nGreatest relative difference: 0.25 "
        "at index (2,) (up to 1.3e-06 allowed)",
    lambda: assert_close(1.0, 1.5):
        "Scalars are not close!\n\nExpected 1.5 but got 1.0.\nAbsolute difference: 0.5 (up to "
        "1e-07 allowed)\nRelative difference: 0.3333333333333333 (up to 1e-07 allowed)",
    lambda: assert_close(T([1.0, 2]), T([1.0, 2, 3])):
        "The values for attribute 'shape' do not match: torch.Size([2]) != torch.Size([3]).",
    lambda: assert_close(T([1.0]), T([1])):
        "The values for attribute 'dtype' do not match: torch.float32 != torch.int64.",
    lambda: assert_close([T([1.0]), 2], [T([1.0]), 3]):
        "Scalars are not equal!\n\nExpected 3 but got 2.\nAbsolute difference: 1\nRelative "
        "difference: 0.3333333333333333\n\nThe failure occurred for item [1]",
    lambda: assert_close(T([1.0]), T([2.0]), msg="mine"): "mine",
    lambda: assert_close(T(1.0), T(float("nan"))):
        "Scalars are not close!\n\nExpected nan but got 1.0.\nAbsolute difference: nan (up to "
        "1e-05 allowed)\nRelative difference: nan (up to 1.3e-06 allowed)",
}


@pytest.mark.parametrize("call", MESSAGES, ids=range(len(MESSAGES)))
def test_messages(call: Callable[[], None]) -> None:
    with pytest.raises(AssertionError) as caught:
        call()
    assert str(caught.value) == MESSAGES[call]


def test_options() -> None:
    nan = T([float("nan")])
    with pytest.raises(AssertionError):
        assert_close(nan, nan)
    assert_close(nan, nan, equal_nan=True)
    assert_close(T([1.0]), T([1]), check_dtype=False)
    assert_close(T([1.0]), T([1.5]), rtol=0, atol=1)
    with pytest.raises(ValueError, match="either specified or omitted"):
        assert_close(1.0, 1.0, rtol=1)
    with pytest.raises(AssertionError, match="stride"):
        assert_close(lehr.ones(2, 2), lehr.ones(2, 2).t(), check_stride=True)
    with pytest.raises(TypeError, match="No comparison pair"):
        assert_close(object(), 1)


def test_make_tensor() -> None:
    x = make_tensor(3, 4, dtype=lehr.float32, low=1, high=2, requires_grad=True)
    assert x.shape == (3, 4) and 1 <= x.min() and x.max() < 2 and x.requires_grad
    assert not make_tensor((4, 4), dtype=lehr.int64, noncontiguous=True).is_contiguous()
    assert (make_tensor(100, dtype=lehr.uint8, exclude_zero=True) > 0).all()
