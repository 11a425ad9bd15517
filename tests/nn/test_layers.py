"""Every layer: text, state, results and gradients as torch's, with the same parameters."""

from __future__ import annotations

import pytest

import lehr
from tests.nn.both import check, filled, numbers


def ints(m, *shape, high=5):
    return (numbers(m, *shape).abs() * 10).long() % high


# Name -> (arguments, keywords, shapes of the inputs); several rows a layer.
LAYERS = [
    ("Linear", (3, 2), {}, [(4, 3)]), ("Linear", (3, 2), {"bias": False}, [(2, 4, 3)]),
    ("Bilinear", (3, 2, 4), {}, [(5, 3), (5, 2)]), ("Identity", (1, 2), {"x": 3}, [(2, 2)]),
    ("LayerNorm", ((3, 2),), {}, [(4, 3, 2)]), ("LayerNorm", (3,), {"bias": False}, [(4, 3)]),
    ("LayerNorm", (3,), {"elementwise_affine": False}, [(4, 3)]), ("RMSNorm", (3,), {}, [(4, 3)]),
    ("GroupNorm", (2, 4), {}, [(3, 4, 2, 2)]), ("LocalResponseNorm", (3,), {}, [(2, 5, 4)]),
    ("BatchNorm1d", (3,), {}, [(4, 3)]), ("BatchNorm2d", (3,), {"affine": False}, [(2, 3, 2, 2)]),
    ("BatchNorm2d", (3,), {"momentum": None}, [(2, 3, 2, 2)]),
    ("BatchNorm3d", (2,), {"track_running_stats": False}, [(2, 2, 2, 2, 2)]),
    ("InstanceNorm1d", (3,), {"affine": True}, [(2, 3, 5)]),
    ("InstanceNorm2d", (3,), {"track_running_stats": True}, [(2, 3, 4, 4)]),
    ("Conv1d", (2, 4, 3), {"padding": 1, "padding_mode": "reflect"}, [(2, 2, 6)]),
    ("Conv2d", (2, 4, 3), {"stride": 2, "padding": 1, "groups": 2, "bias": False}, [(2, 2, 6, 5)]),
    ("Conv2d", (2, 3, (3, 2)), {"padding": "same", "dilation": 2}, [(2, 6, 5)]),
    ("Conv2d", (2, 3, 2), {"padding": 1, "padding_mode": "circular"}, [(1, 2, 4, 4)]),
    ("Conv3d", (2, 3, 2), {"padding": 1, "padding_mode": "replicate"}, [(1, 2, 3, 4, 3)]),
    ("ConvTranspose1d", (2, 3, 3), {"stride": 2, "output_padding": 1}, [(2, 2, 4)]),
    ("ConvTranspose2d", (4, 2, 3), {"stride": 2, "padding": 1, "groups": 2}, [(1, 4, 3, 3)]),
    ("ConvTranspose3d", (2, 3, 2), {"dilation": 2}, [(1, 2, 2, 3, 2)]),
    ("MaxPool1d", (2,), {"ceil_mode": True}, [(2, 3, 7)]),
    ("MaxPool2d", (3, 2, 1), {"dilation": 1}, [(2, 3, 7, 6)]),
    ("MaxPool2d", (2,), {"return_indices": True}, [(1, 2, 4, 4)]),
    ("MaxPool3d", (2,), {}, [(1, 2, 4, 4, 4)]), ("AvgPool1d", (3,), {"stride": 2}, [(2, 3, 7)]),
    ("AvgPool2d", (3,), {"padding": 1, "count_include_pad": False}, [(1, 2, 5, 5)]),
    ("AvgPool3d", (2,), {"divisor_override": 3}, [(1, 2, 4, 4, 4)]),
    ("LPPool2d", (2.0, 2), {}, [(1, 2, 4, 4)]), ("AdaptiveAvgPool1d", (3,), {}, [(2, 3, 7)]),
    ("AdaptiveAvgPool2d", ((3, None),), {}, [(2, 3, 7, 5)]),
    ("AdaptiveAvgPool3d", (2,), {}, [(1, 2, 3, 4, 5)]),
    ("AdaptiveMaxPool2d", (3,), {}, [(1, 2, 5, 7)]), ("ConstantPad1d", (2, 3.5), {}, [(2, 3, 4)]),
    ("ZeroPad2d", ((1, 0, 2, 1),), {}, [(2, 3, 4)]), ("ReflectionPad2d", (1,), {}, [(1, 2, 3, 3)]),
    ("ReplicationPad1d", (2,), {}, [(1, 2, 3)]), ("CircularPad2d", (1,), {}, [(1, 2, 3, 3)]),
    ("Upsample", (), {"scale_factor": 2}, [(1, 2, 3, 3)]),
    ("Upsample", ((4, 5),), {"mode": "bilinear", "align_corners": True}, [(1, 2, 3, 3)]),
    ("PixelShuffle", (2,), {}, [(1, 8, 2, 3)]), ("PixelUnshuffle", (2,), {}, [(1, 2, 4, 6)]),
    ("ChannelShuffle", (2,), {}, [(1, 4, 2, 2)]), ("Flatten", (), {}, [(2, 3, 4)]),
    ("Unflatten", (1, (2, 3)), {}, [(2, 6)]), ("Unfold", (2,), {"padding": 1}, [(1, 2, 3, 3)]),
    ("Fold", ((3, 3), 2), {}, [(1, 8, 4)]), ("CosineSimilarity", (), {}, [(3, 4), (3, 4)]),
    ("PairwiseDistance", (), {"keepdim": True}, [(3, 4), (3, 4)]),
    ("RNN", (3, 4), {"num_layers": 2, "nonlinearity": "relu"}, [(5, 2, 3)]),
    ("LSTM", (3, 4), {"bidirectional": True, "num_layers": 2}, [(5, 2, 3)]),
    ("LSTM", (3, 4), {"proj_size": 2, "batch_first": True, "bias": False}, [(2, 5, 3)]),
    ("GRU", (3, 4), {"bidirectional": True, "batch_first": True}, [(2, 5, 3)]),
    ("GRU", (3, 4), {}, [(5, 3)]), ("RNNCell", (3, 4), {}, [(2, 3)]),
    ("LSTMCell", (3, 4), {}, [(2, 3)]), ("GRUCell", (3, 4), {"bias": False}, [(3,)]),
    ("MultiheadAttention", (4, 2), {}, [(5, 3, 4), (6, 3, 4), (6, 3, 4)]),
    ("MultiheadAttention", (4, 2), {"kdim": 3, "vdim": 5, "batch_first": True, "bias": False},
     [(3, 5, 4), (3, 6, 3), (3, 6, 5)]),
    ("MultiheadAttention", (4, 2), {"add_bias_kv": True, "add_zero_attn": True},
     [(5, 4), (6, 4), (6, 4)]),
    ("TransformerEncoderLayer", (4, 2, 8), {"dropout": 0.0, "batch_first": True}, [(2, 3, 4)]),
    ("TransformerEncoderLayer", (4, 2, 8), {"dropout": 0.0, "norm_first": True,
                                            "activation": "gelu"}, [(3, 2, 4)]),
    ("TransformerDecoderLayer", (4, 2, 8), {"dropout": 0.0}, [(3, 2, 4), (5, 2, 4)]),
    ("Transformer", (4, 2, 1, 1, 8), {"dropout": 0.0, "bias": False}, [(3, 2, 4), (5, 2, 4)]),
    *[(name, (), {}, [(3, 4)]) for name in (
        "ReLU", "ReLU6", "ELU", "SELU", "CELU", "GELU", "SiLU", "Mish", "Sigmoid", "Tanh",
        "Softplus",
        "Softsign", "Tanhshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "Hardshrink",
        "Softshrink",
        "LeakyReLU", "LogSigmoid", "GLU", "PReLU")],
    ("GELU", ("tanh",), {}, [(3, 4)]), ("Threshold", (0.1, 2.0), {}, [(3, 4)]),
    ("ELU", (0.5, True), {}, [(3, 4)]), ("Softmax", (1,), {}, [(3, 4)]),
    ("LogSoftmax", (-1,), {}, [(3, 4)]), ("Softmin", (0,), {}, [(3, 4)]),
    ("Softmax2d", (), {}, [(2, 3, 2, 2)]),
]
NAMES = [f"{row[0]}-{i}" for i, row in enumerate(LAYERS)]


