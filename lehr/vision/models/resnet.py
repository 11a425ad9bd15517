"""Residual networks (He et al. 2015), with wide (Zagoruyko 2016) and grouped (Xie 2016) kinds.

Names of parameters and results are those of torchvision.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lehr import nn
from lehr.tensor.tensor import Tensor
from lehr.vision.models.weights import fill, named


def conv3x3(inputs: int, outputs: int, stride: int = 1, groups: int = 1,
            dilation: int = 1) -> nn.Conv2d:
    """A convolution that keeps the size (with stride 1)."""
    return nn.Conv2d(inputs, outputs, 3, stride, dilation, dilation, groups, bias=False)


def conv1x1(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    """A linear map of each pixel."""
    return nn.Conv2d(inputs, outputs, 1, stride, bias=False)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions around a shortcut."""

    expansion = 1

    def __init__(self, inplanes: int, planes: int, stride: int = 1, downsample: Any = None,
                 groups: int = 1, base_width: int = 64, dilation: int = 1,
                 norm_layer: Any = None) -> None:
        super().__init__()
        norm = norm_layer or nn.BatchNorm2d
        if groups != 1 or base_width != 64 or dilation > 1:
            raise ValueError("BasicBlock only supports groups=1, base_width=64, dilation=1")
        self.conv1, self.bn1 = conv3x3(inplanes, planes, stride), norm(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2, self.bn2 = conv3x3(planes, planes), norm(planes)
        self.downsample, self.stride = downsample, stride

    def forward(self, x: Tensor) -> Tensor:
        """[n, inplanes, h, w] to [n, planes, h / stride, w / stride]."""
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out += x if self.downsample is None else self.downsample(x)
        return self.relu(out)


class Bottleneck(nn.Module):
    """A 3x3 convolution of fewer channels between two 1x1 ones, around a shortcut."""

    expansion = 4

    def __init__(self, inplanes: int, planes: int, stride: int = 1, downsample: Any = None,
                 groups: int = 1, base_width: int = 64, dilation: int = 1,
                 norm_layer: Any = None) -> None:
        super().__init__()
        norm = norm_layer or nn.BatchNorm2d
        width = int(planes * (base_width / 64.0)) * groups
        self.conv1, self.bn1 = conv1x1(inplanes, width), norm(width)
        self.conv2 = conv3x3(width, width, stride, groups, dilation)
        self.bn2 = norm(width)
        self.conv3 = conv1x1(width, planes * self.expansion)
        self.bn3 = norm(planes * self.expansion)
        self.relu = nn.ReLU(inplace=True)
        self.downsample, self.stride = downsample, stride

    def forward(self, x: Tensor) -> Tensor:
        """[n, inplanes, h, w] to [n, 4 * planes, h / stride, w / stride]."""
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        out += x if self.downsample is None else self.downsample(x)
        return self.relu(out)


class ResNet(nn.Module):
    """Four stages of `layers` blocks, on pictures [n, 3, h, w]; scores [n, num_classes]."""

    def __init__(self, block: Any, layers: list[int], num_classes: int = 1000,
                 zero_init_residual: bool = False, groups: int = 1, width_per_group: int = 64,
                 replace_stride_with_dilation: Any = None, norm_layer: Any = None) -> None:
        super().__init__()
        self._norm_layer = norm_layer or nn.BatchNorm2d
        self.inplanes, self.dilation = 64, 1
        dilated = replace_stride_with_dilation or [False] * 3
        if len(dilated) != 3:
            raise ValueError("replace_stride_with_dilation should be None or a 3-element tuple, "
                             f"got {dilated}")
        self.groups, self.base_width = groups, width_per_group
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = self._norm_layer(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = self._make_layer(block, 64, layers[0])
        self.layer2 = self._make_layer(block, 128, layers[1], 2, dilated[0])
        self.layer3 = self._make_layer(block, 256, layers[2], 2, dilated[1])
        self.layer4 = self._make_layer(block, 512, layers[3], 2, dilated[2])
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(512 * block.expansion, num_classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(m, (nn.BatchNorm2d, nn.GroupNorm)):
                nn.init.constant_(m.weight, 1)
                nn.init.constant_(m.bias, 0)
            if zero_init_residual and isinstance(m, (Bottleneck, BasicBlock)):
                last = m.bn3 if isinstance(m, Bottleneck) else m.bn2
                nn.init.constant_(last.weight, 0)

    def _make_layer(self, block: Any, planes: int, blocks: int, stride: int = 1,
                    dilate: bool = False) -> nn.Sequential:
        before, short = self.dilation, None
        if dilate:
            self.dilation, stride = self.dilation * stride, 1
        if stride != 1 or self.inplanes != planes * block.expansion:
            short = nn.Sequential(conv1x1(self.inplanes, planes * block.expansion, stride),
                                  self._norm_layer(planes * block.expansion))
        made = [block(self.inplanes, planes, stride, short, self.groups, self.base_width, before,
                      self._norm_layer)]
        self.inplanes = planes * block.expansion
        made += [block(self.inplanes, planes, groups=self.groups, base_width=self.base_width,
                       dilation=self.dilation, norm_layer=self._norm_layer)
                 for _ in range(1, blocks)]
        return nn.Sequential(*made)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))


ResNet18_Weights = named("ResNet18", IMAGENET1K_V1="resnet18-f37072fd.pth")
ResNet34_Weights = named("ResNet34", IMAGENET1K_V1="resnet34-b627a593.pth")
ResNet50_Weights = named("ResNet50", IMAGENET1K_V1="resnet50-0676ba61.pth",
                         IMAGENET1K_V2="resnet50-11ad3fa6.pth")
ResNet101_Weights = named("ResNet101", IMAGENET1K_V1="resnet101-63fe2227.pth",
                          IMAGENET1K_V2="resnet101-cd907fc2.pth")
ResNet152_Weights = named("ResNet152", IMAGENET1K_V1="resnet152-394f9c45.pth",
                          IMAGENET1K_V2="resnet152-f82ba261.pth")
ResNeXt50_32X4D_Weights = named("ResNeXt50_32X4D", IMAGENET1K_V1="resnext50_32x4d-7cdf4587.pth",
                                IMAGENET1K_V2="resnext50_32x4d-1a0047aa.pth")
Wide_ResNet50_2_Weights = named("Wide_ResNet50_2", IMAGENET1K_V1="wide_resnet50_2-95faca4d.pth",
                                IMAGENET1K_V2="wide_resnet50_2-9ba9bcbe.pth")


def _maker(name: str, block: Any, layers: list[int], kind: Any,
           **fixed: Any) -> Callable[..., ResNet]:
    def make(*, weights: Any = None, progress: bool = True, pretrained: Any = None,
             **kwargs: Any) -> ResNet:
        return fill(ResNet(block, layers, **fixed, **kwargs), kind, weights, pretrained)
    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"{name}: a ResNet of {layers} blocks."
    return make


resnet18 = _maker("resnet18", BasicBlock, [2, 2, 2, 2], ResNet18_Weights)
resnet34 = _maker("resnet34", BasicBlock, [3, 4, 6, 3], ResNet34_Weights)
resnet50 = _maker("resnet50", Bottleneck, [3, 4, 6, 3], ResNet50_Weights)
resnet101 = _maker("resnet101", Bottleneck, [3, 4, 23, 3], ResNet101_Weights)
resnet152 = _maker("resnet152", Bottleneck, [3, 8, 36, 3], ResNet152_Weights)
resnext50_32x4d = _maker("resnext50_32x4d", Bottleneck, [3, 4, 6, 3], ResNeXt50_32X4D_Weights,
                         groups=32, width_per_group=4)
wide_resnet50_2 = _maker("wide_resnet50_2", Bottleneck, [3, 4, 6, 3], Wide_ResNet50_2_Weights,
                         width_per_group=128)
