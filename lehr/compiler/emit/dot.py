"""Matrix products as a Triton template: blocks of the result, float32 sums, an epilogue.

A product's function works on blocks of rows (position 0) and columns (position 1) of one matrix of
the batch; the epilogue's stores are written as those of any nest with these two positions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lehr.base import sym
from lehr.base.sym import prod as numel
from lehr.compiler.emit import lane
from lehr.compiler.emit.nest import Bounds, Nest, prepare
from lehr.compiler.emit.order import groups_of
from lehr.compiler.emit.rows import Writer, Written
from lehr.compiler.emit.tile import Tile, count, pow2, wide
from lehr.compiler.emit.value import Unsupported
from lehr.compiler.loop.ir import Axis, Buffer, Expr, Extern, Input, Operand, axis

DTYPES = ("f16", "bf16", "f32", "f64")
# How float32 operands are multiplied: as they are, rounded to 10 bits, or in three such products.
PRECISIONS = ("ieee", "tf32", "tf32x3")
GROUP = 8  # rows of blocks that run together: their operands stay in the cache


def operands(e: Extern) -> tuple[Operand, Operand]:
    """The left and the right matrix."""
    left, right = (e.inputs[a.slot] for a in e.attrs if isinstance(a, Input))
    return left, right


def supports(e: Extern) -> bool:
    """Whether a call is a product that the template computes."""
    if e.op.name != "matmul":
        return False
    a, b = operands(e)
    same = a.buffer.dtype is b.buffer.dtype and a.buffer.dtype.short in DTYPES
    fits = e.output.buffer.dtype in (a.buffer.dtype, a.buffer.dtype.wide)
    ranks = len(a.shape) == len(b.shape) == len(e.output.shape) >= 2
    return same and fits and ranks and all(
        x == y == z for x, y, z in zip(a.shape[:-2], b.shape[:-2], e.output.shape[:-2],
                                       strict=True))


def write(e: Extern, needed: bool, alias: Mapping[Buffer, Buffer], precision: str
          ) -> tuple[Written, dict[str, Any]]:
    """(the function, the operands `a`, `b`, `out` and whether it is a `plain` product). `needed`:
    the product itself is stored, whatever the epilogue does. `precision`: see PRECISIONS."""
    a, b = operands(e)
    if e.epilogue:
        axes = e.axes
        nest = prepare(e.name, axes, e.epilogue, e.binds, len(axes), alias)
    else:
        axes = tuple(axis(f"i{d}", n) for d, n in enumerate(e.output.shape))
        nest = Nest(e.name, axes, (), Bounds(), {}, frozenset(), alias)
    rows, columns, terms = e.output.shape[-2], e.output.shape[-1], a.shape[-1]
    blocks, warps, depth = _blocks(a.buffer.dtype.itemsize, rows, columns, terms)
    plan = Tile((axes[-2],), (axes[-1],), blocks[0], blocks[1], (), (), frozenset(), warps)
    made = _Product(nest, plan, e, a, b, axes, blocks[2], needed, precision).product()
    plain = not e.epilogue
    return made._replace(stages=depth), {"a": a, "b": b, "out": e.output, "plain": plain}


def _blocks(size: int, rows: Any, columns: Any, terms: Any
            ) -> tuple[tuple[int, int, int], int, int]:
    """((rows, columns, terms) of a block, warps, stages of the loads)."""
    def fit(n: Any, most: int) -> int:
        return most if not isinstance(n, int) else max(16, min(most, pow2(n)))
    large = count([Axis(None, rows), Axis(None, columns)]) >= 128 * 128 * 64
    most = (128, 128, 64) if size == 2 and large else (64, 64, 32 if size < 8 else 16)
    made = fit(rows, most[0]), fit(columns, most[1]), fit(terms, most[2])
    return made, 8 if made[0] * made[1] >= 128 * 128 else 4, 3 if size == 2 else 2


class _Product(Writer):
    def __init__(self, nest: Nest, plan: Tile, e: Extern, a: Operand, b: Operand,
                 axes: Sequence[Axis], depth: int, needed: bool, precision: str) -> None:
        super().__init__(nest, plan, groups_of(nest))
        self.e, self.a, self.b, self.axes, self.step = e, a, b, axes, depth
        self.needed, self.precision = needed, precision
        terms = a.shape[-1]
        self.k = sym.Var("k", 0, terms - 1)
        self.batch = [x.var for x in axes[:-2]]
        m, n = axes[-2].var, axes[-1].var
        self.here = _flat(e.output, [*self.batch, m, n])
        self.left = _flat(a, [*self.batch, m, self.k])
        self.right = _flat(b, [*self.batch, self.k, n])
        self.wide = wide(nest, (*nest.places(), self.here, self.left, self.right))

    def product(self) -> Written:
        made = self.written()
        shape = [x.extent for x in self.axes]
        programs = (numel(shape[:-2]) * sym.ceildiv(shape[-2], self.tile.yb)
                    * sym.ceildiv(shape[-1], self.tile.xb))
        return made._replace(programs=programs)

    def outer(self) -> None:
        if self.wide:
            self.add("pid = tl.cast(pid, tl.int64)")
        rows, columns = self.axes[-2], self.axes[-1]
        self.blocks[:] = ["YB", "XB"]
        self.constants |= {"YB": self.tile.yb, "XB": self.tile.xb, "KB": self.step}
        self.add(f"down = tl.cdiv({self.index(rows.extent)}, YB)",
                 f"across = tl.cdiv({self.index(columns.extent)}, XB)")
        at = "pid"
        if self.batch:
            self.add("batch = pid // (down * across)")
            at = "pid % (down * across)"
        self.add(f"at = {at}",
                 f"first = at // ({GROUP} * across) * {GROUP}",
                 f"many = tl.minimum(down - first, {GROUP})",
                 f"at = at % ({GROUP} * across)",
                 "y = (first + at % many) * YB + tl.arange(0, YB)[:, None]",
                 "x = at // many * XB + tl.arange(0, XB)[None, :]")
        for n, (name, a, block) in enumerate((("y", rows, self.tile.yb),
                                              ("x", columns, self.tile.xb))):
            if not (isinstance(a.extent, int) and a.extent % block == 0):
                self.masks[n] = f"{name}_in"
                self.add(f"{name}_in = {name} < {lane.atom(self.index(a.extent))}")
            self.names[a.var] = name
            self.places[a.var] = n
        step: Any = 1
        for n, x in reversed(list(enumerate(self.axes[:-2]))):
            text = "batch" if step == 1 else f"batch // {lane.atom(self.index(step))}"
            if n:
                text = f"{text} % {lane.atom(self.index(x.extent))}"
            self.names[x.var] = self.let(text, "z")
            step = step * x.extent
        self.multiply()

    def multiply(self) -> None:
        """The loop over terms; the product is what epilogue loads stand for."""
        dtype, terms = self.a.buffer.dtype, self.a.shape[-1]
        exact = isinstance(terms, int) and terms % self.step == 0
        wanted = dtype.wide
        self.add(f"acc = tl.zeros([YB, XB], {lane.register(wanted)})",
                 f"for k_at in range(0, {self.index(terms)}, KB):",
                 "    k = k_at + tl.arange(0, KB)")
        for name, o, place, shown, n in (("a", self.a, self.left, "k[None, :]", 0),
                                         ("b", self.b, self.right, "k[:, None]", 1)):
            self.names[self.k] = shown
            text = f"{self.pointer(o.buffer)} + {lane.atom(self.index(place))}"
            own = (self.axes[-2].var, self.k) if n == 0 else (self.k, self.axes[-1].var)
            if not sym.free(place).issuperset(own):  # a dimension of length 1
                text = f"tl.broadcast_to({text}, {'[YB, KB]' if n == 0 else '[KB, XB]'})"
            masks = [m for m in (self.masks[n], "" if exact else
                                 f"({shown} < {lane.atom(self.index(terms))})") if m]
            tail = f", mask={' & '.join(masks)}, other=0.0" if masks else ""
            self.add(f"    {name} = tl.load({text}{tail})")
        how = {"f32": f', input_precision="{self.precision}"',
               "f64": ", out_dtype=tl.float64"}.get(dtype.short, "")
        self.add(f"    acc = tl.dot(a, b, acc{how})")
        out = self.e.output.buffer
        name = "acc" if out.dtype is wanted else self.let(lane.typed("acc", out.dtype))
        for e in self.nest.everything():
            if isinstance(e, Expr) and e.kind == "Load" and e.fields[0] is out:
                if e.fields[1][0] != self.here:
                    raise Unsupported(f"{self.e.name}: an epilogue that loads {e!r}")
                self.shapes[e] = frozenset((0, 1))
                self.record(e, name)
        replaced = any(r.buffer is out for r in self.nest.roots)
        if not replaced and (self.needed or not self.nest.roots):
            every = frozenset((0, 1))
            text = f"{self.pointer(out)} + {lane.atom(self.index(self.here))}"
            text = self.fit(text, self.shape(self.here), every)
            where = self.live(every)
            self.add(f"tl.store({text}, {name}{f', mask={where}' if where else ''})")


def _flat(o: Operand, idx: Sequence[Any]) -> Any:
    return o.offset + sum((i * s for i, s in zip(idx, o.strides, strict=True)), 0)
