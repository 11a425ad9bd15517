"""`options={"check": "stages"}` names the first stage that is wrong; faults are planted here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lehr
from lehr.base import options
from lehr.compiler import backend, stages
from lehr.compiler.check import StageError, difference
from lehr.compiler.graph.ir import Builder, Graph, Node, rebuild
from lehr.compiler.passes import pipeline
from lehr.ops import registry

CHECK = {"check": "stages", "strict": True}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong code must not outlive its test."""
    monkeypatch.setattr(options, "_default",
                        options.default().replace(cache_dir=str(tmp_path)))


def step(x: Any, w: Any, total: Any) -> Any:
    y = (x @ w).softmax(-1) + ((x * x) @ w).softmax(-1)
    total.add_(y.detach().sum(0))
    return y.sum(0), (y * y).exp()


def arguments() -> tuple[Any, ...]:
    lehr.manual_seed(1)
    return lehr.randn(4, 5), lehr.randn(5, 3).requires_grad_(), lehr.zeros(3)


def train(function: Callable[..., Any]) -> list[Any]:
    x, w, total = arguments()
    for _ in range(2):
        a, b = function(x, w, total)
        (a.sum() + b.sum()).backward()
    return [t.tolist() for t in (a, b, total, w.grad)]


def test_a_sound_program_passes() -> None:
    made = lehr.compile(step, fullgraph=True, options=CHECK)
    for have, want in zip(train(made), train(step), strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-5)


def spoiled(graph: Graph, name: str, instead: str) -> Graph:
    """The graph with every op `name` replaced by another of the same signature."""
    def rewrite(b: Builder, node: Node, args: tuple[Any, ...]) -> Any:
        return b.call(registry.get(instead) if node.op.name == name else node.op, args)
    return rebuild(graph, rewrite)


def plant_in_pass(patch: pytest.MonkeyPatch) -> None:
    wrong = pipeline.Pass("simplify", lambda g: spoiled(g, "exp", "exp2"))
    patch.setattr(pipeline, "PASSES", (*pipeline.PASSES[:-1], wrong))
    patch.setattr(pipeline.run, "__kwdefaults__", {**pipeline.run.__kwdefaults__,
                                                   "passes": pipeline.PASSES})


def plant_in_lowering(patch: pytest.MonkeyPatch) -> None:
    lower = stages.lower.lower
    patch.setattr(stages.lower, "lower", lambda g, **kw: lower(spoiled(g, "exp", "expm1"), **kw))


def plant_in_fusion(patch: pytest.MonkeyPatch) -> None:
    fuse = stages.fuse.fuse
    patch.setattr(stages.fuse, "fuse", lambda p: fuse(p._replace(steps=p.steps[:-1])))


def plant_in_plan(patch: pytest.MonkeyPatch) -> None:
    plan = stages.plan.plan

    def wrong(program: Any) -> Any:
        made = plan(program)
        return made._replace(offsets=dict.fromkeys(made.offsets, 0))
    patch.setattr(stages.plan, "plan", wrong)


def plant_in_code(patch: pytest.MonkeyPatch) -> None:
    emit = stages.c.emit

    def wrong(*args: Any) -> Any:
        code = emit(*args)
        return code._replace(sources=[t.replace("acc0 + ", "acc0 - ") for t in code.sources])
    patch.setattr(stages.c, "emit", wrong)


def plant_in_split(patch: pytest.MonkeyPatch) -> None:
    split = backend.partition.split

    def wrong(graph: Graph, tangents: Any, *rest: Any) -> Any:
        made = split(graph, tangents, *rest)
        return made._replace(backward=spoiled(made.backward, "mul", "maximum"))
    patch.setattr(backend.partition, "split", wrong)


PLANTED = {
    "the graph after the pass simplify": plant_in_pass,
    "the program as lowered": plant_in_lowering,
    "the program as fused": plant_in_fusion,
    "the program in its planned memory": plant_in_plan,
    "the compiled code": plant_in_code,
    "the graph split into forward and backward": plant_in_split,
}


@pytest.mark.parametrize("stage", PLANTED)
def test_the_stage_is_named(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    PLANTED[stage](monkeypatch)
    with pytest.raises(StageError, match=stage) as caught:
        train(lehr.compile(step, fullgraph=True, options=CHECK))
    text = str(caught.value)
    assert "differ, by at most" in text and ("test_check.py:" in text or "gradient" in text)


def test_a_difference_is_raised_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong program is never used, at the second call neither."""
    plant_in_code(monkeypatch)
    made = lehr.compile(step, fullgraph=True, options=CHECK)
    for _ in range(2):
        with pytest.raises(StageError):
            made(*arguments())


def test_what_the_program_raises_is_no_difference() -> None:
    made = lehr.compile(lambda x, i: x[i], fullgraph=True, options=CHECK)
    with pytest.raises(IndexError):
        made(lehr.zeros(3), lehr.tensor([5]))


def test_differences() -> None:
    a = np.array([1.0, np.nan, np.inf], np.float32)
    assert difference(a, a) == "" and difference(a * np.float32(1 + 1e-6), a) == ""
    assert difference(np.array([1.0, 2.0, np.inf], np.float32), a).startswith("1 of 3")
    assert difference(np.array([3], np.int64), np.array([5], np.int64)) == (
        "1 of 1 elements differ, by at most 2; first at (0,): 3, expected 5")
    assert difference(a, a.astype(np.float64)) == "float32[3], expected float64[3]"
    assert difference(a[:2], a) == "float32[2], expected float32[3]"
