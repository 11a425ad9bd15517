"""Charts: round ticks that cover the data, and marks where the data are."""

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from lehr.cli import chart


def pixels(png):
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB")).astype(int)


def near(image, colour):
    """(row, column) of the pixels that have nearly this colour."""
    want = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return np.argwhere(np.abs(image - want).sum(-1) < 60)


NUMBER = st.floats(-1e6, 1e6, allow_nan=False).map(lambda v: round(v, 6))


@given(NUMBER, NUMBER)
def test_ticks_cover_the_data(a, b):
    low, high = min(a, b), max(a, b)
    found = chart.ticks(low, high)
    assert 2 <= len(found) <= 12
    room = 1e-6 * max(abs(low), abs(high), 1e-3)
    assert found[0] <= low + room and found[-1] >= high - room
    assert all(x < y for x, y in zip(found, found[1:], strict=False))


@pytest.mark.parametrize(
    ("low", "high", "want"),
    [(0, 10, [0, 2, 4, 6, 8, 10]), (2.3, 5.7, [2, 3, 4, 5, 6]), (1, 300, [0, 100, 200, 300])],
)
def test_ticks_are_round(low, high, want):
    assert chart.ticks(low, high) == want


def test_line_falls_from_left_to_right():
    line = chart.Series("a", [(0, 10.0), (50, 1.0)], "#2f6fb0")
    image = pixels(chart.lines([line], "t", "x"))
    assert image.shape == (380, 760, 3)
    found = near(image[40:], "#2f6fb0")  # below the legend
    rows, columns = found[:, 0], found[:, 1]
    assert rows[columns.argmin()] < 30 < 200 < rows[columns.argmax()]


def test_marks_stand_apart():
    marks = chart.Series("a", [(0, 0.0), (10, 1.0)], "#d1495b", marks=True)
    found = near(pixels(chart.lines([marks], "t", "x"))[40:], "#d1495b")
    columns = np.unique(found[:, 1])
    assert len(found) > 60 and np.diff(columns).max() > 500


def test_bars_are_in_proportion():
    rows = [("long", 100.0, "#2e8b57"), ("short", 50.0, "#2f6fb0")]
    image = pixels(chart.bars(rows, "t", "ms"))
    widths = [np.ptp(near(image, colour)[:, 1]) for _, _, colour in rows]
    assert widths[0] == pytest.approx(2 * widths[1], abs=4)


def test_one_point_is_enough():
    assert pixels(chart.lines([chart.Series("a", [(1, 2.0)], "#000000")], "t", "x")).size
