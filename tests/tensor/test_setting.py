"""Settings of the process reach what they are about."""

import pytest

import lehr
from lehr.compiler.run import pool


def test_the_number_of_threads_is_the_pool_s():
    before = lehr.get_num_threads()
    try:
        lehr.set_num_threads(3)
        assert lehr.get_num_threads() == pool.get_num_threads() == 3
    finally:
        lehr.set_num_threads(before)
    with pytest.raises(RuntimeError, match="positive"):
        lehr.set_num_threads(0)
