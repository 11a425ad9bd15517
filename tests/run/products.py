"""What products by several templates have in common."""

from __future__ import annotations

from typing import Any

import numpy as np

import lehr


def same_bits(a: Any, b: Any, trans: tuple[int, int]) -> None:
    """Programs and eager calls give the same bits on any number of threads. `trans`: which of the
    arrays is turned."""
    a, b = lehr.from_numpy(a), lehr.from_numpy(b)

    def f(a: Any, b: Any) -> Any:
        return (a.t() if trans[0] else a) @ (b.t() if trans[1] else b)

    compiled = lehr.compile(lambda a, b: f(a, b).relu())
    before = lehr.get_num_threads()
    try:
        made = []
        for threads in (1, 2, 3):
            lehr.set_num_threads(threads)
            made += [f(a, b).relu().numpy(), compiled(a, b).numpy()]
    finally:
        lehr.set_num_threads(before)
    for x in made[1:]:
        np.testing.assert_array_equal(x, made[0])
