"""Results with names have torch's names, whether an op is a kernel or made of parts."""

from __future__ import annotations

import pytest

from lehr.base import dtype as dt
from lehr.ops.registry import Op
from lehr.ops.sample import samples_of
from lehr.tensor import dispatch
from tests.ops import oracle
from tests.ops.test_generated import OPS
from tests.ops.test_tensor import tensors

torch = pytest.importorskip("torch")
NAMED = [op for op in OPS if op.signature.named and oracle.function(op) is not None]
NO_FIELDS = {"count", "index", "n_fields", "n_sequence_fields", "n_unnamed_fields"}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("op", NAMED, ids=lambda op: op.name)
def test_names(op: Op) -> None:
    sample = next(s for s in samples_of(op, dt.float32) if s.error is None)
    made = dispatch.call(op, tuple(map(tensors, sample.bind(op))))
    want = oracle.call(op, sample)
    names = {n for n in dir(want) if not n.startswith("_")} - NO_FIELDS
    assert set(made._fields) == names
    for name in names:  # in the same order
        assert tuple(getattr(made, name).shape) == tuple(getattr(want, name).shape)
