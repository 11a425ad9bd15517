"""Philox4x32-10, the counter-based random generator, in vectorised numpy.

J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel random numbers: as easy as 1, 2, 3",
SC 2011.

A random op is named by `(key, offset)`, both unsigned 64-bit; word number `i` of it is lane `i % 4`
of the block at counter `(i // 4) + offset * 2**64` under `key`. Nothing else enters: the same word
comes out whatever is fused, recomputed, split over threads or run on another device. An op takes
one offset whatever its size, so offsets are `counter + k` even where sizes are symbolic.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

M0, M1 = 0xD2511F53, 0xCD9E8D57    # multipliers of the two halves
W0, W1 = 0x9E3779B9, 0xBB67AE85    # Weyl increments of the two key words
ROUNDS = 10
LOW = 0xFFFFFFFF
CHUNK = 8192                       # blocks at a time: all temporaries of a chunk stay in L2

_SHIFT, _MASK = np.uint64(32), np.uint64(LOW)
_MUL = np.array([[M0], [M1]], np.uint64)


def schedule(key: int) -> list[tuple[int, int]]:
    """The two key words of each round."""
    low, high = key & LOW, key >> 32 & LOW
    return [((low + r * W0) & LOW, (high + r * W1) & LOW) for r in range(ROUNDS)]


def block(key: int, counter: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    """One block in plain Python: four 32-bit counter words to four random words."""
    a, b, c, d = counter
    for k0, k1 in schedule(key):
        p, q = a * M0, c * M1
        a, b, c, d = (q >> 32) ^ b ^ k0, q & LOW, (p >> 32) ^ d ^ k1, p & LOW
    return a, b, c, d


def words(key: int, offset: int, count: int, start: int = 0) -> Array:
    """Words `start` to `start + count` of the op `(key, offset)`, as uint32 [count]."""
    first, last = start // 4, -(-(start + count) // 4)
    out = np.empty((max(last - first, 0), 4), np.uint32)
    size = min(CHUNK, len(out))
    rounds = [np.array([[k1], [k0]], np.uint64) for k0, k1 in schedule(key)]
    even, odd, product = (np.empty((2, size), np.uint64) for _ in range(3))
    for at in range(0, len(out), CHUNK):
        n = min(CHUNK, len(out) - at)
        blocks = np.arange(first + at, first + at + n, dtype=np.uint64)
        _rounds(out[at: at + n], blocks, offset, rounds, even[:, :n], odd[:, :n], product[:, :n])
    return out.reshape(-1)[start - 4 * first: start - 4 * first + count]


def _rounds(out: Array, blocks: Array, offset: int, rounds: list[Array], even: Array, odd: Array,
            product: Array) -> None:
    """Fills `out` [n, 4]; `even` holds counter words 0 and 2, `odd` their partners 3 and 1."""
    even[0], even[1] = blocks & _MASK, offset & LOW
    odd[0], odd[1] = offset >> 32 & LOW, blocks >> _SHIFT
    for keys in rounds:
        # new word 2 = high(M0 * word 0) ^ word 3 ^ k1, new word 0 = high(M1 * word 2) ^ word 1 ^ k0
        np.multiply(even, _MUL, out=product)
        np.bitwise_xor(odd, keys, out=odd)
        np.right_shift(product, _SHIFT, out=even)
        np.bitwise_xor(even, odd, out=odd)
        even[0], even[1] = odd[1], odd[0]
        np.bitwise_and(product, _MASK, out=odd)
    out[:, 0], out[:, 2] = even
    out[:, 3], out[:, 1] = odd
