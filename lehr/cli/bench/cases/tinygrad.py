"""The workloads in tinygrad, under `TinyJit`."""

from collections.abc import Callable

import numpy as np
from tinygrad import Device, Tensor, TinyJit
from tinygrad.helpers import Context
from tinygrad.nn.optim import AdamW

from lehr.cli.bench import workload
from lehr.cli.bench.workload import Arrays


def layer(p, name, x):
    return x.linear(p[f"{name}.weight"].T, p[f"{name}.bias"])


def norm(p, name, x):
    return x.layernorm(eps=1e-5) * p[f"{name}.weight"] + p[f"{name}.bias"]


def gelu(x):
    return x * 0.5 * (1 + (x / 2**0.5).erf())


def block(p, name, x, heads, causal):
    b, t, c = x.shape
    packed = layer(p, f"{name}qkv", norm(p, f"{name}norm1", x)).reshape(b, t, 3, heads, c // heads)
    q, k, v = (packed[:, :, i].transpose(1, 2) for i in range(3))
    y = q.scaled_dot_product_attention(k, v, is_causal=causal).transpose(1, 2).reshape(b, t, c)
    x = x + layer(p, f"{name}out", y)
    return x + layer(p, f"{name}down", gelu(layer(p, f"{name}up", norm(p, f"{name}norm2", x))))


def mlp(p, x):
    last = 2 * (len(workload.MLP) - 2)
    for i in range(0, last, 2):
        x = layer(p, str(i), x).relu()
    return layer(p, str(last), x)


def loss(p, tokens, targets):
    x = p["token.weight"][tokens] + p["place.weight"]
    for i in range(workload.GPT_LAYERS):
        x = block(p, f"blocks.{i}.", x, workload.GPT_HEADS, causal=True)
    return (norm(p, "norm", x) @ p["head.weight"].T).sparse_categorical_crossentropy(targets)


INFERENCE: dict[str, Callable] = {
    "mlp": mlp,
    "vit_block": lambda p, x: block(p, "", x, workload.VIT_HEADS, causal=False),
    "softmax": lambda p, x: x.softmax(-1),
    "ln_gelu_add": lambda p, x, residual: gelu(norm(p, "norm", x)) + residual,
    "pointwise6": lambda p, x: ((x * 1.5 + 0.25).sigmoid() * x).relu().sqrt().sum(),
    "tiny_call": lambda p, x: x * 2 + 1,
}
DATA = ("x", "residual", "tokens", "targets")


def build(name: str, mode: str, arrays: Arrays, tuning: str):
    """(run, read), as in `cases.pytorch`; a run has ended when it returns."""
    p = {k: Tensor(v).realize() for k, v in arrays.items()}
    data = [p.pop(k) for k in DATA if k in p]
    if name in INFERENCE:
        function = TinyJit(lambda *data: INFERENCE[name](p, *data).realize())
    elif name == "gpt_step":
        function = TinyJit(training(p))
    else:
        raise NotImplementedError(f"{name}: tinygrad has no style that compiles the model alone")

    def run():
        result = function(*data)
        Device[Device.DEFAULT].synchronize()
        return result

    return run, lambda result: np.asarray(result.numpy())


def training(p):
    """The step over these weights: gives the loss, and changes them."""
    optimizer = AdamW(list(p.values()), lr=workload.RATE)

    def step(tokens, targets):
        with Context(TRAINING=1):
            optimizer.zero_grad()
            value = loss(p, tokens, targets).backward()
            # Together: realized after the update, the loss would read the new weights.
            return value.realize(*optimizer.schedule_step())

    return step


def threads(count: int) -> None:
    """Set by an environment variable that is read at the first import."""
