"""The demo's text: deterministic, split by file, ordered by key alone."""

import numpy as np
import pytest

from lehr.cli.demo import text


def library(folder, count=30, size=9000):
    for i in range(count):
        (folder / f"m{i:02}.py").write_bytes(bytes([i]) * size)
    return folder


def test_split_is_by_file(tmp_path):
    found = text.corpus(library(tmp_path))
    assert set(found.held) == {0, 10, 20}
    assert set(found.train) == set(range(30)) - {0, 10, 20}
    assert len(found.held) == 3 * 9000 and found.files == 30


def test_digest_follows_content(tmp_path):
    first = text.corpus(library(tmp_path)).digest
    assert first == text.corpus(tmp_path).digest
    (tmp_path / "m05.py").write_bytes(b"other")
    assert first != text.corpus(tmp_path).digest


def test_this_machine_has_enough():
    found = text.corpus()
    assert len(found.train) > 1_000_000 and len(found.held) > 50_000


def test_too_little_source_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="use a Python whose standard library"):
        text.corpus(library(tmp_path, count=3))


def test_batch_depends_on_key_alone():
    data = np.random.default_rng(0).integers(0, 256, 5000).astype(np.uint8)
    x, y = text.batch(data, 8, 128, 3, 7)
    assert x.shape == y.shape == (8, 128) and x.dtype == y.dtype == np.int64
    assert np.array_equal(x[:, 1:], y[:, :-1])
    assert np.array_equal(x, text.batch(data, 8, 128, 3, 7)[0])
    for other in ((3, 8), (4, 7)):
        assert not np.array_equal(x, text.batch(data, 8, 128, *other)[0])


def test_windows_reach_both_ends():
    data = np.arange(10, dtype=np.uint8)
    seen = np.concatenate([np.stack(text.batch(data, 4, 3, 0, i)) for i in range(50)])
    assert seen.min() == 0 and seen.max() == 9
