"""Attention and its gradients: what the template is given, what has to be copied first.

The templates take matrices whose rows are contiguous, over up to four batch dimensions that
broadcast: of bfloat16 numbers (`attention_half`), else of float32. Others are copied first; results
of another dtype come from float32 ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lehr.base import dtype as dt
from lehr.base.dtype import DType
from lehr.compiler.emit import value
from lehr.compiler.emit.template import Calls, Template
from lehr.compiler.loop.ir import Buffer, Extern, Input, Operand
from lehr.compiler.loop.text import row_major

MOST = 4  # batch dimensions
STEP = 16  # sizes of rows are multiples of it in float32
# Op -> the places of its tensors in signature order, those of its results.
TENSORS = {"attention": ("q", "k", "v", "mask"),
           "attention_grad": ("g", "q", "k", "v", "out", "lse", "rise", "mask")}
RESULTS = {"attention": ("out", "lse"), "attention_grad": ("dq", "dk", "dv")}
# Op -> the template and its function.
CALLS = {"attention": ("attention", "attend"), "attention_grad": ("attention_back", "attend_back")}
HALF = {"attention": ("attention_half", "attend_half")}  # the same in bfloat16
ROWS = ("lse", "rise")  # have one number a row


def supported(e: Extern) -> bool:
    """Whether an extern is an attention that the template does."""
    if e.op.name not in TENSORS:
        return False
    names = TENSORS[e.op.name]
    given = _given(e)
    *_, p, _, _ = e.attrs
    sizes = (given["q"].shape[-1], given["v"].shape[-1])
    scale = e.attrs[len(names)]
    floats = all(o.buffer.dtype.wide is dt.float32 for n, o in given.items() if n != "mask")
    mask = given.get("mask")
    plain = mask is None or mask.buffer.dtype is dt.bool_ or mask.buffer.dtype.wide is dt.float32
    return (p == 0 and isinstance(scale, int | float) and floats and plain
            and all(isinstance(n, int) and (_half(e) or n % STEP == 0) for n in sizes)
            and len(_batch(e)) <= MOST and len(e.others) == len(RESULTS[e.op.name]) - 1)


def _given(e: Extern) -> dict[str, Operand]:
    """The tensors by name."""
    names = TENSORS[e.op.name]
    return {n: e.inputs[a.slot] for n, a in zip(names, e.attrs, strict=False)
            if isinstance(a, Input)}


def _half(e: Extern) -> bool:
    """Whether all matrices are bfloat16, and there is a template for it."""
    matrices = [e.output, *(o for n, o in _given(e).items() if n != "mask")]
    return e.op.name in HALF and all(o.buffer.dtype is dt.bfloat16 for o in matrices)


def _batch(e: Extern) -> tuple[Any, ...]:
    """The batch dimensions, broadcast."""
    rows = e.others[0] if e.op.name == "attention" else _given(e)["lse"]
    return tuple(rows.shape[:-1])


def template(e: Extern, alone: bool) -> Template:
    """How to call the template."""
    return _Maker(e).template()


class _Maker(Calls):
    def __init__(self, e: Extern) -> None:
        super().__init__(e)
        self.calls, self.dtype = (HALF, dt.bfloat16) if _half(e) else (CALLS, dt.float32)

    def template(self) -> Template:
        e, names = self.e, TENSORS[self.e.op.name]
        given, batch = _given(e), _batch(e)
        scale, causal = e.attrs[len(names):][:2]
        fields: list[tuple[str, Any]] = []
        for name in names:
            if name in given:
                fields += self.tensor(given[name], name, len(batch))
        for name, o in zip(RESULTS[e.op.name], (e.output, *e.others), strict=True):
            made, strides = self.result(o, name)
            fields += [(name, made), (f"{name}_step", _steps(o.shape, strides, len(batch),
                                                             1 if name in ROWS else 2))]
        ones = (1,) * (MOST - len(batch))
        q, v = given["q"], given["v"]
        fields += [("batch", (*ones, *batch)), ("l", q.shape[-2]), ("s", v.shape[-2]),
                   ("e", q.shape[-1]), ("ev", v.shape[-1]), ("causal", int(causal)),
                   ("scale", value.number(float(scale), dt.float32))]
        name, function = self.calls[e.op.name]
        return self.call(name, function, "lehr_attention", tuple(fields))

    def tensor(self, o: Operand, name: str, rank: int) -> list[tuple[str, Any]]:
        own = 1 if name in ROWS else 2
        if name == "mask":
            kind = 1 if o.buffer.dtype is dt.bool_ else 2
            made, strides = (self.view(o, name), o.strides) if kind == 1 else self.floats(o, name)
            steps = _steps(o.shape, strides, rank, 2, columns=True)
            return [(name, made), ("mask_step", steps), ("mask_kind", kind)]
        loose = own == 2 and o.strides[-1] != 1
        made, strides = self.floats(o, name, self.dtype if own == 2 else dt.float32, loose)
        return [(name, made), (f"{name}_step", _steps(o.shape, strides, rank, own))]

    def floats(self, o: Operand, name: str, dtype: DType = dt.float32, loose: bool = False
               ) -> tuple[Buffer, tuple[Any, ...]]:
        """Memory in `dtype`; a copy of it where it is `loose` or has another dtype. Dimensions that
        are repeated are copied once."""
        if o.buffer.dtype is dtype and not loose:
            return self.view(o, name), o.strides
        shape = tuple(1 if s == 0 and d < len(o.shape) - 2 else n
                      for d, (n, s) in enumerate(zip(o.shape, o.strides, strict=True)))
        made, strides = self.copied(o._replace(shape=shape), name, row_major(shape), dtype)
        return made, tuple(0 if n == 1 else s for n, s in zip(shape, strides, strict=True))

    def result(self, o: Operand, name: str) -> tuple[Buffer, tuple[Any, ...]]:
        """Where the template puts a result, stored from there where that is not its own place."""
        out = self.view(o, f"{name}_to")
        dtype = dt.float32 if name in ROWS else self.dtype
        if o.buffer.dtype is dtype and (name in ROWS or o.strides[-1] == 1):
            return out, tuple(o.strides)
        strides = row_major(tuple(o.shape))
        made = self.laid(name, dtype, o.shape, strides)
        self.after.append(self.moved(f"{name}_store", made, out))
        return made, strides


def _steps(shape: Sequence[Any], strides: Sequence[Any], rank: int, own: int,
           columns: bool = False) -> tuple[Any, ...]:
    """Steps of MOST batch dimensions and of a row; with `columns`, of a column too. Dimensions that
    are missing or of size 1 are not walked."""
    kept = [0 if isinstance(n, int) and n == 1 else s for n, s in zip(shape, strides, strict=True)]
    whole = [0] * (rank + own - len(kept)) + kept
    batch, rows = whole[:rank], whole[rank:]
    return (*(0,) * (MOST - rank), *batch, *(rows if columns else rows[:1]))

