"""Layouts: fixed cases, and random operands against torch where it is installed."""

from __future__ import annotations

import random

import pytest

import lehr
from lehr.ops import layout

ROUNDS = 700


def test_pointwise_keeps_the_order_of_the_first_operand_that_tells():
    assert layout.pointwise((2, 3), [((2, 3), (1, 2))]) == (1, 2)
    assert layout.pointwise((2, 3), [((2, 3), (1, 2)), ((2, 3), (3, 1))]) == (1, 2)
    assert layout.pointwise((2, 3), [((2, 3), (3, 1)), ((2, 3), (1, 2))]) == (3, 1)
    assert layout.pointwise((2, 3), [((3,), (1,)), ((2, 3), (1, 2))]) == (1, 2)


def test_channels_last_survives():
    shape = (2, 3, 4, 5)
    last = layout.channels_last(shape)
    assert last == (60, 1, 15, 3)
    assert layout.is_channels_last(shape, last) and not layout.is_contiguous(shape, last)
    assert layout.pointwise(shape, [(shape, last), ((3, 1, 1), (1, 1, 1))]) == last
    assert layout.preserve(shape, last) == last


@pytest.mark.parametrize("compiled", [False, True])
def test_normalised_images(compiled):
    """Layer and instance norm give row-major results, batch and RMS norm keep channels-last."""
    nn = lehr.nn.functional

    def every(x):
        return [nn.layer_norm(x, x.shape[-1:]), nn.instance_norm(x), nn.rms_norm(x, x.shape[-1:]),
                nn.batch_norm(x, None, None, training=True)]
    x = lehr.randn(2, 3, 4, 4).contiguous(memory_format=lehr.channels_last)
    made = (lehr.compile(every) if compiled else every)(x)
    row, last = (48, 16, 4, 1), (48, 1, 12, 3)
    assert [t.stride() for t in made] == [row, row, last, last]
    assert made[0].view(2, -1).shape == (2, 48)


def test_view_merges_and_splits():
    assert layout.view((4, 6), (6, 1), (2, 2, 3, 2)) == (12, 6, 2, 1)
    assert layout.view((4, 6), (1, 4), (24,)) is None
    assert layout.view((4, 6), (12, 1), (4, 2, 3)) == (12, 3, 1)
    assert layout.view((4, 6), (12, 1), (24,)) is None
    assert layout.view((0, 3), (3, 1), (5, 0)) == (1, 1)
    assert layout.view((), (), (1, 1)) == (1, 1)


def random_shape(rng: random.Random) -> list[int]:
    low = 0 if rng.random() < .15 else 1
    return [rng.randrange(low, 5) for _ in range(rng.randrange(6))]


def random_tensor(torch, rng: random.Random, shape: list[int]):
    """Of `shape`: permuted, sliced, expanded, channels last, or with arbitrary strides."""
    ndim, mode = len(shape), rng.randrange(6)
    if mode == 0:
        return torch.zeros(shape)
    if mode in (1, 2):
        perm = rng.sample(range(ndim), ndim)
        back = [perm.index(i) for i in range(ndim)]
        t = torch.zeros([shape[p] * mode for p in perm]).permute(back)
        for d in range(ndim if mode == 2 else 0):
            step = slice(None, None, 2) if rng.random() < .5 else slice(shape[d])
            t = t[(slice(None),) * d + (step,)]
        return t
    if mode == 3:
        return torch.zeros([1 if rng.random() < .4 else n for n in shape]).expand(shape)
    if mode == 4 and ndim in (4, 5):
        return torch.zeros(shape).contiguous(
            memory_format=torch.channels_last if ndim == 4 else torch.channels_last_3d)
    strides = [rng.choice((0, 1, 2, 3, 4, 6, 8, 12, 24)) for _ in shape]
    return torch.zeros(4000).as_strided(shape, strides)


def random_target(rng: random.Random, shape: list[int]) -> list[int]:
    """A shape of as many elements: dimensions joined and split, size-1 dimensions put in."""
    target: list[int] = []
    for size in shape:
        if target and rng.random() < .5:
            target[-1] *= size
        elif size and size % 2 == 0 and rng.random() < .5:
            target += [2, size // 2]
        else:
            target.append(size)
    if rng.random() < .3:
        target.insert(rng.randrange(len(target) + 1), 1)
    return target


def described(tensors) -> list[tuple]:
    return [(tuple(t.shape), t.stride()) for t in tensors]


@pytest.mark.parity
def test_predicates_and_views_as_torch():
    torch = pytest.importorskip("torch")
    rng = random.Random(0)
    for _ in range(ROUNDS):
        shape = random_shape(rng)
        t = random_tensor(torch, rng, shape)
        what = size, strides = tuple(t.shape), t.stride()
        assert layout.is_contiguous(*what) == t.is_contiguous(), what
        assert layout.is_dense(*what) == torch.ops.aten.is_non_overlapping_and_dense(t), what
        if len(size) == 4:
            last = t.is_contiguous(memory_format=torch.channels_last)
            assert layout.is_channels_last(*what) == last, what
        assert layout.preserve(size, strides) == torch.empty_like(t).stride(), what
        target = random_target(rng, shape)
        try:
            want = t.view(target).stride()
        except RuntimeError:
            want = None
        assert layout.view(size, strides, tuple(target)) == want, (what, target)


@pytest.mark.parity
def test_pointwise_as_torch():
    torch = pytest.importorskip("torch")
    rng = random.Random(1)
    cases = {1: torch.abs, 2: torch.add, 3: torch.addcmul}
    for _ in range(ROUNDS):
        shape, operands = random_shape(rng), []
        for _ in range(rng.randrange(1, 4)):
            s = [1 if rng.random() < .2 else n for n in shape]
            cut = rng.randrange(len(s) + 1) if rng.random() < .2 else 0
            operands.append(random_tensor(torch, rng, s[cut:]))
        made = cases[len(operands)](*operands)
        what = described(operands)
        assert layout.pointwise(tuple(made.shape), what) == made.stride(), what
        # A Python number beside a tensor counts as a 0-d operand.
        assert (layout.pointwise(what[0][0], [what[0], ((), ())])
                == (operands[0] + 1).stride()), what[0]
