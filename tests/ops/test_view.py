"""Views: layouts and writes through them as torch's, and functions that return several parts."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lehr.base import dtype as dt
from lehr.base.device import CPU
from lehr.ops import execute, families, parts, registry
from lehr.ops.registry import VIEW
from lehr.ops.sample import samples_of
from tests.ops import oracle
from tests.ops.test_layout import random_tensor

assert families.FAMILIES
VIEWS = [op for op in registry.OPS.values() if op.kind is VIEW and op.layout is not None
         and op.module in ("lehr.ops.view", "lehr.ops.slice")]
needs_torch = pytest.mark.skipif(oracle.torch is None, reason="torch is not installed")


def described(t: Any) -> Any:
    """A torch tensor's description, as layouts take it."""
    return SimpleNamespace(shape=tuple(t.shape), strides=t.stride(), offset=t.storage_offset(),
                           dtype=getattr(dt, str(t.dtype)[6:], None), device=CPU)


@pytest.mark.parity
@needs_torch
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("op", VIEWS, ids=lambda op: op.name)
def test_layout_of_strided_inputs(op):
    """Shape, strides and offset of every sample with its input laid out in random ways."""
    function = oracle.function(op) or {"slice": sliced}.get(op.name)
    if function is None:
        function = getattr(oracle.torch.ops.aten, op.name)
    rng, compared = random.Random(op.name), 0
    for sample in samples_of(op, dt.float32):
        if sample.error is not None or not isinstance(sample.args[0], np.ndarray):
            continue
        rest = [oracle.to_torch(a) for a in sample.args[1:]]
        for _ in range(6):
            t = random_tensor(oracle.torch, rng, list(sample.args[0].shape))
            if op.name == "as_strided":  # its bounds are the storage's, which layouts do not know
                t = oracle.torch.zeros(sample.args[0].shape)
            bound = op.signature.bind((described(t), *sample.args[1:]), sample.kwargs)
            try:
                want = function(t, *rest, **sample.kwargs)
            except RuntimeError:
                with pytest.raises(RuntimeError):
                    op.layout(*bound)
                continue
            have = op.layout(*bound)
            assert have == (tuple(want.shape), want.stride(), want.storage_offset()), (
                t.shape, t.stride(), sample.args[1:])
            compared += 1
    assert compared


