"""The workloads in JAX, whole steps under `jax.jit`."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from lehr.cli.bench import workload
from lehr.cli.bench.workload import Arrays

jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def layer(p, name, x):
    return x @ p[f"{name}.weight"].T + p[f"{name}.bias"]


def norm(p, name, x):
    mean = x.mean(-1, keepdims=True)
    scale = lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)
    return (x - mean) * scale * p[f"{name}.weight"] + p[f"{name}.bias"]


def gelu(x):
    return jax.nn.gelu(x, approximate=False)


def block(p, name, x, heads, causal):
    b, t, c = x.shape
    packed = layer(p, f"{name}qkv", norm(p, f"{name}norm1", x)).reshape(b, t, 3, heads, c // heads)
    q, k, v = jnp.moveaxis(packed, 2, 0)
    y = jax.nn.dot_product_attention(q, k, v, is_causal=causal).reshape(b, t, c)
    x = x + layer(p, f"{name}out", y)
    hidden = gelu(layer(p, f"{name}up", norm(p, f"{name}norm2", x)))
    return x + layer(p, f"{name}down", hidden)


def mlp(p, x):
    last = 2 * (len(workload.MLP) - 2)
    for i in range(0, last, 2):
        x = jax.nn.relu(layer(p, str(i), x))
    return layer(p, str(last), x)


def loss(p, tokens, targets):
    x = p["token.weight"][tokens] + p["place.weight"]
    for i in range(workload.GPT_LAYERS):
        x = block(p, f"blocks.{i}.", x, workload.GPT_HEADS, causal=True)
    scores = jax.nn.log_softmax(norm(p, "norm", x) @ p["head.weight"].T)
    return -jnp.take_along_axis(scores, targets[..., None], -1).mean()


def adamw(p, g, m, v, count, decay=0.01, b1=0.9, b2=0.999):
    """One AdamW update with PyTorch's defaults; `count` starts at 1."""
    m = b1 * m + (1 - b1) * g
    v = b2 * v + (1 - b2) * g * g
    scale = jnp.sqrt(v / (1 - b2**count)) + 1e-8
    return p * (1 - workload.RATE * decay) - workload.RATE * (m / (1 - b1**count)) / scale, m, v


def update(p, m, v, count, tokens, targets):
    value, g = jax.value_and_grad(loss)(p, tokens, targets)
    new = {k: adamw(p[k], g[k], m[k], v[k], count) for k in p}
    p, m, v = ({k: new[k][i] for k in new} for i in range(3))
    return value, p, m, v, count + 1


def conv(p, stats, name, x, stride=1):
    """A convolution and its batch norm in training, whose new statistics go into `stats`."""
    kernel = p[f"{name}.weight"]
    pad = kernel.shape[-1] // 2
    x = lax.conv_general_dilated(x, kernel, (stride, stride), [(pad, pad)] * 2)
    return batch_norm(p, stats, name.replace("conv", "norm"), x)


def batch_norm(p, stats, name, x):
    mean, var, count = x.mean((0, 2, 3)), x.var((0, 2, 3)), x.size // x.shape[1]
    for key, new in (("mean", mean), ("var", var * count / (count - 1))):
        stats[f"{name}.running_{key}"] = 0.9 * stats[f"{name}.running_{key}"] + 0.1 * new
    shape = (1, -1, 1, 1)
    scale = (lax.rsqrt(var + 1e-5) * p[f"{name}.weight"]).reshape(shape)
    return (x - mean.reshape(shape)) * scale + p[f"{name}.bias"].reshape(shape)


def resnet_loss(p, stats, images, labels):
    stats = dict(stats)
    x = jax.nn.relu(conv(p, stats, "conv", images, 2))
    pads = ((0, 0), (0, 0), (1, 1), (1, 1))
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 3, 3), (1, 1, 2, 2), pads)
    for i, (_, _, stride) in enumerate(workload.STAGES):
        y = jax.nn.relu(conv(p, stats, f"blocks.{i}.conv1", x, stride))
        y = conv(p, stats, f"blocks.{i}.conv2", y)
        x = jax.nn.relu(y + (x if stride == 1 else conv(p, stats, f"blocks.{i}.conv3", x, stride)))
    scores = jax.nn.log_softmax(layer(p, "head", x.mean((2, 3))))
    return -jnp.take_along_axis(scores, labels[:, None], -1).mean(), stats


def resnet_update(p, stats, m, images, labels):
    """A step of SGD with momentum."""
    (value, stats), g = jax.value_and_grad(resnet_loss, has_aux=True)(p, stats, images, labels)
    m = {k: workload.MOMENTUM * m[k] + g[k] for k in p}
    return value, {k: p[k] - workload.RATE * m[k] for k in p}, stats, m


def bn_relu(p, x):
    stats = {"norm.running_mean": jnp.zeros(64), "norm.running_var": jnp.ones(64)}
    return jax.nn.relu(batch_norm(p, stats, "norm", x))


INFERENCE: dict[str, Callable] = {
    "mlp": mlp,
    "vit_block": lambda p, x: block(p, "", x, workload.VIT_HEADS, causal=False),
    "bn_relu": bn_relu,
    "gemm": lambda p, x, other: x @ other,
    "copy": lambda p, x: jnp.copy(x),
    "softmax": lambda p, x: jax.nn.softmax(x),
    "ln_gelu_add": lambda p, x, residual: gelu(norm(p, "norm", x)) + residual,
    "pointwise6": lambda p, x: jnp.sqrt(jax.nn.relu(jax.nn.sigmoid(x * 1.5 + 0.25) * x)).sum(),
    "tiny_call": lambda p, x: x * 2 + 1,
}
DATA = ("x", "other", "residual", "tokens", "targets", "images", "labels")


def zeros(p):
    return {k: jnp.zeros_like(a) for k, a in p.items()}


def gpt_training(p):
    return update, [p, zeros(p), zeros(p), jnp.float32(1)]


def resnet_training(p):
    stats = {k: p.pop(k) for k in list(p) if "running" in k or "num_batches" in k}
    return resnet_update, [p, stats, zeros(p)]


# (the step: (*state, *data) -> (loss, *state), its first state)
TRAINING = {"gpt_step": gpt_training, "resnet18_step": resnet_training}


def build(name: str, mode: str, arrays: Arrays, tuning: str):
    """(run, read), as in `cases.pytorch`; a run has ended when it returns."""
    if workload.WORKLOADS[name].half:
        raise NotImplementedError(f"{name}: no autocast")
    p = {k: jnp.asarray(v) for k, v in arrays.items()}
    data = [p.pop(k) for k in DATA if k in p]
    if name in INFERENCE:
        function = jax.jit(INFERENCE[name])
        return lambda: function(p, *data).block_until_ready(), np.asarray
    if name not in TRAINING:
        raise NotImplementedError(f"{name}: JAX has no style that compiles the model alone")
    step, state = TRAINING[name](p)
    function = jax.jit(step, donate_argnums=(0, 1, 2))

    def run():
        value, *state[:] = function(*state, *data)
        return jax.block_until_ready((value, state))[0]

    return run, np.asarray


def threads(count: int) -> None:
    """JAX has no such setting: it counts the processors that the worker is bound to."""