def flat(x):
    return [y for part in x for y in flat(part)] if isinstance(x, (list, tuple)) else [x]


def layer_run(m, name, args, kw, shapes, training):
    n = filled(getattr(m.nn, name)(*args, **kw).train(training), m)
    xs = [numbers(m, *s, seed=i + 11).requires_grad_() for i, s in enumerate(shapes)]
    given = [x * 1.0 for x in xs] if kw.get("inplace") or args[1:2] == (True,) else xs
    outs = flat(n(*given))
    total = sum((o * numbers(m, *o.shape, seed=5)).sum() for o in outs
                if o is not None and o.requires_grad)
    if not isinstance(total, int):
        total.backward()
    return [repr(n), outs, [x.grad for x in xs], [p.grad for p in n.parameters()],
            dict(n.state_dict())]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("row", LAYERS, ids=NAMES)
def test_layers(row, training):
    check(lambda m: layer_run(m, *row, training), rtol=2e-4, atol=2e-5)


LOSSES = {
    "CrossEntropyLoss": [{}, {"label_smoothing": 0.1, "reduction": "sum"}],
    "NLLLoss": [{}, {"reduction": "none", "ignore_index": 2}],
    "MSELoss": [{}, {"reduction": "sum"}],
    "L1Loss": [{}], "SmoothL1Loss": [{"beta": 0.5}], "HuberLoss": [{"delta": 0.5}],
    "KLDivLoss": [{"reduction": "batchmean"}], "BCEWithLogitsLoss": [{}], "SoftMarginLoss": [{}],
    "PoissonNLLLoss": [{"full": False}], "MultiMarginLoss": [{}], "MultiLabelSoftMarginLoss": [{}],
    "HingeEmbeddingLoss": [{}],
}


