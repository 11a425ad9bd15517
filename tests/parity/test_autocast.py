"""Under `autocast("cpu")` every function gives the dtypes, and rounds to them, as torch's does.

The calls are those of the op table's samples, by all public names, with float32 arguments, with
ones of the region's dtype, and mixed. What torch refuses lehr may accept; where the two differ
outside regions, too, it is not autocast's matter.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import lehr
from lehr.base import dtype as dt
from lehr.ops import families, registry
from lehr.ops.precision import PRECISION
from lehr.ops.sample import Sample, samples_of
from tests.ops import oracle

torch = pytest.importorskip("torch")
assert families.FAMILIES

DRAWN = (registry.RANDOM, registry.CREATE)
OPS = [op for op in registry.OPS.values() if op.samples and op.places and op.kind not in DRAWN]
LOW = ("bfloat16", "float16")
# Relative to the largest number. float32: half-precision steps in between would be seen.
ALLOWED = {"bfloat16": 2e-2, "float16": 2e-3, "float32": 1e-4}
# Ops that torch computes in steps, each rounded to half precision; lehr rounds once, at the end.
ONCE = frozenset("""
    bilinear local_response_norm lp_pool3d cosine_similarity linalg_cross matrix_exp
    multilabel_soft_margin_loss trapezoid cumulative_trapezoid gaussian_nll_loss""".split())
# Other bits of the same decomposition: signs, or a basis of the same space.
FREE = frozenset("linalg_eig linalg_eigh linalg_svd svd linalg_householder_product ormqr".split())
# torch.ctc_loss is another function than the one in nn.functional: its reduction is a number.
APART = frozenset(("ctc_loss",))


@pytest.fixture(autouse=True)
def quiet() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def converted(lib: Any, a: Any, dtypes: dict[int, str]) -> Any:
    """Arrays as tensors of the dtypes named by their identity, dtypes as the library's own."""
    if isinstance(a, np.ndarray):
        made = lib.from_numpy(np.ascontiguousarray(a))
        return made.to(getattr(lib, dtypes[id(a)])) if id(a) in dtypes else made
    if isinstance(a, dt.DType):
        return getattr(lib, a.name)
    if type(a) in (list, tuple):
        return type(a)(converted(lib, x, dtypes) for x in a)
    return a


def mixtures(sample: Sample, low: str) -> list[dict[int, str]]:
    """None, all, the first, and all but the first of the float32 arguments in half precision."""
    floats = [id(a) for a in sample.arrays() if a.dtype == np.float32]
    parts = [[], floats] + ([floats[:1], floats[1:]] if len(floats) > 1 else [])
    return [dict.fromkeys(part, low) for part in parts]


def flat(out: Any) -> list[Any]:
    if isinstance(out, (list, tuple)):
        return [x for part in out for x in flat(part)]
    return [out] if isinstance(out, (lehr.Tensor, torch.Tensor)) else []


def outcome(lib: Any, path: str, sample: Sample, dtypes: dict[int, str], low: str, on: bool = True,
            wrap: Any = None) -> Any:
    """The tensors that the call gives in a region, or the error."""
    found: Any = lib
    for name in path.split("."):
        found = getattr(found, name)
    args = [converted(lib, a, dtypes) for a in sample.args]
    kwargs = {k: converted(lib, a, dtypes) for k, a in sample.kwargs.items()}

    def called() -> Any:
        with lib.autocast("cpu", getattr(lib, low), enabled=on):
            return found(*args, **kwargs) if callable(found) else found.__get__(args[0])
    try:
        return flat((wrap(called) if wrap else called)())
    except Exception as error:
        return error


def names(out: list[Any]) -> list[str]:
    return [str(t.dtype).removeprefix("torch.") for t in out]


def off(have: Any, want: Any) -> float:
    """The largest difference, relative to the largest number that is wanted."""
    if have.dtype.is_complex:
        return max(off(lehr.view_as_real(have.resolve_conj())[..., i],
                       torch.view_as_real(want.resolve_conj())[..., i]) for i in (0, 1))
    a, b = have.detach().double().numpy(), want.detach().double().numpy()
    if a.shape != b.shape:
        return np.inf
    with np.errstate(all="ignore"):
        apart = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
    sizes = np.abs(b[np.isfinite(b)])
    return float(np.nan_to_num(apart, nan=np.inf).max(initial=0.0) / (
        1e-3 + sizes.max(initial=0.0)))


