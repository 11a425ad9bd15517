"""What compiling costs: equal blocks share their code."""

from __future__ import annotations

import pytest

from benchmarks import scale


@pytest.fixture(scope="module")
def measured():
    return {blocks: scale.stages(blocks) for blocks in (10, 60)}


def test_equal_blocks_are_compiled_once(measured):
    assert measured[60].functions == measured[10].functions <= 8
