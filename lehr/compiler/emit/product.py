"""Matrix products: which gemm calls do it, what has to be copied first, what follows.

BLAS multiplies float32 and float64 matrices whose rows or columns are contiguous. bfloat16 has a
template (`run/half.c`), whose operands may also be float32 numbers to be rounded. Operands of
another shape or dtype are first copied into scratch memory (float16 becomes float32: the product is
rounded once), and results of another dtype come from a float32 one. Integer products are an
ordinary kernel. The epilogue runs over blocks of rows right after their product.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from lehr.base import dtype as dt
from lehr.base import sym
from lehr.base.dtype import DType
from lehr.compiler.emit.value import Unsupported
from lehr.compiler.loop.expr import Rewriter, alu
from lehr.compiler.loop.ir import (
    Axis,
    Bind,
    Buffer,
    Expr,
    Extern,
    Input,
    Kernel,
    Operand,
    Store,
    axis,
)
from lehr.compiler.loop.text import row_major

MOST = 4  # batch dimensions of lehr_product
TALL = 288  # rows from which half.c packs all of B before it multiplies
SIDE = 32  # what sizes of packed matrices are multiples of
FEW = (24, 16, 8)  # rows, columns or terms up to which the template `thin` may do a float32 product


class Matrix(NamedTuple):
    """An operand as gemm takes it: `trans` as ta or tb, `step` by batch dimension."""

    buffer: Buffer
    trans: int
    leading: Any
    step: tuple[Any, ...]


class Product(NamedTuple):
    """`before`: kernels that copy operands, or all that there is to do. Then, if there are
    `matrices` (A, B, C), the gemm of dtype `kind`; `rows` runs after blocks of rows of it.
    `scratch`: temporary buffers, one of them perhaps for `packed` columns of B. `views`: buffers
    that stand for rectangles of others."""

    before: tuple[Kernel, ...]
    scratch: tuple[Buffer, ...]
    views: dict[Buffer, Operand]
    matrices: tuple[Matrix, ...] = ()
    kind: str = ""
    batch: tuple[Any, ...] = ()
    sizes: tuple[Any, ...] = ()  # m, n, k
    rows: Kernel | None = None
    packed: Buffer | None = None
    flip: bool = False  # whether C is the result transposed
    outer: int = 0  # how many axes of `rows` number them; 0: all but the last


def supported(e: Extern) -> bool:
    """Whether an extern is a product that is spelled here."""
    if e.op.name != "matmul" or len(e.inputs) != 2 or e.attrs[:2] != (Input(0), Input(1)):
        return False
    dtypes = {o.dtype for o in e.inputs}
    ranks = {len(o.shape) for o in (*e.inputs, e.output)}
    known = all(d.category in (dt.INT, dt.FLOAT) for d in (*dtypes, e.output.buffer.dtype))
    return len(dtypes) == 1 and len(ranks) == 1 and min(ranks) >= 2 and known


def product(e: Extern) -> Product:
    """How to do a product; Unsupported where no one can."""
    if not supported(e):
        raise Unsupported(f"extern {e.name}: {e.op.name} of "
                          f"{', '.join(o.dtype.name for o in e.inputs)} has no C")
    return Maker(e).make()


def thin(q: Product) -> bool:
    """Whether the template `thin` may do a product (`way_of` of run/product.c decides)."""
    return q.kind == "f32" and any(not isinstance(n, int) or n <= most
                                   for n, most in zip(q.sizes, FEW, strict=True))


class Maker:
    """Memory for the operands of a call, and the kernels around it."""

    def __init__(self, e: Extern) -> None:
        self.e = e
        self.views: dict[Buffer, Operand] = {}
        self.scratch: list[Buffer] = []
        self.before: list[Kernel] = []

    def view(self, o: Operand, name: str) -> Buffer:
        """A buffer for a rectangle, so that kernels can index it."""
        b = o.buffer
        if (o.offset, o.shape, o.strides) == (0, b.shape, b.strides):
            return b
        made = Buffer(f"{b.name}_{name}", b.dtype, o.shape, o.strides, b.role)
        self.views[made] = o
        return made

    def temporary(self, name: str, dtype: DType, shape: Sequence[Any]) -> Buffer:
        made = Buffer(f"{self.e.name}_{name}", dtype, tuple(shape), row_major(tuple(shape)),
                      "arena")
        self.scratch.append(made)
        return made

    def make(self) -> Product:
        e = self.e
        left, right = e.inputs
        wide = left.dtype.wide
        if wide.category == dt.INT:
            return self.loops()
        read = dt.bfloat16 if left.dtype is dt.bfloat16 else wide
        out = self.view(e.output, "out")
        a, b = self.operand(left, "a", read), self.operand(right, "b", read)
        m, k, n = *left.shape[-2:], right.shape[-1]
        batch = tuple(e.output.shape[:-2])
        result: Buffer = out
        stores: tuple[Store, ...] = ()
        axes = e.axes or tuple(axis(f"i{d}", s) for d, s in enumerate(e.output.shape))
        flip = not _contiguous(out.strides, -1, -2, out.shape) and _contiguous(
            out.strides, -2, -1, out.shape)
        if out.dtype is not wide or not (flip or _contiguous(out.strides, -1, -2, out.shape)):
            result = self.temporary("product", wide, e.output.shape)
            idx = tuple(x.var for x in axes)
            value = Expr("Load", wide, result, idx, None, None)
            value = value if out.dtype is wide else Expr("Cast", out.dtype, value)
            stores, flip = (Store(out, idx, value),), False
        rows = self.epilogue(out, stores, axes, flip)
        order = (a, b)
        if flip:  # C transposed = B transposed @ A transposed
            order, m, n = (_turned(b), _turned(a)), n, m
        leading = result.strides[-1 if flip else -2]
        c = Matrix(result, 0, sym.maximum(leading, n) if _one(m) else leading,
                   tuple(result.strides[:-2]))
        batch, matrices = _merged(batch, [*order, c])
        if len(batch) > MOST:
            raise Unsupported(f"extern {e.name}: more than {MOST} batch dimensions that do not "
                              "walk memory as one")
        packed = None
        if read is dt.bfloat16 and not (isinstance(m, int) and m <= TALL):
            n_up, k_up = (sym.ceildiv(size, SIDE) * SIDE for size in (n, k))
            packed = self.temporary("packed", read, (*batch, n_up, k_up))
        return Product(tuple(self.before), tuple(self.scratch), self.views, tuple(matrices),
                       read.short, batch, (m, n, k), rows, packed, flip)

    def operand(self, o: Operand, name: str, dtype: DType) -> Matrix:
        """A matrix of `dtype` that gemm can read, copied first where it has to be."""
        *batch, across, along = o.strides
        if o.dtype is dtype:
            b = self.view(o, name)
            if _contiguous(o.strides, -1, -2, o.shape):
                lead = sym.maximum(across, o.shape[-1]) if _one(o.shape[-2]) else across
                return Matrix(b, 0, lead, tuple(batch))
            if _contiguous(o.strides, -2, -1, o.shape):
                lead = sym.maximum(along, o.shape[-2]) if _one(o.shape[-1]) else along
                return Matrix(b, 1, lead, tuple(batch))
        # Dimensions that are repeated are copied once.
        shape = tuple(1 if s == 0 and d < len(batch) else n
                      for d, (n, s) in enumerate(zip(o.shape, o.strides, strict=True)))
        source = self.view(o._replace(shape=shape), name)
        made = self.temporary(name, dtype, shape)
        axes = tuple(axis(f"i{d}", n) for d, n in enumerate(shape))
        idx = tuple(x.var for x in axes)
        value = Expr("Load", source.dtype, source, idx, None, None)
        value = value if source.dtype is dtype else Expr("Cast", dtype, value)
        self.before.append(Kernel(f"{self.e.name}_{name}", axes, (Store(made, idx, value),), (),
                                  self.e.locations))
        step = tuple(0 if n == 1 else s for n, s in
                     zip(shape[:-2], made.strides[:-2], strict=True))
        return Matrix(made, 0, sym.maximum(shape[-1], 1), step)

    def epilogue(self, out: Buffer, stores: tuple[Store, ...], axes: tuple[Axis, ...], flip: bool
                 ) -> Kernel | None:
        """The kernel over rows of the product."""
        e = self.e
        if not (stores or e.epilogue):
            return None
        own, whole = tuple(a.var for a in axes), e.output.buffer
        following = e.epilogue
        if out is not whole:  # one name for the memory: the rectangle's
            rewrite = Rewriter({}, lambda x: Expr("Load", x.dtype, out, own, *x.fields[2:])
                               if x.fields[0] is whole else None, {}, _unbound)
            following = tuple(s._replace(value=rewrite(s.value)) for s in following)
            following = tuple(s._replace(buffer=out, idx=own) if s.buffer is whole else s
                              for s in following)
        axes = (*axes[:-2], axes[-1], axes[-2]) if flip else axes
        return Kernel(f"{e.name}_rows", axes, (*stores, *following), e.binds, e.locations)

    def loops(self) -> Product:
        """A product of integers as a kernel, its epilogue as another."""
        e = self.e
        left, right = (self.view(o, n) for o, n in zip(e.inputs, "ab", strict=True))
        out = self.view(e.output, "out")
        axes = tuple(axis(f"i{d}", s) for d, s in enumerate(out.shape))
        idx = tuple(x.var for x in axes)
        k = axis("k0", left.shape[-1], "reduce")
        dtype = left.dtype
        pair = [Expr("Load", dtype, left, (*idx[:-1], k.var), None, None),
                Expr("Load", dtype, right, (*idx[:-2], k.var, idx[-1]), None, None)]
        value = Expr("Reduce", dtype, "sum", (k,), (alu("mul", *pair),), 0)
        value = value if out.dtype is dtype else Expr("Cast", out.dtype, value)
        whole = Kernel(e.name, axes, (Store(out, idx, value),), (), e.locations)
        rows = self.epilogue(out, (), e.axes, False)
        return Product((whole, *([rows] if rows else [])), (), self.views)


def _unbound(b: Bind) -> Any:
    raise Unsupported(f"an epilogue that indexes by data ({b.var})")


def _one(n: Any) -> bool:
    return isinstance(n, int) and n == 1


def _contiguous(strides: Sequence[Any], along: int, across: int, shape: Sequence[Any]) -> bool:
    """Whether rows (`along` a dimension) are contiguous and do not overlap."""
    if not (_one(shape[along]) or strides[along] == 1):
        return False
    lead = strides[across]
    if _one(shape[across]):
        return True
    if isinstance(lead, int) and isinstance(shape[along], int):
        return lead >= shape[along]
    return not isinstance(lead, int) or lead > 1


def _turned(x: Matrix) -> Matrix:
    return x._replace(trans=1 - x.trans)


def _merged(batch: Sequence[Any], matrices: Sequence[Matrix]
            ) -> tuple[tuple[Any, ...], list[Matrix]]:
    """Batch dimensions joined where all operands walk through them as through one."""
    shape = list(batch)
    steps = [list(x.step) for x in matrices]
    d = 0
    while d < len(shape):
        if _one(shape[d]):
            del shape[d]
            for s in steps:
                del s[d]
        elif d and all(s[d - 1] == s[d] * shape[d] for s in steps):
            shape[d - 1:d + 1] = [shape[d - 1] * shape[d]]
            for s in steps:
                del s[d - 1]
        else:
            d += 1
    return tuple(shape), [x._replace(step=tuple(s)) for x, s in zip(matrices, steps, strict=True)]
