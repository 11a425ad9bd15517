"""Philox against the published known answers, and the vectorised form against the plain one."""

import numpy as np
import pytest

from lehr.base import philox

KNOWN = [  # key, counter, words: the vectors published with the Random123 library
    ((0x00000000, 0x00000000), (0x00000000,) * 4, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF,) * 4, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ((0xA4093822, 0x299F31D0), (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
     (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
]


@pytest.mark.parametrize(("key", "counter", "want"), KNOWN)
def test_known_answers(key, counter, want):
    assert philox.block(key[0] | key[1] << 32, counter) == want


@pytest.mark.parametrize(("key", "counter", "want"), KNOWN)
def test_known_answers_of_words(key, counter, want):
    block = counter[0] | counter[1] << 32
    offset = counter[2] | counter[3] << 32
    if block < 1 << 61:
        got = philox.words(key[0] | key[1] << 32, offset, 4, 4 * block)
        assert got.dtype == np.uint32 and tuple(got.tolist()) == want


@pytest.mark.parametrize("start", [0, 1, 2, 3, 4, 4 * philox.CHUNK - 2, 4 << 40])
@pytest.mark.parametrize("count", [0, 1, 3, 4, 9])
def test_words_equal_blocks(start, count):
    key, offset = 0x0123456789ABCDEF, 0xFEDCBA9876543210
    want = []
    for i in range(start, start + count):
        b = i // 4
        counter = (b & philox.LOW, b >> 32, offset & philox.LOW, offset >> 32)
        want.append(philox.block(key, counter)[i % 4])
    assert philox.words(key, offset, count, start).tolist() == want


def test_words_do_not_depend_on_the_chunks():
    whole = philox.words(5, 7, 6 * philox.CHUNK + 5)
    at = 3 * philox.CHUNK + 1
    assert np.array_equal(whole[at:], philox.words(5, 7, len(whole) - at, at))


def test_bits_look_uniform():
    """Each of the 32 bits is set half of the time, and streams of other offsets and keys differ."""
    n = 1 << 16
    a = philox.words(1, 0, n)
    bits = np.unpackbits(a.view(np.uint8)).reshape(n, 32).mean(0)
    assert np.abs(bits - 0.5).max() < 5 * 0.5 / n ** 0.5
    for other in (philox.words(2, 0, n), philox.words(1, 1, n), philox.words(1 << 32, 0, n)):
        assert (a == other).mean() < 1e-3
