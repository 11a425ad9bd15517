"""flex_attention against torch's, and its gradients against the written-out formula."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.attention.flex_attention as theirs

import lehr
import lehr.nn.attention.flex_attention as ours

HEADS, QUERIES, KEYS = 4, 50, 66
draw = np.random.default_rng(0)
Q, K, V = (draw.normal(size=s).astype("f") for s in (
    (2, HEADS, QUERIES, 8), (2, HEADS, KEYS, 8), (2, HEADS, KEYS, 5)))
TABLES = {"slope": draw.normal(size=HEADS).astype("f"), "part": np.arange(KEYS) // 20,
          "bias": draw.normal(size=(HEADS, QUERIES, KEYS)).astype("f")}


def mods(m: Any) -> dict[str, tuple[Any, Any]]:
    slope, part, bias = (m.tensor(TABLES[n]) for n in ("slope", "part", "bias"))
    return {
        "plain": (None, None),
        "alibi": (lambda s, b, h, i, j: s + slope[h] * (i - j), None),
        "table": (lambda s, b, h, i, j: s * bias[h, i, j], None),
        "causal_scores": (lambda s, b, h, i, j: m.where(i >= j, s, -math.inf), None),
        "causal": (None, lambda b, h, i, j: i >= j),
        "documents": (None, lambda b, h, i, j: (part[i] == part[j]) & ((i - j).abs() < 9)),
        "both": (lambda s, b, h, i, j: m.tanh(s / 5) * 5 + b, lambda b, h, i, j: j > i + 30)}


def run(m: Any, flex: Any, name: str, call: Any = None, **words: Any) -> list[Any]:
    score, mask = mods(m)[name]
    block = None
    if mask is not None:
        block = flex.create_block_mask(mask, None, None, QUERIES, KEYS, device="cpu", BLOCK_SIZE=16)
    out = (call or flex.flex_attention)(*(m.tensor(t) for t in (Q, K, V)), score_mod=score,
                                        block_mask=block, return_lse=True, **words)
    found = [t.numpy() for t in out]
    if block is not None:
        found += [t.numpy() for t in (block.kv_num_blocks, block.kv_indices, block.to_dense(),
                                      block.full_kv_num_blocks, block.full_kv_indices)]
        found += [np.array(block.sparsity()), np.array(block.shape)]
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", list(mods(lehr)))
def test_values(name: str) -> None:
    for have, want in zip(run(lehr, ours, name), run(torch, theirs, name), strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-5)
        assert have.dtype == want.dtype


@pytest.mark.parametrize("name", list(mods(lehr)))
def test_compiled(name: str) -> None:
    call = lehr.compile(ours.flex_attention, fullgraph=True)
    for have, want in zip(run(lehr, ours, name, call), run(lehr, ours, name), strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", list(mods(lehr)))
def test_gradients(name: str, compiled: bool) -> None:
    """Also of grouped heads."""
    score, mask = mods(torch)[name]
    q, k, v = (torch.tensor(t).requires_grad_() for t in (Q, K[:, :2], V[:, :2]))
    b, h, i, j = (torch.arange(n).reshape([-1 if d == e else 1 for e in range(4)])
                  for d, n in enumerate((2, HEADS, QUERIES, KEYS)))
    s = q @ k.repeat_interleave(2, 1).mT / math.sqrt(8)
    s = s if score is None else score(s, b, h, i, j)
    s = s if mask is None else torch.where(mask(b, h, i, j), s, -math.inf)
    s = torch.where(torch.isinf(s).all(-1, keepdim=True), torch.zeros(()), s.softmax(-1))
    ((s @ v.repeat_interleave(2, 1)) ** 2).sum().backward()
    mine = [lehr.tensor(t).requires_grad_() for t in (Q, K[:, :2], V[:, :2])]
    score, mask = mods(lehr)[name]
    block = mask and ours.create_block_mask(mask, None, None, QUERIES, KEYS, BLOCK_SIZE=(16, 32))
    call = lehr.compile(ours.flex_attention) if compiled else ours.flex_attention
    (call(*mine, score, block, enable_gqa=True) ** 2).sum().backward()
    for have, want in zip(mine, (q, k, v), strict=True):
        np.testing.assert_allclose(have.grad.numpy(), want.grad.numpy(), rtol=1e-3, atol=1e-4)


def test_masks_from_blocks() -> None:
    counts, columns = [[[2, 1]]], [[[[1, 0], [1, 0]]]]
    for mask in (None, lambda b, h, i, j: i >= j):
        found = []
        for m, flex in ((torch, theirs), (lehr, ours)):
            block = flex.BlockMask.from_kv_blocks(
                m.tensor(counts, dtype=m.int32), m.tensor(columns, dtype=m.int32),
                BLOCK_SIZE=8, mask_mod=mask)
            found.append([tuple(block.shape), block.to_dense().tolist(), block.sparsity()])
        assert found[0] == found[1]
        q = lehr.randn(1, 1, 16, 4)
        out = ours.flex_attention(q, q, q, block_mask=block)
        i, j = lehr.arange(16)[:, None], lehr.arange(16)
        keep = (lehr.tensor([[1, 1], [0, 1]]) > 0)[i // 8, j // 8]
        keep = keep if mask is None else keep & (i >= j)
        s = lehr.where(keep, q @ q.mT / 2, -math.inf).softmax(-1)
        np.testing.assert_allclose(out.numpy(), (s @ q).numpy(), rtol=1e-4, atol=1e-5)


def test_joined_masks() -> None:
    def causal(b: Any, h: Any, i: Any, j: Any) -> Any:
        return i >= j

    def near(b: Any, h: Any, i: Any, j: Any) -> Any:
        return i - j < 3
    for name in ("and_masks", "or_masks"):
        have, want = (f.create_mask(getattr(f, name)(causal, near), 1, 1, 9, 9, device="cpu")
                      for f in (ours, theirs))
        assert have.tolist() == want.tolist()


def test_errors() -> None:
    q, k = lehr.randn(1, 2, 8, 4), lehr.randn(1, 1, 8, 4)
    table = lehr.randn(1, 2)
    with pytest.raises(ValueError, match="enable_gqa"):
        ours.flex_attention(q, k, k)
    with pytest.raises(ValueError, match="created for"):
        ours.flex_attention(q, q, q, block_mask=ours.create_block_mask(
            ours.noop_mask, None, None, 4, 4))
    for mod in (lambda s, b, h, i, j: s - s.sum(), lambda s, b, h, i, j: s + table[b][..., h][0]):
        with pytest.raises((NotImplementedError, IndexError)):
            ours.flex_attention(q, q, q, mod)
    with pytest.raises(NotImplementedError, match="4-d"):
        ours.flex_attention(q[0], q[0], q[0])
