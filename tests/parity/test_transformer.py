"""Transformer modules with torch's weights: values, gradients, masks, both layouts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lehr

torch = pytest.importorskip("torch")


def loaded(build: Any) -> tuple[Any, Any]:
    """A module of each library with the same weights."""
    torch.manual_seed(0)
    theirs, mine = build(torch.nn), build(lehr.nn)
    mine.load_state_dict({k: lehr.from_numpy(v.detach().numpy().copy())
                          for k, v in theirs.state_dict().items()})
    return mine, theirs


def same(have: Any, want: Any, tolerance: float = 2e-5) -> None:
    np.testing.assert_allclose(have.detach().numpy(), want.detach().numpy(), rtol=tolerance,
                               atol=tolerance)


LAYERS: dict[str, dict[str, Any]] = {
    "plain": {}, "batch_first": {"batch_first": True}, "norm_first": {"norm_first": True},
    "gelu": {"activation": "gelu", "batch_first": True}, "no_bias": {"bias": False}}


def encoder(nn: Any, words: dict[str, Any]) -> Any:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, **words)
    return nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(8), enable_nested_tensor=False)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("mask", [None, "causal", "padding"])
def test_encoder(name: str, train: bool, mask: str | None) -> None:
    words = LAYERS[name]
    mine, theirs = loaded(lambda nn: encoder(nn, words))
    first = words.get("batch_first", False)
    data = np.random.default_rng(1).standard_normal((3, 5, 8)).astype(np.float32)
    batch, length = (3, 5) if first else (5, 3)
    hidden = np.zeros((batch, length), bool)
    hidden[0, -1] = True
    found = []
    for lib, module in ((lehr, mine), (torch, theirs)):
        module.train(train)
        more: dict[str, Any] = {}
        if mask == "causal":
            more = {"mask": lib.nn.Transformer.generate_square_subsequent_mask(length),
                    "is_causal": True}
        elif mask == "padding":
            more = {"src_key_padding_mask": lib.from_numpy(hidden.copy())}
        x = lib.from_numpy(data.copy()).requires_grad_(train)
        out = module(x, **more)
        if train:
            (out ** 2).sum().backward()
        grads = [p.grad for _, p in module.named_parameters()] if train else []
        found.append([out, *([x.grad] if train else []), *grads])
    for have, want in zip(*found, strict=True):
        same(have, want, 2e-4)
    assert list(mine.state_dict()) == list(theirs.state_dict())
    assert repr(mine) == repr(theirs)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("first", [True, False])
def test_whole(first: bool) -> None:
    mine, theirs = loaded(lambda nn: nn.Transformer(8, 2, 1, 1, 16, 0.0, batch_first=first))
    rng = np.random.default_rng(2)
    source, target = (rng.standard_normal((3, 4, 8)).astype(np.float32) for _ in range(2))
    out = [module(lib.from_numpy(source.copy()), lib.from_numpy(target.copy()))
           for lib, module in ((lehr, mine), (torch, theirs))]
    same(*out)