def loss_run(m, name, kw):
    x = numbers(m, 4, 5).requires_grad_()
    if name in ("CrossEntropyLoss", "NLLLoss", "MultiMarginLoss"):
        y = ints(m, 4)
    else:
        y = numbers(m, 4, 5, seed=3)
        y = y.sigmoid() if name in ("KLDivLoss", "BCEWithLogitsLoss", "PoissonNLLLoss") else y
        y = y.sign() if name in ("SoftMarginLoss", "HingeEmbeddingLoss") else y
        y = (y > 0).float() if name.startswith("MultiLabel") else y
    out = getattr(m.nn, name)(**kw)(x, y)
    out.sum().backward()
    return [out, x.grad]


@pytest.mark.parametrize("name", LOSSES)
def test_losses(name):
    for kw in LOSSES[name]:
        check(lambda m, kw=kw: loss_run(m, name, kw))


def _three(m, name, **kw):
    xs = [numbers(m, 4, 5, seed=i).requires_grad_() for i in range(3)]
    if name in ("CosineEmbeddingLoss", "MarginRankingLoss"):
        pair = xs[:2] if name[0] == "C" else [x[:, 0] for x in xs[:2]]
        out = getattr(m.nn, name)(**kw)(*pair, m.tensor([1.0, -1.0, 1.0, -1.0]))
    elif name == "GaussianNLLLoss":
        out = m.nn.GaussianNLLLoss(**kw)(xs[0], xs[1].detach(), xs[2].exp())
    else:
        out = getattr(m.nn, name)(**kw)(*xs)
    out.backward()
    return [out, [x.grad for x in xs]]


def _embedding(m, **kw):
    n = filled(m.nn.Embedding(6, 3, **kw), m)
    out = n(m.tensor([[1, 2], [2, 5]]))
    out.pow(2).sum().backward()
    return [repr(n), out, n.weight.grad]


def _bag(m, mode):
    n = filled(m.nn.EmbeddingBag(6, 3, mode=mode, padding_idx=1), m)
    out = [n(m.tensor([[1, 2, 3], [2, 5, 0]])), n(m.tensor([1, 2, 3, 0]), m.tensor([0, 3]))]
    (out[0].sum() + out[1].pow(2).sum()).backward()
    return [repr(n), out, n.weight.grad]


def _adaptive(m):
    n = filled(m.nn.AdaptiveLogSoftmaxWithLoss(8, 12, [4, 8], div_value=2.0), m)
    x = numbers(m, 5, 8).requires_grad_()
    out = n(x, m.tensor([0, 3, 5, 9, 11]))
    out.loss.backward()
    return [repr(n), out.output, out.loss, x.grad, n.log_prob(x), n.predict(x),
            list(n.state_dict())]


def _unpooled(m):
    x = numbers(m, 1, 2, 4, 4)
    y, i = m.nn.MaxPool2d(2, return_indices=True)(x)
    return [m.nn.MaxUnpool2d(2)(y, i), repr(m.nn.MaxUnpool2d(2))]


