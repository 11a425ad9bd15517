"""Single layers and functions: name -> (function or module, what makes its arguments)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Cases = dict[str, tuple[Any, Callable[[], tuple[Any, ...]]]]


def cases(torch: Any) -> Cases:
    made: Cases = {}
    for family in (convolutions, pools, norms, products, attentions, pointwise, reductions, moves,
                   gathers, losses):
        made |= family(torch, torch.nn, torch.nn.functional)
    return made


def of(torch: Any, *shapes: tuple[int, ...]) -> Callable[[], tuple[Any, ...]]:
    return lambda: tuple(torch.randn(s) for s in shapes)


def convolutions(torch: Any, nn: Any, F: Any) -> Cases:
    image = of(torch, (8, 64, 28, 28))
    wide = of(torch, (8, 128, 28, 28))
    return {
        "conv3x3": (nn.Conv2d(64, 64, 3, padding=1), image),
        "conv1x1": (nn.Conv2d(128, 128, 1), wide),
        "depthwise": (nn.Conv2d(128, 128, 3, padding=1, groups=128), wide),
        "depthwise7x7": (nn.Conv2d(128, 128, 7, padding=3, groups=128), wide),
        "grouped": (nn.Conv2d(128, 128, 3, padding=1, groups=8), wide),
        "strided": (nn.Conv2d(64, 128, 3, stride=2, padding=1), image),
        "dilated": (nn.Conv2d(64, 64, 3, padding=2, dilation=2), image),
        "conv7x7": (nn.Conv2d(3, 64, 7, stride=2, padding=3), of(torch, (4, 3, 112, 112))),
        "patches": (nn.Conv2d(3, 192, 16, stride=16), of(torch, (4, 3, 224, 224))),
        "conv1d": (nn.Conv1d(64, 128, 5, padding=2), of(torch, (8, 64, 400))),
        "conv3d": (nn.Conv3d(16, 32, 3, padding=1), of(torch, (2, 16, 12, 24, 24))),
        "transposed": (nn.ConvTranspose2d(64, 32, 4, stride=2, padding=1),
                       of(torch, (8, 64, 16, 16))),
        "transposed1d": (nn.ConvTranspose1d(64, 32, 4, stride=2, padding=1),
                         of(torch, (8, 64, 200))),
    }


def pools(torch: Any, nn: Any, F: Any) -> Cases:
    image = of(torch, (16, 64, 56, 56))
    return {
        "max_pool": (nn.MaxPool2d(2), image),
        "max_pool_overlapping": (nn.MaxPool2d(3, 2, 1), image),
        "average_pool": (nn.AvgPool2d(3, 2, 1), image),
        "adaptive_pool": (nn.AdaptiveAvgPool2d(7), of(torch, (16, 64, 28, 28))),
        "global_pool": (nn.AdaptiveAvgPool2d(1), image),
    }


def norms(torch: Any, nn: Any, F: Any) -> Cases:
    image, rows = of(torch, (16, 64, 56, 56)), of(torch, (2048, 768))
    return {
        "batch_norm": (nn.BatchNorm2d(64), image),
        "batch_norm_eval": (nn.BatchNorm2d(64).eval(), image),
        "group_norm": (nn.GroupNorm(8, 64), image),
        "instance_norm": (nn.InstanceNorm2d(64, affine=True), image),
        "layer_norm": (nn.LayerNorm(768), rows),
        "rms_norm": (nn.RMSNorm(768), rows),
        "normalize": (F.normalize, rows),
        "log_softmax": (nn.LogSoftmax(-1), of(torch, (512, 8192))),
        "softmax": (nn.Softmax(-1), rows),
        "softmax_of_columns": (nn.Softmax(0), rows),
        "channel_softmax": (nn.Softmax(1), image),
    }


def products(torch: Any, nn: Any, F: Any) -> Cases:
    lstm, gru = nn.LSTM(128, 256, batch_first=True), nn.GRU(128, 256, batch_first=True)
    sequence = of(torch, (16, 32, 128))
    return {
        "linear": (nn.Linear(768, 768), of(torch, (512, 768))),
        "linear_of_4_rows": (nn.Linear(1024, 4096), of(torch, (4, 1024))),
        "linear_of_1_row": (nn.Linear(1024, 4096), of(torch, (1, 1024))),
        "batched": (torch.bmm, of(torch, (64, 64, 64), (64, 64, 64))),
        "batched_small": (torch.bmm, of(torch, (2000, 8, 8), (2000, 8, 8))),
        "einsum": (lambda a, b: torch.einsum("bhid,bhjd->bhij", a, b),
                   of(torch, (4, 8, 128, 64), (4, 8, 128, 64))),
        "bilinear": (nn.Bilinear(64, 64, 32), of(torch, (256, 64), (256, 64))),
        "lstm": (lambda x: lstm(x)[0], sequence),
        "gru": (lambda x: gru(x)[0], sequence),
        "inverse": (torch.linalg.inv,
                    lambda: (torch.randn(8, 64, 64) + 8 * torch.eye(64),)),
        "cdist": (torch.cdist, of(torch, (300, 64), (300, 64))),
    }


def attentions(torch: Any, nn: Any, F: Any) -> Cases:
    attend = F.scaled_dot_product_attention
    heads = of(torch, *[(4, 8, 256, 64)] * 3)
    mask = torch.zeros(256, 256).masked_fill(torch.ones(256, 256).triu(1).bool(), float("-inf"))
    cos, sin = torch.randn(256, 64), torch.randn(256, 64)
    return {
        "attention": (attend, heads),
        "attention_causal": (lambda q, k, v: attend(q, k, v, is_causal=True), heads),
        "attention_masked": (lambda q, k, v: attend(q, k, v, attn_mask=mask), heads),
        "attention_grouped": (lambda q, k, v: attend(q, k, v, enable_gqa=True),
                              of(torch, (4, 8, 256, 64), (4, 2, 256, 64), (4, 2, 256, 64))),
        "attention_of_1_query": (attend, of(torch, (4, 8, 1, 64), *[(4, 8, 1024, 64)] * 2)),
        "attention_by_hand": (lambda q, k, v: (q @ k.transpose(-1, -2) / 8).softmax(-1) @ v, heads),
        "attention_long": (attend, of(torch, *[(1, 4, 1024, 64)] * 3)),
        "rotary": (lambda x: x * cos + torch.cat([-x[..., 32:], x[..., :32]], -1) * sin,
                   of(torch, (4, 8, 256, 64))),
    }


def pointwise(torch: Any, nn: Any, F: Any) -> Cases:
    rows, square = of(torch, (2048, 768)), of(torch, (1024, 1024))
    two = of(torch, (2048, 1024), (2048, 1024))
    return {
        "gelu": (nn.GELU(), rows), "gelu_tanh": (nn.GELU(approximate="tanh"), rows),
        "silu": (nn.SiLU(), rows), "mish": (nn.Mish(), rows), "softplus": (nn.Softplus(), rows),
        "elu": (nn.ELU(), rows), "hardswish": (nn.Hardswish(), rows),
        "dropout": (nn.Dropout(0.1), rows),
        "swiglu": (lambda a, b: F.silu(a) * b, two),
        "where": (lambda a, b: torch.where(a > 0, a, b), two),
        "addcmul": (lambda a, b: torch.addcmul(a, a, b, value=0.5), two),
        "atan2": (torch.atan2, of(torch, (1024, 1024), (1024, 1024))),
        "power": (lambda a: (a.abs() + 0.1) ** 1.7, square),
        "exp_log": (lambda a: torch.log1p(a.exp()), square),
        "sin_cos": (lambda a: a.sin() * a.cos(), square),
        "erf": (torch.erf, square),
        "lgamma": (lambda a: (a.abs() + 1).lgamma(), of(torch, (512, 1024))),
    }


def reductions(torch: Any, nn: Any, F: Any) -> Cases:
    table = of(torch, (2048, 1024))
    return {
        "sum": (torch.sum, table), "sum_of_columns": (lambda x: x.sum(0), table),
        "sum_of_rows": (lambda x: x.sum(1), table), "variance": (lambda x: x.var(-1), table),
        "norm": (torch.norm, table), "logsumexp": (lambda x: x.logsumexp(-1), table),
        "amax": (lambda x: x.amax(-1), table),
        "argmax": (lambda x: x.gather(-1, x.argmax(-1, keepdim=True)), table),
        "cumsum": (lambda x: x.cumsum(-1), of(torch, (1024, 1024))),
        "cumsum_of_columns": (lambda x: x.cumsum(0), of(torch, (1024, 1024))),
        "sort": (lambda a: a.sort(-1)[0], of(torch, (512, 1024))),
        "topk": (lambda a: a.topk(10, -1)[0], of(torch, (512, 1024))),
    }


def moves(torch: Any, nn: Any, F: Any) -> Cases:
    table, half = of(torch, (2048, 1024)), of(torch, (2048, 512), (2048, 512))
    image = of(torch, (8, 64, 28, 28))
    return {
        "transpose": (lambda x: x.t().contiguous(), table),
        "permute": (lambda x: x.permute(0, 2, 3, 1).contiguous(), of(torch, (16, 64, 56, 56))),
        "cat": (lambda a, b: torch.cat([a, b], 1), half),
        "stack": (lambda a, b: torch.stack([a, b], 1), half),
        "roll": (lambda x: x.roll(3, 1), table), "flip": (lambda x: x.flip(1), table),
        "tril": (torch.tril, of(torch, (1024, 1024))),
        "pad_reflect": (lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"), image),
        "bilinear_resize": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), image),
        "nearest_resize": (lambda x: F.interpolate(x, scale_factor=2), image),
        "windows": (lambda x: F.unfold(x, 3, padding=1), image),
        "pixel_shuffle": (nn.PixelShuffle(2), image),
    }


def gathers(torch: Any, nn: Any, F: Any) -> Cases:
    many = torch.randint(0, 2048, (2048,))
    columns, places = torch.randint(0, 1024, (1024, 256)), torch.randint(0, 512, (1024, 512))
    words = torch.randint(0, 10000, (64, 128))
    upper = torch.ones(1024, 1024).triu(1).bool()
    two = of(torch, (1024, 512), (1024, 512))
    return {
        "embedding": (lambda w: F.embedding(words, w), of(torch, (10000, 256))),
        "gather": (lambda x: x.gather(1, columns), of(torch, (1024, 1024))),
        "index": (lambda x: x[many], of(torch, (2048, 512))),
        "index_add": (lambda x, y: x.index_add(0, many, y), of(torch, (2048, 512), (2048, 512))),
        "scatter_add": (lambda x, y: x.scatter_add(1, places, y), two),
        "masked_fill": (lambda a: a.masked_fill(upper, -1e9), of(torch, (1024, 1024))),
        "grid_sample": (lambda x, g: F.grid_sample(x, g.tanh(), align_corners=False),
                        of(torch, (4, 32, 28, 28), (4, 28, 28, 2))),
    }


def losses(torch: Any, nn: Any, F: Any) -> Cases:
    labels = torch.randint(0, 8192, (512,))
    two = of(torch, (2048, 768), (2048, 768))
    return {
        "cross_entropy": (lambda x: F.cross_entropy(x, labels), of(torch, (512, 8192))),
        "mse": (F.mse_loss, two), "smooth_l1": (F.smooth_l1_loss, two),
        "bce_with_logits": (lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid()), two),
        "kl": (lambda x, y: F.kl_div(x.log_softmax(-1), y.log_softmax(-1), log_target=True), two),
        "cosine": (F.cosine_similarity, two),
    }
