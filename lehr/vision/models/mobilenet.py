"""MobileNetV2 (Sandler et al. 2018): inverted residuals of depthwise convolutions."""

from __future__ import annotations

from typing import Any

from lehr import nn
from lehr.tensor.tensor import Tensor
from lehr.vision.models.weights import fill, named

# expansion, channels, repeats, stride
SETTINGS = [[1, 16, 1, 1], [6, 24, 2, 2], [6, 32, 3, 2], [6, 64, 4, 2], [6, 96, 3, 1],
            [6, 160, 3, 2], [6, 320, 1, 1]]


def _make_divisible(v: float, divisor: int, min_value: int | None = None) -> int:
    """The nearest multiple, at least 90 % of v."""
    made = max(min_value or divisor, int(v + divisor / 2) // divisor * divisor)
    return made + divisor if made < 0.9 * v else made


class Conv2dNormActivation(nn.Sequential):
    """A convolution, batch normalisation, ReLU6."""

    def __init__(self, inputs: int, outputs: int, kernel_size: int = 3, stride: int = 1,
                 groups: int = 1) -> None:
        super().__init__(
            nn.Conv2d(inputs, outputs, kernel_size, stride, (kernel_size - 1) // 2, groups=groups,
                      bias=False), nn.BatchNorm2d(outputs), nn.ReLU6(inplace=True))


class InvertedResidual(nn.Module):
    """Expanded, convolved by channel, projected; with a shortcut where the shape stays."""

    def __init__(self, inp: int, oup: int, stride: int, expand_ratio: int) -> None:
        super().__init__()
        self.stride, self.use_res_connect = stride, stride == 1 and inp == oup
        hidden = round(inp * expand_ratio)
        layers: list[nn.Module] = []
        if expand_ratio != 1:
            layers.append(Conv2dNormActivation(inp, hidden, 1))
        layers += [Conv2dNormActivation(hidden, hidden, 3, stride, hidden),
                   nn.Conv2d(hidden, oup, 1, bias=False), nn.BatchNorm2d(oup)]
        self.conv = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """[n, inp, h, w] to [n, oup, h / stride, w / stride]."""
        return x + self.conv(x) if self.use_res_connect else self.conv(x)


class MobileNetV2(nn.Module):
    """Scores [n, num_classes] of pictures [n, 3, h, w]."""

    def __init__(self, num_classes: int = 1000, width_mult: float = 1.0,
                 inverted_residual_setting: Any = None, round_nearest: int = 8,
                 dropout: float = 0.2) -> None:
        super().__init__()
        channels = _make_divisible(32 * width_mult, round_nearest)
        self.last_channel = _make_divisible(1280 * max(1.0, width_mult), round_nearest)
        features: list[nn.Module] = [Conv2dNormActivation(3, channels, 3, 2)]
        for t, c, n, s in inverted_residual_setting or SETTINGS:
            outputs = _make_divisible(c * width_mult, round_nearest)
            for i in range(n):
                features.append(InvertedResidual(channels, outputs, s if i == 0 else 1, t))
                channels = outputs
        features.append(Conv2dNormActivation(channels, self.last_channel, 1))
        self.features = nn.Sequential(*features)
        self.classifier = nn.Sequential(nn.Dropout(p=dropout),
                                        nn.Linear(self.last_channel, num_classes))
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out")
            elif isinstance(m, nn.BatchNorm2d):
                nn.init.ones_(m.weight)
                nn.init.zeros_(m.bias)
            elif isinstance(m, nn.Linear):
                nn.init.normal_(m.weight, 0, 0.01)
                nn.init.zeros_(m.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes."""
        return self.classifier(self.features(x).mean((2, 3)))


MobileNet_V2_Weights = named("MobileNet_V2", IMAGENET1K_V1="mobilenet_v2-b0353104.pth",
                             IMAGENET1K_V2="mobilenet_v2-7ebf99e0.pth")


def mobilenet_v2(*, weights: Any = None, progress: bool = True, pretrained: Any = None,
                 **kwargs: Any) -> MobileNetV2:
    """MobileNetV2."""
    model = MobileNetV2(**kwargs)
    return fill(model, MobileNet_V2_Weights, weights, pretrained)  # type: ignore[no-any-return]
