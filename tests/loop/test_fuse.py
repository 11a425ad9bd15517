"""Fusion, plans and write-backs on whole training graphs: values unchanged, counts as promised."""

from __future__ import annotations

import numpy as np
import pytest

from lehr.compiler.graph import interp as graph_interp
from lehr.compiler.loop import interp
from lehr.compiler.loop.fuse import fuse
from lehr.compiler.loop.ir import Extern, Group
from lehr.compiler.loop.lower import lower
from lehr.compiler.loop.parse import parse_program
from lehr.compiler.loop.plan import measure, plan
from lehr.compiler.loop.text import print_program
from lehr.compiler.loop.verify import verify
from lehr.compiler.passes import pipeline
from tests.loop import model

GRAPHS = {
    "norm": lambda: model.norm_block(2, 5, 16),
    "block": lambda: model.block(2, 8, 16, 2),
    "optimizer": lambda: model.optimizer(6, (5, 3)),
    "gpt": lambda: model.gpt(2, 2, 8, 16, 2, 23),
}


def copies(args):
    return [a.copy() if isinstance(a, np.ndarray) else a for a in args]


def close(have, want):
    for a, b in zip(have, want, strict=True):
        if isinstance(b, np.ndarray):
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("name", GRAPHS)
def test_values(name):
    """The graph, the passes, the lowering, the fusion and the memory plan agree, storages too."""
    graph = GRAPHS[name]()
    args = model.arguments(graph)
    want_args = copies(args)
    groups = graph_interp.run(graph, want_args)
    want = [*groups["outputs"], *groups["saved"], *groups["grads"]]
    graph = pipeline.run(graph)
    plain = verify(lower(graph))
    fused = verify(fuse(plain))
    assert measure(fused).kernels < measure(plain).kernels
    for program, place in ((plain, None), (fused, None), (fused, plan(fused))):
        have_args = copies(args)
        have = interp.run(program, have_args, plan=place)
        close(have, want)
        close(have_args, want_args)
    text = print_program(fused)
    assert print_program(parse_program(text)) == text


def compiled(graph):
    graph = pipeline.run(graph)
    plain = lower(graph)
    return plain, fuse(plain)


def test_layer_norm_is_a_row_kernel_and_a_column_kernel():
    plain, fused = compiled(model.norm_block(8, 128, 256))
    assert measure(fused)[:3] == (2, 2, 0)
    # x and g twice (rows, columns), y and dx once, two numbers a row: 6 MB of 1 MB tensors.
    assert measure(fused).moved < 6.4e6 < measure(plain).moved / 2
    assert plan(fused).nbytes == 2 * 8 * 128 * 4


def test_transformer_block():
    plain, fused = compiled(model.block(4, 64, 128, 4))
    counts = measure(fused)
    assert counts.externs == 18 and counts.kernels <= 13 and counts.launches <= 26
    assert counts.moved <= 21.5e6 < measure(plain).moved
    place = plan(fused)
    assert place.nbytes <= 2.8e6 and place.nbytes <= place.peak * 1.05
    calls = [s for s in fused.steps if isinstance(s, Extern)]
    assert sum(bool(c.epilogue) for c in calls) >= 2  # bias; bias and gelu
    # No copies: the heads are read and written where they lie.
    assert not any("copy" in s.name for s in fused.steps)


def test_optimizer_is_one_region():
    _, fused = compiled(model.optimizer(50))
    assert measure(fused).launches == 2
    scalars, updates = fused.steps
    assert isinstance(updates, Group) and len(updates.kernels) == 50
    assert all(len(k.stores) == 3 for k in updates.kernels)
    assert len(scalars.stores) == 2  # both bias corrections, computed once
    assert plan(fused).nbytes == 128
    weights = 50 * (64 * 48 + 64) // 2 * 4
    assert measure(fused).moved < weights * 7 + 50 * 50


def test_training_step():
    plain, fused = compiled(model.gpt(4, 4, 64, 128, 4, 512))
    counts = measure(fused)
    assert counts.externs == 75 and counts.kernels <= 86 and counts.launches <= 116
    place = plan(fused)
    assert place.nbytes <= 13.1e6 and place.nbytes <= place.peak * 1.03
    assert not any("write" in s.name for s in fused.steps)  # every weight is updated in place


@pytest.mark.parametrize("name", GRAPHS)
def test_plan_is_sound(name):
    """Temporaries that live at the same time do not overlap, but for the pairs that say so."""
    _, fused = compiled(GRAPHS[name]())
    from lehr.compiler.loop.plan import ALIGN, lifetimes, size_of
    place, life = plan(fused), lifetimes(fused)
    chains = dict(place.reused)
    for a, (start, end) in life.items():
        assert place.offsets[a] % ALIGN == 0
        assert place.offsets[a] + size_of(a) <= place.nbytes
        for b, (first, last) in life.items():
            if a is b or last < start or end < first or chains.get(a) is b or chains.get(b) is a:
                continue
            low, high = place.offsets[b], place.offsets[b] + size_of(b)
            assert high <= place.offsets[a] or place.offsets[a] + size_of(a) <= low


def test_compile_time_of_a_long_graph():
    """Linear work: the number of expressions made, not seconds, so that load does not matter."""
    from lehr.compiler.loop import ir
    made = []
    for layers in (2, 4):
        graph = pipeline.run(model.gpt(layers, 2, 8, 16, 2, 23))
        before, count = ir.Expr.__new__, [0]

        def counted(cls, *fields, before=before, count=count):
            count[0] += 1
            return before(cls, *fields)
        ir.Expr.__new__ = counted
        try:
            fuse(lower(graph))
        finally:
            ir.Expr.__new__ = before
        made.append(count[0] / len(graph.nodes))
    assert made[1] < 1.15 * made[0] < 40


def test_text_is_the_same_in_every_process():
    """Texts are cache keys: no order may come from hashes or addresses."""
    import os
    import subprocess
    import sys
    script = ("from tests.loop.test_fuse import *\n"
              "print(print_program(compiled(model.gpt(2, 2, 8, 16, 2, 23))[1]))")
    texts = set()
    for seed in "012":
        env = {**os.environ, "PYTHONHASHSEED": seed}
        texts.add(subprocess.run([sys.executable, "-c", script], env=env, check=True,
                                 capture_output=True).stdout)
    assert len(texts) == 1