def difference(have: Any, want: Any, values: bool) -> str:
    """Empty where lehr's outcome is torch's, or torch refuses."""
    if isinstance(want, Exception):
        return ""
    if isinstance(have, Exception):
        return f"raises {have!r}"
    if names(have) != names(want):
        return f"{names(have)}, expected {names(want)}"
    for a, b in zip(have, want, strict=True) if values else ():
        wrong = off(a, b)
        if wrong > ALLOWED.get(str(b.dtype).removeprefix("torch."), 1e-4):
            return f"{b.dtype} off by {wrong:.1e}"
    return ""


def calls(op: Any) -> list[tuple[str, Sample]]:
    good = [s for s in samples_of(op, dt.float32) if s.error is None and s.parity][:6]
    return [(path, s) for path in op.places
            if path not in APART and oracle.lookup(path) is not None for s in good]


@pytest.mark.parametrize("low", LOW)
@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_ops(op: Any, low: str) -> None:
    values = op.name not in ONCE | FREE
    for path, sample in calls(op):
        for dtypes in mixtures(sample, low):
            want = outcome(torch, path, sample, dtypes, low)
            have = outcome(lehr, path, sample, dtypes, low)
            found = difference(have, want, values)
            if found:
                outside = [outcome(lib, path, sample, dtypes, low, on=False)
                           for lib in (lehr, torch)]
                assert difference(*outside, values), f"{path}({list(dtypes.values())}): {found}"


LISTED = [op for op in OPS if op.name in PRECISION["cpu"]]


@pytest.mark.parametrize("op", LISTED, ids=lambda op: op.name)
def test_compiled(op: Any) -> None:
    """Compiled programs have the dtypes and values of eager ones."""
    path, sample = calls(op)[0] if calls(op) else (None, None)
    if path is None:
        pytest.skip("no call to compare")
    for dtypes in mixtures(sample, "bfloat16")[:3]:
        eager = outcome(lehr, path, sample, dtypes, "bfloat16")
        made = outcome(lehr, path, sample, dtypes, "bfloat16", wrap=lehr.compile)
        if isinstance(eager, Exception):
            assert type(made) is type(eager)
            continue
        assert not isinstance(made, Exception), made
        assert names(made) == names(eager)
        for a, b in zip(made, eager, strict=True):
            assert lehr.allclose(a.double() if not a.dtype.is_complex else a,
                                 b.double() if not b.dtype.is_complex else b,
                                 1e-2 if b.dtype.itemsize == 2 else 1e-4, 1e-4, equal_nan=True)


def test_the_table_has_what_torch_lists() -> None:
    """Functions for which torch has kernels of its own under autocast on processors."""
    theirs = {n.removeprefix("aten::").partition(".")[0]
              for n in torch._C._dispatch_get_all_op_names()
              if torch._C._dispatch_has_kernel_for_dispatch_key(n, "AutocastCPU")}
    known = theirs & set(registry.OPS)
    assert len(known) > 90
    assert not known - set(PRECISION["cpu"])


# -- layers: with gradients, compiled, of either dtype

