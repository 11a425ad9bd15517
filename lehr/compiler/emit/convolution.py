"""Convolutions: which template call does one, what has to be copied first, what follows.

The templates take images whose channels lie together, kernels of any layout: of bfloat16 numbers
(`convolution_half`), else of float32. Groups of one to sixteen channels would waste most of a
matrix product: `depthwise` does them. Images of another layout or dtype are first copied into
scratch memory, as are kernels; results of another layout or dtype come from a channels-last one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lehr.base import dtype as dt
from lehr.compiler.emit.template import Calls, Template, stored
from lehr.compiler.loop.image import channels_last, together
from lehr.compiler.loop.ir import Buffer, Extern, Operand, Store, axis
from lehr.compiler.loop.text import row_major

MOST = 3  # spatial dimensions
NARROW = (1, 2, 4, 8, 16)  # channels of groups for `depthwise`, of which as many come out
FEW = 16  # channels of a group that make tiles worth their while
KINDS = {"": ("convolution", ""), "half": ("convolution_half", "_half"),
         "narrow": ("depthwise", "_narrow")}  # template, how its functions end
GROUPS = {"convolution": 8, "conv_weight": 6}  # op -> which attribute is the number of groups


def supported(e: Extern) -> bool:
    """Whether an extern is a convolution that the template does."""
    if e.op.name not in FIELDS or len(e.inputs) != 2:
        return False
    operands = (*e.inputs, e.output)
    rank = len(e.inputs[0].shape)
    return (3 <= rank <= 2 + MOST and all(o.buffer.dtype.wide is dt.float32 for o in operands)
            and e.inputs[0].buffer.dtype is e.inputs[1].buffer.dtype)


def _half(e: Extern) -> bool:
    """Whether a convolution is one of bfloat16 numbers with channels enough for tiles."""
    x, other = e.inputs
    images = (x, e.output if e.op.name == "convolution" else other)
    groups = e.attrs[GROUPS[e.op.name]]
    counts = [o.shape[1] for o in images]
    if not all(o.buffer.dtype is dt.bfloat16 for o in (*images, other)):
        return False
    return all(isinstance(n, int) and n // groups >= (1 if groups == 1 else FEW) for n in counts)


def narrow(e: Extern) -> bool:
    """Whether a convolution has groups of few channels, as many of them before and after."""
    x, other = e.inputs
    counts = [x.shape[1], (e.output if e.op.name == "convolution" else other).shape[1]]
    groups = e.attrs[GROUPS[e.op.name]]
    return (all(isinstance(n, int) for n in counts) and groups > 1 and counts[0] == counts[1]
            and counts[0] // groups in NARROW)


def pixels(o: Operand) -> tuple[Any, Any] | None:
    """How many pixels images have, and from one to the next; None where they lie otherwise."""
    count, step = 1, 1
    for n, s in zip(reversed(o.shape[2:]), reversed(o.strides[2:]), strict=True):
        if isinstance(n, int) and n == 1:
            continue
        if not (isinstance(count, int) and count == 1) and s != count * step:
            return None
        step = s if isinstance(count, int) and count == 1 else step
        count = count * n
    return count, step


def template(e: Extern, alone: bool) -> Template:
    """How to call the template. `alone`: nobody else reads what it computes before its epilogue."""
    return Maker(e, alone).template()


class Maker(Calls):
    def __init__(self, e: Extern, alone: bool = False) -> None:
        super().__init__(e)
        self.alone = alone
        kind = "half" if _half(e) else "narrow" if narrow(e) else ""
        self.dtype = dt.bfloat16 if kind == "half" else dt.float32
        self.name, self.ending = KINDS[kind]
        self.turns = False  # whether the call turns images itself
        self.turned: list[tuple[str, Any]] = []

    def template(self) -> Template:
        self.turns = self.dtype is dt.float32
        function, fields = FIELDS[self.e.op.name](self)
        return self.call(self.name, function + self.ending, "lehr_convolution",
                         (*fields, *self.turned))

    def apart(self, o: Operand) -> bool:
        """Whether the call turns images, which have their pixels together."""
        whole, c = pixels(o), o.shape[1]
        return (self.turns and o.dtype is o.buffer.dtype is dt.float32
                and isinstance(c, int) and c >= FEW and whole is not None and whole[1] == 1)

    def images(self, o: Operand, name: str) -> tuple[Buffer, tuple[Any, ...]]:
        """Memory of images with channels together, and its strides."""
        if o.buffer.dtype is self.dtype and together(o.shape, o.strides):
            return self.view(o, name), o.strides
        strides = channels_last(o.shape)
        if not self.apart(o):
            return self.copied(o, name, strides, self.dtype)
        side = "x" if name == "x" else "y"
        self.turned += [(f"{side}_from", self.view(o, name)), (f"{side}_turn", o.strides[:2])]
        return self.laid(name, self.dtype, o.shape, strides), strides

    def biased(self) -> list[tuple[str, Any]]:
        """What the call does with the result where that is to add a bias and turn the images."""
        e = self.e
        if not self.alone or len(e.epilogue) != 1:
            return []
        (store,), own, made = e.epilogue, tuple(a.var for a in e.axes), e.output.buffer
        to, value = store.buffer, store.value
        if to is made or store.idx != own or value.kind != "Alu" or value.fields[0].name != "add":
            return []
        a, b, *rest = value.fields[1:]
        if not (self.apart(Operand(to, 0, to.shape, to.strides)) and a.kind == b.kind == "Load"
                and a.fields == (made, own, None, None) and b.fields[1:] == (own[1:2], None, None)
                and all(n.kind == "Const" and n.fields[0] == 1 for n in rest)):
            return []
        bias = b.fields[0]
        if bias.dtype is not dt.float32 or bias.strides != (1,):
            return []
        return [("y_into", to), ("y_turn", to.strides[:2]), ("y_bias", bias)]

    def joined(self, o: Operand) -> bool:
        """Whether the taps of a kernel lie as the template wants them: in half precision, each
        behind the one before."""
        taps = tuple(o.shape[2:])
        return self.dtype is dt.float32 or all(
            n == 1 or a == b for n, a, b in zip(taps, o.strides[2:], row_major(taps), strict=True))

    def kernel(self, o: Operand, name: str) -> tuple[Buffer, tuple[Any, ...]]:
        if o.buffer.dtype is self.dtype and self.joined(o):
            return self.view(o, name), o.strides
        return self.copied(o, name, row_major(tuple(o.shape)), self.dtype)

    def result(self, images: bool) -> tuple[Buffer, tuple[Any, ...]]:
        """Where the template writes: images, or a kernel; and the kernels that follow."""
        e, o = self.e, self.e.output
        out = self.view(o, "out")
        stores: tuple[Store, ...] = ()
        axes = e.axes or tuple(axis(f"i{d}", s) for d, s in enumerate(o.shape))
        target, strides = out, tuple(o.strides)
        dtype = self.dtype if images else dt.float32
        fits = together(o.shape, o.strides) if images else self.joined(o)
        if o.buffer.dtype is not dtype or not fits:
            strides = channels_last(o.shape) if images else row_major(tuple(o.shape))
            target = self.laid("made", dtype, o.shape, strides)
            if images and not e.epilogue and self.apart(o):
                self.turned += [("y_into", out), ("y_turn", o.strides[:2])]
                return target, strides
        if images and (found := self.biased()):
            self.turned += found
            return target, strides
        if target is not out:
            stores = (stored(target, out, axes),)
        rows = self.epilogue(out, stores, axes, False)
        self.after += [rows] if rows else []
        return target, strides


def _convolution(m: Maker) -> Any:
    x, w = m.e.inputs
    stride, padding, dilation, transposed, _, groups = m.e.attrs[3:9]
    image, x_step = m.images(x, "x")
    kernel, w_step = m.kernel(w, "w")
    result, y_step = m.result(True)
    y = m.e.output
    rows = w.shape[0] // groups
    order = (rows * w_step[0], *(w_step[1::-1] if transposed else w_step[:2]))
    fields = _fields(image, kernel, result, x, y, groups, stride, padding, dilation,
                     w.shape[2:], x_step, y_step, (*order, *w_step[2:]))
    return "convolve", (*fields, ("transposed", int(transposed)))


def _weight(m: Maker) -> Any:
    x, g = m.e.inputs
    kernel, stride, padding, dilation, groups = m.e.attrs[2:7]
    image, x_step = m.images(x, "x")
    grad, g_step = m.images(g, "g")
    result, w_step = m.result(False)
    rows = m.e.output.shape[0] // groups
    return "convolve_weight", _fields(
        image, result, grad, x, g, groups, stride, padding, dilation, kernel, x_step, g_step,
        (rows * w_step[0], *w_step))


def _fields(image: Buffer, kernel: Buffer, result: Buffer, x: Operand, y: Operand, groups: Any,
            stride: Any, padding: Any, dilation: Any, size: Any, x_step: Any, y_step: Any,
            w_step: Any) -> tuple[tuple[str, Any], ...]:
    n = len(size)

    def three(given: Sequence[Any], one: int, head: int = 0) -> tuple[Any, ...]:
        """Dimensions that are missing come first; a list of one entry stands for all."""
        rest = tuple(given[head:])
        rest = rest * n if len(rest) == 1 else rest
        return (*given[:head], *(one,) * (MOST - n), *rest)
    return (("x", image), ("w", kernel), ("y", result), ("batch", x.shape[0]), ("groups", groups),
            ("in", x.shape[1] // groups), ("out", y.shape[1] // groups),
            ("size", three(x.shape[2:], 1)), ("many", three(y.shape[2:], 1)),
            ("kernel", three(size, 1)), ("stride", three(stride, 1)), ("pad", three(padding, 0)),
            ("dilation", three(dilation, 1)), ("x_step", three((x_step[0], *x_step[2:]), 0, 1)),
            ("y_step", three((y_step[0], *y_step[2:]), 0, 1)), ("w_step", three(w_step, 0, 3)))


FIELDS: dict[str, Callable[[Maker], Any]] = {"convolution": _convolution, "conv_weight": _weight}
