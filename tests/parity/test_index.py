"""Every form of an index, read, written, added to and differentiated, against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lehr

torch = pytest.importorskip("torch")
WHOLE = slice(None)


def forms(lib: Any) -> dict[str, Any]:
    def i(*a: int) -> Any:
        return lib.tensor(list(a))

    def b(*a: int) -> Any:
        return lib.tensor([bool(x) for x in a])
    mask = lib.arange(60).reshape(3, 4, 5) > 30
    return {
        "int": 1, "negative": -1, "slice": slice(1, None), "int_tensor": lib.tensor(1),
        "steps": (slice(0, 3, 2), WHOLE, slice(1, 5, 3)), "ellipsis": (Ellipsis, 1),
        "ellipsis_inside": (1, Ellipsis, slice(1, 3)), "none": (None, 1),
        "none_inside": (WHOLE, None, 2, None), "list": [0, 2], "lists": ([0, 2], [1, 3]),
        "tensor": i(0, 2), "tensors": (i(0, 2), i(1, 3)), "apart": (i(0, 2), WHOLE, i(1, 3)),
        "tensor_int": (i(0, 2), 1), "tensor_apart_int": (i(0, 2), WHOLE, 1),
        "int_apart_tensor": (WHOLE, 1, i(0, 1)), "column": (i(0, 2).reshape(2, 1), i(1, 3, 2)),
        "bool": b(1, 0, 1), "bool_second": (WHOLE, b(1, 0, 1, 1)), "mask": mask,
        "mask_two": mask[:, :, 0], "mask_int": (mask[:, :, 0], 2), "true": True, "false": False,
        "bool_tensor": (b(1, 0, 1), i(1, 2)), "true_int": (True, 1),
        "scalar_second": (WHOLE, lib.tensor(2)), "scalar_tensor": (lib.tensor(1), i(0, 1)),
        "numpy": np.array([0, 2]), "numpy_bool": np.array([True, False, True]),
        "numpy_int": np.int64(1), "lists_apart": ([0, 1], slice(1, 3), [2, 0]),
        "nested": [[0, 1], [2, 0]], "negative_tensor": i(-1, -3), "empty_list": [],
        "empty": lib.tensor([], dtype=lib.int64), "range": range(2), "last": (Ellipsis, i(0, 3)),
        "none_around": (None, i(0, 2), None), "int32": lib.tensor([0, 2], dtype=lib.int32),
        "int16": lib.tensor([0, 2], dtype=lib.int16), "outside": 5, "outside_tensor": i(5),
        "too_many": (0, 0, 0, 0), "float": 1.0, "float_tensor": lib.tensor([1.0]),
        "short_mask": b(1, 0), "shapes": (i(0, 1), i(0, 1, 2)), "backwards": slice(None, None, -1),
        "tensor_slice": slice(lib.tensor(1), lib.tensor(3)), "bool_list": [True, False, True],
        "mixed": ([0, 1], None, WHOLE, [1, 2]), "two_ellipses": (Ellipsis, Ellipsis),
        "tuples": ((0, 2), (1, 1)), "last_mask": (Ellipsis, b(1, 0, 1, 1, 0)),
        "none_mask": (None, b(1, 0, 1)),
    }


def read(lib: Any, x: Any, at: Any) -> Any:
    made = x[at]
    return made.numpy(), made.stride() if made.numel() > 1 else (), made._base is not None


def slope(lib: Any, x: Any, at: Any) -> Any:
    x.requires_grad_()
    (x[at] ** 2).sum().backward()
    return x.grad.numpy(), (), True


def fill(lib: Any, x: Any, at: Any) -> Any:
    x[at] = -1.0
    return x.numpy(), (), True


def write(lib: Any, x: Any, at: Any) -> Any:
    shape = tuple(x[at].shape)  # the last dimension is broadcast over the others
    x[at] = lib.arange(float(shape[-1] if shape else 1)).reshape(shape[-1:])
    return x.numpy(), (), True


def add(lib: Any, x: Any, at: Any) -> Any:
    x[at] += 1
    return x.numpy(), (), True


def outcome(lib: Any, action: Any, name: str) -> Any:
    try:
        return action(lib, lib.arange(60.0).reshape(3, 4, 5), forms(lib)[name])
    except Exception as error:
        return type(error).__name__


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("action", [read, slope, fill, write, add], ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", forms(lehr))
def test_index(name: str, action: Any) -> None:
    have, want = outcome(lehr, action, name), outcome(torch, action, name)
    if isinstance(want, str):
        assert have == want
        return
    assert not isinstance(have, str), have
    np.testing.assert_array_equal(have[0], want[0])
    assert have[1:] == want[1:]
