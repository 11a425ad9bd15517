"""Texts of tensors, modules and what notebooks show, as torch writes them."""

from __future__ import annotations

import numpy as np
import pytest

import lehr

torch = pytest.importorskip("torch")

VALUES = [
    [1.0, 2.5, -3.25], [1e-8, 1.0, 1e8], [float("nan"), float("inf"), -1.0], [0.0, 100000.0],
    [[1, -200], [3, 4]], [True, False], [1e-10], [], [[]], 3, 2.5, [1 + 2j, -0.5j],
    [0.1, 0.12345678], [123456.789, 0.001], [1.0, 2.0, 3.0], [[[1.5]]], [1e38, -1e-38],
]


@pytest.mark.parametrize("value", VALUES, ids=str)
def test_small_tensors(value):
    assert repr(lehr.tensor(value)) == repr(torch.tensor(value))
    assert str(lehr.tensor(value)) == str(torch.tensor(value))


@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4), (1001,), (40, 40), (2, 1, 3, 2), (7, 200),
                                   (0, 3), (30, 1, 50)])
@pytest.mark.parametrize("kind", ["float32", "float64", "int64", "bfloat16", "bool", "complex64"])
def test_random_tensors(shape, kind):
    r = np.random.RandomState(sum(shape))
    a = (r.randn(*shape) * 10.0 ** r.randint(-3, 4)).astype(np.float32)
    made = [lib.from_numpy(a).to(getattr(lib, kind)) for lib in (lehr, torch)]
    assert repr(made[0]) == repr(made[1])


@pytest.mark.parametrize("setting", [{"precision": 2}, {"sci_mode": True}, {"sci_mode": False},
                                     {"threshold": 5, "edgeitems": 1}, {"linewidth": 30},
                                     {"profile": "short"}, {"profile": "full"}])
def test_print_options(setting):
    a = np.random.RandomState(0).randn(6, 7).astype(np.float32) * 1000
    texts = []
    for lib in (lehr, torch):
        lib.set_printoptions(**setting)
        try:
            texts.append(repr(lib.from_numpy(a)))
        finally:
            lib.set_printoptions(profile="default")
    assert texts[0] == texts[1]


def what(lib):
    x = lib.ones(2, requires_grad=True)
    yield x
    yield x * 2
    yield x.detach().to(lib.float16)
    yield lib.nn.Parameter(lib.zeros(2))
    yield lib.empty(2, 3, device="meta")
    yield lib.ones(3).view(3, 1)
    yield lib.Size([2, 3])
    yield lib.float32
    yield lib.device("cpu")
    yield lib.finfo(lib.float16)
    yield lib.iinfo(lib.int8)
    yield lib.nn.Sequential(lib.nn.Conv2d(1, 2, 3, padding=1), lib.nn.BatchNorm2d(2),
                            lib.nn.Sequential(lib.nn.ReLU(), lib.nn.Dropout(0.1)))
    yield lib.nn.ModuleDict({"a": lib.nn.LSTM(2, 3, 2), "b": lib.nn.Embedding(3, 4)})
    yield lib.nn.TransformerEncoderLayer(4, 2)
    yield lib.optim.SGD([{"params": [x], "lr": 1.0}], lr=0.1, momentum=0.9)
    yield lib.optim.AdamW([x])


@pytest.mark.parametrize("i", range(16))
def test_texts(i):
    assert repr(list(what(lehr))[i]) == repr(list(what(torch))[i])


def test_notebooks_show_the_text():
    """Neither library has HTML of its own: notebooks fall back to `repr`."""
    for x in (lehr.ones(2), lehr.nn.Linear(1, 1)):
        assert getattr(x, "_repr_html_", None) is None
        assert getattr(x, "_repr_mimebundle_", None) is None
    assert f"{lehr.tensor(2.5):.2f}" == f"{torch.tensor(2.5):.2f}"
    assert f"{lehr.ones(2)}" == f"{torch.ones(2)}"
    assert f"{lehr.tensor(3)}" == f"{torch.tensor(3)}"
