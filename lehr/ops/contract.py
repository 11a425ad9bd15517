"""Matrix products: one primitive (`matmul` of equal batch dimensions), everything else views around
it.

Half precision is multiplied and summed in float32 and rounded once. Where a bias follows, the
product is asked for in float32 (`out_dtype`) so that the sum rounds once too; back ends fuse that
as an epilogue. """

from __future__ import annotations

from typing import Any

import numpy

from lehr.base import dtype as dt
from lehr.ops import rule
from lehr.ops.registry import COMPOSITE, EXTERN, op
from lehr.ops.rule import Spec, device_of, dim_of, numel, same

# torch rounds half precision more than once here: after the product, or after every batch of it.
ROUNDED = {"float16": (1e-2, 1e-2), "bfloat16": (4e-2, 4e-2)}


def _checked(a: Any, b: Any, *rest: Any) -> None:
    """The operands of a product have one dtype that can be multiplied."""
    if a.dtype is not b.dtype:
        raise RuntimeError(f"expected m1 and m2 to have the same dtype, but got: {a.dtype} != "
                           f"{b.dtype}")
    if a.dtype is dt.bool_:
        raise RuntimeError('"addmm_impl_cpu_" not implemented for \'Bool\'')


def _ranks(op_name: str, *operands: tuple[str, Any, int]) -> None:
    for name, x, ndim in operands:
        if len(x.shape) != ndim:
            raise RuntimeError(f"{op_name}: Expected {ndim}-D argument {name}, but got "
                               f"{len(x.shape)}-D")


def transposed(F: Any, x: Any) -> Any:
    """The last two dimensions exchanged. Gradients of complex products are conjugated by the
    caller."""
    return F.transpose(x, -2, -1)


def rows(F: Any, x: Any) -> Any:
    """[..., k] as [n, k]."""
    return x if len(x.shape) == 2 else F.reshape(x, (numel(x.shape[:-1]), x.shape[-1]))


FASTER: list[Any] = []      # functions of two arrays: their product, or NotImplemented


def multiplied(a: Any, b: Any) -> Any:
    """The product of arrays [.., m, k] and [.., k, n], by something faster than numpy if there is
    such."""
    for function in FASTER:
        made = function(a, b)
        if made is not NotImplemented:
            return made
    return numpy.matmul(a, b)


def cast(F: Any, x: Any, dtype: Any) -> Any:
    return x if x.dtype is dtype else F.to_dtype(x, dtype)


def _matmul_rule(a: Any, b: Any, out_dtype: Any = None) -> Spec:
    shape = rule.matmul_shape(tuple(a.shape), tuple(b.shape))
    _checked(a, b)
    return Spec(shape, out_dtype or a.dtype, device_of((a, b)))


def _left(F: Any, g: Any, b: Any, na: int) -> Any:
    """Gradient of a [.., m, k] in `a @ b`; `na` is a's rank. Broadcast batches stay summed by the
    caller."""
    if b.ndim == 1:
        return g * b if na == 1 else F.unsqueeze(g, -1) * b
    if na == 1:
        return F.squeeze(F.matmul(b, F.unsqueeze(g, -1)), -1)
    if na == 2 and b.ndim > 2:  # one product over (batch, n) instead of a sum of products
        m, k, n = g.shape[-2], b.shape[-2], numel(b.shape[:-2]) * b.shape[-1]
        return F.matmul(F.reshape(F.movedim(g, -2, 0), (m, n)),
                        F.reshape(F.transpose(b, -2, -1), (n, k)))
    return F.matmul(g, transposed(F, b))


def _right(F: Any, g: Any, a: Any, nb: int) -> Any:
    """Gradient of b [.., k, n] in `a @ b`; `nb` is b's rank."""
    if a.ndim == 1:
        return g * a if nb == 1 else F.unsqueeze(a, -1) * F.unsqueeze(g, -2)
    if nb == 1:
        return F.matmul(F.reshape(g, (numel(g.shape),)), rows(F, a))
    if nb == 2 and a.ndim > 2:
        return F.matmul(transposed(F, rows(F, a)), rows(F, g))
    return F.matmul(transposed(F, a), g)


