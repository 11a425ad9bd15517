"""Losses that hold their own output layer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from lehr.nn import functional as F
from lehr.nn.container import ModuleList, Sequential
from lehr.nn.linear import Linear
from lehr.nn.loss import _Loss
from lehr.nn.module import Module
from lehr.tensor.tensor import Tensor


class _ASMoutput(NamedTuple):
    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """Softmax over many classes in clusters by frequency (Grave et al., 2017).

    cutoffs    where clusters begin; the classes before the first are in the head
    div_value  each further cluster's projection is smaller by this factor
    """

    def __init__(self, in_features: int, n_classes: int, cutoffs: Sequence[int],
                 div_value: float = 4.0, head_bias: bool = False, device: Any = None,
                 dtype: Any = None) -> None:
        super().__init__()
        cutoffs = list(cutoffs)
        if not cutoffs:
            raise ValueError("cutoffs should be a sequence of length larger than 0")
        if (cutoffs != sorted(cutoffs) or min(cutoffs) <= 0 or max(cutoffs) > n_classes - 1
                or len(set(cutoffs)) != len(cutoffs) or any(int(c) != c for c in cutoffs)):
            raise ValueError("cutoffs should be a sequence of unique, positive integers sorted in "
                             "an increasing order, where each value is between 1 and n_classes-1")
        self.in_features, self.n_classes = in_features, n_classes
        self.cutoffs = [*cutoffs, n_classes]
        self.div_value, self.head_bias = div_value, head_bias
        self.shortlist_size = self.cutoffs[0]
        self.n_clusters = len(self.cutoffs) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        self.head = Linear(in_features, self.head_size, bias=head_bias, **where)
        self.tail = ModuleList()
        for i in range(self.n_clusters):
            width = int(in_features // div_value ** (i + 1))
            self.tail.append(Sequential(
                Linear(in_features, width, bias=False, **where),
                Linear(width, self.cutoffs[i + 1] - self.cutoffs[i], bias=False, **where)))

    def reset_parameters(self) -> None:
        """Draws new values."""
        self.head.reset_parameters()
        for projection, out in self.tail:
            projection.reset_parameters()
            out.reset_parameters()

    def forward(self, input_: Tensor, target_: Tensor) -> _ASMoutput:
        """[n, in_features], [n] -> log-probabilities of the targets [n], and minus their mean."""
        n = target_.dim()
        if n == 1:
            if input_.shape[0] != target_.shape[0]:
                raise RuntimeError("Input and target should have the same size in the batch "
                                   "dimension.")
            if input_.dim() != 2:
                raise RuntimeError("1D target tensor expects 2D input tensors, but found inputs "
                                   "with size",
                                   input_.size())
        elif n == 0:
            if input_.dim() != 1:
                raise RuntimeError("0D target tensor expects 1D input tensors, but found inputs "
                                   "with size",
                                   input_.size())
        else:
            raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
        batched = n > 0
        input = input_ if batched else input_.unsqueeze(0)
        target = target_ if batched else target_.unsqueeze(0)
        if bool(((target < 0) | (target >= self.n_classes)).any()):
            raise RuntimeError(f"Target values should be in [0, {self.n_classes - 1}], but values "
                               "in "
                               f"range [{target.min().item()}, {target.max().item()}] were found. ")
        # Every class's log-probability, then that of the target: no shape depends on the data.
        full = self._get_full_log_prob(input, self.head(input))
        output = full.gather(1, target.unsqueeze(1)).squeeze(1)
        loss = (-output).mean()
        return _ASMoutput(output if batched else output.squeeze(0), loss)

    def _get_full_log_prob(self, input: Tensor, head_output: Tensor) -> Tensor:
        head = F.log_softmax(head_output, 1)
        parts = [head[:, : self.shortlist_size]]
        for i, cluster in enumerate(self.tail):
            at = self.shortlist_size + i
            parts.append(F.log_softmax(cluster(input), 1) + head[:, at:at + 1])
        return Tensor.F.cat(parts, 1).to(input.dtype)  # type: ignore[no-any-return]

    def log_prob(self, input: Tensor) -> Tensor:
        """[n, in_features] -> log-probabilities [n, n_classes]."""
        return self._get_full_log_prob(input, self.head(input))

    def predict(self, input: Tensor) -> Tensor:
        """[n, in_features] -> the most probable class [n]."""
        return self.log_prob(input).argmax(1)  # type: ignore[no-any-return]


class LinearCrossEntropyLoss(_Loss):
    """A linear layer without hidden units and the cross entropy of its logits."""

    def __init__(self, in_features: int, num_classes: int, *, out_features: tuple[int, ...] = (),
                 bias: bool = False, device: Any = None, dtype: Any = None, reduction: str = "mean",
                 weight: Any = None, ignore_index: int | None = None, label_smoothing: float = 0.0,
                 options: Any = None) -> None:
        super().__init__(reduction=reduction)
        self.in_features, self.num_classes = in_features, num_classes
        self.out_features = out_features
        self.ignore_index, self.label_smoothing = ignore_index, label_smoothing
        self.options = options
        self.register_buffer("weight", weight)
        self.linear = Linear(in_features, num_classes * math.prod(out_features), bias=bias,
                             device=device, dtype=dtype)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """[n, in_features], [n, *out_features] -> [] or [n, *out_features]."""
        logits = self.linear(input)
        if self.out_features:
            logits = logits.unflatten(-1, (self.num_classes, *self.out_features))
        return F.cross_entropy(logits, target, weight=self.weight, reduction=self.reduction,
                               ignore_index=-100 if self.ignore_index is None
                               else self.ignore_index, label_smoothing=self.label_smoothing)

    def extra_repr(self) -> str:
        return (f"in_features={self.in_features}, num_classes={self.num_classes}, "
                f"out_features={self.out_features}, bias={self.linear.bias is not None}, "
                f"reduction={self.reduction}, ignore_index={self.ignore_index}, "
                f"label_smoothing={self.label_smoothing}, options={self.options}")


__all__ = ["AdaptiveLogSoftmaxWithLoss", "LinearCrossEntropyLoss"]
