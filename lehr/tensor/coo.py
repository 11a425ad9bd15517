"""Sparse tensors by coordinates: a list of places, and what stands at each.

`Coo` is a Tensor without memory of its own: its values are an ordinary tensor, whose gradients are
the sparse tensor's. An operation is a row of `TAKEN`, written over dense operations; whatever has
no row raises an error, for there is nothing that could be read in its place.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NoReturn

from lehr.base import dtype as dt
from lehr.base.device import Device
from lehr.ops import layout
from lehr.tensor import format
from lehr.tensor.show import contents
from lehr.tensor.storage import Storage
from lehr.tensor.tensor import Tensor

F = Tensor.F


def refuse(what: str) -> NoReturn:
    raise NotImplementedError(
        f"{what} takes no sparse tensors here: give it x.to_dense(), or work on x.coalesce()'s "
        "indices() and values()")


class Hollow(Storage):
    """The storage of a sparse tensor: there is nothing to read in it."""

    __slots__ = ()

    def __init__(self, device: Device) -> None:
        super().__init__(None, device)

    @property
    def flat(self) -> Any:
        refuse("this operation")

    def array(self, shape: Any, dtype: Any, strides: Any, offset: Any) -> Any:
        refuse("this operation")

    def copy(self) -> Storage:
        return Hollow(self.device)


class Coo(Tensor):
    """A tensor of `shape` that is zero but at `_index`.

    _index   int64 [sparse dimensions, n], one column a place
    _held    [n, *dense dimensions]; the values of equal places add up
    """

    _index: Any
    _held: Any
    _sorted: bool

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", str(func))
        taken = TAKEN.get(name)
        if taken is None:
            refuse(name)
        return taken(*args, **(kwargs or {}))

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        def part(name: str, t: Tensor) -> str:
            size = f"[], size={tuple(t.shape)}"
            body = contents(t.detach(), 7) if t.numel() else size
            return f"{name}=tensor(" + body.replace("\n", "\n" + " " * (8 + len(name))) + ")"
        end = f"size={tuple(self.shape)}, nnz={self._nnz()}"
        if self.dtype not in (dt.Default.dtype, dt.int64, dt.bool_):
            end += f", dtype={self.dtype}"
        end += ", layout=torch.sparse_coo"
        if self.grad_fn is not None:
            end += f", grad_fn={self.grad_fn!r}"
        elif self.requires_grad:
            end += ", requires_grad=True"
        return "tensor(" + ",\n       ".join((part("indices", self._index),
                                             part("values", self._held), end)) + ")"

    __str__ = __repr__

    # -- what it is

    is_sparse = property(lambda self: True)
    layout = property(lambda self: format.sparse_coo)
    requires_grad = property(lambda self: self._held.requires_grad,
                             lambda self, wanted: setattr(self._held, "requires_grad", wanted))
    grad_fn = property(lambda self: self._held.grad_fn)
    is_leaf = property(lambda self: self._held.is_leaf)

    @property
    def grad(self) -> Any:
        """The gradient of a leaf, sparse, at the same places."""
        g = self._held.grad
        return None if g is None else made(self._index, g, self._shape, self._sorted)

    @grad.setter
    def grad(self, given: Any) -> None:
        if given is not None:
            refuse("assigning a sparse tensor's grad")
        self._held.grad = None

    def sparse_dim(self) -> int:
        """How many dimensions the places have."""
        return int(self._index.shape[0])

    def dense_dim(self) -> int:
        """How many dimensions each value has."""
        return len(self._held.shape) - 1

    def _nnz(self) -> int:
        return int(self._index.shape[1])

    def _indices(self) -> Tensor:
        return self._index

    def _values(self) -> Tensor:
        return self._held.detach()

    def is_coalesced(self) -> bool:
        """Whether the places are known to be sorted and distinct."""
        return self._sorted

    def indices(self) -> Tensor:
        """The places, of a coalesced tensor."""
        self._need("indices")
        return self._index

    def values(self) -> Tensor:
        """The values, of a coalesced tensor; gradients flow through them."""
        self._need("values")
        return self._held

    def _need(self, what: str) -> None:
        if not self._sorted:
            raise RuntimeError(f"Cannot get {what} on an uncoalesced tensor, please call "
                               ".coalesce() first")

    def stride(self, dim: int | None = None) -> Any:
        """Sparse tensors have no strides."""
        raise RuntimeError("Sparse tensors do not have strides")

    def is_contiguous(self, memory_format: Any = None) -> bool:
        """Sparse tensors have no memory order."""
        raise RuntimeError("Tensors of layout torch.sparse_coo do not have is_contiguous")

    # -- other forms

    def coalesce(self) -> Coo:
        """Sorted distinct places; the values of equal ones are added up."""
        if self._sorted:
            return self
        line = lined(self._index, self._shape)
        places, inverse = F.unique_all(line)[:2]
        held = F.index_add(F.zeros((int(places.shape[0]), *self._held.shape[1:]), dtype=self.dtype,
                                   device=self.device), 0, inverse, self._held)
        return made(spread(places, self._shape[:self.sparse_dim()]), held, self._shape, True)

    def to_dense(self, dtype: Any = None, *, masked_grad: bool | None = None) -> Tensor:
        """The ordinary tensor."""
        k = self.sparse_dim()
        flat = F.zeros((math.prod(self._shape[:k]), *self._held.shape[1:]), dtype=self.dtype,
                       device=self.device)
        flat = F.index_add(flat, 0, lined(self._index, self._shape), self._held)
        out = F.reshape(flat, list(self._shape))
        return out if dtype is None else F.to_dtype(out, dtype)  # type: ignore[no-any-return]

    def to_sparse(self, sparse_dim: int | None = None, **kwargs: Any) -> Coo:
        """The tensor itself."""
        if sparse_dim not in (None, self.sparse_dim()) or kwargs.get("layout") not in (
                None, format.sparse_coo):
            refuse("to_sparse() with another layout")
        return self

    def sparse_resize_(self, *args: Any) -> NoReturn:
        refuse("sparse_resize_")

    def clone(self, *, memory_format: Any = None) -> Coo:
        """A copy, through which gradients flow."""
        return self._with(F.clone(self._held))

    def detach(self) -> Coo:
        """The same values, without their history."""
        return self._with(self._held.detach())

    def detach_(self) -> Coo:
        """Makes this a leaf."""
        self._held = self._held.detach()
        return self

    def requires_grad_(self, requires_grad: bool = True) -> Coo:
        """Turns recording on or off."""
        self._held.requires_grad_(requires_grad)
        return self

    def to(self, *args: Any, **kwargs: Any) -> Coo:
        """Another dtype or device."""
        held = self._held.to(*args, **kwargs)
        return made(self._index.to(held.device), held, self._shape, self._sorted)

    def zero_(self) -> Coo:
        """Drops all places."""
        self._index, self._held, self._sorted = self._index[:, :0], self._held.detach()[:0], True
        return self

    def transpose(self, dim0: int, dim1: int) -> Coo:
        """Two sparse dimensions change places."""
        n = len(self._shape)
        order = list(range(n))
        a, b = dim0 % n, dim1 % n
        if max(a, b) >= self.sparse_dim():
            refuse("transpose of dense dimensions")
        order[a], order[b] = b, a
        index = F.stack([self._index[order[i]] for i in range(self.sparse_dim())], 0)
        return made(index, self._held, tuple(self._shape[i] for i in order), False)

    def t(self) -> Coo:
        """The transposed matrix."""
        if len(self._shape) != 2:
            raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, got {len(self._shape)}")
        return self.transpose(0, 1)

    T = property(t)

    def _with(self, held: Tensor) -> Coo:
        return made(self._index, held, self._shape, self._sorted)

    def __deepcopy__(self, memo: Any) -> Coo:
        if not self.is_leaf:
            raise RuntimeError("Only Tensors created explicitly by the user (graph leaves) support "
                               "the deepcopy protocol at the moment.")
        copy = self.detach().clone()
        copy._held.requires_grad = self.requires_grad
        memo[id(self)] = copy
        return copy

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        if not self.is_leaf:
            raise RuntimeError("a tensor that is not a leaf cannot be pickled; detach() it first")
        return made, (self._index, self._held, self._shape, self._sorted)

    def __len__(self) -> int:
        return int(self._shape[0])

    def __bool__(self) -> bool:
        refuse("bool()")

    def __getitem__(self, index: Any) -> NoReturn:
        refuse("indexing")

    def __setitem__(self, index: Any, value: Any) -> NoReturn:
        refuse("indexing")


def made(index: Any, held: Any, shape: tuple[int, ...], is_sorted: bool) -> Coo:
    """The tensor of `shape` with `held` at `index`, which are taken as they are."""
    shape = tuple(int(n) for n in shape)
    t: Any = Tensor._make(Hollow(held.device), held.dtype, shape, layout.contiguous(shape))
    t.__class__ = Coo
    t._index, t._held, t._sorted = index, held, is_sorted
    return t  # type: ignore[no-any-return]


def lined(index: Any, shape: tuple[int, ...]) -> Tensor:
    """Places [k, n] as row-major numbers [n]."""
    k = int(index.shape[0])
    if k == 0:
        return F.zeros((int(index.shape[1]),), dtype=dt.int64, device=index.device)
    line = index[0]
    for d in range(1, k):
        line = F.add(F.mul(line, int(shape[d])), index[d])
    return line


def spread(line: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Row-major numbers [n] as places [k, n]."""
    rows = []
    for n in reversed(shape):
        rows.append(F.remainder(line, max(int(n), 1)))
        line = F.floor_divide(line, max(int(n), 1))
    if not rows:
        return F.zeros((0, int(line.shape[0])), dtype=dt.int64, device=line.device)
    return F.stack(rows[::-1], 0)


