"""What a workload has to do at least, whoever does it: the measure of how close a result is.

Floating-point operations are those of matrix products and convolutions (a multiplication and an
addition count as two); a backward pass costs twice its forward. Bytes are those of every input read
once, every result written once, and, in training, of weights and optimizer state read and written
once; what is computed in between need not touch memory.
"""

from __future__ import annotations

from typing import NamedTuple

from lehr.cli.bench import workload as w


class Cost(NamedTuple):
    """Operations, bytes."""

    flops: float
    moved: float


FLOAT = 4


def block(tokens: int, width: int, context: float) -> float:
    """A transformer block: projections and MLP, then scores and their sums over `context`."""
    return 2 * tokens * 12 * width * width + 4 * tokens * context * width


def transformer() -> tuple[float, int]:
    """Operations of the GPT's forward; its parameters."""
    tokens, width = 8 * w.GPT_CONTEXT, w.GPT_WIDTH
    seen = (w.GPT_CONTEXT + 1) / 2      # a token looks at those before it, on average half
    flops = w.GPT_LAYERS * block(tokens, width, seen) + 2 * tokens * width * 256
    return flops, parameters("gpt_step")


def parameters(name: str) -> int:
    data = {"x", "tokens", "targets", "images", "labels", "residual"}
    return sum(a.size for k, a in w.arrays(name).items()
               if k not in data and "running" not in k and "tracked" not in k)


def resnet() -> float:
    """Operations of ResNet-18's forward on 16 images of 3x64x64."""
    size, images = 32, 16
    flops = 2.0 * images * size * size * 64 * 3 * 49
    size = 16       # behind the first pooling
    for a, b, stride in w.STAGES:
        size //= stride
        taps = 9 * (a * b + b * b) + (a * b if stride != 1 else 0)
        flops += 2.0 * images * size * size * taps
    return flops + 2.0 * images * 512 * w.CLASSES


def mlp() -> Cost:
    pairs = list(zip(w.MLP, w.MLP[1:], strict=False))
    ends = 128 * (w.MLP[0] + w.MLP[-1])
    return Cost(2.0 * 128 * sum(a * b for a, b in pairs), FLOAT * (ends + parameters("mlp")))


def vit() -> Cost:
    tokens = 8 * 197
    ends = 2 * tokens * w.VIT_WIDTH
    return Cost(block(tokens, w.VIT_WIDTH, 197), FLOAT * (ends + parameters("vit_block")))


def gpt() -> Cost:
    flops, count = transformer()
    return Cost(3 * flops, FLOAT * 6 * count)   # weight and two moments, read and written


def resnet_step() -> Cost:
    # The first convolution's images need no gradient.
    first = 2.0 * 16 * 32 * 32 * 64 * 3 * 49
    return Cost(3 * resnet() - first, FLOAT * 4 * parameters("resnet18_step"))


COSTS = {
    "gemm": lambda: Cost(2.0 * w.SQUARE**3, FLOAT * 3 * w.SQUARE**2),
    "copy": lambda: Cost(0, FLOAT * 2 * w.LONG),
    "mlp": mlp,
    "vit_block": vit,
    "gpt_step": gpt,
    "gpt_model": gpt,
    "resnet18_step": resnet_step,
    "bn_relu": lambda: Cost(0, FLOAT * 2 * 32 * 64 * 56 * 56),
    "softmax": lambda: Cost(0, FLOAT * 2 * 4096 * 1024),
    "ln_gelu_add": lambda: Cost(0, FLOAT * 3 * 4096 * 768),
    "pointwise6": lambda: Cost(0, FLOAT * (1 << 24)),
    "tiny_call": lambda: Cost(0, FLOAT * 16),
}


def least_seconds(cost: Cost, flops: float | None, moved: float | None) -> float | None:
    """How long it takes at these rates (a second's operations and bytes), the slower of both."""
    parts = [n / rate for n, rate in ((cost.flops, flops), (cost.moved, moved)) if n and rate]
    return max(parts, default=None)
