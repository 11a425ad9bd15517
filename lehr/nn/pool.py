"""Pooling over windows, and its inverse."""

from __future__ import annotations

from typing import Any

from lehr.nn import functional as F
from lehr.nn.conv import spread
from lehr.nn.module import Module
from lehr.tensor.tensor import Tensor


class _MaxPoolNd(Module):
    """Settings of a maximum over windows."""

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
                 return_indices: bool = False, ceil_mode: bool = False) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding, self.dilation = padding, dilation
        self.return_indices, self.ceil_mode = return_indices, ceil_mode

    def extra_repr(self) -> str:
        return (f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
                f"dilation={self.dilation}, ceil_mode={self.ceil_mode}")


class MaxPool1d(_MaxPoolNd):
    """Maxima of windows of [n, c, l]."""

    def forward(self, input: Tensor) -> Any:
        """[n, c, l] -> [n, c, l'] (and places)."""
        return F.max_pool1d(input, self.kernel_size, self.stride, self.padding, self.dilation,
                            ceil_mode=self.ceil_mode, return_indices=self.return_indices)


class MaxPool2d(_MaxPoolNd):
    """Maxima of windows of [n, c, h, w]."""

    def forward(self, input: Tensor) -> Any:
        """[n, c, h, w] -> [n, c, h', w'] (and places)."""
        return F.max_pool2d(input, self.kernel_size, self.stride, self.padding, self.dilation,
                            ceil_mode=self.ceil_mode, return_indices=self.return_indices)


class MaxPool3d(_MaxPoolNd):
    """Maxima of windows of [n, c, d, h, w]."""

    def forward(self, input: Tensor) -> Any:
        """[n, c, d, h, w] -> [n, c, d', h', w'] (and places)."""
        return F.max_pool3d(input, self.kernel_size, self.stride, self.padding, self.dilation,
                            ceil_mode=self.ceil_mode, return_indices=self.return_indices)


class _MaxUnpoolNd(Module):
    """Settings of the inverse of a maximum over windows."""

    rank = 0

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0) -> None:
        super().__init__()
        n = self.rank
        self.kernel_size = spread(kernel_size, n)
        self.stride = self.kernel_size if stride is None else spread(stride, n)
        self.padding = spread(padding, n)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpoolNd):
    """Puts maxima back to their places, zeros elsewhere: [n, c, l]."""

    rank = 1

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        """[n, c, l], places [n, c, l] -> [n, c, l']."""
        return F.max_unpool1d(input, indices, self.kernel_size, self.stride, self.padding,
                              output_size)


class MaxUnpool2d(_MaxUnpoolNd):
    """Puts maxima back to their places, zeros elsewhere: [n, c, h, w]."""

    rank = 2

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        """[n, c, h, w], places -> [n, c, h', w']."""
        return F.max_unpool2d(input, indices, self.kernel_size, self.stride, self.padding,
                              output_size)


class MaxUnpool3d(_MaxUnpoolNd):
    """Puts maxima back to their places, zeros elsewhere: [n, c, d, h, w]."""

    rank = 3

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        """[n, c, d, h, w], places -> [n, c, d', h', w']."""
        return F.max_unpool3d(input, indices, self.kernel_size, self.stride, self.padding,
                              output_size)


class _AvgPoolNd(Module):
    """What means over windows show."""

    kernel_size: Any
    stride: Any
    padding: Any

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool1d(_AvgPoolNd):
    """Means of windows of [n, c, l]."""

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0,
                 ceil_mode: bool = False, count_include_pad: bool = True) -> None:
        super().__init__()
        self.kernel_size = spread(kernel_size, 1)
        self.stride = spread(kernel_size if stride is None else stride, 1)
        self.padding = spread(padding, 1)
        self.ceil_mode, self.count_include_pad = ceil_mode, count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        """[n, c, l] -> [n, c, l']."""
        return F.avg_pool1d(input, self.kernel_size, self.stride, self.padding, self.ceil_mode,
                            self.count_include_pad)


class _Divided(_AvgPoolNd):
    """Settings of a mean whose divisor may be given."""

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0,
                 ceil_mode: bool = False, count_include_pad: bool = True,
                 divisor_override: int | None = None) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding, self.ceil_mode = padding, ceil_mode
        self.count_include_pad, self.divisor_override = count_include_pad, divisor_override


class AvgPool2d(_Divided):
    """Means of windows of [n, c, h, w]."""

    def forward(self, input: Tensor) -> Tensor:
        """[n, c, h, w] -> [n, c, h', w']."""
        return F.avg_pool2d(input, self.kernel_size, self.stride, self.padding, self.ceil_mode,
                            self.count_include_pad, self.divisor_override)