# -- arithmetic


def same_shape(a: Any, b: Any, what: str) -> None:
    if tuple(a._shape) != tuple(b._shape):
        raise RuntimeError(f"{what}: expected sizes of 'self' and 'other' to match, but "
                           f"{list(a._shape)} != {list(b._shape)}")


def is_number(x: Any) -> bool:
    return isinstance(x, (int, float, complex)) or (
        isinstance(x, Tensor) and not isinstance(x, Coo) and not x._shape)


def add(input: Any, other: Any, *, alpha: Any = 1, out: Any = None) -> Any:
    """Of two sparse tensors a sparse one, with the places of both; with a dense one it is dense."""
    if out is not None or not isinstance(input, Tensor) or not isinstance(other, Tensor):
        refuse("add of a number, or with out=,")
    if not isinstance(input, Coo):
        return added(F.clone(input), other, alpha)  # type: ignore[arg-type]
    if not isinstance(other, Coo):
        return F.add(other if alpha == 1 else F.mul(other, alpha), input.to_dense())
    same_shape(input, other, "add")
    if input.sparse_dim() != other.sparse_dim():
        raise RuntimeError("cannot add two sparse tensors with different numbers of sparse "
                           "dimensions")
    kind = dt.promote(input.dtype, other.dtype)
    more = other._held if alpha == 1 else F.mul(other._held, alpha)
    return made(F.cat([input._index, other._index], 1),
                F.cat([F.to_dtype(input._held, kind), F.to_dtype(more, kind)], 0),
                input._shape, False)


