"""Numbers of numpy's as arguments, and functions as values."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import lehr

torch = pytest.importorskip("torch")
N = np.int64(3)

CALLS = """
lib.empty((N, 4)).shape
lib.zeros(N, 4).shape
lib.rand(N, 2).shape
lib.eye(N)
lib.arange(N)
lib.full((N,), np.float32(2))
lib.randperm(N).shape
lib.ones(6).view(N, 2)
lib.ones(6).reshape((N, -1))
lib.ones(3, 4).sum(np.int64(1))
lib.ones(3)[N - 1]
lib.ones(1, 2).expand(N, 2)
lib.ones(3, 4).transpose(np.int64(0), 1).shape
lib.ones(4).unsqueeze(np.int64(0)).repeat(N, 1)
lib.ones(2) * np.float32(2)
lib.nn.Linear(np.array([N, 2]).prod(), N)
lib.nn.Linear(N, 2)(lib.ones(1, 3)).shape
lib.nn.Conv2d(N, N, 2)(lib.ones(1, 3, 4, 4)).shape
lib.nn.Embedding(N, N)(lib.tensor([1])).shape
lib.nn.functional.interpolate(lib.ones(1, 1, 2, 2), size=(N, N))
lib.nn.functional.one_hot(lib.tensor([1]), N)
lib.nn.init.orthogonal_(lib.ones(N, 4), np.sqrt(2)).shape
""".strip().splitlines()


@pytest.mark.parametrize("text", CALLS)
def test_numpy_numbers(text):
    made = [eval(text, {"lib": lib, "N": N, "np": np}) for lib in (lehr, torch)]
    assert repr(made[0]) == repr(made[1])
    for n in getattr(made[0], "shape", ()):
        assert type(n) is int


@pytest.mark.parametrize("name", [
    "relu", "nn.functional.relu", "nn.functional.gelu", "add", "nn.functional.cross_entropy",
    "linalg.svd", "fft.fft", "special.erf", "nn.functional.softmax", "tanh", "relu_",
    "nn.functional.dropout", "where", "matmul", "nn.functional.conv2d", "special.expit",
    "nn.functional.max_pool2d", "nn.functional.interpolate"])
def test_functions_are_pickled_by_name(name):
    found = lehr
    for part in name.split("."):
        found = getattr(found, part)
    assert pickle.loads(pickle.dumps(found)) is found


def test_a_module_that_holds_a_function_is_saved_whole(tmp_path):
    layer = lehr.nn.TransformerEncoderLayer(4, 2)
    lehr.save(layer, tmp_path / "m.pt")
    made = lehr.load(tmp_path / "m.pt", weights_only=False)
    assert made.activation is lehr.nn.functional.relu
