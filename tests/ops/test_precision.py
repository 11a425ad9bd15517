"""The table of autocast names what there is, each once."""

from __future__ import annotations

import pytest

from lehr.nn import functional
from lehr.ops import families, registry
from lehr.ops.precision import CALLS, PRECISION, TABLE, precision_of
from lehr.tensor.policy import LOWER

assert families.FAMILIES


@pytest.mark.parametrize("device", TABLE)
def test_names(device: str) -> None:
    rows = [name for ops in TABLE[device].values() for name in ops.split()]
    every = [*rows, *CALLS[device]]
    assert len(every) == len(set(every)) == len(PRECISION[device])
    unknown = [n for n in every if n not in registry.OPS and not hasattr(functional, n)]
    assert not unknown, unknown
    undone = [n for n in TABLE[device].get("parts", "").split() if not registry.OPS[n].decomp]
    assert not undone, undone


def test_devices() -> None:
    assert set(TABLE) == set(CALLS) == set(LOWER)


def test_lists_differ_by_device() -> None:
    assert precision_of("softmax", "cuda", ()) == "float32"
    assert precision_of("softmax", "cpu", ()) is None
    assert precision_of("linalg_inv", "cpu", ()) == "float32"
    assert precision_of("linalg_inv", "cuda", ()) is None
    assert precision_of("matmul", "cpu", ()) == precision_of("matmul", "cuda", ()) == "lower"