class AvgPool3d(_Divided):
    """Means of windows of [n, c, d, h, w]."""

    def forward(self, input: Tensor) -> Tensor:
        """[n, c, d, h, w] -> [n, c, d', h', w']."""
        return F.avg_pool3d(input, self.kernel_size, self.stride, self.padding, self.ceil_mode,
                            self.count_include_pad, self.divisor_override)


class _LPPoolNd(Module):
    """Settings of a power mean over windows."""

    def __init__(self, norm_type: float, kernel_size: Any, stride: Any = None,
                 ceil_mode: bool = False) -> None:
        super().__init__()
        self.norm_type, self.kernel_size = norm_type, kernel_size
        self.stride, self.ceil_mode = stride, ceil_mode

    def extra_repr(self) -> str:
        return (f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, "
                f"stride={self.stride}, ceil_mode={self.ceil_mode}")


class LPPool1d(_LPPoolNd):
    """Norms of windows of [n, c, l]."""

    def forward(self, input: Tensor) -> Tensor:
        """[n, c, l] -> [n, c, l']."""
        return F.lp_pool1d(input, float(self.norm_type), self.kernel_size, self.stride,
                           self.ceil_mode)


class LPPool2d(_LPPoolNd):
    """Norms of windows of [n, c, h, w]."""

    def forward(self, input: Tensor) -> Tensor:
        """[n, c, h, w] -> [n, c, h', w']."""
        return F.lp_pool2d(input, float(self.norm_type), self.kernel_size, self.stride,
                           self.ceil_mode)


class LPPool3d(_LPPoolNd):
    """Norms of windows of [n, c, d, h, w]."""

    def forward(self, input: Tensor) -> Tensor:
        """[n, c, d, h, w] -> [n, c, d', h', w']."""
        return F.lp_pool3d(input, float(self.norm_type), self.kernel_size, self.stride,
                           self.ceil_mode)


class _AdaptiveMaxPoolNd(Module):
    """A maximum over a given number of windows."""

    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__()
        self.output_size, self.return_indices = output_size, return_indices

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveMaxPool1d(_AdaptiveMaxPoolNd):
    """Maxima of `output_size` windows of [n, c, l]."""

    def forward(self, input: Tensor) -> Any:
        """[n, c, l] -> [n, c, output_size] (and places)."""
        return F.adaptive_max_pool1d(input, self.output_size, self.return_indices)


class AdaptiveMaxPool2d(_AdaptiveMaxPoolNd):
    """Maxima of `output_size` windows of [n, c, h, w]."""

    def forward(self, input: Tensor) -> Any:
        """[n, c, h, w] -> [n, c, *output_size] (and places)."""
        return F.adaptive_max_pool2d(input, self.output_size, self.return_indices)


class AdaptiveMaxPool3d(_AdaptiveMaxPoolNd):
    """Maxima of `output_size` windows of [n, c, d, h, w]."""

    def forward(self, input: Tensor) -> Any:
        """[n, c, d, h, w] -> [n, c, *output_size] (and places)."""
        return F.adaptive_max_pool3d(input, self.output_size, self.return_indices)


class _AdaptiveAvgPoolNd(Module):
    """A mean over a given number of windows."""

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_AdaptiveAvgPoolNd):
    """Means of `output_size` windows of [n, c, l]."""

    def forward(self, input: Tensor) -> Tensor:
        """[n, c, l] -> [n, c, output_size]."""
        return F.adaptive_avg_pool1d(input, self.output_size)


class AdaptiveAvgPool2d(_AdaptiveAvgPoolNd):
    """Means of `output_size` windows of [n, c, h, w]."""

    def forward(self, input: Tensor) -> Tensor:
        """[n, c, h, w] -> [n, c, *output_size]."""
        return F.adaptive_avg_pool2d(input, self.output_size)


class AdaptiveAvgPool3d(_AdaptiveAvgPoolNd):
    """Means of `output_size` windows of [n, c, d, h, w]."""

    def forward(self, input: Tensor) -> Tensor:
        """[n, c, d, h, w] -> [n, c, *output_size]."""
        return F.adaptive_avg_pool3d(input, self.output_size)


__all__ = ["AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d",
           "AdaptiveMaxPool2d", "AdaptiveMaxPool3d", "AvgPool1d", "AvgPool2d", "AvgPool3d",
           "LPPool1d",
           "LPPool2d", "LPPool3d", "MaxPool1d", "MaxPool2d", "MaxPool3d", "MaxUnpool1d",
           "MaxUnpool2d",
           "MaxUnpool3d"]
