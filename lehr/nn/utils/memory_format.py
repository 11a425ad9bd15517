"""Weights in channels-last order."""

from __future__ import annotations

from typing import Any

from lehr.nn.conv import Conv2d, Conv3d, ConvTranspose2d, ConvTranspose3d


def convert_conv2d_weight_memory_format(module: Any, memory_format: Any) -> Any:
    """Lays the weights of all 2-D convolutions below out in `memory_format`; returns the module."""
    return _convert(module, memory_format, (Conv2d, ConvTranspose2d))


def convert_conv3d_weight_memory_format(module: Any, memory_format: Any) -> Any:
    """Lays the weights of all 3-D convolutions below out in `memory_format`; returns the module."""
    return _convert(module, memory_format, (Conv3d, ConvTranspose3d))


def _convert(module: Any, memory_format: Any, kinds: tuple[type, ...]) -> Any:
    for child in module.modules():
        if isinstance(child, kinds):
            weight = child.weight  # type: ignore[attr-defined]
            weight.data = weight.detach().clone(memory_format=memory_format)
    return module
