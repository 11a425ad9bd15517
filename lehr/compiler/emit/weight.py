"""Weights: parameters that a program never writes, as the right operands of its products.

The call of such a product names a slot of the pointer array. Whoever runs the program may put there
what the template's `lehr_pack` makes of the weight (`lehr.compiler.weight`); a null pointer there
has the product pack the weight itself, with the same result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from lehr.base import dtype as dt
from lehr.compiler.emit.product import Product
from lehr.compiler.loop.ir import Buffer, Operand

FEW = 384   # rows up to which a float32 product is faster by it: packing is little of more


class Weight(NamedTuple):
    """How a weight lies in a parameter: `offset` in bytes, rows `ld` elements apart; `n` columns of
    `k` terms, transposed where `tb`, that meet `rows` rows (0: not known); `wide`: float32 numbers,
    for the template `template`."""

    param: Buffer
    template: str
    offset: int
    wide: int
    tb: int
    ld: int
    rows: int
    n: int
    k: int


def weight(q: Product, template: str, views: Mapping[Buffer, Operand]) -> Weight | None:
    """The right operand of a product where it can be packed beforehand; None where sizes are not
    known, or the product would not use it."""
    b = q.matrices[1]
    seen = views.get(b.buffer)
    buffer, offset = (b.buffer, 0) if seen is None else (seen.buffer, seen.offset)
    m, n, k = q.sizes
    numbers = (n, k, b.leading, offset, *b.step)
    if not all(isinstance(x, int) for x in numbers) or any(b.step) or 0 in (n, k):
        return None
    rows = m if isinstance(m, int) else 0
    if template == "split" and (k < 32 or n <= 64 or rows > FEW):   # small ones are BLAS's
        return None
    item = b.buffer.dtype.itemsize
    return Weight(buffer, template, offset * item, int(b.buffer.dtype is dt.float32), b.trans,
                  b.leading, rows, n, k)


def record(w: Weight, param: int, slot: int) -> dict[str, Any]:
    """A weight in the record of a call: the number of its parameter and of its slot."""
    return {**w._asdict(), "param": param, "slot": slot}
