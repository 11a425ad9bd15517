"""Gradients of every op in float64: against torch.autograd, and against finite differences where
torch is not installed or has no such op; second derivatives by finite differences of the first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lehr.base import dtype as dt
from lehr.ops import execute, families, registry
from lehr.ops.registry import Op
from lehr.ops.sample import Sample, dtypes_of, samples_of
from lehr.ops.saving import RESULT
from tests.ops import oracle, tape
from tests.ops.test_generated import outcome, show

assert families.FAMILIES
# Ops whose gradients PyTorch does not have either: asking for them is an error.
REFUSED = ("linalg_ldl_factor", "linalg_ldl_factor_ex", "linalg_ldl_solve")
OPS = [op for op in registry.OPS.values()
       if op.samples and op.nondiff is not True and dt.float64 in dtypes_of(op) and not op.breaks
       and op.name not in REFUSED]
RTOL, ATOL = 1e-7, 1e-9
# torch's own gradient is another one, for the reason given; finite differences still hold ours.
OTHER = {"native_layer_norm": "torch drops the gradients of mean and rstd",
         "cholesky_solve": "torch's reaches the triangle that is not read",
         "cholesky_inverse": "torch's reaches the triangle that is not read",
         "as_strided_scatter": "torch's is that of the replaced elements, not of the kept ones"}
# The gradient is no slope by definition, and follows torch's.
DEFINED = {"cholesky_solve": "the unread triangle of a factor has PyTorch's gradient",
           "cholesky_inverse": "the unread triangle of a factor has PyTorch's gradient",
           "embedding": "scale_grad_by_freq scales it",
           "muon_step": "through bfloat16, where differences have three digits",
           "index_put": "of duplicate indices each gets a gradient, though one write survives"}


def floats(sample: Sample) -> list[np.ndarray]:
    return [a for a in sample.arrays() if a.dtype == np.float64 and a.size]


def good(op: Op) -> list[Sample]:
    """Declared good calls with finite operands that the op takes and that have a float64 result."""
    return [s for s in samples_of(op, dt.float64)
            if s.error is None and floats(s) and all(np.isfinite(a).all() for a in floats(s))
            and outcome(value, op, s)[1] is None]


def weights_for(out: Any, seed: int = 0) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [random.uniform(0.5, 1.5, o.shape) for o in (out if isinstance(out, tuple) else (out,))]


def carrying(op: Op, out: Any) -> list[Any]:
    """The results that carry a gradient."""
    outs = list(out) if isinstance(out, (tuple, list)) else [out]
    skip = op.nondiff if isinstance(op.nondiff, tuple) else ()
    return [o for i, o in enumerate(outs) if i not in skip]


def reverse(op: Op, sample: Sample, create: bool = False) -> tuple[list[Any], list[Any], list[Any]]:
    """(tracked float64 inputs, their gradients, results) of the weighted sum of the float64
    results."""
    tracked: list[tape.Tracked] = []

    def note(a: np.ndarray) -> Any:
        t = tape.Tracked(a)
        if a.dtype == np.float64 and a.size:
            tracked.append(t)
        return t
    bound = tuple(tape._map(note, a) for a in sample.bind(op))
    out = tape.F._interpret(op, bound)
    kept = [o for o in carrying(op, out) if o.dtype is dt.float64]
    weights = [tape.Tracked(w) for w in weights_for(tuple(o.array for o in kept))]
    return tracked, tape.gradients(list(zip(kept, weights, strict=True)), tracked), kept


def value(op: Op, sample: Sample) -> float:
    out = execute.run(op, sample.bind(op))
    outs = [o for o in carrying(op, out) if o.dtype == np.float64]
    return float(sum((o * w).sum() for o, w in zip(outs, weights_for(tuple(outs)), strict=True)))


def moved(sample: Sample, place: int, direction: np.ndarray, step: float) -> Sample:
    """The sample with its `place`-th non-empty float64 array moved along `direction`."""
    seen = iter(range(1000))

    def change(a: np.ndarray) -> np.ndarray:
        if a.dtype != np.float64 or not a.size:
            return a
        return np.asarray(a + step * direction) if next(seen) == place else a
    return sample.mapped(change, sample.name)


def filled(g: Any, like: np.ndarray) -> np.ndarray:
    return np.zeros_like(like) if g is None else np.broadcast_to(np.asarray(
        g.array if isinstance(g, tape.Tracked) else g), like.shape)


def against_torch(op: Op, sample: Sample) -> list[np.ndarray] | None:
    """torch's gradients of the same weighted sum, or None where it has none to offer."""
    if (oracle.torch is None or oracle.function(op) is None or not sample.parity
            or op.name in OTHER):
        return None
    torch, leaves = oracle.torch, []

    def leaf(a: Any) -> Any:
        t = oracle.to_torch(a)
        if isinstance(a, np.ndarray) and a.dtype == np.float64 and a.size:
            t = t.clone().requires_grad_()
            leaves.append(t)
        elif type(a) in (list, tuple):
            return type(a)(map(leaf, a))
        return t
    args, kwargs = [leaf(a) for a in sample.args], {k: leaf(v) for k, v in sample.kwargs.items()}
    try:
        out = oracle.function(op)(*args, **kwargs)
        outs = [o for o in carrying(op, out) if o.dtype is torch.float64]
        total = sum((o * torch.from_numpy(w)).sum()
                    for o, w in zip(outs, weights_for(tuple(outs)), strict=True))
        grads = torch.autograd.grad(total, leaves, allow_unused=True)
    except (RuntimeError, TypeError):
        return None
    return [np.zeros(t.shape) if g is None else g.numpy(force=True)
            for t, g in zip(leaves, grads, strict=True)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    op = registry.get(name)
    for sample in good(op):
        with pytest.raises(NotImplementedError, match=r"linalg\.solve has one"):
            reverse(op, sample)


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_first(op: Op) -> None:
    for sample in good(op):
        inputs, grads, _ = reverse(op, sample)
        expected = against_torch(op, sample)
        if expected is None:
            continue
        for i, (x, g, want) in enumerate(zip(inputs, grads, expected, strict=True)):
            found = oracle.agree(filled(g, x.array), want, RTOL, ATOL)
            assert not found, f"{show(sample)}: gradient {i}: {found}"


def smooth(op: Op, sample: Sample) -> bool:
    """Whether finite differences see what the gradient says: one-sided slopes agree along a
    direction."""
    return all(abs(a - b) <= 1e-3 * max(1.0, abs(a), abs(b)) for a, b in _slopes(op, sample))


def _slopes(op: Op, sample: Sample, step: float = 1e-6) -> list[tuple[float, float]]:
    here = value(op, sample)
    found = []
    for i, a in enumerate(floats(sample)):
        d = direction_for(a, i)
        found.append(((value(op, moved(sample, i, d, step)) - here) / step,
                      (here - value(op, moved(sample, i, d, -step))) / step))
    return found


def direction_for(a: np.ndarray, i: int) -> np.ndarray:
    return np.random.default_rng(i).uniform(-1, 1, a.shape)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_differences(op: Op) -> None:
    """The slope along a random direction, and its own slope, by central differences."""
    if op.name in DEFINED:
        pytest.skip(DEFINED[op.name])
    for sample in good(op)[:4]:
        if not smooth(op, sample):
            continue
        inputs, grads, _ = reverse(op, sample)
        for i, (x, g) in enumerate(zip(inputs, grads, strict=True)):
            d = direction_for(x.array, i)
            have = float((filled(g, x.array) * d).sum())
            step = 1e-5
            high, low = (value(op, moved(sample, i, d, side)) for side in (step, -step))
            want = (high - low) / (2 * step)
            assert abs(have - want) <= 1e-5 * max(1.0, abs(want)), (
                f"{show(sample)}: {have}, expected {want}")
            if g is None:
                continue
            second = tape.gradients([(g, tape.Tracked(d))], [x])[0]
            have = float((filled(second, x.array) * d).sum())
            ends = []
            for side in (step, -step):
                inner, slopes, _ = reverse(op, moved(sample, i, d, side))
                ends.append(float((filled(slopes[i], inner[i].array) * d).sum()))
            want = (ends[0] - ends[1]) / (2 * step)
            assert abs(have - want) <= 1e-4 * max(1.0, abs(want)), (
                f"{show(sample)}: second derivative {have}, expected {want}")


HALF = [op for op in OPS if op.kind in ("pointwise", "reduce") and dt.bfloat16 in dtypes_of(op)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("op", HALF, ids=lambda op: op.name)
def test_half(op: Op) -> None:
    """Gradients of bfloat16 operands are those of the same numbers in float32, rounded once. A sum
    over a broadcast dimension may round once more; a rule that reads the result reads a rounded
    one."""
    rounded = op.kind == "reduce" or (op.vjp and op.saves[RESULT] == "value")
    for sample in samples_of(op, dt.bfloat16)[:3]:
        halves = [a for a in sample.arrays() if a.dtype == dt.bfloat16.np]
        if (sample.error is not None or not halves
                or not all(np.isfinite(a.astype(np.float32)).all() for a in halves)
                or any(isinstance(v, type(dt.float32)) for v in sample.kwargs.values())):
            continue
        if outcome(execute.run, op, sample.bind(op))[1] is not None:
            continue
        wide = sample.mapped(lambda a: a.astype(np.float32) if a.dtype == dt.bfloat16.np else a)
        pairs = zip(ones(op, sample, dt.bfloat16), ones(op, wide, dt.float32), strict=True)
        for i, (have, want) in enumerate(pairs):
            found = oracle.agree(have.astype(np.float32), want, 1.2e-2, 1e-2 if rounded else 1e-6)
            assert not found, f"{show(sample)}: gradient {i}: {found}"


def ones(op: Op, sample: Sample, made: Any) -> list[np.ndarray]:
    """Gradients of the sum of the results of dtype `made` with respect to its operands."""
    tracked: list[tape.Tracked] = []

    def note(a: np.ndarray) -> Any:
        t = tape.Tracked(a)
        if t.dtype is made and a.size:
            tracked.append(t)
        return t
    bound = tuple(tape._map(note, a) for a in sample.bind(op))
    out = tape.F._interpret(op, bound)
    outs = [o for o in (out if isinstance(out, tuple) else (out,)) if o.dtype is made]
    seeds = [(o, tape.Tracked(np.ones(o.shape, o.array.dtype))) for o in outs]
    return [filled(g, t.array) for t, g in
            zip(tracked, tape.gradients(seeds, tracked), strict=True)]