def added(target: Tensor, other: Coo, alpha: Any = 1) -> Tensor:
    """`target += alpha * other`, in place; touches the rows of `other` alone."""
    same_shape(target, other, "add")
    held = F.to_dtype(other._held if alpha == 1 else F.mul(other._held, alpha), target.dtype)
    if other.sparse_dim() == 1:
        return target.index_add_(0, other._index[0], held)  # type: ignore[no-any-return]
    return target.add_(other._with(held).to_dense())  # type: ignore[no-any-return]


def add_(input: Any, other: Any, *, alpha: Any = 1) -> Any:
    """In place: a sparse tensor takes sparse ones alone."""
    if not isinstance(input, Coo):
        return added(input, other, alpha)
    if not isinstance(other, Coo):
        raise RuntimeError("add(sparse, dense) is not supported in place. Use add(dense, sparse) "
                           "instead.")
    both = add(input, other, alpha=alpha)
    input._index, input._sorted = both._index, False
    input._held = F.to_dtype(both._held, input.dtype)
    return input


def sub(input: Any, other: Any, *, alpha: Any = 1, out: Any = None) -> Any:
    """`input - alpha * other`."""
    return add(input, other, alpha=-alpha, out=out)


def mul(input: Any, other: Any, *, out: Any = None) -> Any:
    """By a number, or element by element: sparse where one of the two is."""
    if out is not None:
        refuse("mul with out=")
    if not isinstance(input, Coo):
        input, other = other, input
    if is_number(other):
        return input._with(F.mul(input._held, other))
    same_shape(input, other, "mul")
    if isinstance(other, Coo):
        other = other.to_dense()
    mine = input.coalesce()
    return mine._with(F.mul(mine._held, picked(other, mine)))


