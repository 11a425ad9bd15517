"""Nearest-neighbour indices are those of torch for any pair of sizes, scale factors and dtypes."""

import numpy as np
import pytest

from lehr.base import dtype as dt
from lehr.ops import execute, families, registry, resize
from tests.ops.oracle import torch

assert families.FAMILIES


@pytest.mark.parity
@pytest.mark.skipif(torch is None, reason="torch is not installed")
@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("made", [dt.float32, dt.float64])
def test_nearest_indices(exact, made):
    random = np.random.default_rng(0)
    mode = "nearest-exact" if exact else "nearest"
    for _ in range(300):
        size, out = int(random.integers(1, 200)), int(random.integers(1, 600))
        factor = float(random.uniform(0.1, 5)) if random.integers(2) else None
        if factor:
            out = int(np.floor(size * factor))
        if out < 1:
            continue
        x = torch.arange(size, dtype=getattr(torch, made.name))[None, None]
        size_of = {"scale_factor": factor} if factor else {"size": out}
        want = torch.nn.functional.interpolate(x, mode=mode, **size_of)[0, 0]
        have = resize._nearest(size, out, factor, exact, made)
        assert np.array_equal(have, want.numpy()), (size, out, factor)


def test_enlargement_by_a_whole_factor_is_a_view():
    """Twice the size needs no gather: a reshape of an expansion, whose gradient is a sum."""
    assert resize._whole(5, 10, None, False, dt.float32) == 2
    assert resize._whole(5, 11, None, False, dt.float32) is None
    # 1 / 41 rounds down in float32, so torch's index of 41 k is k - 1 for some k: no plain
    # repetition
    assert resize._whole(41, 41 * 41, None, False, dt.float32) is None
    op = registry.get("interpolate")
    x = np.arange(6.0).reshape(1, 1, 2, 3)
    have = execute.run(op, op.signature.bind((x,), {"scale_factor": 2}))
    assert np.array_equal(have[0, 0], np.repeat(np.repeat(x[0, 0], 2, 0), 2, 1))
