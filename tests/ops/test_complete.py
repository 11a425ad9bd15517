"""Every op has all that its kind promises."""

from __future__ import annotations

import pytest

from lehr.ops import families, registry
from lehr.ops.registry import Op
from lehr.ops.saving import RESULT
from tests.ops import oracle

assert families.FAMILIES
OPS = [op for op in registry.OPS.values() if op.module.startswith("lehr.")]
# Kinds that a back end maps to something of its own.
MAPPED = (registry.EXTERN, registry.COMM, registry.RANDOM, registry.HOST)
# Ops of graphs alone: storages, run-time numbers.
CORE = "lehr.ops.core"


def lowerable(op: Op) -> bool:
    """Whether some back end can run it: primitively, by its lowering, decomposed, or as a
    HostCall."""
    return bool(op.kind in MAPPED or op.host or op.breaks or op.decomp or op.lower or op.scatter or
                (op.kind == registry.POINTWISE and op.c and op.triton) or
                (op.kind in (registry.REDUCE, registry.SCAN) and op.monoid))


def gaps(op: Op) -> list[str]:
    found = {
        "a lowering": op.module == CORE or lowerable(op),
        "eager or decomp": op.module == CORE or op.eager or op.decomp,
        "vjp, decomp or nondiff": op.vjp or op.decomp or op.nondiff,
        "samples": op.module == CORE or op.samples,
        "a docstring or a name of torch's": op.doc or op.where,
        "both spellings": bool(op.c) == bool(op.triton),
    }
    return [name for name, there in found.items() if not there]


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_complete(op: Op) -> None:
    assert op.signature.params is not None
    assert op.signature.results
    assert not gaps(op), f"{op.name} ({op.module}) lacks {', '.join(gaps(op))}"
    if op.vjp:
        assert set(op.saves) == {RESULT, *(p.name for p in op.params)}


def test_gaps_are_found() -> None:
    made = Op(registry.Signature("nothing(input: Tensor) -> Tensor"),
              {"kind": registry.POINTWISE, "rule": lambda x: x, "c": "{input}", "where": ""},
              "here")
    assert gaps(made) == ["a lowering", "eager or decomp", "vjp, decomp or nondiff", "samples",
                          "a docstring or a name of torch's", "both spellings"]


@pytest.mark.parity
@pytest.mark.skipif(oracle.torch is None, reason="torch is not installed")
@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_places(op: Op) -> None:
    """Every public name exists in torch: none is invented."""
    missing = [p for p in op.places if oracle.lookup(p) is None]
    assert not missing, missing


def test_a_parameter_called_out_is_not_the_result():
    saves = registry.get("max_pool").saves
    assert saves[RESULT] == "nothing" and saves["out"] == "value"
