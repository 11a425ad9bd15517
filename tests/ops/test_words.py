"""How results and errors read: what users search for, and what programs look for in them."""

from __future__ import annotations

from typing import Any

import pytest

import lehr as torch

X, Y = torch.ones(2, 3), torch.ones(4, 2)


@pytest.mark.parametrize(("f", "text"), [
    (lambda: X + Y, "The size of tensor a (3) must match the size of tensor b (2) at non-singleton "
                    "dimension 1"),
    (lambda: torch.cat([X, Y]), "Sizes of tensors must match except in dimension 0. Expected size "
                                "3 but got size 2 for tensor number 1 in the list."),
    (lambda: X[7], "index 7 is out of bounds for dimension 0 with size 2"),
    (lambda: X[0, -9], "index -9 is out of bounds for dimension 1 with size 3"),
    (lambda: X[None, 1, 5], "index 5 is out of bounds for dimension 1 with size 3"),
    (lambda: X[..., torch.tensor(3)], "index 3 is out of bounds for dimension 1 with size 3"),
])
def test_errors(f: Any, text: str) -> None:
    for g in (f, torch.compile(f)):
        with pytest.raises((RuntimeError, IndexError)) as caught:
            g()
        assert str(caught.value) == text


def test_named_results() -> None:
    made = torch.tensor([[1.0, 2.0]]).max(1)
    assert repr(made) == ("torch.return_types.max(\nvalues=tensor([2.]),\n"
                          "indices=tensor([1]))")
    assert type(made).__name__ == "max"
    assert type(torch.linalg.eigh(torch.eye(2))).__name__ == "linalg_eigh"
