"""The workloads in tinygrad, under `TinyJit`."""

from collections.abc import Callable

import numpy as np
from tinygrad import Device, Tensor, TinyJit
from tinygrad.helpers import Context
from tinygrad.nn import BatchNorm
from tinygrad.nn.optim import SGD, AdamW

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


def batch_norm(p, name):
    """The module, with these weights and statistics."""
    made = BatchNorm(p[f"{name}.weight"].shape[0])
    for key in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
        if f"{name}.{key}" in p:
            setattr(made, key, p[f"{name}.{key}"])
    return made


def bn_relu(p, x):
    with Context(TRAINING=1):
        return batch_norm(p, "norm")(x).relu()


INFERENCE: dict[str, Callable] = {
    "mlp": mlp,
    "vit_block": lambda p, x: block(p, "", x, workload.VIT_HEADS, causal=False),
    "bn_relu": bn_relu,
    "softmax": lambda p, x: x.softmax(-1),
    "ln_gelu_add": lambda p, x, residual: gelu(norm(p, "norm", x)) + residual,
    "pointwise6": lambda p, x: ((x * 1.5 + 0.25).sigmoid() * x).relu().sqrt().sum(),
    "tiny_call": lambda p, x: x * 2 + 1,
}
DATA = ("x", "residual", "tokens", "targets", "images", "labels")


def build(name: str, mode: str, arrays: Arrays, tuning: str):
    """(run, read), as in `cases.pytorch`; a run has ended when it returns."""
    if workload.WORKLOADS[name].half:
        raise NotImplementedError(f"{name}: no autocast")
    p = {k: Tensor(v).realize() for k, v in arrays.items()}
    data = [p.pop(k) for k in DATA if k in p]
    if name in workload.YARDSTICKS:
        raise NotImplementedError(f"{name}: what the machine can do, the others measure")
    if name in INFERENCE:
        function = TinyJit(lambda *data: INFERENCE[name](p, *data).realize())
    elif name in TRAINING:
        function = TinyJit(TRAINING[name](p))
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


def resnet_training(p):
    """A step of SGD with momentum on ResNet-18."""
    names = [k for k in p if "running" not in k and "num_batches" not in k]
    optimizer = SGD([p[k] for k in names], lr=workload.RATE, momentum=workload.MOMENTUM)
    found = [k.removesuffix(".weight").replace("conv", "norm") for k in names if "conv" in k]
    norms = {name: batch_norm(p, name) for name in found}

    def conv(name, x, stride=1):
        kernel = p[f"{name}.weight"]
        x = x.conv2d(kernel, stride=stride, padding=kernel.shape[-1] // 2)
        return norms[name.replace("conv", "norm")](x)

    def forward(images, labels):
        x = conv("conv", images, 2).relu().max_pool2d((3, 3), 2, padding=1)
        for i, (_, _, stride) in enumerate(workload.STAGES):
            y = conv(f"blocks.{i}.conv1", x, stride).relu()
            y = conv(f"blocks.{i}.conv2", y)
            x = (y + (x if stride == 1 else conv(f"blocks.{i}.conv3", x, stride))).relu()
        return layer(p, "head", x.mean((2, 3))).sparse_categorical_crossentropy(labels)

    def step(images, labels):
        with Context(TRAINING=1):
            optimizer.zero_grad()
            value = forward(images, labels).backward()
            stats = [t for n in norms.values() for t in (n.running_mean, n.running_var)]
            return value.realize(*optimizer.schedule_step(), *stats)

    return step


TRAINING = {"gpt_step": training, "resnet18_step": resnet_training}


def threads(count: int) -> None:
    """Set by an environment variable that is read at the first import."""
