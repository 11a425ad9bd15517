"""Layouts of images in memory that is the program's own: channels together, from one convolution
to the next.

Convolutions read and write images [n, c, *size] whose channels lie together, and per-channel
statistics of such memory are sums of whole vectors. So the images that they make, those that they
read, and what is computed from them element by element are laid out so; what a caller passes or
gets has the caller's layout. Convolutions whose kernel is one pixel take images as they lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lehr.base import dtype as dt
from lehr.compiler.graph.ir import Graph, Node, RefType, TensorType, Value
from lehr.compiler.loop import realise
from lehr.compiler.loop.text import row_major
from lehr.ops.layout import ordered

# Ops of convolution -> the places of their images.
IMAGES = {"convolution": (0,), "conv_weight": (0, 1)}
_FOLLOW = frozenset(("value", "fold", "reduce", "scatter", "view"))


def channels_last(shape: Sequence[Any]) -> tuple[Any, ...]:
    """The strides of dense images [n, c, *size] with channels together."""
    return ordered(tuple(shape), (0, *range(2, len(shape)), 1))


def together(shape: Sequence[Any], strides: Sequence[Any]) -> bool:
    """Whether channels of images lie together."""
    one = isinstance(shape[1], int) and shape[1] == 1
    return one or (isinstance(strides[1], int) and strides[1] == 1)


def pointwise(op: str, args: Sequence[Any], kernel: Sequence[Any]) -> bool:
    """Whether a convolution of these arguments is a matrix product: every pixel of its result comes
    of the same one of its image. `kernel`: its size."""
    extra = args[7] if op == "convolution" else ()
    return (all(isinstance(n, int) and n == 1 for n in (*kernel, *args[3]))
            and all(isinstance(n, int) and n == 0 for n in (*args[4], *extra)))


def _wants(node: Node) -> bool:
    """Whether a convolution's images should have their channels together."""
    kernel: Any = node.results[0] if node.op.name == "conv_weight" else node.args[1]
    types = [v.type for v in (kernel, *(node.args[i] for i in IMAGES[node.op.name]))]
    return not (all(isinstance(t, TensorType) and t.dtype is dt.float32 for t in types)
                and pointwise(node.op.name, node.args, kernel.type.shape[2:]))


def layouts(graph: Graph) -> dict[Value, tuple[Any, ...]]:
    """The strides of values that should be channels-last."""
    found = {node.args[i] for node in graph.nodes if node.op.name in IMAGES and _wants(node)
             for i in IMAGES[node.op.name]}
    found.update(node.result for node in graph.nodes if node.op.name == "read" and _lies(node))
    if not found:
        return {}
    for node in graph.nodes:
        images = node.op.name == "convolution" and (_wants(node) or node.args[0] in found)
        if images or _follows(node, found):
            found.update(node.results)
    return {v: channels_last(v.type.shape) for v in found
            if isinstance(v.type, TensorType) and len(v.type.shape) > 2}


def _lies(read: Node) -> bool:
    """Whether what is read from outside are images that lie so: what forward kept for backward."""
    kind = read.args[0].type
    shape = tuple(kind.tensor.shape)
    return (len(shape) > 2 and kind.strides is not None
            and not _same(shape, kind.strides, row_major(shape))
            and _same(shape, kind.strides, channels_last(shape)))


def _same(shape: Sequence[Any], a: Sequence[Any], b: Sequence[Any]) -> bool:
    return all((isinstance(n, int) and n == 1) or x == y
               for n, x, y in zip(shape, a, b, strict=True))


def kept(graph: Graph) -> dict[Value, RefType]:
    """How images of a joint graph lie where forward keeps them for backward, which no caller sees:
    those that are not row-major."""
    found = layouts(graph)
    return {v: RefType(v.type, strides) for v, strides in found.items()
            if isinstance(v.type, TensorType) and v.node is not None
            and not _same(v.type.shape, strides, row_major(tuple(v.type.shape)))}


def _follows(node: Node, found: set[Value]) -> bool:
    """Whether a node makes images, or windows of images, from others: of the same batch and
    channels."""
    if realise.nature(node) not in _FOLLOW or not isinstance(node.results[0].type, TensorType):
        return False
    shape = tuple(node.results[0].type.shape)
    if len(shape) < 3 or node.op.name == "permute":
        return False
    return any(v in found and isinstance(v.type, TensorType)
               and tuple(v.type.shape[:2]) == shape[:2] for v in node.inputs)
