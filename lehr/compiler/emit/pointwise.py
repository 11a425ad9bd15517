"""Convolutions whose kernel is one pixel: matrix products in the layout that images have.

For each image and group, results [pixels, out] are images [pixels, in] times kernels [in, out]. A
product takes either order of its operands' dimensions, so that images may have pixels together or
channels. Where pixels of all images walk memory as one, they are the rows of one product. The
kernel's gradient is a sum over all of them: images that do not walk so are copied, channel by
channel.
"""

from __future__ import annotations

from collections.abc import Sequence

from lehr.base import dtype as dt
from lehr.base import sym
from lehr.compiler.emit import convolution, product
from lehr.compiler.emit.template import Calls
from lehr.compiler.loop.image import pointwise
from lehr.compiler.loop.ir import Extern, Operand
from lehr.compiler.loop.text import row_major


def call(e: Extern) -> product.Product | None:
    """How to do a convolution as a product; None for what is none."""
    if not convolution.supported(e) or not all(
            o.buffer.dtype is dt.float32 and o.rounded is None for o in (*e.inputs, e.output)):
        return None
    kernel = (e.inputs[1] if e.op.name == "convolution" else e.output).shape[2:]
    return Maker(e).call_of() if pointwise(e.op.name, e.attrs, kernel) else None


class Maker(Calls):
    """The product of an extern, of operands [image, group, row, column]."""

    def __init__(self, e: Extern) -> None:
        super().__init__(e)
        self.groups = e.attrs[convolution.GROUPS[e.op.name]]

    def call_of(self) -> product.Product | None:
        return self.images() if self.e.op.name == "convolution" else self.kernel()

    def images(self) -> product.Product | None:
        e, groups = self.e, self.groups
        (x, w), y = e.inputs, e.output
        if convolution.pixels(x) is None or convolution.pixels(y) is None:
            return None
        whole = _whole(x) and _whole(y)
        shape, strides = (w.shape[0] // groups, w.shape[1]), w.strides[:2]
        lie = slice(None, None, 1 if e.attrs[6] else -1)  # transposed: as it lies
        kernel = w._replace(shape=(1, groups, *shape[lie]),
                            strides=(0, shape[0] * strides[0], *strides[lie]))
        q = self.multiplied(self.matrix(x, whole), kernel, self.matrix(y, whole))
        rank = len(y.shape)
        if q.flip:  # rows are channels
            order = (1, 0) if whole else (0, 1)
            return self.followed(q, (*order, *range(2, rank)), 2 - whole)
        if e.epilogue and groups > 1:
            return None
        return self.followed(q, (0, *range(2, rank), 1), rank - 1)

    def kernel(self) -> product.Product | None:
        e, w = self.e, self.e.output
        sides = [o if convolution.pixels(o) and _whole(o) else self.by_channel(o, name)
                 for o, name in zip(e.inputs, "xg", strict=True)]
        x, g = (self.matrix(o, True) for o in sides)
        turned = g._replace(shape=(*g.shape[:2], *g.shape[:1:-1]),
                            strides=(*g.strides[:2], *g.strides[:1:-1]))
        rows = w.shape[0] // self.groups
        made = w._replace(shape=(1, self.groups, rows, w.shape[1]),
                          strides=(0, rows * w.strides[0], *w.strides[:2]))
        q = self.multiplied(turned, x, made)
        return None if q.flip and e.epilogue else self.followed(q, range(len(w.shape)), 1)

    def by_channel(self, o: Operand, name: str) -> Operand:
        """A copy of images in which the pixels of all of them lie together for each channel."""
        count = sym.prod(o.shape[2:])
        strides = (count, o.shape[0] * count, *row_major(tuple(o.shape[2:])))
        made, _ = self.copied(o, name, strides)
        return Operand(made, 0, tuple(o.shape), strides)

    def matrix(self, o: Operand, whole: bool) -> Operand:
        """Images as [image, group, pixel, channel of the group]; `whole`: as one image."""
        n, channels = o.shape[:2]
        count, step = convolution.pixels(o) or (1, 1)
        per = channels // self.groups
        shape, first = ((1, n * count), 0) if whole else ((n, count), o.strides[0])
        return o._replace(shape=(shape[0], self.groups, shape[1], per),
                          strides=(first, per * o.strides[1], step, o.strides[1]))

    def multiplied(self, a: Operand, b: Operand, c: Operand) -> product.Product:
        q = product.Maker(self.e._replace(inputs=(a, b), output=c, epilogue=(), axes=(), binds=())
                          ).make()
        return q._replace(before=(*self.before, *q.before), scratch=(*self.scratch, *q.scratch))

    def followed(self, q: product.Product, order: Sequence[int], outer: int
                 ) -> product.Product | None:
        """The product with what follows it: over axes in the `order` of its rows, which the first
        `outer` of them number."""
        if not self.e.epilogue:
            return q._replace(views={**self.views, **q.views})
        if q.rows is not None:  # the result has to be copied first
            return None
        rows = self.epilogue(self.view(self.e.output, "images"), (), self.e.axes, False)
        assert rows is not None
        return q._replace(views={**self.views, **q.views}, outer=outer,
                          rows=rows._replace(axes=tuple(rows.axes[n] for n in order)))


def _whole(o: Operand) -> bool:
    """Whether the pixels of all images walk memory as those of one do."""
    count, step = convolution.pixels(o) or (1, 1)
    return (isinstance(o.shape[0], int) and o.shape[0] == 1) or bool(
        o.strides[0] == count * step)
