"""Every op through eager tensors: gradients as the reference tape has them, strides as torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lehr.base import dtype as dt
from lehr.ops.registry import Op
from lehr.ops.sample import Sample, samples_of, variants
from lehr.tensor import autograd, dispatch
from lehr.tensor.tensor import Tensor
from tests.ops import oracle, test_gradient
from tests.ops.test_generated import OPS, outcome, show
from tests.ops.test_gradient import carrying, filled, good, reverse, weights_for

# Layouts that differ on purpose.
OWN = {"conj": "torch's is a view with a flag"}


def tensors(a: Any) -> Any:
    """Arrays as tensors of the same strides."""
    if isinstance(a, np.ndarray):
        return laid(a)
    return type(a)(map(tensors, a)) if type(a) in (list, tuple) else a


def laid(a: np.ndarray) -> Tensor:
    strides = tuple(s // a.itemsize for s in a.strides)
    room = np.zeros(sum((n - 1) * s for n, s in zip(a.shape, strides, strict=True)) + 1
                    if a.size else 0, a.dtype)
    view = np.ndarray(a.shape, a.dtype, room.view(np.uint8), 0, a.strides)
    view[...] = a
    return Tensor._of(room, view, dt.of_numpy(a.dtype), a.shape, strides)


def results(out: Any) -> list[Any]:
    return list(out) if isinstance(out, (tuple, list)) else [out]


# Row-major or laid out as the input here, the other way in torch: open.
OPEN = frozenset((
    "_weight_norm einsum linalg_householder_product ormqr scaled_dot_product_attention "
    "triangular_solve").split())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_strides(op: Op) -> None:
    """Eager results have torch's strides (where a dimension has more than one element)."""
    for sample in samples_of(op, dt.float32):
        for s in (sample, *variants(op, sample)):
            if s.error is None:
                compare_layout(op, s)


def compare_layout(op: Op, sample: Sample) -> None:
    made, error = outcome(dispatch.call, op, tuple(map(tensors, sample.bind(op))))
    if error is not None:
        return
    if (oracle.torch is None or oracle.function(op) is None or not sample.parity
            or op.name in OWN or op.name in OPEN):
        return
    want, refusal = outcome(oracle.call, op, sample)
    if refusal is not None:
        return
    for a, b in zip(results(made), results(want), strict=True):
        if isinstance(a, Tensor) and a.shape and 0 not in a.shape:
            have = [st for n, st in zip(a._shape, a._strides, strict=True) if n > 1]
            need = [st for n, st in zip(b.shape, b.stride(), strict=True) if n > 1]
            assert have == need, f"{show(sample)}: strides {have}, torch has {need}"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("op", test_gradient.OPS, ids=lambda op: op.name)
def test_gradients(op: Op) -> None:
    """The tensors' own tape gives the gradients that the reference tape gives."""
    for sample in good(op)[:3]:
        inputs, grads, _ = reverse(op, sample)
        have = engine(op, sample)
        for i, (x, g, mine) in enumerate(zip(inputs, grads, have, strict=True)):
            found = oracle.agree(filled(mine, x.array), filled(g, x.array), 1e-12, 1e-12)
            assert not found, f"{show(sample)}: gradient {i}: {found}"


def engine(op: Op, sample: Sample) -> list[Any]:
    """Gradients of the weighted sum of the float64 results, by the tensors' own tape."""
    leaves: list[Tensor] = []

    def leaf(a: Any) -> Any:
        made = tensors(a)
        if isinstance(a, np.ndarray) and a.dtype == np.float64 and a.size:
            made._autograd().requires_grad = True
            leaves.append(made)
        return made
    bound = tuple(type(a)(map(leaf, a)) if type(a) in (list, tuple) else leaf(a)
                  for a in sample.bind(op))
    outs = [o for o in carrying(op, dispatch.call(op, bound)) if o.dtype is dt.float64]
    weights = weights_for(tuple(o._array for o in outs))
    live = [(o, laid(w)) for o, w in zip(outs, weights, strict=True) if o.requires_grad]
    if not live:
        return [None] * len(leaves)
    made = autograd.run_backward([o for o, _ in live], [w for _, w in live], False, False, leaves,
                                 False)
    return [None if g is None else g._array for g in made]