def sliced(t: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    return oracle.torch.ops.aten.slice(t, dim, start, end, step)


@pytest.mark.parametrize("op", [op for op in VIEWS if op.inverse], ids=lambda op: op.name)
def test_inverse_is_a_write_through_the_view(op):
    """`inverse(base, value)` has `value` where the view looks, and the base elsewhere."""
    done = 0
    for sample in samples_of(op, dt.int64):
        base = sample.args[0]
        if sample.error is not None or not isinstance(base, np.ndarray) or not base.size:
            continue
        bound = sample.bind(op)
        if op.name == "view_dtype":
            continue
        marks = np.arange(base.size).reshape(base.shape)
        seen = np.asarray(execute.run(op, (marks, *bound[1:])))
        if np.unique(seen).size != seen.size or (op.name == "expand" and seen.size < base.size):
            continue  # elements that the view shows twice cannot be written through it
        value = np.arange(100, 100 + seen.size).reshape(seen.shape)
        want = base.copy().reshape(-1)
        want[seen.reshape(-1)] = value.reshape(-1)
        made = execute.unwrap(op.inverse(execute.FUNCTIONS, execute.wrap(base), execute.wrap(value),
                                         *bound[1:]))
        np.testing.assert_array_equal(made, want.reshape(base.shape))
        done += 1
    assert done or op.name == "view_dtype"


def test_expand_refuses_a_write_through_repeated_elements():
    base, value = np.zeros((3, 1)), np.ones((3, 4))
    with pytest.raises(RuntimeError, match="single memory location"):
        registry.OPS["expand"].inverse(execute.FUNCTIONS, execute.wrap(base), execute.wrap(value),
                                       (3, 4))


V = np.arange(7.0)
S = np.array(1.0)
M = np.arange(24.0).reshape(2, 3, 4)
PARTS = [
    ("split", (V, 3), {}), ("split", (V, [2, 5]), {}), ("split", (M, 2, -1), {}),
    ("split", (V, 9), {}), ("split", (V[:0], 0), {}), ("split", (V[:0], 2), {}),
    ("split_with_sizes", (M, [1, 0, 3], 2), {}),
    ("chunk", (V, 4), {}), ("chunk", (M, 2, 2), {}), ("chunk", (V[:0], 3), {}),
    ("tensor_split", (V, 3), {}), ("tensor_split", (V, (2, 9, 4)), {}),
    ("tensor_split", (V, 9), {}), ("tensor_split", (M, (1, -1), 2), {}),
    ("hsplit", (V, (2,)), {}), ("hsplit", (M, 3), {}), ("vsplit", (M, 2), {}),
    ("dsplit", (M, 2), {}),
    ("unbind", (M,), {}), ("unbind", (M, -1), {}), ("unbind_copy", (M, 1), {}),
    ("unsafe_chunk", (V, 2), {}), ("unsafe_split", (V, 2), {}), ("split_copy", (V, 2), {}),
    ("split_with_sizes_copy", (V, [3, 4]), {}),
    ("broadcast_tensors", (V[:3], M[:, :1, :1]), {}),
    ("meshgrid", (V[:2], V[:3]), {}), ("meshgrid", (V[:2], V[:3], V[:4]), {"indexing": "xy"}),
    ("meshgrid", ([V[:2], S],), {"indexing": "ij"}),
    ("atleast_1d", (S,), {}), ("atleast_2d", (V, S), {}), ("atleast_3d", ([V, M],), {}),
    ("nonzero", (M,), {}), ("nonzero", (M,), {"as_tuple": True}),
    ("nonzero", (S,), {"as_tuple": True}),
    ("unique", (np.array([3, 1, 1, 2]),), {}),
    ("unique", (np.array([3, 1, 1, 2]), True, True), {"return_counts": True}),
    ("unique", (np.array([[1, 2], [0, 1], [1, 2]]),), {"return_inverse": True, "dim": 0}),
    ("unique_consecutive", (np.array([1, 1, 2, 1]),), {"return_counts": True}),
    ("unravel_index", (np.array([5, 7, 12]), (3, 4)), {}),
    ("one_hot", (np.array([[0, 2]]),), {}), ("one_hot", (np.array([1]), 3), {}),
]
WRONG = [
    ("split", (V, 0), RuntimeError), ("split", (V, -1), RuntimeError),
    ("split", (S, 1), RuntimeError),
    ("split", (V, [3, 3]), RuntimeError), ("split", (V, [-3, 10]), RuntimeError),
    ("chunk", (V, 0), RuntimeError), ("tensor_split", (V, 0), RuntimeError),
    ("tensor_split", (S, 1), RuntimeError), ("unbind", (S,), IndexError),
    ("hsplit", (M, 2), RuntimeError), ("vsplit", (V, 1), RuntimeError),
    ("dsplit", (M[0], 1), RuntimeError),
    ("meshgrid", (V, np.arange(3)), RuntimeError), ("meshgrid", (M, V), RuntimeError),
    ("broadcast_tensors", (V, V[:3]), RuntimeError),
    ("one_hot", (np.array([], np.int64),), RuntimeError),
]


def call(name: str, args: Any) -> Any:
    return parts.FUNCTIONS[name](execute.FUNCTIONS, *execute.wrap(args))


@pytest.mark.parity
@needs_torch
@pytest.mark.parametrize(("name", "args", "kwargs"), PARTS)
def test_parts_as_torch(name, args, kwargs, monkeypatch):
    monkeypatch.setattr(execute.Value, "__int__", lambda v: int(v.array), raising=False)
    have = parts.FUNCTIONS[name](execute.FUNCTIONS, *execute.wrap(list(args)), **kwargs)
    torch = oracle.torch
    function = getattr(torch, name, None) or getattr(torch.nn.functional, name)
    want = function(*oracle.to_torch(list(args)), **kwargs)
    assert isinstance(have, tuple) == isinstance(want, (tuple, list))
    have, want = ([have], [want]) if not isinstance(have, tuple) else (have, want)
    assert len(have) == len(want)
    for a, b in zip(have, want, strict=True):
        np.testing.assert_array_equal(execute.unwrap(a), b.numpy(), strict=True)


def test_shapes_broadcast():
    shapes = parts.FUNCTIONS["broadcast_shapes"]
    assert shapes(None, (2, 1), 3, (1, 1, 1)) == (1, 2, 3)
    assert shapes(None) == ()
    with pytest.raises(RuntimeError):
        shapes(None, (2,), (3,))


@pytest.mark.parametrize(("name", "args", "error"), WRONG)
def test_parts_that_cannot_be(name, args, error):
    with pytest.raises(error):
        call(name, list(args))
    if oracle.torch is not None:
        function = (getattr(oracle.torch, name, None)
                    or getattr(oracle.torch.nn.functional, name))
        with pytest.raises(error):
            function(*oracle.to_torch(list(args)))


@pytest.mark.parity
@needs_torch
def test_signatures_of_parts_have_torchs_names():
    """Every parameter that torch documents by name is called so."""
    assert list(parts.signature_of("split").parameters) == [
        "tensor", "split_size_or_sections", "dim"]
    assert list(parts.signature_of("unique").parameters) == [
        "input", "sorted", "return_inverse", "return_counts", "dim"]
    assert set(parts.PLACES) == set(parts.FUNCTIONS)


def test_masks_become_vectors():
    mask = np.array([[True, False, True], [False, True, False]])
    rows, cols, rest = parts.integer_indices(execute.FUNCTIONS, [execute.Value(mask), None])
    assert execute.unwrap(rows).tolist() == [0, 0, 1]
    assert execute.unwrap(cols).tolist() == [0, 2, 1]
    assert rest is None


def test_loose_integers_may_be_one_sequence_or_named():
    bind = registry.OPS["permute"].signature.bind
    want = ("x", (1, 0))
    assert bind(("x", 1, 0), {}) == bind(("x", (1, 0)), {}) == bind(("x", [1, 0]), {}) == want
    assert bind(("x",), {"dims": (1, 0)}) == bind((), {"input": "x", "dims": (1, 0)}) == want
    assert registry.OPS["view"].signature.bind(("x",), {"size": 3}) == ("x", (3,))
