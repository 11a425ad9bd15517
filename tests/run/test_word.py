"""Many words of memory compared at once."""

import ctypes

from lehr.compiler.capture import pin
from lehr.compiler.run import word


def test_same():
    held = (ctypes.c_uint64 * 4)(1, 2, 3, 4)
    start = ctypes.addressof(held)
    same = word.same()
    for addresses in (set(), {start}, {start + 8 * i for i in range(4)}):
        table = pin.table(addresses)
        assert same(table) == 1
        held[0] += 1
        assert same(table) == (0 if addresses else 1)
        held[0] -= 1
        assert same(table) == 1
    for i in range(4):
        table = pin.table({start + 8 * j for j in range(4)})
        held[i] ^= 1 << 63
        assert same(table) == 0


def test_later_groups_are_read_only_where_earlier_ones_are_the_same():
    held = (ctypes.c_uint64 * 2)(7, 8)
    start = ctypes.addressof(held)
    table = pin.table({start}, {start + 8})
    count, at, value, count2, at2, value2, end = table
    assert (count, at, value, count2, at2, value2, end) == (1, start, 7, 1, start + 8, 8, 0)
    table[4] = 8        # nothing is there
    held[0] = 9
    assert word.same()(table) == 0