@op("matmul(input: Tensor, other: Tensor, *, out_dtype: dtype | None = None) -> Tensor")
class matmul:
    """Matrix product of [.., m, k] and [.., k, n] with broadcast batch dimensions; a 1-d operand is
    a row on the left, a column on the right, and its dimension disappears. `out_dtype`: result
    dtype where it is not the operands' (float32 of half-precision operands: the unrounded sums)."""

    kind, aliases = EXTERN, ("linalg.matmul",)
    rule = _matmul_rule

    def eager(np: Any, a: Any, b: Any, out_dtype: Any) -> Any:
        if b.ndim == 2 and a.ndim > 2 and a.flags.c_contiguous:  # one gemm
            rows = a.reshape(numel(a.shape[:-1]), a.shape[-1])
            return np.matmul(rows, b).reshape(*a.shape[:-1], b.shape[1])
        return np.matmul(a, b)

    def decomp(F: Any, a: Any, b: Any, out_dtype: Any) -> Any:
        if a.ndim == 1 or b.ndim == 1:
            left = F.unsqueeze(a, 0) if a.ndim == 1 else a
            right = F.unsqueeze(b, 1) if b.ndim == 1 else b
            y = F.matmul(left, right, out_dtype=out_dtype)
            y = F.squeeze(y, -1) if b.ndim == 1 else y
            return F.squeeze(y, -1 if b.ndim == 1 else -2) if a.ndim == 1 else y
        if b.ndim == 2 and a.ndim > 2:
            y = F.matmul(rows(F, a), b, out_dtype=out_dtype)
            return F.reshape(y, (*a.shape[:-1], b.shape[-1]))
        head = rule.broadcast(a.shape[:-2], b.shape[:-2])
        if tuple(a.shape[:-2]) == head == tuple(b.shape[:-2]):
            return NotImplemented
        return F.matmul(F.expand(a, (*head, *a.shape[-2:])), F.expand(b, (*head, *b.shape[-2:])),
                        out_dtype=out_dtype)

    def vjp(F: Any, g: Any, out: Any, a: Any, b: Any, out_dtype: Any) -> Any:
        na, nb = a.ndim, b.ndim
        g = cast(F, g, a.dtype)
        return lambda: _left(F, g, b, na), lambda: _right(F, g, a, nb)

    def samples(s: Any) -> Any:
        for a, b in (((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((3, 4), (2, 4, 5)),
                     ((2, 3, 4), (2, 4, 5)), ((2, 1, 3, 4), (3, 4, 2)), ((4,), (4,)),
                     ((4,), (4, 3)), ((3, 4), (4,)),
                     ((2, 3, 4), (4,)), ((4,), (2, 4, 3)), ((0, 4), (4, 3)), ((3, 0), (0, 2)),
                     ((2, 0, 3), (2, 3, 4)), ((2, 2, 3, 4), (2, 2, 4, 3))):
            yield s(s.any(*a), s.any(*b))
        yield s.raises(RuntimeError, s.any(3, 4), s.any(3, 4), match="(3x4 and 3x4)")
        yield s.raises(RuntimeError, s.any(2, 3, 4), s.any(3, 4, 5))
        yield s.raises(RuntimeError, s.any(), s.any(3))
    dtypes = "float half int"


def _mm_rule(a: Any, b: Any, out_dtype: Any = None) -> Spec:
    _ranks("mm", ("input", a, 2), ("mat2", b, 2))
    return _matmul_rule(a, b, out_dtype)


@op("mm(input: Tensor, mat2: Tensor, *, out_dtype: dtype | None = None) -> Tensor")
class mm:
    """[m, k] @ [k, n]."""

    rule, kind = _mm_rule, COMPOSITE

    def decomp(F: Any, a: Any, b: Any, out_dtype: Any) -> Any:
        return F.matmul(a, b, out_dtype=out_dtype)

    def samples(s: Any) -> Any:
        yield s(s.any(3, 4), s.any(4, 5))
        yield s(s.any(0, 4), s.any(4, 5))
        yield s.raises(RuntimeError, s.any(3, 4), s.any(5, 4))
        yield s.raises(RuntimeError, s.any(3, 4), s.any(4))
    dtypes = "float half int"


def _bmm_rule(a: Any, b: Any, out_dtype: Any = None) -> Spec:
    if len(a.shape) != 3 or len(b.shape) != 3:
        raise RuntimeError(f"batch1 and batch2 must be 3D tensors, got {len(a.shape)}D and "
                           f"{len(b.shape)}D")
    if not same(a.shape[0], b.shape[0]) or not same(a.shape[2], b.shape[1]):
        raise RuntimeError("Expected size for first two dimensions of batch2 tensor to be: "
                           f"[{a.shape[0]}, {a.shape[2]}] but got: [{b.shape[0]}, {b.shape[1]}].")
    return _matmul_rule(a, b, out_dtype)


@op("bmm(input: Tensor, mat2: Tensor, *, out_dtype: dtype | None = None) -> Tensor")
class bmm:
    """[b, m, k] @ [b, k, n]."""

    rule = _bmm_rule

    def decomp(F: Any, a: Any, b: Any, out_dtype: Any) -> Any:
        return F.matmul(a, b, out_dtype=out_dtype)

    def samples(s: Any) -> Any:
        yield s(s.any(2, 3, 4), s.any(2, 4, 5))
        yield s(s.any(0, 3, 4), s.any(0, 4, 5))
        yield s.raises(RuntimeError, s.any(2, 3, 4), s.any(1, 4, 5))
        yield s.raises(RuntimeError, s.any(2, 3, 4), s.any(2, 3, 5))
        yield s.raises(RuntimeError, s.any(3, 4), s.any(4, 5))
    dtypes = "float half int"


def _vectors(name: str) -> Any:
    def made(a: Any, b: Any) -> Spec:
        if len(a.shape) != 1 or len(b.shape) != 1:
            raise RuntimeError(f"1D tensors expected, but got {len(a.shape)}D and {len(b.shape)}D "
                               "tensors")
        if not same(a.shape[0], b.shape[0]):
            n, m = a.shape[0], b.shape[0]
            raise RuntimeError(f"inconsistent tensor size, expected tensor [{n}] and src [{m}] to "
                               f"have the same number of elements, but got {n} and {m} elements "
                               "respectively")
        if a.dtype is not b.dtype:
            raise RuntimeError(f"{name} : expected both vectors to have same dtype, but found "
                               f"{a.dtype} and {b.dtype}")
        _checked(a, b)
        return Spec((), a.dtype, device_of((a, b)))
    return made


@op("dot(input: Tensor, tensor: Tensor) -> Tensor")
class dot:
    """The sum of products of two vectors [n]."""

    rule = _vectors("dot")

    def decomp(F: Any, a: Any, b: Any) -> Any:
        return F.matmul(a, b)

    def samples(s: Any) -> Any:
        yield s(s.any(5), s.any(5))
        yield s(s.any(0), s.any(0))
        yield s.raises(RuntimeError, s.any(5), s.any(4))
        yield s.raises(RuntimeError, s.any(5, 1), s.any(5))
    dtypes = "float half int"


@op("vdot(input: Tensor, other: Tensor) -> Tensor")
class vdot:
    """`dot` with the first vector conjugated."""

    rule = _vectors("vdot")

    def decomp(F: Any, a: Any, b: Any) -> Any:
        return F.matmul(F.conj(a) if a.dtype.is_complex else a, b)

    def samples(s: Any) -> Any:
        yield s(s.any(5), s.any(5))
        yield s.raises(RuntimeError, s.any(5), s.any(4))
    dtypes = "float half int"


def _vecdot_rule(x: Any, y: Any, dim: int = -1) -> Spec:
    if x.dtype is not y.dtype:
        raise RuntimeError(f"linalg.vecdot: expected one dtype, got {x.dtype} and {y.dtype}")
    if x.dtype.is_integer:
        raise RuntimeError("linalg.vecdot: Expected a floating point or complex tensor as input. "
                           f"Got {x.dtype}")
    shape = rule.broadcast(tuple(x.shape), tuple(y.shape))
    at = dim_of(dim, len(shape))
    return Spec(shape[:at] + shape[at + 1:], x.dtype, device_of((x, y)))


@op("linalg_vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor")
class linalg_vecdot:
    """The sum of products along `dim` of broadcast operands, the first conjugated."""

    rule, where = _vecdot_rule, "linalg"

    def decomp(F: Any, x: Any, y: Any, dim: int) -> Any:
        x, y = F.movedim(x, dim, -1), F.movedim(y, dim, -1)
        x = F.conj(x) if x.dtype.is_complex else x
        return F.squeeze(F.squeeze(F.matmul(F.unsqueeze(x, -2), F.unsqueeze(y, -1)), -1), -1)

    def samples(s: Any) -> Any:
        yield s(s.any(2, 5), s.any(2, 5))
        yield s(s.any(2, 5), s.any(2, 5), dim=0)
        yield s(s.any(2, 1, 5), s.any(3, 5))
    dtypes, tolerance = "float half", ROUNDED


def _mv_rule(a: Any, v: Any) -> Spec:
    if len(a.shape) != 2 or len(v.shape) != 1:
        raise RuntimeError(f"vector + matrix @ vector expected, got {len(a.shape)}, {len(v.shape)}")
    if not same(a.shape[1], v.shape[0]):
        raise RuntimeError(f"size mismatch, got input ({a.shape[0]}), mat "
                           f"({a.shape[0]}x{a.shape[1]}), vec ({v.shape[0]})")
    return _matmul_rule(a, v)


@op("mv(input: Tensor, vec: Tensor) -> Tensor")
class mv:
    """[m, k] @ [k]."""

    rule = _mv_rule

    def decomp(F: Any, a: Any, v: Any) -> Any:
        return F.matmul(a, v)

    def samples(s: Any) -> Any:
        yield s(s.any(3, 4), s.any(4))
        yield s.raises(RuntimeError, s.any(3, 4), s.any(3))
        yield s.raises(RuntimeError, s.any(3, 4), s.any(4, 1))
    dtypes = "float half int"


# input * beta + product * alpha


def _scaled(F: Any, input: Any, product: Any, beta: Any, alpha: Any, dtype: Any,
            leads: bool = False) -> Any:
    """`beta * input + alpha * product`, rounded once to `dtype`; beta = 0 ignores even NaN in
    input. `leads`: the result's layout is the input's, not the product's."""
    wide = product.dtype
    if wide.is_integer:  # as PyTorch, which takes floats here
        alpha, beta = (int(v) if isinstance(v, float) else v for v in (alpha, beta))
    if not (isinstance(alpha, (int, float)) and alpha == 1):
        product = product * alpha
    if not (isinstance(beta, (int, float)) and beta == 0):
        input = cast(F, input, wide)
        if not isinstance(beta, (int, float)):      # known at run time only
            factor = F.full((), beta, dtype=wide)
            input = F.where(F.eq(factor, 0), 0, input * factor)
        elif beta != 1:
            input = input * beta
        product = input + product if leads else product + input
    return cast(F, product, dtype)


def _added(product: Any, squeeze: bool = False) -> Any:
    """Rule of `input + product(mat1, mat2)`: input has to expand to the product's shape."""
    def made(input: Any, a: Any, b: Any, beta: Any = 1, alpha: Any = 1) -> Spec:
        spec = product(a, b)
        shape = spec.shape[1:] if squeeze else spec.shape
        if input.dtype is not a.dtype:
            raise RuntimeError("self and the product must have the same dtype, but got "
                               f"{input.dtype} and {a.dtype}")
        if len(input.shape) > len(shape) or rule.broadcast(tuple(input.shape), shape) != shape:
            raise RuntimeError(f"The expanded size of the tensor {list(shape)} must match the "
                               f"existing size {list(input.shape)}")
        return Spec(shape, a.dtype, device_of((input, a, b)))
    return made


@op("addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Scalar = 1, alpha: Scalar = 1) -> "
    "Tensor")
class addmm:
    """beta * input + alpha * (mat1 [m, k] @ mat2 [k, n]); input broadcasts to [m, n]."""

    rule, where = _added(_mm_rule), "function method inplace"

    def decomp(F: Any, input: Any, a: Any, b: Any, beta: Any, alpha: Any) -> Any:
        return _scaled(F, input, F.matmul(a, b, out_dtype=a.dtype.wide), beta, alpha, a.dtype)

    def samples(s: Any) -> Any:
        yield s(s.any(3, 5), s.any(3, 4), s.any(4, 5))
        yield s(s.any(5), s.any(3, 4), s.any(4, 5), beta=2, alpha=3)
        yield s(s.f(3, 1, nonfinite=True), s.f(3, 4), s.f(4, 5), beta=0, alpha=0.5)
        yield s.raises(RuntimeError, s.any(4, 5), s.any(3, 4), s.any(4, 5))
        yield s.raises(RuntimeError, s.any(5), s.any(3, 4), s.any(5, 5))
    dtypes = "float half int"


@op("addmv(input: Tensor, mat: Tensor, vec: Tensor, *, beta: Scalar = 1, alpha: Scalar = 1) -> "
    "Tensor")
class addmv:
    """beta * input + alpha * (mat [m, k] @ vec [k])."""

    rule, where = _added(_mv_rule), "function method inplace"

    def decomp(F: Any, input: Any, a: Any, v: Any, beta: Any, alpha: Any) -> Any:
        return _scaled(F, input, F.matmul(a, v, out_dtype=a.dtype.wide), beta, alpha, a.dtype)

    def samples(s: Any) -> Any:
        yield s(s.any(3), s.any(3, 4), s.any(4))
        yield s(s.any(1), s.any(3, 4), s.any(4), beta=2, alpha=3)
        yield s.raises(RuntimeError, s.any(2), s.any(3, 4), s.any(4))
    dtypes = "float half int"


@op("baddbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Scalar = 1, alpha: Scalar = "
    "1) -> Tensor")
class baddbmm:
    """beta * input + alpha * (batch1 [b, m, k] @ batch2 [b, k, n])."""

    rule, where = _added(_bmm_rule), "function method inplace"

    def decomp(F: Any, input: Any, a: Any, b: Any, beta: Any, alpha: Any) -> Any:
        return _scaled(F, input, F.matmul(a, b, out_dtype=a.dtype.wide), beta, alpha, a.dtype)

    def samples(s: Any) -> Any:
        yield s(s.any(2, 3, 5), s.any(2, 3, 4), s.any(2, 4, 5))
        yield s(s.any(3, 5), s.any(2, 3, 4), s.any(2, 4, 5), beta=2, alpha=3)
        yield s.raises(RuntimeError, s.any(2, 3, 4), s.any(2, 3, 4), s.any(2, 4, 5))
    dtypes = "float half int"


@op("addbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Scalar = 1, alpha: Scalar = "
    "1) -> Tensor")
class addbmm:
    """beta * input + alpha * sum over b of (batch1 [b, m, k] @ batch2 [b, k, n])."""

    rule, where = _added(_bmm_rule, squeeze=True), "function method inplace"

    def decomp(F: Any, input: Any, a: Any, b: Any, beta: Any, alpha: Any) -> Any:
        batch, m, k = a.shape  # one product over (batch, k)
        left = F.reshape(F.permute(a, (1, 0, 2)), (m, batch * k))
        right = F.reshape(b, (batch * k, b.shape[-1]))
        product = F.matmul(left, right, out_dtype=a.dtype.wide)
        return _scaled(F, input, product, beta, alpha, a.dtype)

    def samples(s: Any) -> Any:
        yield s(s.any(3, 5), s.any(2, 3, 4), s.any(2, 4, 5))
        yield s(s.any(5), s.any(2, 3, 4), s.any(2, 4, 5), beta=2, alpha=3)
        yield s.raises(RuntimeError, s.any(2, 3, 5), s.any(2, 3, 4), s.any(2, 4, 5))
    dtypes = "float half int"
    tolerance = ROUNDED | {"float32": (1e-5, 1e-5)}     # of terms 60 times as large


def _outer_rule(a: Any, b: Any) -> Spec:
    _ranks("outer", ("self", a, 1), ("vec2", b, 1))
    made = dt.promote(a.dtype, b.dtype)
    return Spec((a.shape[0], b.shape[0]), made, device_of((a, b)), made)


@op("outer(input: Tensor, vec2: Tensor) -> Tensor")
class outer:
    """[n] and [m] to the products [n, m]."""

    rule, aliases = _outer_rule, ("ger",)

    def decomp(F: Any, a: Any, b: Any) -> Any:
        return F.unsqueeze(a, 1) * b

    def samples(s: Any) -> Any:
        yield s(s.any(3), s.any(4))
        yield s.raises(RuntimeError, s.any(3, 1), s.any(4))


def _addr_rule(input: Any, a: Any, b: Any, beta: Any = 1, alpha: Any = 1) -> Spec:
    spec = _outer_rule(a, b)
    made = dt.promote(input.dtype, spec.dtype)
    if len(input.shape) > 2 or rule.broadcast(tuple(input.shape), spec.shape) != spec.shape:
        raise RuntimeError(f"addr: input {list(input.shape)} does not expand to {list(spec.shape)}")
    return Spec(spec.shape, made, device_of((input, a, b)), made)


@op("addr(input: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Scalar = 1, alpha: Scalar = 1) -> "
    "Tensor")
class addr:
    """beta * input + alpha * outer(vec1 [n], vec2 [m])."""

    rule, where = _addr_rule, "function method inplace"

    def decomp(F: Any, input: Any, a: Any, b: Any, beta: Any, alpha: Any) -> Any:
        product = F.unsqueeze(a, 1) * b
        return _scaled(F, input, product, beta, alpha, product.dtype, True)

    def samples(s: Any) -> Any:
        yield s(s.any(3, 4), s.any(3), s.any(4))
        yield s(s.any(4), s.any(3), s.any(4), beta=2, alpha=3)
        yield s.raises(RuntimeError, s.any(3, 3), s.any(3), s.any(4))
    dtypes, tolerance = "float half int", ROUNDED


# Layers


def _linear_rule(x: Any, w: Any, b: Any = None) -> Spec:
    if len(w.shape) not in (1, 2):
        raise RuntimeError(f"linear: weight must be 1-D or 2-D, got {len(w.shape)}-D")
    if not len(x.shape) or not same(x.shape[-1], w.shape[-1]):
        n = numel(x.shape[:-1]) if len(x.shape) else 1
        k = x.shape[-1] if len(x.shape) else 1
        right = f"{w.shape[1]}x{w.shape[0]}" if len(w.shape) == 2 else f"{w.shape[0]}"
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({n}x{k} and {right})")
    _checked(x, w)
    shape = (*x.shape[:-1], *w.shape[:-1])
    if b is not None:
        if b.dtype is not x.dtype:
            raise RuntimeError(f"linear: bias is {b.dtype}, input and weight are {x.dtype}")
        if len(b.shape) > 1 or (len(b.shape) and not same(b.shape[0], (*w.shape[:-1], 1)[0])
                                and b.shape[0] != 1):
            raise RuntimeError(f"linear: bias {list(b.shape)} does not fit weight {list(w.shape)}")
    return Spec(shape, x.dtype, device_of((x, w, b)))


@op("linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor")
class linear:
    """input [.., k] @ weight [n, k] transposed + bias [n]: [.., n]."""

    kind, rule, where = EXTERN, _linear_rule, "nn"

    def eager(np: Any, x: Any, w: Any, b: Any) -> Any:
        if w.ndim == 1:
            y = np.matmul(x, w)
            return y if b is None else y + b
        y = np.matmul(x.reshape(numel(x.shape[:-1]), x.shape[-1]), w.T)  # one gemm
        if b is not None:
            y += b
        return y.reshape(*x.shape[:-1], w.shape[0])

    def decomp(F: Any, x: Any, w: Any, b: Any) -> Any:
        right = F.transpose(w, 0, 1) if w.ndim == 2 else w
        if b is None:
            return F.matmul(x, right)
        wide = x.dtype.wide
        return cast(F, F.matmul(x, right, out_dtype=wide) + cast(F, b, wide), x.dtype)

    def vjp(F: Any, g: Any, out: Any, x: Any, w: Any, b: Any) -> Any:
        nw = w.ndim

        def weight() -> Any:
            if nw == 1:
                return F.matmul(F.reshape(g, (numel(g.shape),)), rows(F, x))
            return F.matmul(transposed(F, rows(F, g)), rows(F, x))
        return (lambda: F.matmul(g, w) if nw == 2 else F.unsqueeze(g, -1) * w, weight, g)

    def samples(s: Any) -> Any:
        for shape in ((3, 4), (2, 3, 4), (4,), (2, 0, 4), (2, 2, 3, 4)):
            yield s(s.any(*shape), s.any(5, 4), s.any(5))
        yield s(s.any(3, 4), s.any(5, 4))
        yield s(s.any(3, 4), s.any(4))
        yield s(s.any(3, 0), s.any(5, 0), s.any(5))
        yield s.raises(RuntimeError, s.any(3, 4), s.any(4, 5))
        yield s.raises(RuntimeError, s.any(3, 4), s.any(5, 4), s.any(4))
    dtypes, tolerance = "float half", ROUNDED


def _bilinear_rule(x: Any, y: Any, w: Any, b: Any = None) -> Spec:
    if len(w.shape) != 3:
        raise RuntimeError(f"bilinear(): weight must be 3-D, got {len(w.shape)}-D")
    if len(x.shape) != len(y.shape) or tuple(x.shape[:-1]) != tuple(y.shape[:-1]):
        raise RuntimeError(f"bilinear(): input batch dimensions do not match: got {list(x.shape)} "
                           f"and {list(y.shape)}")
    for i, t in ((1, x), (2, y)):
        if not same(t.shape[-1], w.shape[i]):
            raise RuntimeError(f"bilinear(): input{i} size does not match weight size: got "
                               f"{t.shape[-1]} but expected {w.shape[i]}")
    if b is not None and not same(b.shape[0], w.shape[0]):
        raise RuntimeError(f"bilinear(): bias size does not match weight size: got {b.shape[0]} "
                           f"but expected {w.shape[0]}")
    _checked(x, w)
    _checked(y, w)
    return Spec((*x.shape[:-1], w.shape[0]), x.dtype, device_of((x, y, w, b)), x.dtype)


@op("bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> "
    "Tensor")
class bilinear:
    """out[.., o] = sum over i, j of input1[.., i] * weight[o, i, j] * input2[.., j] + bias[o]."""

    rule, where = _bilinear_rule, "nn function"

    def decomp(F: Any, x: Any, y: Any, w: Any, b: Any) -> Any:
        o, i, j = w.shape
        head = tuple(x.shape[:-1])
        half = F.matmul(rows(F, x), F.reshape(F.permute(w, (1, 0, 2)), (i, o * j)))
        out = F.matmul(F.reshape(half, (numel(head), o, j)), F.unsqueeze(rows(F, y), -1))
        out = F.reshape(out, (*head, o))
        return out if b is None else out + b

    def samples(s: Any) -> Any:
        yield s(s.any(3, 2), s.any(3, 4), s.any(5, 2, 4), s.any(5))
        yield s(s.any(2, 3, 2), s.any(2, 3, 4), s.any(5, 2, 4))
        yield s.raises(RuntimeError, s.any(3, 2), s.any(2, 4), s.any(5, 2, 4))
        yield s.raises(RuntimeError, s.any(3, 2), s.any(3, 3), s.any(5, 2, 4))
    dtypes, tolerance = "float half", ROUNDED
