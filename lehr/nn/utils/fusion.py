"""Batch normalization folded into the layer before it, for evaluation."""

from __future__ import annotations

import copy
from typing import Any

from lehr.nn.parameter import Parameter
from lehr.tensor.tensor import Tensor


def _factors(mean: Tensor, var: Tensor, eps: float, gamma: Any, beta: Any) -> Any:
    F = Tensor.F
    gamma = F.ones_like(mean) if gamma is None else gamma
    beta = F.zeros_like(mean) if beta is None else beta
    return gamma * F.rsqrt(var + eps), beta


def fuse_conv_bn_weights(conv_w: Any, conv_b: Any, bn_rm: Tensor, bn_rv: Tensor, bn_eps: float,
                         bn_w: Any, bn_b: Any, transpose: bool = False) -> tuple[Parameter,
                                                                                 Parameter]:
    """The weight and bias of a convolution that does both."""
    conv_b = Tensor.F.zeros_like(bn_rm) if conv_b is None else conv_b
    scale, shift = _factors(bn_rm, bn_rv, bn_eps, bn_w, bn_b)
    shape = [1, -1] if transpose else [-1, 1]
    shape += [1] * (conv_w.dim() - 2)
    weight = (conv_w * scale.reshape(shape)).to(dtype=conv_w.dtype)
    bias = ((conv_b - bn_rm) * scale + shift).to(dtype=conv_b.dtype)
    return Parameter(weight, conv_w.requires_grad), Parameter(bias, conv_b.requires_grad)


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """A copy of the convolution that does both; both in evaluation mode."""
    if conv.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    fused = copy.deepcopy(conv)
    if bn.running_mean is None or bn.running_var is None:
        raise AssertionError("batch norm without running statistics cannot be fused")
    fused.weight, fused.bias = fuse_conv_bn_weights(fused.weight, fused.bias, bn.running_mean,
                                                    bn.running_var, bn.eps, bn.weight, bn.bias,
                                                    transpose)
    return fused


def fuse_linear_bn_weights(linear_w: Any, linear_b: Any, bn_rm: Tensor, bn_rv: Tensor,
                           bn_eps: float, bn_w: Any, bn_b: Any) -> tuple[Parameter, Parameter]:
    """The weight and bias of a linear layer that does both."""
    return fuse_conv_bn_weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b)


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """A copy of the linear layer that does both; both in evaluation mode."""
    if linear.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    if linear.out_features != bn.num_features and bn.num_features != 1:
        raise AssertionError("To fuse, linear.out_features == bn.num_features or bn.num_features "
                             "== 1")
    return fuse_conv_bn_eval(linear, bn)