def div(input: Any, other: Any, *, rounding_mode: str | None = None, out: Any = None) -> Any:
    """By a number."""
    if not isinstance(input, Coo) or not is_number(other) or out is not None:
        refuse("div by a tensor")
    mine = input if rounding_mode is None else input.coalesce()
    return mine._with(F.div(mine._held, other, rounding_mode=rounding_mode))


def picked(dense: Tensor, mask: Coo) -> Tensor:
    """The values of `dense` at the places of `mask`: [n, *dense dimensions]."""
    k = mask.sparse_dim()
    flat = F.reshape(dense, [math.prod(mask._shape[:k]), *mask._shape[k:]])
    return F.index_select(flat, 0, lined(mask._index, mask._shape))


def mm(input: Any, mat2: Any, *, out: Any = None) -> Any:
    """Matrices [m, k] and [k, n] (or a vector [k]): dense, unless both are sparse."""
    if out is not None:
        refuse("a product with out=")
    a, b = input._shape, mat2._shape
    if len(a) not in (1, 2) or len(b) not in (1, 2) or len(a) + len(b) < 3:
        refuse(f"a product of shapes {list(a)} and {list(b)}")
    if a[-1] != b[0]:
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({list(a)} and {list(b)})")
    if input.dtype is not mat2.dtype:
        raise RuntimeError(f"expected mat1 and mat2 to have the same dtype, but got: {input.dtype} "
                           f"!= {mat2.dtype}")
    if not isinstance(input, Coo):
        right = mat2.t()
        return F.transpose(mm(right, F.transpose(input, 0, 1)), 0, 1) if len(a) == 2 else mm(
            right, input)
    if input.dense_dim() or isinstance(mat2, Coo) and mat2.dense_dim():
        refuse("a product with dense dimensions")
    if isinstance(mat2, Coo):
        return _both(input.coalesce(), mat2.coalesce())
    rows = F.index_select(mat2, 0, input._index[1])
    held = input._held if len(b) == 1 else F.unsqueeze(input._held, 1)
    start = F.zeros((a[0], *b[1:]), dtype=input.dtype, device=input.device)
    return F.index_add(start, 0, input._index[0], F.mul(held, rows))


def _both(a: Coo, b: Coo) -> Coo:
    """A product of two sparse matrices: each place (i, k) of `a` meets row k of `b`."""
    counts = F.bincount(b._index[0], minlength=int(b._shape[0]))
    starts = F.sub(F.cumsum(counts, 0), counts)
    many = F.index_select(counts, 0, a._index[1])
    mine = F.arange(a._nnz(), device=a.device).repeat_interleave(many)
    before = F.sub(F.cumsum(many, 0), many)
    step = F.sub(F.arange(int(mine.shape[0]), device=a.device), F.index_select(before, 0, mine))
    theirs = F.add(F.index_select(starts, 0, F.index_select(a._index[1], 0, mine)), step)
    index = F.stack([F.index_select(a._index[0], 0, mine),
                     F.index_select(b._index[1], 0, theirs)], 0)
    held = F.mul(F.index_select(a._held, 0, mine), F.index_select(b._held, 0, theirs))
    return made(index, held, (a._shape[0], b._shape[1]), False).coalesce()


def addmm(input: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1,
          out: Any = None) -> Any:
    """beta * input + alpha * (mat1 @ mat2)."""
    product = mm(mat1, mat2, out=out)
    product = product if alpha == 1 else scaled(product, alpha)
    start = input if beta == 1 else scaled(input, beta)
    if not isinstance(start, Coo) and not isinstance(product, Coo):
        return F.add(start, product)
    return add(start, product)


def scaled(x: Any, number: Any) -> Any:
    return mul(x, number) if isinstance(x, Coo) else F.mul(x, number)


