"""Attention whose scores and mask are functions (Dong et al., 2024).

A `score_mod(score, b, h, q_idx, kv_idx)` or `mask_mod(b, h, q_idx, kv_idx)` is written for one
element and called once, with tensors of indices that broadcast to [B, H, Q, KV]: operations on
single elements and look-ups in tables (`bias[h, q_idx - kv_idx]`) come out the same. Eager calls
compute some elements by themselves as well, and raise where these differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from lehr.base import dtype as dt
from lehr.tensor.mode import is_compiling, no_grad
from lehr.tensor.tensor import Tensor

F = Tensor.F
_DEFAULT_SPARSE_BLOCK_SIZE = 128
Mod = Callable[..., Any]
RULE = ("A score_mod or mask_mod has to work element by element: index tables by all indices at "
        "once (bias[b, h]), and sum over nothing")


class AuxRequest(NamedTuple):
    """What `return_aux` asks for: the log-sum-exp and the greatest score of each row."""

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """What was asked for, [B, H, Q] each; None for the rest."""

    lse: Any = None
    max_scores: Any = None


def noop_mask(batch: Any, head: Any, token_q: Any, token_kv: Any) -> Any:
    """A mask_mod that keeps everything."""
    return F.full((), True, dtype=dt.bool_, device=token_q.device)


def _identity(score: Any, *places: Any) -> Any:
    return score


def and_masks(*mask_mods: Mod) -> Mod:
    """A mask_mod that keeps what all of the given ones keep."""
    return _joined(mask_mods, lambda a, b: a & b, True)


def or_masks(*mask_mods: Mod) -> Mod:
    """A mask_mod that keeps what one of the given ones keeps."""
    return _joined(mask_mods, lambda a, b: a | b, False)


def _joined(mods: tuple[Mod, ...], join: Any, start: bool) -> Mod:
    if not all(callable(m) for m in mods):
        raise RuntimeError(f"All inputs should be callable mask_mods: {mods}")

    def joined(b: Any, h: Any, q: Any, kv: Any) -> Any:
        out: Any = F.full((), start, dtype=dt.bool_, device=q.device)
        for mod in mods:
            out = join(out, mod(b, h, q, kv))
        return out
    return joined


def _places(shape: tuple[Any, ...], device: Any) -> list[Any]:
    """Indices along the dimensions of `shape`, each in its own dimension."""
    return [F.reshape(F.arange(n, device=device), [-1 if j == i else 1 for j in range(len(shape))])
            for i, n in enumerate(shape)]


def _applied(mod: Mod, shape: tuple[Any, ...], device: Any, scores: Any = None) -> Any:
    """`mod` of all elements: [B, H, Q, KV]."""
    front = () if scores is None else (scores,)
    made = mod(*front, *_places(shape, device))
    if not isinstance(made, Tensor):
        made = F.full((), made, device=device)
    if len(made.shape) > len(shape) or any(
            m not in (1, n) for m, n in zip(made.shape[::-1], shape[::-1], strict=False)):
        raise NotImplementedError(f"{getattr(mod, '__name__', mod)} gives a tensor of "
                                  f"{list(made.shape)} for scores of {list(shape)}. {RULE}")
    made = F.expand(made, list(shape))
    if not is_compiling() and all(n for n in shape):
        _check(mod, made, shape, device, scores)
    return made


def _check(mod: Mod, made: Any, shape: tuple[Any, ...], device: Any, scores: Any) -> None:
    """Some elements by themselves are what they are among the others."""
    spots = ([n - 1 for n in shape], [n // 2 for n in shape], [n * (i + 1) // 5
                                                             for i, n in enumerate(shape)])
    with no_grad():
        for spot in spots:
            at = tuple(spot)
            front = () if scores is None else (scores[at],)
            one = mod(*front, *(F.full((), i, dtype=dt.int64, device=device) for i in at))
            one = one if isinstance(one, Tensor) else F.full((), one, device=device)
            if one.numel() != 1 or not bool(F.isclose(
                    F.to_dtype(F.reshape(one, []), dt.float64), F.to_dtype(made[at], dt.float64),
                    1e-3, 1e-5, True)):
                raise NotImplementedError(
                    f"{getattr(mod, '__name__', mod)}: at {list(at)} it gives {one} by itself, but "
                    f"{made[at]} with tensors of indices. {RULE}")


def create_mask(mod_fn: Mod, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int,
                device: Any = None) -> Any:
    """[B, H, Q_LEN, KV_LEN]: a mask_mod's bool mask, or a score_mod's scores of zeros."""
    from inspect import signature
    shape = (B or 1, H or 1, Q_LEN, KV_LEN)
    many = sum(p.default is p.empty for p in signature(mod_fn).parameters.values())
    if many == 5:
        return _applied(mod_fn, shape, device, F.zeros(shape, dtype=dt.Default.dtype,
                                                       device=device))
    return _applied(mod_fn, shape, device)


class BlockMask:
    """A mask_mod, and which blocks of BLOCK_SIZE (queries, keys) it leaves something of.

    kv_num_blocks, kv_indices            [B, H, query blocks(, key blocks)]: blocks with a part
    full_kv_num_blocks, full_kv_indices  likewise, blocks that are kept whole (None: not told apart)
    """

    def __init__(self, seq_lengths: tuple[int, int], kv_num_blocks: Any, kv_indices: Any,
                 full_kv_num_blocks: Any, full_kv_indices: Any, BLOCK_SIZE: tuple[int, int],
                 mask_mod: Mod) -> None:
        self.seq_lengths, self.BLOCK_SIZE, self.mask_mod = seq_lengths, BLOCK_SIZE, mask_mod
        self.kv_num_blocks, self.kv_indices = kv_num_blocks, kv_indices
        self.full_kv_num_blocks, self.full_kv_indices = full_kv_num_blocks, full_kv_indices

    @classmethod
    def from_kv_blocks(cls, kv_num_blocks: Any, kv_indices: Any, full_kv_num_blocks: Any = None,
                       full_kv_indices: Any = None, BLOCK_SIZE: Any = _DEFAULT_SPARSE_BLOCK_SIZE,
                       mask_mod: Mod | None = None, seq_lengths: Any = None,
                       compute_q_blocks: bool = True) -> BlockMask:
        """From lists of blocks: elements count in the blocks listed, and there where mask_mod keeps
        them (in full blocks all do)."""
        if kv_indices.dim() < 2:
            raise RuntimeError("BlockMask must have at least 2 dimensions")
        size = _pair(BLOCK_SIZE)
        rows, columns = (int(n) for n in kv_indices.shape[-2:])
        lengths = (rows * size[0], columns * size[1]) if seq_lengths is None else seq_lengths
        mod = mask_mod or noop_mask
        part = _kept(kv_num_blocks, kv_indices)
        whole = None if full_kv_num_blocks is None else _kept(full_kv_num_blocks, full_kv_indices)

        def listed(b: Any, h: Any, q: Any, kv: Any) -> Any:
            at = ((b % part.shape[0], h % part.shape[1])[-(part.dim() - 2):]
                  if part.dim() > 2 else ()) + (q // size[0], kv // size[1])
            keep = part[at] & mod(b, h, q, kv)
            return keep if whole is None else keep | whole[at]
        made = cls(tuple(lengths), kv_num_blocks, kv_indices, full_kv_num_blocks, full_kv_indices,
                   size, mod)
        made._listed = listed
        return made

    _listed: Any = None

    @property
    def keeps(self) -> Mod:
        """The mask_mod of what counts."""
        return self._listed or self.mask_mod  # type: ignore[no-any-return]

    @property
    def shape(self) -> tuple[int, ...]:
        """(B, H, queries, keys)."""
        return (*(int(n) for n in self.kv_indices.shape[:-2]), *self.seq_lengths)

    def numel(self) -> int:
        """How many elements the mask has."""
        return math.prod(self.shape)

    def to_dense(self) -> Any:
        """int32 [B, H, query blocks, key blocks]: 1 where something of a block counts."""
        made = _kept(self.kv_num_blocks, self.kv_indices)
        if self.full_kv_num_blocks is not None:
            made = made | _kept(self.full_kv_num_blocks, self.full_kv_indices)
        return F.to_dtype(made, dt.int32)

    def sparsity(self) -> float:
        """Percentage of the elements that are in blocks nothing of which counts."""
        count = int(self.kv_num_blocks.sum())
        if self.full_kv_num_blocks is not None:
            count += int(self.full_kv_num_blocks.sum())
        return 100 * (1 - count * math.prod(self.BLOCK_SIZE) / self.numel())

    def to(self, device: Any) -> BlockMask:
        """The same mask on a device."""
        def moved(t: Any) -> Any:
            return None if t is None else t.to(device)
        made = BlockMask(self.seq_lengths, moved(self.kv_num_blocks), moved(self.kv_indices),
                         moved(self.full_kv_num_blocks), moved(self.full_kv_indices),
                         self.BLOCK_SIZE, self.mask_mod)
        made._listed = self._listed
        return made

    def __repr__(self) -> str:
        return (f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%, "
                f"BLOCK_SIZE={self.BLOCK_SIZE})")


def _pair(size: Any) -> tuple[int, int]:
    a, b = (size, size) if isinstance(size, int) else size
    return int(a), int(b)


def _kept(counts: Any, indices: Any) -> Any:
    """bool [.., rows, columns]: the first counts[row] columns of indices[row]."""
    columns = indices.shape[-1]
    listed = F.lt(F.arange(columns, device=indices.device), F.unsqueeze(counts, -1))
    marks = F.scatter_add(F.zeros(tuple(indices.shape), dtype=dt.int32, device=indices.device), -1,
                          F.to_dtype(indices, dt.int64), F.to_dtype(listed, dt.int32))
    return F.gt(marks, 0)


def _ordered(marks: Any) -> tuple[Any, Any]:
    """int32 counts [.., rows] and columns [.., rows, columns], those marked first."""
    found = F.argsort(F.to_dtype(marks, dt.int32), -1, True, stable=True)
    return (F.to_dtype(F.sum(F.to_dtype(marks, dt.int64), [-1]), dt.int32),
            F.to_dtype(found, dt.int32))


def create_block_mask(mask_mod: Mod, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int,
                      device: Any = None, BLOCK_SIZE: Any = _DEFAULT_SPARSE_BLOCK_SIZE,
                      _compile: bool = False) -> BlockMask:
    """The BlockMask of a mask_mod; None for B or H: the same for all."""
    size = _pair(BLOCK_SIZE)
    mask = create_mask(mask_mod, B, H, Q_LEN, KV_LEN, device)
    blocks = [-(-Q_LEN // size[0]), -(-KV_LEN // size[1])]
    padded = F.constant_pad_nd(mask, [0, blocks[1] * size[1] - KV_LEN,
                                      0, blocks[0] * size[0] - Q_LEN], 0)
    tiles = F.reshape(padded, [*mask.shape[:2], blocks[0], size[0], blocks[1], size[1]])
    counts = F.sum(F.to_dtype(tiles, dt.int64), [3, 5])
    whole = F.eq(counts, size[0] * size[1])
    part = F.logical_and(F.gt(counts, 0), F.logical_not(whole))
    return BlockMask((Q_LEN, KV_LEN), *_ordered(part), *_ordered(whole), size, mask_mod)


def flex_attention(query: Any, key: Any, value: Any, score_mod: Mod | None = None,
                   block_mask: BlockMask | None = None, scale: float | None = None,
                   enable_gqa: bool = False, return_lse: bool = False,
                   kernel_options: Any = None, *, return_aux: AuxRequest | None = None) -> Any:
    """softmax(score_mod(scale * query @ key^T), masked) @ value.

    query [B, H, Q, E], key and value [B or 1, H, KV, E(v)] give [B, H, Q, Ev]; with `enable_gqa`
    key and value may have fewer heads, which divide H. `scale`: 1 / sqrt(E). Rows of which nothing
    is kept are zero. `return_lse` adds the natural logarithms [B, H, Q] of the sums.
    """
    for name, t in (("query", query), ("key", key), ("value", value)):
        if t.dim() != 4:
            raise NotImplementedError(f"flex_attention: {name} has to be 4-d, got {list(t.shape)}")
    if not query.dtype is key.dtype is value.dtype:
        raise ValueError(f"Expected query, key, and value to have the same dtype, but got "
                         f"{query.dtype}, {key.dtype} and {value.dtype}")
    heads, groups = int(query.shape[1]), int(key.shape[1])
    if heads != groups:
        if not enable_gqa or heads % groups:
            raise ValueError(f"Expect query and key/value to have the same number of heads but got "
                             f"Hq={heads} and Hkv={groups}. Try setting enable_gqa=True for GQA.")
        key, value = (F.reshape(
            F.expand(F.unsqueeze(t, 2), [t.shape[0], groups, heads // groups, *t.shape[2:]]),
            [t.shape[0], heads, *t.shape[2:]]) for t in (key, value))
    wide = dt.float64 if query.dtype is dt.float64 else dt.float32
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = F.mul(F.matmul(F.to_dtype(query, wide), F.transpose(F.to_dtype(key, wide), -2, -1)),
                   factor)
    shape = tuple(scores.shape)
    scores = F.to_dtype(_applied(score_mod or _identity, shape, query.device, scores), wide)
    if block_mask is not None:
        scores = F.where(_fitting(block_mask, shape, query.device), scores,
                         F.full((), -math.inf, dtype=wide, device=query.device))
    total = F.logsumexp(scores, [-1])
    empty = F.unsqueeze(F.eq(total, -math.inf), -1)
    weights = F.exp(F.sub(scores, F.masked_fill(F.unsqueeze(total, -1), empty, 0)))
    out = F.to_dtype(F.matmul(weights, F.to_dtype(value, wide)), query.dtype)
    if return_aux is not None:
        return out, AuxOutput(total if return_aux.lse else None,
                              F.amax(scores, [-1]) if return_aux.max_scores else None)
    return (out, total) if return_lse else out


def _fitting(mask: BlockMask, shape: tuple[Any, ...], device: Any) -> Any:
    """The bool mask of a call, [B or 1, H or 1, Q, KV]."""
    if not isinstance(mask, BlockMask):
        raise TypeError(f"block_mask has to be a BlockMask, got {type(mask).__name__}")
    given = (1,) * (4 - len(mask.shape)) + mask.shape
    if any(g not in (1, n) for g, n in zip(given[:2], shape[:2], strict=True)):
        raise ValueError(f"block_mask of shape {given} does not fit scores of {list(shape)}")
    if given[2] < shape[2] or given[3] < shape[3]:
        raise ValueError(f"block_mask was created for {given[2:]} queries and keys but the scores "
                         f"have {list(shape[2:])}: create it for these lengths")
    return _applied(mask.keeps, (*given[:2], *shape[2:]), device)


__all__ = ["AuxOutput", "AuxRequest", "BlockMask", "and_masks", "create_block_mask", "create_mask",
           "flex_attention", "noop_mask", "or_masks"]
