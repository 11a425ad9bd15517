"""Convolutions."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from lehr.nn import functional as F
from lehr.nn import init
from lehr.nn.linear import empty
from lehr.nn.module import Module
from lehr.tensor.tensor import Tensor

MODES = ("zeros", "reflect", "replicate", "circular")


def spread(value: Any, rank: int) -> tuple[Any, ...]:
    """A number for every dimension, or the sequence as it is."""
    return tuple(value) if isinstance(value, (tuple, list)) else (value,) * rank




def _ntuple(n: int, name: str = "parse") -> Any:
    """`spread` to n dimensions, as a function."""
    def parse(x: Any) -> tuple[Any, ...]:
        return tuple(x) if isinstance(x, Iterable) else (x,) * n
    parse.__name__ = name
    return parse


_single, _pair, _triple, _quadruple = (
    _ntuple(n, name) for n, name in enumerate(("_single", "_pair", "_triple", "_quadruple"), 1))


class _ConvNd(Module):
    """Settings and parameters of a convolution."""

    in_channels: int
    out_channels: int

    def __init__(self, in_channels: int, out_channels: int, kernel_size: tuple[int, ...],
                 stride: tuple[int, ...], padding: Any, dilation: tuple[int, ...], transposed: bool,
                 output_padding: tuple[int, ...], groups: int, bias: bool, padding_mode: str,
                 device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        if groups <= 0:
            raise ValueError("groups must be a positive integer")
        if in_channels % groups != 0:
            raise ValueError("in_channels must be divisible by groups")
        if out_channels % groups != 0:
            raise ValueError("out_channels must be divisible by groups")
        if isinstance(padding, str):
            if padding not in ("same", "valid"):
                raise ValueError(f"Invalid padding string {padding!r}, should be one of "
                                 "{'same', 'valid'}")
            if padding == "same" and any(s != 1 for s in stride):
                raise ValueError("padding='same' is not supported for strided convolutions")
        if padding_mode not in MODES:
            raise ValueError(f"padding_mode must be one of {set(MODES)}, but got "
                             f"padding_mode='{padding_mode}'")
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding
        self.dilation, self.transposed, self.output_padding = dilation, transposed, output_padding
        self.groups, self.padding_mode = groups, padding_mode
        # Widths as `functional.pad` takes them: the last dimension first, both sides.
        if isinstance(padding, str):
            sides = []
            for d, k in zip(reversed(dilation), reversed(kernel_size), strict=True):
                total = d * (k - 1) if padding == "same" else 0
                sides += [total // 2, total - total // 2]
            self._reversed_padding_repeated_twice = sides
        else:
            self._reversed_padding_repeated_twice = [p for p in reversed(padding) for _ in (0, 1)]
        shape = ((in_channels, out_channels // groups) if transposed
                 else (out_channels, in_channels // groups))
        self.weight = empty((*shape, *kernel_size), device, dtype)
        if bias:
            self.bias = empty((out_channels,), device, dtype)
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform in +-1/sqrt(fan_in)."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan, _ = init._calculate_fan_in_and_fan_out(self.weight)
            if fan != 0:
                init.uniform_(self.bias, -1 / math.sqrt(fan), 1 / math.sqrt(fan))

    def extra_repr(self) -> str:
        zeros, ones = (0,) * len(self.kernel_size), (1,) * len(self.kernel_size)
        text = (f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
                f"stride={self.stride}")
        for name, default in (("padding", zeros), ("dilation", ones), ("output_padding", zeros),
                              ("groups", 1)):
            value = getattr(self, name)
            if value != default:
                text += f", {name}={value}"
        text += ", bias=False" if self.bias is None else ""
        return text + ("" if self.padding_mode == "zeros"
                       else f", padding_mode={self.padding_mode}")

    def __setstate__(self, state: Any) -> None:
        super().__setstate__(state)
        if not hasattr(self, "padding_mode"):
            self.padding_mode = "zeros"


class _Forward(_ConvNd):
    """A convolution of `rank` dimensions."""

    rank = 0

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1,
                 padding: Any = 0, dilation: Any = 1, groups: int = 1, bias: bool = True,
                 padding_mode: str = "zeros", device: Any = None, dtype: Any = None) -> None:
        n = self.rank
        super().__init__(in_channels, out_channels, spread(kernel_size, n), spread(stride, n),
                         padding if isinstance(padding, str) else spread(padding, n),
                         spread(dilation, n), False, (0,) * n, groups, bias, padding_mode, device,
                         dtype)

    def _padded(self, input: Tensor) -> tuple[Tensor, Any]:
        """The input and the padding still to be done."""
        if self.padding_mode == "zeros":
            return input, self.padding
        return F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode), 0

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Any) -> Tensor:
        raise NotImplementedError

    def forward(self, input: Tensor) -> Tensor:
        """[n, in_channels, *] -> [n, out_channels, *]."""
        return self._conv_forward(input, self.weight, self.bias)


class Conv1d(_Forward):
    """Cross-correlation of [n, in_channels, l] (or without n) with [out, in / groups, k]."""

    rank = 1

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Any) -> Tensor:
        input, padding = self._padded(input)
        return F.conv1d(input, weight, bias, self.stride, padding, self.dilation, self.groups)


class Conv2d(_Forward):
    """Cross-correlation of [n, in_channels, h, w] (or without n) with [out, in / groups, kh,
    kw]."""

    rank = 2

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Any) -> Tensor:
        input, padding = self._padded(input)
        return F.conv2d(input, weight, bias, self.stride, padding, self.dilation, self.groups)


class Conv3d(_Forward):
    """Cross-correlation of [n, in_channels, d, h, w] (or without n)."""

    rank = 3

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Any) -> Tensor:
        input, padding = self._padded(input)
        return F.conv3d(input, weight, bias, self.stride, padding, self.dilation, self.groups)


class _ConvTransposeNd(_ConvNd):
    """The gradient of a convolution with respect to its input, as a layer."""

    rank = 0

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1,
                 padding: Any = 0, output_padding: Any = 0, groups: int = 1, bias: bool = True,
                 dilation: Any = 1, padding_mode: str = "zeros", device: Any = None,
                 dtype: Any = None) -> None:
        if padding_mode != "zeros":
            raise ValueError('Only "zeros" padding mode is supported for '
                             f"{type(self).__name__}")
        n = self.rank
        super().__init__(in_channels, out_channels, spread(kernel_size, n), spread(stride, n),
                         spread(padding, n), spread(dilation, n), True, spread(output_padding, n),
                         groups, bias, padding_mode, device, dtype)

    def _output_padding(self, input: Tensor, output_size: Any, stride: Any, padding: Any,
                        kernel_size: Any, num_spatial_dims: int, dilation: Any = None) -> Any:
        """How much longer the result is made to have `output_size`."""
        n = num_spatial_dims
        if output_size is None:
            return spread(self.output_padding, n)
        if len(output_size) == input.dim():
            output_size = output_size[-n:]
        if len(output_size) != n:
            raise ValueError(f"ConvTranspose{n}D: for {input.dim()}D input, output_size must have "
                             f"{n} or {input.dim()} elements (got {len(output_size)})")
        made = []
        for d in range(n):
            least = ((input.size(d + input.dim() - n) - 1) * stride[d] - 2 * padding[d] +
                     (1 if dilation is None else dilation[d]) * (kernel_size[d] - 1) + 1)
            most = least + stride[d] - 1
            if not least <= output_size[d] <= most:
                raise ValueError(f"requested an output size of {tuple(output_size)}, but dimension "
                                 f"{d} must lie in [{least}, {most}] for an input of "
                                 f"{input.size()[-n:]}")
            made.append(output_size[d] - least)
        return made

    def _more(self, input: Tensor, output_size: Any) -> Any:
        return self._output_padding(input, output_size, self.stride, self.padding, self.kernel_size,
                                    self.rank, self.dilation)


class ConvTranspose1d(_ConvTransposeNd):
    """Transposed convolution of [n, in_channels, l] with [in, out / groups, k]."""

    rank = 1

    def forward(self, input: Tensor, output_size: Any = None) -> Tensor:
        """[n, in_channels, l] -> [n, out_channels, l'], l' = `output_size` where given."""
        return F.conv_transpose1d(input, self.weight, self.bias, self.stride, self.padding,
                                  self._more(input, output_size), self.groups, self.dilation)


class ConvTranspose2d(_ConvTransposeNd):
    """Transposed convolution of [n, in_channels, h, w] with [in, out / groups, kh, kw]."""

    rank = 2

    def forward(self, input: Tensor, output_size: Any = None) -> Tensor:
        """[n, in_channels, h, w] -> [n, out_channels, h', w']."""
        return F.conv_transpose2d(input, self.weight, self.bias, self.stride, self.padding,
                                  self._more(input, output_size), self.groups, self.dilation)


class ConvTranspose3d(_ConvTransposeNd):
    """Transposed convolution of [n, in_channels, d, h, w]."""

    rank = 3

    def forward(self, input: Tensor, output_size: Any = None) -> Tensor:
        """[n, in_channels, d, h, w] -> [n, out_channels, d', h', w']."""
        return F.conv_transpose3d(input, self.weight, self.bias, self.stride, self.padding,
                                  self._more(input, output_size), self.groups, self.dilation)


__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]