def _masked(m, **kw):
    n = filled(m.nn.MultiheadAttention(4, 2, batch_first=True), m)
    x = numbers(m, 3, 5, 4)
    out, w = n(x, x, x, **kw)
    return [out, w]


def _causal(m, need):
    n = filled(m.nn.MultiheadAttention(4, 2), m)
    x = numbers(m, 5, 3, 4)
    mask = m.nn.Transformer.generate_square_subsequent_mask(5)
    return list(n(x, x, x, attn_mask=mask, is_causal=True, need_weights=need))


def _encoder(m):
    layer = m.nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True)
    n = filled(m.nn.TransformerEncoder(layer, 2, m.nn.LayerNorm(4), enable_nested_tensor=False), m)
    x = numbers(m, 2, 3, 4).requires_grad_()
    padding = m.tensor([[False, False, True], [False, False, False]])
    out = n(x, mask=m.nn.Transformer.generate_square_subsequent_mask(3),
            src_key_padding_mask=padding)
    out.sum().backward()
    return [repr(n), out, x.grad, list(n.state_dict())]


def _lazy(m, kind, shape, *args, **kw):
    n = getattr(m.nn, kind)(*args, **kw)
    first = repr(n)
    n(m.ones(*shape))
    filled(n, m)
    return [first, repr(n), type(n).__name__, n(numbers(m, *shape)), dict(n.state_dict())]


def _lazy_loaded(m):
    n = m.nn.LazyLinear(2)
    n.load_state_dict(filled(m.nn.Linear(3, 2), m).state_dict())
    return [n(numbers(m, 4, 3)), list(n.state_dict())]


def _checkpoint_of_old(m):
    """A BatchNorm state_dict from before `num_batches_tracked`."""
    n = m.nn.BatchNorm1d(2)
    state = {k: v + 1 for k, v in n.state_dict().items() if "num" not in k}
    return [repr(n.load_state_dict(state)), dict(n.state_dict())]