LAYERS = {
    "linear": (lambda m: m.nn.Linear(8, 4), (4, 8)),
    "layer_norm": (lambda m: m.nn.LayerNorm(8), (4, 8)),
    "group_norm": (lambda m: m.nn.GroupNorm(2, 8), (4, 8, 3, 3)),
    "batch_norm": (lambda m: m.nn.BatchNorm2d(8), (4, 8, 3, 3)),
    "batch_norm_eval": (lambda m: m.nn.BatchNorm2d(8).eval(), (4, 8, 3, 3)),
    "instance_norm": (lambda m: m.nn.InstanceNorm2d(8, affine=True), (4, 8, 3, 3)),
    "rms_norm": (lambda m: m.nn.RMSNorm(8), (4, 8)),
    "softmax": (lambda m: m.nn.Softmax(-1), (4, 8)),
    "log_softmax": (lambda m: m.nn.LogSoftmax(-1), (4, 8)),
    "prelu": (lambda m: m.nn.PReLU(), (4, 8)),
    "conv": (lambda m: m.nn.Conv2d(2, 3, 3, padding="same"), (1, 2, 4, 4)),
    "stack": (lambda m: m.nn.Sequential(m.nn.Linear(8, 8), m.nn.LayerNorm(8), m.nn.Softmax(-1)),
              (4, 8)),
    "lstm": (lambda m: m.nn.LSTM(8, 4), (3, 2, 8)),
    "gru": (lambda m: m.nn.GRU(8, 4, 2), (3, 2, 8)),
    "rnn": (lambda m: m.nn.RNN(8, 4), (3, 2, 8)),
    "lstm_cell": (lambda m: m.nn.LSTMCell(8, 4), (2, 8)),
    "gru_cell": (lambda m: m.nn.GRUCell(8, 4), (2, 8)),
    "rnn_cell": (lambda m: m.nn.RNNCell(8, 4), (2, 8)),
    "encoder": (lambda m: m.nn.TransformerEncoderLayer(8, 2, 16, 0.0), (3, 2, 8)),
    "avg_pool3d": (lambda m: m.nn.AvgPool3d(2), (1, 2, 4, 4, 4)),
    "reflection": (lambda m: m.nn.ReflectionPad2d(1), (1, 2, 4, 4)),
    "fractional": (lambda m: m.nn.FractionalMaxPool2d(
        2, 2, _random_samples=m.full((1, 2, 2), 0.5)), (1, 2, 4, 4)),
}


def trained(lib: Any, name: str, kind: str, wrap: Any = None) -> tuple[list[str], list[Any]]:
    """Dtypes and values of the result and of all gradients of one step in a region."""
    make, shape = LAYERS[name]
    rng = np.random.default_rng(3)
    layer = make(lib)
    with lib.no_grad():
        for p in layer.parameters():
            value = rng.standard_normal(tuple(p.shape)).astype(np.float32) / 3
            p.copy_(lib.from_numpy(value))
    x = lib.from_numpy(rng.standard_normal(shape).astype(np.float32))
    x = x.to(getattr(lib, kind)).requires_grad_()

    def step(x: Any) -> Any:
        with lib.autocast("cpu"):
            return layer(x)
    out = flat((wrap(step) if wrap else step)(x))
    sum((t.float() * (1 + t.detach().float())).sum() for t in out).backward()
    made = [*out, x.grad, *(p.grad for p in layer.parameters())]
    return names(made), [t.detach().float().numpy() for t in made]


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", LAYERS)
def test_layers(name: str, kind: str) -> None:
    want, numbers = trained(torch, name, kind)
    for wrap in (None, lehr.compile):
        dtypes, values = trained(lehr, name, kind, wrap)
        assert dtypes == want
        for a, b in zip(values, numbers, strict=True):
            np.testing.assert_allclose(a, b, 0.05, 0.05 * np.abs(b).max(initial=0.1))


# -- results that are written into a given tensor are none of autocast's

WRITES = {
    "addmm_": lambda m, a, b: a.clone().addmm_(a, b),
    "addbmm_": lambda m, a, b: a.clone().addbmm_(a[None], b[None]),
    "baddbmm_": lambda m, a, b: a[None].clone().baddbmm_(a[None], b[None]),
    "mm": lambda m, a, b: m.mm(a, b, out=m.empty(8, 8)),
    "bmm": lambda m, a, b: m.bmm(a[None], b[None], out=m.empty(1, 8, 8)),
    "prod": lambda m, a, b: m.prod(a.bfloat16(), 0, out=m.empty(8, dtype=m.bfloat16)),
}


@pytest.mark.parametrize("name", WRITES)
def test_writes(name: str) -> None:
    rng = np.random.default_rng(4)
    a, b = (rng.standard_normal((8, 8)).astype(np.float32) for _ in range(2))
    made = []
    for lib in (lehr, torch):
        with lib.autocast("cpu"):
            made.append(WRITES[name](lib, lib.from_numpy(a), lib.from_numpy(b)))
    assert names(made[:1]) == names(made[1:])
    assert off(*made) < ALLOWED[names(made)[0]]
