"""Type rules: from bound arguments to result types.

A rule is called with an op's bound arguments; a tensor argument is anything with `shape` (tuple of
int or Sym), `dtype` and `device`: an eager or captured Tensor, a graph Value, a TensorType. A
number is a Python number or a symbolic number (anything with `scalar_category`). It returns a
`Spec`, or a tuple of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from lehr.base import dtype as dt
from lehr.base.device import CPU, Device
from lehr.base.dtype import DType
from lehr.base.proof import decide

Size = Any  # int | Sym
Shape = tuple[Any, ...]


class Spec(NamedTuple):
    """A result's type. `compute`: the dtype tensor and Scalar arguments are cast to first (None: as
    they are).

    A size that depends on data is None (only in ops with a break code; eager makes what it makes).
    """

    shape: Shape
    dtype: DType
    device: Device = CPU
    compute: DType | None = None


class Number(NamedTuple):
    """The type of a result that is a number known only at run time; `category` as in `base.dtype`.
    """

    category: int


def same(a: Size, b: Size) -> bool:
    """Whether two sizes are equal; a symbolic one is proven or decided (and so becomes a guard)."""
    return a is b or (a == b if isinstance(a, int) and isinstance(b, int) else decide(a, "==", b))


PLAIN = frozenset((bool, int, float, complex, str, type(None)))


def is_tensor(x: Any) -> bool:
    return (type(x) not in PLAIN and hasattr(x, "shape") and hasattr(x, "dtype")
            and not isinstance(x, np.generic))


def numel(shape: Iterable[Size]) -> Size:
    n: Size = 1
    for s in shape:
        n = n * s
    return n


def dim_of(dim: int, ndim: int) -> int:
    """A dimension index made nonnegative; 0-d tensors accept 0 and -1."""
    bound = max(ndim, 1)
    if not isinstance(dim, int):
        raise TypeError(f"dim must be an int, got {type(dim).__name__}")
    if not -bound <= dim < bound:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-bound}, "
                         f"{bound - 1}], "
                         f"but got {dim})")
    return dim + bound if dim < 0 else dim


def dims_of(dim: int | Sequence[int] | None, ndim: int) -> tuple[int, ...]:
    """Reduced dimensions, sorted; None and an empty list mean all of them."""
    if dim is None or (not isinstance(dim, int) and len(dim) == 0):
        return tuple(range(ndim))
    dims = [dim_of(d, ndim) for d in ((dim,) if isinstance(dim, int) else dim)]
    for d in dims:
        if dims.count(d) > 1:
            raise RuntimeError(f"dim {d} appears multiple times in the list of dims")
    return tuple(sorted(d for d in dims if ndim))


def broadcast(*shapes: Shape) -> Shape:
    """The broadcast shape; RuntimeError names both sizes and the dimension."""
    first = shapes[0]
    if all(len(s) == len(first) and s == first for s in shapes[1:]):
        return tuple(first)
    ndim = max(map(len, shapes))
    out: list[Size] = [1] * ndim
    for shape in shapes:
        for i in range(ndim - 1, ndim - len(shape) - 1, -1):    # from the last, as errors tell
            have, s = out[i], shape[i - ndim]
            if s is have or (isinstance(s, int) and s == 1):
                continue
            if isinstance(have, int) and have == 1:
                out[i] = s
            elif not same(have, s):
                if not isinstance(s, int) and same(s, 1):
                    continue
                if not isinstance(have, int) and same(have, 1):
                    out[i] = s
                    continue
                raise RuntimeError(f"The size of tensor a ({have}) must match the size of tensor "
                                   f"b ({s}) "
                                   f"at non-singleton dimension {i}")
    return tuple(out)


def device_of(args: Iterable[Any]) -> Device:
    """The device of the tensor arguments; 0-d CPU tensors may join any device."""
    found: Device | None = None
    zero: Device | None = None
    for a in args:
        if not is_tensor(a):
            continue
        if len(a.shape) == 0 and a.device.type == "cpu":
            zero = zero or a.device
        elif found is None or found is a.device:
            found = a.device
        else:
            raise RuntimeError("Expected all tensors to be on the same device, but found at least "
                               "two "
                               f"devices, {found} and {a.device}!")
    return found or zero or CPU


def operands_type(operands: Sequence[Any]) -> DType:
    """PyTorch's result type of tensors and numbers."""
    dims: list[DType] = []
    zeros: list[DType] = []
    numbers: list[int] = []
    for a in operands:
        if a is None:
            continue
        if is_tensor(a):
            (dims if len(a.shape) else zeros).append(a.dtype)
        else:
            numbers.append(dt.category_of(a))
    return dt.result_type(dims, zeros, numbers)


def as_float(dtype: DType) -> DType:
    """Integers become the default float, floats stay."""
    return dtype if dtype.category > dt.INT else dt.Default.dtype


def elementwise(operands: Sequence[Any], result: Callable[[DType], DType] | None = None,
                floating: bool = False) -> Spec:
    """Broadcast and promote `operands`; `result` maps the computing dtype to the result's."""
    tensors = [a for a in operands if is_tensor(a)]
    shapes = [tuple(a.shape) for a in tensors]
    compute = operands_type(operands)
    compute = as_float(compute) if floating else compute
    return Spec(broadcast(*shapes) if shapes else (), result(compute) if result else compute,
                device_of(tensors), compute)