PROGRAMS = {
    **{f"three_{n}": (lambda m, n=n, kw=kw: _three(m, n, **kw)) for n, kw in (
        ("CosineEmbeddingLoss", {"margin": 0.1}), ("MarginRankingLoss", {}),
        ("TripletMarginLoss", {"swap": True}), ("TripletMarginWithDistanceLoss", {}),
        ("GaussianNLLLoss", {"full": True}))},
    "embedding": lambda m: _embedding(m, padding_idx=2),
    "embedding_norm": lambda m: _embedding(m, max_norm=0.3),
    "embedding_frequency": lambda m: _embedding(m, scale_grad_by_freq=True),
    **{f"bag_{mode}": (lambda m, mode=mode: _bag(m, mode)) for mode in ("sum", "mean", "max")},
    "pretrained": lambda m: [m.nn.Embedding.from_pretrained(m.ones(3, 2)).weight.requires_grad],
    "adaptive": _adaptive, "unpooled": _unpooled,
    "key_padding": lambda m: _masked(m,
                                     key_padding_mask=m.tensor([[False, True, False, False,
                                                                 True]] * 3)),
    "mask": lambda m: _masked(m, attn_mask=m.ones(5, 5).triu(1).bool(), average_attn_weights=False),
    "mask_3d": lambda m: _masked(m, attn_mask=numbers(m, 6, 5, 5), need_weights=False),
    "causal": lambda m: _causal(m, False), "causal_weights": lambda m: _causal(m, True),
    "encoder": _encoder, "lazy_linear": lambda m: _lazy(m, "LazyLinear", (4, 3), 2),
    "lazy_conv": lambda m: _lazy(m, "LazyConv2d", (1, 4, 5, 5), 6, 3, groups=2),
    "lazy_transposed": lambda m: _lazy(m, "LazyConvTranspose1d", (1, 2, 5), 3, 2),
    "lazy_norm": lambda m: _lazy(m, "LazyBatchNorm1d", (4, 3)), "lazy_loaded": _lazy_loaded,
    "old_batch_norm": _checkpoint_of_old,
    "transposed_size": lambda m: filled(m.nn.ConvTranspose2d(2, 3, 3, 2, 1), m)(
        numbers(m, 1, 2, 3, 3), output_size=(6, 5)),
    "sync": lambda m: repr(m.nn.SyncBatchNorm.convert_sync_batchnorm(
        m.nn.Sequential(m.nn.BatchNorm2d(3), m.nn.Linear(2, 2)))),
    "state_of_lstm": lambda m: [list(m.nn.LSTM(2, 3, 2, bidirectional=True,
                                               proj_size=1).state_dict()),
                                repr(m.nn.LSTM(2, 3, 2, dropout=0.5))],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_same(name):
    check(PROGRAMS[name], rtol=2e-4, atol=2e-5)


ERRORS = {
    "conv_groups": ("ValueError", lambda m: m.nn.Conv2d(3, 4, 3, groups=2)),
    "conv_mode": ("ValueError", lambda m: m.nn.Conv2d(2, 2, 3, padding_mode="mirror")),
    "conv_same": ("ValueError", lambda m: m.nn.Conv2d(2, 2, 3, padding="same", stride=2)),
    "batch_rank": ("ValueError", lambda m: m.nn.BatchNorm2d(3)(m.ones(2, 3))),
    "batch_one": ("ValueError", lambda m: m.nn.BatchNorm1d(3)(m.ones(1, 3))),
    "groups": ("ValueError", lambda m: m.nn.GroupNorm(3, 4)),
    "dropout": ("ValueError", lambda m: m.nn.Dropout(1.5)),
    "heads": ("AssertionError", lambda m: m.nn.MultiheadAttention(5, 2)),
    "lstm_input": ("RuntimeError", lambda m: m.nn.LSTM(2, 3)(m.ones(4, 1, 3))),
    "lstm_hidden": ("RuntimeError",
                    lambda m: m.nn.LSTM(2, 3)(m.ones(4, 1, 2), (m.ones(1, 2, 3),) * 2)),
    "gru_proj": ("ValueError", lambda m: m.nn.GRU(2, 3, proj_size=1)),
    "linear": ("RuntimeError", lambda m: m.nn.Linear(2, 3)(m.ones(4, 3))),
    "lazy": ("RuntimeError", lambda m: m.nn.LazyLinear(2).weight.shape),
    "padding_idx": ("AssertionError", lambda m: m.nn.Embedding(3, 2, padding_idx=3)),
    "output_size": ("ValueError", lambda m: m.nn.ConvTranspose1d(1, 1, 3, 2)(
        m.ones(1, 1, 3), output_size=(20,))),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    check(ERRORS[name][1], error=ERRORS[name][0])


@pytest.mark.parametrize("name", ["Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout",
                                  "FeatureAlphaDropout"])
def test_dropout(name):
    """Shares and scale when training; the input itself otherwise."""
    lehr.manual_seed(0)
    n = getattr(lehr.nn, name)(0.25)
    rank = {"Dropout1d": 1, "Dropout2d": 2, "Dropout3d": 3}.get(name, 1)
    x = lehr.ones(200, 50, *(2,) * rank)
    x = lehr.randn(*x.shape) if "Alpha" in name else x
    y = n(x)
    assert n.eval()(x) is x and repr(n) == f"{name}(p=0.25, inplace=False)"
    if "Alpha" in name:
        assert abs(float(y.mean())) < 0.05 and abs(float(y.std()) - 1.0) < 0.05
        return
    kept = (y != 0).float()
    assert abs(float(kept.mean()) - 0.75) < 0.02
    assert float((y - kept / 0.75).abs().max()) < 1e-6
    whole = kept.reshape(200, 50, -1).sum(-1) % 2 ** rank
    assert name == "Dropout" or float(whole.sum()) == 0.0
    x = lehr.ones(10)
    lehr.nn.Dropout(0.5, inplace=True)(x)
    assert set(x.tolist()) <= {0.0, 2.0}


def test_gumbel_softmax_and_rrelu():
    lehr.manual_seed(0)
    F = lehr.nn.functional
    hard = F.gumbel_softmax(lehr.zeros(1000, 4), hard=True)
    assert hard.sum(-1).tolist() == [1.0] * 1000
    assert float((hard.mean(0) - 0.25).abs().max()) < 0.05
    y = lehr.nn.RReLU()(-lehr.ones(1000))
    assert -1 / 3 <= float(y.min()) and float(y.max()) <= -1 / 8 and float(y.std()) > 0.03
    assert lehr.nn.RReLU().eval()(-lehr.ones(2)).tolist() == pytest.approx([-11 / 48] * 2)


def test_recurrent_dropout_is_between_layers():
    lehr.manual_seed(0)
    n = lehr.nn.LSTM(3, 50, 2, dropout=0.5)
    x = lehr.ones(4, 2, 3)
    assert n(x)[0].tolist() != n(x)[0].tolist()
    n.eval()
    assert n(x)[0].tolist() == n(x)[0].tolist()
