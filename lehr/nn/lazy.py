"""Modules that learn the sizes of their parameters from their first input."""

from __future__ import annotations

from typing import Any

from lehr.nn.batch import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
)
from lehr.nn.conv import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
)
from lehr.nn.linear import Linear
from lehr.nn.parameter import UninitializedBuffer, UninitializedParameter, is_lazy
from lehr.tensor.mode import no_grad
from lehr.tensor.tensor import Tensor


class LazyModuleMixin:
    """Defers parameters to the first call, then turns the module into `cls_to_become`.

    Subclasses define `initialize_parameters(*args, **kwargs)`, called with the first arguments.
    """

    cls_to_become: Any = None

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[safe-super]
        self._load_hook = self._register_load_state_dict_pre_hook(self._lazy_load_hook)
        self._initialize_hook = self.register_forward_pre_hook(self._infer_parameters,
                                                               with_kwargs=True)

    def _lazy_load_hook(self: Any, state_dict: Any, prefix: str, *rest: Any) -> None:
        """Takes the shapes of a state_dict that has them."""
        for name, t in (*self._parameters.items(), *self._buffers.items()):
            given = state_dict.get(prefix + name)
            if is_lazy(t) and given is not None and not is_lazy(given):
                with no_grad():
                    t.materialize(given.shape)

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Materializes the parameters for these arguments of `forward`; subclasses define it."""
        raise NotImplementedError("initialize_parameters is not implemented for "
                                  f"{type(self).__name__}")

    def has_uninitialized_params(self: Any) -> bool:
        """Whether some parameter or buffer has no shape yet."""
        return any(map(is_lazy, (*self._parameters.values(), *self._buffers.values())))

    def _infer_parameters(self: Any, module: Any, args: Any, kwargs: Any = None) -> None:
        module.initialize_parameters(*args, **(kwargs or {}))
        if module.has_uninitialized_params():
            raise RuntimeError(f"module {self._get_name()} has not been fully initialized")
        for name in ("_initialize_hook", "_load_hook"):
            getattr(module, name).remove()
            delattr(module, name)
        if module.cls_to_become is not None:
            module.__class__ = module.cls_to_become


class LazyLinear(LazyModuleMixin, Linear):
    """`Linear` whose in_features comes from the first input."""

    cls_to_become = Linear

    def __init__(self, out_features: int, bias: bool = True, device: Any = None,
                 dtype: Any = None) -> None:
        super().__init__(0, 0, False)
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        self.out_features = out_features
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """Draws new values, once there are shapes."""
        if not self.has_uninitialized_params() and self.in_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:  # type: ignore[override]
        """Shapes for [*, in_features]."""
        if self.has_uninitialized_params():
            with no_grad():
                self.in_features = input.shape[-1]
                self.weight.materialize((self.out_features, self.in_features))
                if self.bias is not None:
                    self.bias.materialize((self.out_features,))
                self.reset_parameters()
        if self.in_features == 0:
            self.in_features = self.weight.shape[-1]


class _LazyConv(LazyModuleMixin):
    """A convolution whose in_channels comes from the first input."""

    transposes = False

    def __init__(self: Any, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0,
                 *args: Any, **kwargs: Any) -> None:
        names = (("output_padding", "groups", "bias", "dilation") if self.transposes
                 else ("dilation", "groups", "bias"))
        names = (*names, "padding_mode", "device", "dtype")
        given = dict(zip(names, args, strict=False), **kwargs)
        bias = given.pop("bias", True)
        where: dict[str, Any] = {k: given.get(k) for k in ("device", "dtype")}
        super().__init__(0, 0, kernel_size, stride, padding, bias=False, **given)
        self.weight = UninitializedParameter(**where)
        self.out_channels = out_channels
        if bias:
            self.bias = UninitializedParameter(**where)

    def reset_parameters(self: Any) -> None:
        """Draws new values, once there are shapes."""
        if not self.has_uninitialized_params() and self.in_channels != 0:
            super().reset_parameters()  # type: ignore[misc]

    def initialize_parameters(self: Any, input: Tensor, *args: Any, **kwargs: Any) -> None:
        """Shapes for [n, in_channels, *] or [in_channels, *]."""
        if not self.has_uninitialized_params():
            return
        n = self.rank
        if input.dim() not in (n + 1, n + 2):
            raise RuntimeError(f"Expected {n + 1}D (unbatched) or {n + 2}D (batched) input to "
                               f"{type(self).__name__}, but got input of size: {input.shape}")
        self.in_channels = input.shape[-n - 1]
        if self.in_channels % self.groups != 0:
            raise ValueError("in_channels must be divisible by groups")
        shape = ((self.in_channels, self.out_channels // self.groups) if self.transposed
                 else (self.out_channels, self.in_channels // self.groups))
        self.weight.materialize((*shape, *self.kernel_size))
        if self.bias is not None:
            self.bias.materialize((self.out_channels,))
        self.reset_parameters()


class _LazyNorm(LazyModuleMixin):
    """A normalization whose num_features comes from the first input."""

    wanted: tuple[bool, bool] = (True, True)  # affine, track_running_stats by default

    def __init__(self: Any, eps: float = 1e-5, momentum: float | None = 0.1, affine: Any = None,
                 track_running_stats: Any = None, device: Any = None, dtype: Any = None, *,
                 bias: bool = True) -> None:
        super().__init__(0, eps, momentum, False, False, device, dtype)
        self.affine = self.wanted[0] if affine is None else affine
        track = self.wanted[1] if track_running_stats is None else track_running_stats
        self.track_running_stats = track
        if self.affine:
            self.weight = UninitializedParameter(device=device, dtype=dtype)
            if bias:
                self.bias = UninitializedParameter(device=device, dtype=dtype)
        if track:
            self.running_mean = UninitializedBuffer(device=device, dtype=dtype)
            self.running_var = UninitializedBuffer(device=device, dtype=dtype)
            self.num_batches_tracked = Tensor.F.full((), 0, device=device)

    def reset_parameters(self: Any) -> None:
        """Weight 1, bias 0, once there are shapes."""
        if not self.has_uninitialized_params() and self.num_features != 0:
            super().reset_parameters()  # type: ignore[misc]

    def initialize_parameters(self: Any, input: Tensor) -> None:  # type: ignore[override]
        """Shapes for [n, num_features, *]."""
        if self.has_uninitialized_params():
            self.num_features = input.shape[1]
            for name in ("weight", "bias", "running_mean", "running_var"):
                t = getattr(self, name)
                if is_lazy(t):
                    t.materialize((self.num_features,))
            self.reset_parameters()


def _lazy(base: type, kind: type) -> type:
    """`Lazy<base>`."""
    return type(f"Lazy{base.__name__}", (kind, base), {
        "__module__": __name__, "cls_to_become": base,
        "__doc__": f"`{base.__name__}` whose number of channels comes from the first input."})


class _LazyConvTranspose(_LazyConv):
    transposes = True


class _LazyInstanceNorm(_LazyNorm):
    wanted = (False, False)


BASES: dict[type, tuple[Any, ...]] = {
    _LazyConv: (Conv1d, Conv2d, Conv3d),
    _LazyConvTranspose: (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d),
    _LazyNorm: (BatchNorm1d, BatchNorm2d, BatchNorm3d),
    _LazyInstanceNorm: (InstanceNorm1d, InstanceNorm2d, InstanceNorm3d),
}
CLASSES = {f"Lazy{base.__name__}": _lazy(base, kind) for kind,
           bases in BASES.items() for base in bases}
globals().update(CLASSES)
__all__ = ["LazyLinear", *CLASSES]
