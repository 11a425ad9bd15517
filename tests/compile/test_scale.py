"""Compile time: equal blocks share their code, and no stage takes more than its share of nodes."""

from __future__ import annotations

import pytest

from benchmarks import scale


@pytest.fixture(scope="module")
def measured():
    scale.stages(2)  # tables are filled
    return {blocks: scale.stages(blocks) for blocks in (10, 60)}


def test_equal_blocks_are_compiled_once(measured):
    assert measured[60].functions == measured[10].functions <= 8


@pytest.mark.parametrize("stage", ["passes", "lower", "fuse", "plan", "emit"])
def test_stages_grow_with_the_number_of_nodes(measured, stage):
    """Six times the nodes: six times the time, with room for what a busy machine adds; a stage that
    looked at all pairs of nodes would take 36 times as long."""
    small, large = (measured[n].seconds[stage] for n in (10, 60))
    assert large < 15 * small + 0.05
