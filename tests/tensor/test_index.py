"""Indexing in every form, read and written, against torch."""

from __future__ import annotations

import itertools
import random
import warnings
from functools import partial
from typing import Any

import numpy as np
import pytest

import lehr

torch = pytest.importorskip("torch")

BASE = np.arange(120, dtype=np.float32).reshape(2, 3, 4, 5)


def T(data: Any, dtype: str = "int64") -> Any:
    """A tensor that each library makes for itself."""
    return "T", data, dtype


POOL = [0, -1, 1, slice(None), slice(1, None), slice(None, -1), slice(0, 5, 2), slice(3, 1), None,
        Ellipsis, True, False, T([0, 1]), T([[1], [0]]), T(1), T(0, "int32"),
        T([True, False], "bool"), T([True, False, True], "bool"), T([1, 0, 1, 1], "uint8"),
        T([[True] * 3, [False] * 3], "bool"), [0, 1], [1, -1], np.array([0, 1]),
        np.array([True, False]), np.int64(1), T([]), T(True, "bool"), 7, 1.5, slice(None, None, -1),
        [True, False], slice(T(0), T(2))]


def build(item: Any, lib: Any) -> Any:
    if isinstance(item, tuple) and len(item) == 3 and item[0] == "T":
        return lib.tensor(item[1], dtype=getattr(lib, item[2]))
    if isinstance(item, slice):
        return slice(*(build(b, lib) for b in (item.start, item.stop, item.step)))
    return tuple(build(x, lib) for x in item) if isinstance(item, tuple) else item


def attempt(function: Any) -> Any:
    try:
        return function()
    except Exception as error:
        return type(error)


def compare(index: Any) -> None:
    xt, xl = torch.tensor(BASE), lehr.tensor(BASE)
    want = attempt(lambda: xt[build(index, torch)])
    have = attempt(lambda: xl[build(index, lehr)])
    if isinstance(want, type) or isinstance(have, type):
        assert have is want, index
        return
    assert tuple(have.shape) == tuple(want.shape), index
    assert np.array_equal(have.numpy(), want.numpy()), index
    assert have._is_view() == want._is_view(), index
    if want.numel() > 1:
        steps = [[s for s, n in zip(t.stride(), t.shape, strict=True) if n > 1]
                 for t in (have, want)]
        assert steps[0] == steps[1], index
    if want._is_view() and want.numel():
        assert have.storage_offset() == want.storage_offset(), index


def compare_write(index: Any, whole: bool) -> None:
    xt, xl = torch.tensor(BASE), lehr.tensor(BASE)
    seen = attempt(lambda: xt[build(index, torch)])
    value: Any = 7.0
    if whole and not isinstance(seen, type):
        value = -seen.numpy() - 1

    def write(x: Any, lib: Any) -> None:
        x[build(index, lib)] = lib.tensor(value) if whole and not isinstance(seen, type) else value
    want, have = attempt(lambda: write(xt, torch)), attempt(lambda: write(xl, lehr))
    assert (have is None) == (want is None), (index, have, want)
    assert np.array_equal(xl.numpy(), xt.numpy()), index


def several() -> list[Any]:
    rng = random.Random(0)
    return [tuple(rng.choice(POOL) for _ in range(rng.choice([3, 3, 4, 5]))) for _ in range(500)]


BLOCKS = {"one": [(p,) for p in POOL], "two": list(itertools.product(POOL, POOL)),
          "more": several()}


@pytest.mark.parametrize("block", BLOCKS)
def test_every_form(block: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for index in BLOCKS[block]:
            compare(index)
            compare_write(index, False)
            compare_write(index, True)


def test_values_that_broadcast_or_do_not() -> None:
    for shape, index in (((1, 1, 5), (0, 1)), ((4, 1), (0,)), ((), ...), ((1, 1, 1, 1, 5), ...),
                         ((2,), (0, 0, 0)), ((3, 4), (0, 0)), ((5,), (T([0, 1]), 0)),
                         ((1, 2, 4, 5), (T([0, 1]), 0)), ((7,), (T([True, False], "bool"),))):
        value = np.full(shape, 3.5, np.float32)
        xt, xl = torch.tensor(BASE), lehr.tensor(BASE)
        want = attempt(partial(xt.__setitem__, build(index, torch), torch.tensor(value)))
        have = attempt(partial(xl.__setitem__, build(index, lehr), lehr.tensor(value)))
        assert (have is None) == (want is None), (shape, index, have, want)
        assert np.array_equal(xl.numpy(), xt.numpy()), (shape, index)
