"""Compiled attention: tiles against float64 numpy, masks, layouts, dtypes, threads, stages."""

import math

import numpy as np
import pytest

import lehr
from lehr.compiler import backend
from lehr.compiler.loop import interp, parse, text
from lehr.compiler.run import pool
from lehr.ops import attention

F = lehr.nn.functional
RNG = np.random.default_rng(11)


def array(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.fixture
def programs(monkeypatch):
    """The programs that are compiled."""
    made, start = [], backend.Native.__init__

    def noted(self, *args):
        made.append(self)
        start(self, *args)

    monkeypatch.setattr(backend.Native, "__init__", noted)
    return made


def gradients(q, k, v, g, mask=None, **given):
    """Result and gradients, compiled."""
    q, k, v = (lehr.from_numpy(a.copy()).requires_grad_() for a in (q, k, v))

    def step(q, k, v, g, mask):
        y = F.scaled_dot_product_attention(q, k, v, mask, **given)
        (y * g).sum().backward()
        return y.detach()

    mask = None if mask is None else lehr.from_numpy(mask)
    y = lehr.compile(step, fullgraph=True)(q, k, v, lehr.from_numpy(g), mask)
    return [t.numpy() for t in (y, q.grad, k.grad, v.grad)]


def reference(q, k, v, g, mask, causal, scale=None):
    """The same in float64 by numpy."""
    q, k, v, g = (a.astype(np.float64) for a in (q, k, v, g))
    if mask is not None and mask.dtype != bool:
        mask = mask.astype(np.float64)
    rest = mask, scale or 1 / math.sqrt(q.shape[-1]), causal, 0.0, 0, 0
    y, lse = attention.forward(np, q, k, v, *rest)
    return [y, *attention.backward(np, g, q, k, v, y, lse, None, *rest)]


CASES = {
    "small": (2, 3, 20, 30, 16, 32, False, None),
    "one long row": (2, 3, 1, 700, 64, 96, False, None),
    "few rows": (1, 2, 5, 603, 48, 16, False, "added"),
    "few rows, causal": (1, 2, 5, 9, 16, 16, True, None),
    "causal": (2, 2, 128, 128, 64, 64, True, None),
    "long": (1, 2, 300, 700, 32, 48, False, None),
    "long causal": (1, 1, 600, 600, 16, 16, True, None),
    "more rows than columns": (1, 2, 70, 5, 16, 16, True, None),
    "bool": (2, 2, 50, 70, 16, 16, False, "bool"),
    "added": (2, 2, 50, 70, 16, 16, False, "added"),
    "one row": (2, 2, 1, 33, 80, 16, False, None),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_values_and_gradients(case, programs):
    b, h, rows, columns, e, ev, causal, kind = case
    q, k, v, g = array(b, h, rows, e), array(b, h, columns, e), array(b, h, columns, ev), array(
        b, h, rows, ev)
    mask = {None: None, "added": array(b, 1, rows, columns),
            "bool": RNG.random((rows, columns)) > 0.3}[kind]
    if kind == "bool":
        mask[3] = False  # nothing takes part: zeros
    have = gradients(q, k, v, g, mask, is_causal=causal)
    for x, y in zip(have, reference(q, k, v, g, mask, causal), strict=True):
        np.testing.assert_allclose(x, y, 5e-6, 5e-6 * np.abs(y).max())
    (program,) = programs
    assert program.run.record["templates"] == ["attention", "attention_back"]
    assert program.counts["host_calls"] == 0


def test_heads_that_share_keys_and_are_split_off_one_product(programs):
    x, w = lehr.from_numpy(array(2, 19, 40)), lehr.from_numpy(array(128, 40) / 6)

    def f(x, w):
        q, k, v = F.linear(x, w).split((64, 32, 32), -1)
        q, k, v = (t.unflatten(-1, (-1, 16)).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, enable_gqa=True, scale=0.3)
        return y.transpose(1, 2).flatten(2)

    np.testing.assert_allclose(lehr.compile(f)(x, w).numpy(), f(x, w).numpy(), 2e-5, 2e-5)
    _, program, _, code = programs[0].lowered()
    assert code.record["templates"] == ["attention", "split"]
    # No head is copied before, nor after: kernels would be.
    assert sum(type(s).__name__ == "Kernel" for s in program.steps) == 0


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision(dtype):
    kind = getattr(lehr, dtype)
    q, k, v = (lehr.from_numpy(array(2, 2, 33, 16)).to(kind) for _ in range(3))
    made = lehr.compile(F.scaled_dot_product_attention)(q, k, v)
    want = F.scaled_dot_product_attention(q.double(), k.double(), v.double()).to(kind)
    assert made.dtype is kind and (made != want).float().mean().item() < 0.01


@pytest.mark.parametrize("sizes", [(197, 64, 64), (50, 33, 33)])
def test_bfloat16_heads_are_read_and_written_where_they_lie(sizes, programs):
    rows, e, ev = sizes
    x = lehr.from_numpy(array(2, rows, 2 * (2 * e + ev))).bfloat16()

    def f(x):
        q, k, v = (t.unflatten(-1, (2, -1)).transpose(1, 2)
                   for t in x.split((2 * e, 2 * e, 2 * ev), -1))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)

    have, want = lehr.compile(f)(x), f(x.double())
    assert have.dtype is lehr.bfloat16
    np.testing.assert_allclose(have.double().numpy(), want.numpy(), 2.0 ** -8, 1e-4)
    _, program, _, code = programs[0].lowered()
    assert code.record["templates"] == ["attention_half"]
    assert sum(type(s).__name__ == "Kernel" for s in program.steps) == 0


def test_numbers_that_are_none():
    q, k, v = array(1, 1, 9, 16), array(1, 1, 20, 16), array(1, 1, 20, 16)
    q[0, 0, 4] = np.nan
    k[0, 0, 7] = 1e4
    y = lehr.compile(F.scaled_dot_product_attention)(*map(lehr.from_numpy, (q, k, v))).numpy()
    want = attention.forward(np, q, k, v, None, 0.25, False, 0.0, 0, 0)[0]
    np.testing.assert_allclose(y, want, 1e-5, 1e-5)
    assert np.isnan(y[0, 0, 4]).all() and not np.isnan(y[0, 0, 3]).any()


def test_dropout_and_odd_sizes_take_the_long_way(programs):
    q, k, v = (lehr.from_numpy(array(2, 9, 16)) for _ in range(3))
    for given, narrow in (({"dropout_p": 0.5}, 16), ({}, 12)):
        def f(q, k, v, given=given):
            return F.scaled_dot_product_attention(q, k, v, **given)

        parts = [t[..., :narrow] for t in (q, k, v)]
        lehr.manual_seed(3)
        want = f(*parts)
        lehr.manual_seed(3)
        np.testing.assert_allclose(lehr.compile(f)(*parts).numpy(), want.numpy(), 1e-5, 1e-5)
    assert [p.run.record["templates"] for p in programs] == [["split", "thin"]] * 2


def test_any_number_of_threads_gives_the_same_bits():
    q, k, v, g = array(1, 2, 200, 32), array(1, 2, 210, 32), array(1, 2, 210, 32), array(
        1, 2, 200, 32)
    before, made = pool.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            lehr.set_num_threads(threads)
            made.append(gradients(q, k, v, g))
    finally:
        lehr.set_num_threads(before)
    for other in made[1:]:
        assert all(map(np.array_equal, made[0], other))


def test_a_call_with_several_results_is_text_and_is_interpreted(programs):
    q, k, v = (lehr.from_numpy(array(2, 9, 16)) for _ in range(3))
    y = lehr.compile(F.scaled_dot_product_attention)(q, k, v)
    _, program, _, _ = programs[0].lowered()
    again = parse.parse_program(text.print_program(program))
    assert text.print_program(again) == text.print_program(program)
    (made,) = interp.run(again, [t.numpy() for t in (q, k, v)])
    np.testing.assert_allclose(y.numpy(), made, 1e-5, 1e-5)
