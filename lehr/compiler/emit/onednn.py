"""Calls of oneDNN: products of float32 and bfloat16 matrices, and convolutions.

Products go block by block, so that what follows finds them in the cache. Convolutions take dense
images whose channels lie together, and kernels that are dense in any order of their dimensions;
others are copied first. bfloat16 images stay bfloat16 from memory to memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lehr.base import dtype as dt
from lehr.base.dtype import DType
from lehr.compiler.emit import convolution, product
from lehr.compiler.emit.template import Template, stored
from lehr.compiler.loop.image import channels_last
from lehr.compiler.loop.ir import Buffer, Extern, Operand, Store, axis
from lehr.compiler.loop.text import row_major

Choice = Callable[[Extern], bool]
KINDS = {"f32": "onednn", "bf16": "onednn_bf16"}  # of products


def never(e: Extern) -> bool:
    """The choice of programs that do without oneDNN."""
    return False


def supported(e: Extern, half: bool = True) -> bool:
    """Whether oneDNN can do a call; `half`: on a processor where it knows bfloat16."""
    operands = (*e.inputs, e.output)
    if any(isinstance(n, int) and n == 0 for o in operands for n in o.shape):
        return False
    if any(o.buffer.dtype is dt.bfloat16 for o in operands) and not half:
        return False
    if convolution.supported(e):
        return True
    return product.supported(e) and all(o.dtype.wide is dt.float32 for o in operands)


def call(e: Extern) -> product.Product | Template | None:
    """How to call it; None for a convolution whose geometry it refuses."""
    return (_Images if convolution.supported(e) else _Matrices)(e).call_of()


class _Matrices(product.Maker):
    def call_of(self) -> product.Product:
        made = self.make()
        kept = tuple(b for b in made.scratch if b is not made.packed)
        return made._replace(kind=KINDS[made.kind], scratch=kept, packed=None)


class _Images(convolution.Maker):
    def call_of(self) -> Template | None:
        function, fields = convolution.FIELDS[self.e.op.name](self)
        found = dict(fields)
        if not bounded(found):
            return None
        nested = tuple((f"q.{name}", given) for name, given in fields)
        halves = tuple((f"{name}_half", int(found[name].dtype is dt.bfloat16)) for name in "xwy")
        weight = ("gradient", int(function == "convolve_weight"))
        return self.call("onednn", "onednn_convolve", "lehr_onednn",
                         (*nested, weight, *halves))._replace(fails=True)

    def images(self, o: Operand, name: str) -> tuple[Buffer, tuple[Any, ...]]:
        return self.operand_of(o, name, channels_last(o.shape), same(
            o.shape, o.strides, channels_last(o.shape)))

    def kernel(self, o: Operand, name: str) -> tuple[Buffer, tuple[Any, ...]]:
        return self.operand_of(o, name, row_major(tuple(o.shape)), dense(o.shape, o.strides))

    def operand_of(self, o: Operand, name: str, strides: tuple[Any, ...], fits: bool
                   ) -> tuple[Buffer, tuple[Any, ...]]:
        dtype = taken(o.buffer.dtype)
        source = self.view(o, name)
        if fits and dtype is o.buffer.dtype:
            return source, tuple(o.strides)
        made = self.laid(name, dtype, o.shape, strides)
        self.before.append(self.moved(name, source, made))
        return made, strides

    def result(self, images: bool) -> tuple[Buffer, tuple[Any, ...]]:
        e, o = self.e, self.e.output
        out = self.view(o, "out")
        stores: tuple[Store, ...] = ()
        axes = e.axes or tuple(axis(f"i{d}", s) for d, s in enumerate(o.shape))
        target, strides = out, tuple(o.strides)
        # Results are of the operands' dtype, or float32.
        dtype = taken(e.inputs[0].buffer.dtype)
        dtype = dtype if dtype is o.buffer.dtype else dt.float32
        wanted = channels_last(o.shape) if images else row_major(tuple(o.shape))
        fits = same(o.shape, strides, wanted) if images else dense(o.shape, strides)
        if dtype is not o.buffer.dtype or not fits:
            strides = wanted
            target = self.laid("made", dtype, o.shape, strides)
            stores = (stored(target, out, axes),)
        rows = self.epilogue(out, stores, axes, False)
        self.after += [rows] if rows else []
        return target, strides


def bounded(q: Mapping[str, Any]) -> bool:
    """Whether the last window of a convolution, or of the one that a record is the adjoint of, ends
    less than a stride before the image does."""
    size, many = (q["many"], q["size"]) if q.get("transposed") else (q["size"], q["many"])
    columns = zip(size, many, q["kernel"], q["stride"], q["pad"], q["dilation"], strict=True)
    return all(n - ((m - 1) * stride + (k - 1) * dilation + 1 - pad) < stride
               for n, m, k, stride, pad, dilation in columns
               if isinstance(n, int) and isinstance(m, int))


def taken(dtype: DType) -> DType:
    """The dtype in which oneDNN reads an operand."""
    return dtype if dtype is dt.bfloat16 else dt.float32


def same(shape: Sequence[Any], strides: Sequence[Any], wanted: Sequence[Any]) -> bool:
    """Whether strides are those wanted, of the dimensions that have more than one element."""
    return all(n == 1 if isinstance(n, int) and n == 1 else s == w
               for n, s, w in zip(shape, strides, wanted, strict=True))


def dense(shape: Sequence[Any], strides: Sequence[Any]) -> bool:
    """Whether elements fill memory, in some order of the dimensions."""
    if not all(isinstance(n, int) for n in (*shape, *strides)):
        return same(shape, strides, row_major(tuple(shape)))
    step = 1
    for s, n in sorted((s, n) for n, s in zip(shape, strides, strict=True) if n != 1):
        if s != step:
            return False
        step *= n
    return True
