"""What a tensor says of itself: properties and questions that cost nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lehr.base.dtype import DType
from lehr.ops import layout as layouts
from lehr.tensor import format
from lehr.tensor.state import STATE
from lehr.tensor.tensor import Tensor


def _kind(name: str) -> property:
    """`is_cuda` and the like."""
    def test(self: Tensor) -> bool:
        return self.device.type == name
    test.__doc__ = f"Whether the memory is on a {name} device."
    return property(test)


def _never(doc: str) -> property:
    """A property of kinds of tensors that lehr does not have."""
    def test(self: Tensor) -> bool:
        return False
    test.__doc__ = doc
    return property(test)


is_cpu, is_cuda, is_meta = _kind("cpu"), _kind("cuda"), _kind("meta")
is_mps, is_xpu, is_hpu, is_mtia, is_maia, is_xla, is_ipu, is_vulkan, is_privateuseone = (
    _kind(n) for n in ("mps", "xpu", "hpu", "mtia", "maia", "xla", "ipu", "vulkan",
                       "privateuseone"))
is_sparse = _never("False: only tensors of `lehr.tensor.coo` are sparse.")
is_sparse_csr = is_quantized = is_mkldnn = is_nested = is_ort = is_sparse


@property  # type: ignore[misc]
def layout(self: Tensor) -> Any:
    """`strided`; sparse tensors have `sparse_coo`."""
    return format.strided


@property  # type: ignore[misc]
def itemsize(self: Tensor) -> int:
    """Bytes of one element."""
    return self.dtype.itemsize


@property  # type: ignore[misc]
def nbytes(self: Tensor) -> Any:
    """Bytes of all elements."""
    return self.numel() * self.dtype.itemsize


@property  # type: ignore[misc]
def names(self: Tensor) -> tuple[None, ...]:
    """No dimension has a name."""
    return (None,) * len(self._shape)


@property  # type: ignore[misc]
def output_nr(self: Tensor) -> int:
    """Which result of its `grad_fn` the tensor is."""
    return 0 if self.grad_fn is None else self._meta.index  # type: ignore[union-attr]


@property  # type: ignore[misc]
def _base(self: Tensor) -> Tensor | None:
    """The tensor whose view this one is."""
    if self._view is None and self._is_view():
        STATE.tracer.changes(self, "_base", True)   # of an argument: it is no value of the capture
    return None if self._view is None else self._view.base


@property  # type: ignore[misc]
def name(self: Tensor) -> None:
    """Tensors have no names."""
    return


@property  # type: ignore[misc]
def retains_grad(self: Tensor) -> bool:
    """Whether backward keeps this result's gradient."""
    return self._meta is not None and self._meta.retains and not self.is_leaf


@property  # type: ignore[misc]
def grad_dtype(self: Tensor) -> DType:
    """The dtype of the gradient: the tensor's own."""
    return self.dtype


volatile = is_sparse


def _is_view(self: Tensor) -> bool:
    """Whether the tensor shares the history of another."""
    if self._view is None and STATE.tracer is not None:
        return STATE.tracer.is_view(self)  # type: ignore[no-any-return]
    return self._view is not None and self._view.base is not None


def element_size(self: Tensor) -> int:
    """Bytes of one element."""
    return self.dtype.itemsize


def get_device(self: Tensor) -> int:
    """The index of the GPU, -1 on the CPU."""
    return -1 if self.device.type == "cpu" else self.device.index or 0


def _dtype_test(name: str, test: Callable[[DType], bool]) -> Any:
    def method(input: Tensor) -> bool:
        if not isinstance(input, Tensor):
            raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not "
                            f"{type(input).__name__}")
        return test(input.dtype)
    method.__name__ = name
    method.__doc__ = f"`{name}` of the dtype."
    return method


is_floating_point = _dtype_test("is_floating_point", lambda d: d.is_floating_point)
is_complex = _dtype_test("is_complex", lambda d: d.is_complex)
is_signed = _dtype_test("is_signed", lambda d: d.signed)


def is_inference(input: Tensor) -> bool:
    """Whether the tensor was made in inference mode."""
    return input._storage.inference


def is_conj(input: Tensor) -> bool:
    """Conjugation is never lazy here."""
    return False


def is_neg(input: Tensor) -> bool:
    """Negation is never lazy here."""
    return False


def resolve_conj(input: Tensor) -> Tensor:
    """The tensor itself."""
    return input


resolve_neg = resolve_conj


def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether the shapes are equal."""
    return input._shape == other._shape


def is_nonzero(input: Tensor) -> bool:
    """Whether the one element is not zero."""
    n = input.numel()
    if n != 1:
        count = "no values" if n == 0 else "more than one value"
        raise RuntimeError(f"Boolean value of Tensor with {count} is ambiguous")
    return bool(input.item())


def numel(input: Tensor) -> Any:
    """How many elements."""
    return input.numel()


def is_coalesced(self: Tensor) -> bool:
    raise RuntimeError("is_coalesced expected sparse coordinate tensor layout but got Strided")


def dim_order(self: Tensor, ambiguity_check: Any = False) -> tuple[int, ...]:
    """The dimensions from the slowest to the fastest in memory."""
    return tuple(sorted(range(len(self._shape)), key=lambda d: -self._strides[d]))


def is_non_overlapping_and_dense(self: Tensor) -> bool:
    """Whether some order of the dimensions is row-major."""
    return layouts.is_dense(self._shape, self._strides)


def has_names(self: Tensor) -> bool:
    return False
