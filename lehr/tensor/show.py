"""The text of a tensor, in PyTorch's format.

Numbers are laid out in columns of one width, chosen from the finite numbers that are shown; large
tensors are shown by their edges.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from lehr.base import dtype as dt
from lehr.tensor import convert
from lehr.tensor.state import STATE
from lehr.tensor.tensor import Tensor


class Options:
    """precision: digits after the point; threshold: elements beyond which edges are shown;
    edgeitems: how many at each edge; linewidth: columns; sci_mode: None decides by the numbers."""

    def __init__(self) -> None:
        self.precision, self.threshold, self.edgeitems, self.linewidth = 4, 1000, 3, 80
        self.sci_mode: bool | None = None


OPTIONS = Options()
PROFILES: dict[str, dict[str, Any]] = {
    "default": {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80},
    "short": {"precision": 2, "threshold": 1000, "edgeitems": 2, "linewidth": 80},
    "full": {"precision": 4, "threshold": math.inf, "edgeitems": 3, "linewidth": 80},
}


def set_printoptions(precision: int | None = None, threshold: Any = None,
                     edgeitems: int | None = None, linewidth: int | None = None,
                     profile: str | None = None, sci_mode: bool | None = None) -> None:
    """Sets how tensors are printed; `profile`: "default", "short" or "full"."""
    given = dict(PROFILES[profile]) if profile is not None else {}
    given |= {k: v for k, v in (("precision", precision), ("threshold", threshold),
                                ("edgeitems", edgeitems), ("linewidth", linewidth))
              if v is not None}
    for name, value in given.items():
        setattr(OPTIONS, name, value)
    OPTIONS.sci_mode = sci_mode


def get_printoptions() -> dict[str, Any]:
    """The options in force."""
    return dict(vars(OPTIONS))


@contextlib.contextmanager
def printoptions(**kwargs: Any) -> Iterator[None]:
    """Print options until the end of the block."""
    before = get_printoptions()
    set_printoptions(**kwargs)
    try:
        yield
    finally:
        OPTIONS.__dict__.update(before)


class Column:
    """How one real number is written: its width and whether as an integer, fixed or scientific."""

    def __init__(self, a: Any) -> None:
        self.is_float = a.dtype.kind == "f"
        self.whole, self.scientific, self.width = True, False, 1
        if not self.is_float:
            self.width = max([self.width, *(len(str(v)) for v in a.reshape(-1).tolist())])
            return
        flat = a.reshape(-1)
        some = flat[np.isfinite(flat) & (flat != 0)]
        if not some.size:
            return
        size = np.abs(some.astype(np.float64))
        low, high = float(size.min()), float(size.max())
        self.whole = bool((some == np.ceil(some)).all())
        wide = high / low > 1000.0 or high > 1.0e8
        self.scientific = wide or (low < 1.0e-4 and not self.whole)
        if OPTIONS.sci_mode is not None:
            self.scientific = OPTIONS.sci_mode
        self.width = max([self.width, *(len(self.bare(v)) for v in some.tolist())])

    def bare(self, value: Any) -> str:
        """The number without padding."""
        if not self.is_float:
            return str(value)
        if self.scientific:
            return f"{value:.{OPTIONS.precision}e}"
        if self.whole:
            return f"{value:.0f}" + ("." if math.isfinite(value) else "")
        return f"{value:.{OPTIONS.precision}f}"

    def __call__(self, value: Any) -> str:
        return self.bare(value).rjust(self.width)


class Pair:
    """How one complex number is written."""

    def __init__(self, a: Any) -> None:
        self.real, self.imag = Column(a.real), Column(a.imag)
        self.width = self.real.width + self.imag.width + 1

    def __call__(self, value: complex) -> str:
        imag = (self.imag(value.imag) + "j").lstrip()
        return self.real(value.real) + ("" if imag[0] in "+-" else "+") + imag


def edges(a: Any) -> Any:
    """The part of an array that is shown when it is summarized."""
    keep = OPTIONS.edgeitems
    for axis, n in enumerate(a.shape):
        if n > 2 * keep:
            at = np.r_[0:keep, n - keep:n].astype(int)
            a = np.take(a, at, axis)
    return a


def row(a: Any, indent: int, short: bool, form: Any) -> str:
    """A vector, broken into lines."""
    keep = OPTIONS.edgeitems
    per_line = max(1, math.floor((OPTIONS.linewidth - indent) / (form.width + 2)))
    if short and not keep:
        cells = ["..."]
    elif short and len(a) > 2 * keep:
        cells = [*map(form, a[:keep].tolist()), " ...", *map(form, a[-keep:].tolist())]
    else:
        cells = list(map(form, a.tolist()))
    lines = [", ".join(cells[i:i + per_line]) for i in range(0, len(cells), per_line)]
    return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"


def block(a: Any, indent: int, short: bool, form: Any) -> str:
    """An array of any rank."""
    if a.ndim == 0:
        return form(a.item())
    if a.ndim == 1:
        return row(a, indent, short, form)
    keep, n = OPTIONS.edgeitems, len(a)
    if short and n > 2 * keep:
        shown = [block(a[i], indent + 1, short, form) for i in range(keep)] + ["..."]
        shown += [block(a[i], indent + 1, short, form) for i in range(n - keep, n)]
    else:
        shown = [block(x, indent + 1, short, form) for x in a]
    return "[" + ("," + "\n" * (a.ndim - 1) + " " * (indent + 1)).join(shown) + "]"


def contents(t: Tensor, indent: int) -> str:
    """The numbers of a tensor with at least one element."""
    with np.errstate(all="ignore"):
        a = convert.read("__repr__", t)
        if t.dtype.wide is not t.dtype:
            a = a.astype(np.float32)
        short = a.size > OPTIONS.threshold
        seen = edges(a) if short else a
        form = Pair(seen) if t.dtype.is_complex else Column(seen)
        return block(a, indent, short, form)


def suffixes(t: Tensor) -> list[str]:
    """What stands after the numbers."""
    out = []
    default = STATE.device.type if STATE.device is not None else "cpu"
    kind = t.device.type
    if kind != default or kind == "cuda":
        out.append(f"device='{t.device}'")
    usual: tuple[Any, ...] = (dt.Default.dtype, dt.int64, dt.bool_, dt.Default.dtype.to_complex())
    if kind == "meta" or not OPTIONS.edgeitems or (t.numel() == 0 and len(t._shape) != 1):
        out.append(f"size={tuple(t._shape)}")
    if t.dtype not in (usual[:1] if kind == "meta" or t.numel() == 0 else usual):
        out.append(f"dtype={t.dtype}")
    try:
        fn = t.grad_fn
    except RuntimeError:
        out.append("grad_fn=<Invalid>")
        return out
    if fn is not None:
        out.append(f"grad_fn=<{fn.label}>")
    elif t.requires_grad:
        out.append("requires_grad=True")
    return out


def text(t: Tensor, tensor_contents: str | None = None) -> str:
    """`repr` of a tensor."""
    kind = type(t).__name__
    front = "tensor(" if kind in ("Tensor", "Parameter") else f"{kind}("
    if tensor_contents is not None:
        body = tensor_contents
    elif t.device.type == "meta":
        body = "..."
    else:
        body = contents(t, len(front)) if t.numel() else "[]"
    made = front + body
    used = len(made) - made.rfind("\n") + 1
    for word in suffixes(t):
        if used + len(word) + 2 > OPTIONS.linewidth:
            made += ",\n" + " " * len(front) + word
            used = len(front) + len(word)
        else:
            made += ", " + word
            used += len(word) + 2
    return made + ")"