def sum(input: Coo, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    """Over all elements, or over `dim`: sparse while a sparse dimension is left."""
    x = input if dtype is None else input._with(F.to_dtype(input._held, dtype))
    if keepdim:
        refuse("sum with keepdim=True")
    if dim is None:
        return F.sum(x._held)
    n, k = len(x._shape), x.sparse_dim()
    dims = sorted({d % n for d in ((dim,) if isinstance(dim, int) else dim)})
    held, inner = x._held, [d - k + 1 for d in dims if d >= k]
    held = F.sum(held, inner) if inner else held
    left = [d for d in range(k) if d not in dims]
    shape = tuple(s for d, s in enumerate(x._shape) if d not in dims)
    if not left:
        return F.sum(held, [0])
    index = F.stack([x._index[d] for d in left], 0)
    return made(index, held, shape, False).coalesce()


def like(input: Coo, **kwargs: Any) -> Coo:
    """A sparse tensor of the shape without a place in it."""
    return input.detach().clone().zero_().to(kwargs.get("dtype") or input.dtype)


def unary(name: str) -> Callable[..., Any]:
    """A function that leaves zero zero: of the values, once equal places are added up."""
    def run(input: Coo, *args: Any, **kwargs: Any) -> Coo:
        mine = input.coalesce()
        return mine._with(getattr(F, name)(mine._held, *args, **kwargs))
    run.__name__ = name
    return run


def through(name: str) -> Callable[..., Any]:
    """A conversion of the values: `float()`, `cpu()`."""
    def run(input: Coo, *args: Any, **kwargs: Any) -> Coo:
        held = getattr(input._held, name)(*args, **kwargs)
        return made(input._index.to(held.device), held, input._shape, input._sorted)
    run.__name__ = name
    return run


def method(name: str) -> Callable[..., Any]:
    return lambda input, *args, **kwargs: getattr(input, name)(*args, **kwargs)


ZERO = ("abs neg sqrt sin tan sinh tanh asin atan asinh atanh expm1 log1p floor ceil round trunc "
        "sign relu erf rad2deg deg2rad isnan nan_to_num square").split()
VALUES = "float double half bfloat16 int long short char byte bool cpu cuda type type_as".split()
OWN = ("clone detach detach_ coalesce is_coalesced to_dense to_sparse t transpose sparse_dim "
       "dense_dim values indices to zero_ requires_grad_").split()

TAKEN: dict[str, Callable[..., Any]] = {
    **{name: unary(name) for name in ZERO},
    **{name: through(name) for name in VALUES},
    **{name: method(name) for name in OWN},
    "add": add, "add_": add_, "sub": sub, "subtract": sub, "mul": mul, "multiply": mul, "div": div,
    "divide": div, "true_divide": div, "mm": mm, "matmul": mm, "mv": mm, "smm": mm, "spmm": mm,
    "addmm": addmm, "sspaddmm": addmm, "sum": sum, "zeros_like": like,
    "sparse_mask": lambda input, mask: mask._with(picked(input, mask)),
    "sub_": lambda input, other, *, alpha=1: add_(input, other, alpha=-alpha),
    "is_floating_point": lambda input: input.dtype.is_floating_point,
    "is_complex": lambda input: input.dtype.is_complex,
    "is_same_size": lambda input, other: input._shape == other._shape,
    "numel": lambda input: math.prod(input._shape),
    "norm": lambda input, p="fro", **kw: F.norm(input.coalesce()._held, p, **kw),
    "pow": lambda input, exponent: unary("pow")(input, exponent),
}

for _name, _taken in {
        "add": add, "sub": sub, "mul": mul, "truediv": div, "matmul": mm}.items():
    setattr(Coo, f"__{_name}__", lambda self, other, _f=_taken: _f(self, other))
    setattr(Coo, f"__r{_name}__", lambda self, other, _f=_taken: _f(other, self))
for _name in "add_ sub_ norm sum mul div pow".split():
    setattr(Coo, _name, lambda self, *a, _f=TAKEN[_name], **k: _f(self, *a, **k))
Coo.__neg__ = lambda self: TAKEN["neg"](self)  # type: ignore[method-assign]
Coo.__abs__ = lambda self: TAKEN["abs"](self)  # type: ignore[method-assign]
Coo.__iadd__ = lambda self, other: add_(self, other)  # type: ignore[attr-defined]
Coo.__isub__ = lambda self, other: add_(self, other, alpha=-1)  # type: ignore[attr-defined]
