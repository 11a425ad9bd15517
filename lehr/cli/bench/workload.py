"""The benchmark's workloads: what each computes on, in numpy, the same for every framework.

Weights go by the names of PyTorch's state dict, a weight matrix as [out, in].
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

Arrays = dict[str, np.ndarray]

MLP = (1024, 2048, 1024, 512, 10)
VIT_WIDTH, VIT_HEADS = 768, 12
GPT_LAYERS, GPT_WIDTH, GPT_HEADS, GPT_CONTEXT = 4, 256, 4, 128
RATE = 1e-3
MOMENTUM = 0.9
CLASSES = 10
SQUARE, LONG = 2048, 1 << 25     # of the yardsticks
# (channels in, out, stride) of ResNet-18's blocks
STAGES = tuple(
    (a if first else b, b, stride if first else 1)
    for a, b, stride in ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2))
    for first in (True, False)
)


@dataclass(frozen=True)
class Workload:
    """One row of the benchmark. Results agree where |a - b| <= absolute + relative * |b|."""

    name: str
    about: str
    make: Callable[[np.random.Generator], Arrays]
    steps: int = 1  # calls whose results are compared; several where a call changes the weights
    relative: float = 1e-4
    absolute: float = 1e-5
    half: bool = False  # under bfloat16 autocast
    burst: int = 1  # calls timed together, where one is too short for the clock


def normal(rng: np.random.Generator, *shape: int, scale: float = 1.0, mean: float = 0.0):
    return (mean + scale * rng.standard_normal(shape)).astype(np.float32)


def linear(rng: np.random.Generator, name: str, inputs: int, outputs: int) -> Arrays:
    scale = inputs**-0.5
    return {
        f"{name}.weight": normal(rng, outputs, inputs, scale=scale),
        f"{name}.bias": normal(rng, outputs, scale=scale),
    }


def norm(rng: np.random.Generator, name: str, width: int) -> Arrays:
    return {
        f"{name}.weight": normal(rng, width, scale=0.1, mean=1.0),
        f"{name}.bias": normal(rng, width, scale=0.1),
    }


def block(rng: np.random.Generator, name: str, width: int) -> Arrays:
    return {
        **norm(rng, f"{name}norm1", width),
        **linear(rng, f"{name}qkv", width, 3 * width),
        **linear(rng, f"{name}out", width, width),
        **norm(rng, f"{name}norm2", width),
        **linear(rng, f"{name}up", width, 4 * width),
        **linear(rng, f"{name}down", 4 * width, width),
    }


def mlp(rng: np.random.Generator) -> Arrays:
    layers = enumerate(zip(MLP, MLP[1:], strict=False))
    weights = [linear(rng, str(2 * i), a, b) for i, (a, b) in layers]
    return {"x": normal(rng, 128, MLP[0])} | {k: v for part in weights for k, v in part.items()}


def vit_block(rng: np.random.Generator) -> Arrays:
    return {"x": normal(rng, 8, 197, VIT_WIDTH), **block(rng, "", VIT_WIDTH)}


def gpt(rng: np.random.Generator) -> Arrays:
    blocks = [block(rng, f"blocks.{i}.", GPT_WIDTH) for i in range(GPT_LAYERS)]
    head = linear(rng, "head", GPT_WIDTH, 256)["head.weight"]
    return {
        "tokens": rng.integers(0, 256, (8, GPT_CONTEXT)),
        "targets": rng.integers(0, 256, (8, GPT_CONTEXT)),
        "token.weight": normal(rng, 256, GPT_WIDTH),
        "place.weight": normal(rng, GPT_CONTEXT, GPT_WIDTH),
        **{k: v for part in blocks for k, v in part.items()},
        **norm(rng, "norm", GPT_WIDTH),
        "head.weight": head,
    }


def conv(rng: np.random.Generator, name: str, inputs: int, outputs: int, size: int) -> Arrays:
    """A convolution and the batch norm behind it, whose names end alike."""
    scale = (2 / (inputs * size * size)) ** 0.5
    follow = name.replace("conv", "norm")
    return {
        f"{name}.weight": normal(rng, outputs, inputs, size, size, scale=scale),
        **norm(rng, follow, outputs),
        f"{follow}.running_mean": np.zeros(outputs, np.float32),
        f"{follow}.running_var": np.ones(outputs, np.float32),
        f"{follow}.num_batches_tracked": np.array(0),
    }


def resnet18(rng: np.random.Generator) -> Arrays:
    made = {
        "images": normal(rng, 16, 3, 64, 64),
        "labels": rng.integers(0, CLASSES, 16),
        **conv(rng, "conv", 3, 64, 7),
    }
    for i, (a, b, stride) in enumerate(STAGES):
        made |= conv(rng, f"blocks.{i}.conv1", a, b, 3) | conv(rng, f"blocks.{i}.conv2", b, b, 3)
        if stride != 1:
            made |= conv(rng, f"blocks.{i}.conv3", a, b, 1)
    return made | linear(rng, "head", 512, CLASSES)


def bn_relu(rng: np.random.Generator) -> Arrays:
    return {"x": normal(rng, 32, 64, 56, 56), **norm(rng, "norm", 64)}


def ln_gelu_add(rng: np.random.Generator) -> Arrays:
    x, residual = normal(rng, 4096, 768), normal(rng, 4096, 768)
    return {"x": x, "residual": residual, **norm(rng, "norm", 768)}


ROWS = (
    Workload(
        "gemm",
        "yardstick: the product of two 2048x2048 matrices",
        lambda rng: {"x": normal(rng, SQUARE, SQUARE), "other": normal(rng, SQUARE, SQUARE)},
        absolute=1e-3,
    ),
    Workload(
        "copy", "yardstick: a copy of 2^25 floats", lambda rng: {"x": normal(rng, LONG)}
    ),
    Workload("mlp", "1024-2048-1024-512-10, ReLU, batch 128, inference", mlp),
    Workload(
        "vit_block",
        "width 768, 12 heads, 197 tokens, batch 8, inference",
        vit_block,
        absolute=1e-4,
    ),
    Workload(
        "gpt_step",
        "the demo's training step, compiled whole",
        gpt,
        steps=3,
        relative=1e-3,
    ),
    Workload(
        "gpt_model",
        "the same step, only the model compiled",
        gpt,
        steps=3,
        relative=1e-3,
    ),
    Workload(
        "resnet18_step",
        "ResNet-18, batch 16, 3x64x64: a training step with SGD, compiled whole",
        resnet18,
        steps=3,
        relative=5e-3,
    ),
    Workload("bn_relu", "[32, 64, 56, 56]: batch norm in training, ReLU", bn_relu),
    Workload("softmax", "[4096, 1024], last axis", lambda rng: {"x": normal(rng, 4096, 1024)}),
    Workload("ln_gelu_add", "[4096, 768]: layer norm, GELU, + residual", ln_gelu_add),
    Workload(
        "pointwise6",
        "2^24 floats: affine, sigmoid, *x, ReLU, sqrt, sum",
        lambda rng: {"x": normal(rng, 1 << 24)},
        relative=1e-3,  # a float32 sum of 2^24 terms
    ),
    Workload("tiny_call", "x*2+1 on 8 floats", lambda rng: {"x": normal(rng, 8)}, burst=2000),
)

# The same under bfloat16 autocast, whose results differ by the rounding of every product.
HALF = {
    f"{row.name}_bf16": replace(
        row, name=f"{row.name}_bf16", about=f"{row.name} under bfloat16 autocast", half=True,
        relative=3e-2, absolute=absolute)
    for row in ROWS
    for name, absolute in (("mlp", 2e-2), ("vit_block", 1e-1), ("gpt_step", 0.0),
                           ("resnet18_step", 0.0))
    if row.name == name
}
WORKLOADS = {row.name: row for row in ROWS} | HALF

YARDSTICKS = ("gemm", "copy")     # what the machine can do: the best column of each

# Measured from the start of a new process to its first result, with an empty and a filled cache.
STARTS = ("mlp", "vit_block", "gpt_step", "resnet18_step")
MEMORY = ("gpt_step", "gpt_model", "resnet18_step")     # weighed in processes of their own


def arrays(name: str) -> Arrays:
    """A workload's inputs and weights: float32, tokens int64. The same in every process."""
    row = WORKLOADS[name]
    return row.make(np.random.default_rng(zlib.crc32(row.make.__name__.encode())))
