"""Ordinary code becomes one graph: no break, no capture too many, the results of eager."""

import importlib
import pathlib
import pkgutil

import numpy as np
import pytest

import lehr
from lehr.compiler.counters import COUNTERS
from lehr.compiler.site import Unsupported

HERE = pathlib.Path(__file__).parent / "styles"


def cases():
    for found in pkgutil.iter_modules([str(HERE)]):
        importlib.import_module(f"styles.{found.name}")
    from styles.case import CASES
    return CASES


def plain(value):
    """Results as arrays and plain objects, whatever they are packed in."""
    if isinstance(value, lehr.Tensor):
        return np.array(value.detach().to(lehr.float64) if value.is_floating_point() else value)
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, (set, frozenset)):
        return sorted(map(repr, value))
    if isinstance(value, (int, float, str, bool, type(None), lehr.dtype)):
        return value
    if hasattr(value, "__dict__"):
        return type(value).__qualname__, plain(vars(value))
    return type(value).__qualname__


def play(case, compiled):
    lehr.manual_seed(0)
    function, args, watched = case.make()
    if compiled:
        function = lehr.compile(function)
    lehr.manual_seed(1)
    results = []
    for given in args:
        try:
            results.append(plain(function(*given)))
        except (ValueError, TypeError, KeyError, RuntimeError, AssertionError) as error:
            if isinstance(error, Unsupported):
                raise
            results.append((type(error).__name__, str(error)))
    return results, plain(watched()) if watched else None, lehr.get_rng_state().tolist()


def same(a, b, path=""):
    assert type(a) is type(b), f"{path}: {a!r} / {b!r}"
    if isinstance(a, np.ndarray):
        assert a.dtype == b.dtype and a.shape == b.shape, path
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5, err_msg=path)
    elif isinstance(a, dict):
        assert list(a) == list(b), path
        for key in a:
            same(a[key], b[key], f"{path}[{key!r}]")
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b), path
        for i, pair in enumerate(zip(a, b, strict=True)):
            same(*pair, f"{path}[{i}]")
    elif isinstance(a, float):
        assert a == pytest.approx(b, rel=1e-4, nan_ok=True), path
    else:
        assert a == b, path


@pytest.mark.parametrize("name", cases())
def test_one_graph_with_the_results_of_eager(name):
    case = cases()[name]
    lehr.compiler.reset()
    eager = play(case, False)
    COUNTERS.reset()
    compiled = play(case, True)
    stats = lehr.compiler.stats()
    same(eager, compiled)
    found = {k: stats[k] for k in ("breaks", "fallbacks", "captures")}
    assert found == {"breaks": 0, "fallbacks": 0, "captures": case.captures}
    assert stats["graphs"]