LABELS = {"bool": "Bool", "uint8": "Byte", "int8": "Char", "int16": "Short", "int32": "Int",
          "int64": "Long", "float16": "Half", "bfloat16": "BFloat16", "float32": "Float",
          "float64": "Double", "complex64": "ComplexFloat", "complex128": "ComplexDouble"}


def label(dtype: DType) -> str:
    """The dtype as PyTorch's messages about missing implementations spell it, quoted."""
    return f"'{LABELS[dtype.name]}'"


def no_bool(message: str, x: Any, error: type[Exception] = RuntimeError) -> None:
    """Refuses bool tensors where PyTorch's kernels do."""
    if is_tensor(x) and x.dtype is dt.bool_:
        raise error(message)


def check_floating(name: str, x: Any) -> None:
    """Refuses whole numbers and booleans where PyTorch's kernels do."""
    if x.dtype.is_integer:
        raise NotImplementedError(f'"{name}" not implemented for {label(x.dtype)}')


def check_alike(name: str, *operands: Any) -> None:
    """Refuses operands (None: left out) of several dtypes, and those that are not floating."""
    given = [x for x in operands if x is not None]
    check_floating(name, given[0])
    if any(x.dtype is not given[0].dtype for x in given):
        raise RuntimeError(f"{name}: expected operands of one dtype, but got "
                           f"{', '.join(str(x.dtype) for x in given)}")


def floating(name: str) -> Callable[..., Spec]:
    """`unary` of op `name` that takes floating (or complex) inputs alone."""
    def typed(x: Any, *rest: Any) -> Spec:
        check_floating(name, x)
        return unary(x)
    return typed


def unary(x: Any, *rest: Any) -> Spec:
    return Spec(tuple(x.shape), x.dtype, x.device, x.dtype)


def float_unary(x: Any, *rest: Any) -> Spec:
    compute = as_float(x.dtype)
    return Spec(tuple(x.shape), compute, x.device, compute)


def numeric(name: str, least: int = dt.INT) -> Callable[..., Spec]:
    """`binary` (or `unary`) of op `name`, for operands of category `least` and above."""
    def typed(*operands: Any) -> Spec:
        spec = elementwise(operands)
        if spec.dtype.category < least:
            raise NotImplementedError(f'"{name}" not implemented for {label(spec.dtype)}')
        return spec
    return typed


def to_bool(dtype: DType) -> DType:
    return dt.bool_


def bool_unary(x: Any, *rest: Any) -> Spec:
    return Spec(tuple(x.shape), dt.bool_, x.device, x.dtype)


def binary(x: Any, y: Any, *rest: Any) -> Spec:
    return elementwise((x, y))


def float_binary(x: Any, y: Any, *rest: Any) -> Spec:
    return elementwise((x, y), floating=True)


def compare(x: Any, y: Any, *rest: Any) -> Spec:
    return elementwise((x, y), to_bool)


def reduced_shape(shape: Shape, dims: Sequence[int], keepdim: bool) -> Shape:
    if keepdim:
        return tuple(1 if i in dims else s for i, s in enumerate(shape))
    return tuple(s for i, s in enumerate(shape) if i not in dims)


def reduce(x: Any, dim: Any = None, keepdim: bool = False, dtype: DType | None = None,
           *rest: Any) -> Spec:
    """Same dtype unless `dtype` is given."""
    made = dtype or x.dtype
    shape = reduced_shape(tuple(x.shape), dims_of(dim, len(x.shape)), keepdim)
    return Spec(shape, made, x.device, made)


def sum_like(x: Any, dim: Any = None, keepdim: bool = False, dtype: DType | None = None,
             *rest: Any) -> Spec:
    """Integers and bool accumulate in int64."""
    return reduce(x, dim, keepdim, dtype or (dt.int64 if x.dtype.is_integer else x.dtype))


def matmul_shape(a: Shape, b: Shape) -> Shape:
    """The shape of `a @ b` for 1-d and more operands; RuntimeError names both shapes."""
    if not a or not b:
        raise RuntimeError("both arguments to matmul need to be at least 1D, but they are "
                           f"{len(a)}D and {len(b)}D")
    if not same(a[-1], b[-2] if len(b) > 1 else b[0]):
        if len(a) == 2 and len(b) == 2:
            raise RuntimeError("mat1 and mat2 shapes cannot be multiplied "
                               f"({a[0]}x{a[1]} and {b[0]}x{b[1]})")
        if len(a) == 2:
            raise RuntimeError(f"size mismatch, got input ({a[0]}), mat ({a[0]}x{a[1]}), "
                               f"vec ({b[0]})")
        raise RuntimeError(f"size mismatch in matmul: {list(a)} and {list(b)}: the last dimension "
                           f"of the "
                           "first must equal the second-to-last of the second")
    head = broadcast(a[:-2], b[:-2]) if len(a) > 2 or len(b) > 2 else ()
    return head + (a[-2:-1] if len(a) > 1 else ()) + (b[-1:] if len(b) > 1 else ())


def matmul(a: Any, b: Any, *rest: Any) -> Spec:
    if a.dtype is not b.dtype:
        raise RuntimeError(f"expected both operands to have the same dtype, but got {a.dtype} and "
                           f"{b.dtype}")
    return Spec(matmul_shape(tuple(a.shape), tuple(b.shape)), a.dtype, device_of((a, b)), None)
