"""Orders of rows: by rank and place in one key, or by numpy's stable sort, they are the same."""

import ml_dtypes
import numpy as np
import pytest

from lehr.ops import sort

DTYPES = ["float32", "float16", ml_dtypes.bfloat16, "float64", "bool", "uint8", "int8", "int16",
          "int32", "int64"]


def numbers(dtype, shape):
    """Many equal ones; of floating-point dtypes both zeros, infinities, NaN; ends of the range."""
    rng = np.random.default_rng(0)
    x = rng.integers(-20, 20, shape)
    if dtype in ("int32", "int64"):
        ends = np.iinfo(dtype)
        return np.where(x > 15, ends.max, np.where(x < -15, ends.min, x)).astype(dtype)
    if np.dtype(dtype).kind in "iub":
        return x.astype(dtype)
    made = (x / 4).astype(dtype)
    flat = made.reshape(-1)
    for n, value in enumerate((np.nan, -0.0, np.inf, -np.inf)):
        flat[n + 2::11] = value
    return made


def stable(x, dim, descending):
    key = sort.keys(np, x)
    if not descending:
        return np.argsort(key, dim, kind="stable")
    return x.shape[dim] - 1 - np.flip(np.argsort(np.flip(key, dim), dim, kind="stable"), dim)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("descending", [False, True])
def test_order(dtype, descending):
    for shape in ((5, 300), (3, 8), (4, 0), (300, 3), (2, 3, 40), (1,), (0, 3)):
        x = numbers(dtype, shape)
        for dim in range(x.ndim):
            want = stable(x, dim, descending)
            found = sort.order_of(np, x, dim, descending)
            np.testing.assert_array_equal(found, want)
            assert found.dtype == np.int64
            if dtype == "bool":
                continue
            n = x.shape[dim]
            for k in {0, min(1, n), n // 9, n // 4, n // 2, n}:
                values, places = sort.topk.eager(np, x, k, dim, descending, True)
                np.testing.assert_array_equal(places, want.take(range(k), dim))
                assert values.tobytes() == np.take_along_axis(x, places, dim).tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("largest", [False, True])
def test_few(dtype, largest):
    """Rows without equals take the way of few; NaN may be in one row alone, and be among the k."""
    rng = np.random.default_rng(1)
    for n in range(30):
        x = rng.standard_normal((3, 40)).astype(dtype)
        if n % 3 == 0:
            x[rng.integers(3), rng.integers(40)] = np.nan
        if n % 5 == 0:
            x[rng.integers(3), :2] = 9
        for k in (1, 3, 10):
            places = sort.topk.eager(np, x, k, 1, largest, True)[1]
            np.testing.assert_array_equal(places, stable(x, 1, largest)[:, :k])
