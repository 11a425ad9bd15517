"""AlexNet (Krizhevsky 2014) and the networks of Simonyan and Zisserman (2014): plain stacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lehr import nn
from lehr.tensor.tensor import Tensor
from lehr.vision.models.weights import fill, named

# Channels of each convolution; "M": halve the size.
CONFIGS: dict[str, list[Any]] = {
    "vgg11": [64, "M", 128, "M", 256, 256, "M", 512, 512, "M", 512, 512, "M"],
    "vgg13": [64, 64, "M", 128, 128, "M", 256, 256, "M", 512, 512, "M", 512, 512, "M"],
    "vgg16": [64, 64, "M", 128, 128, "M", *[256] * 3, "M", *[512] * 3, "M", *[512] * 3, "M"],
    "vgg19": [64, 64, "M", 128, 128, "M", *[256] * 4, "M", *[512] * 4, "M", *[512] * 4, "M"],
}
FILES = {"vgg11": "vgg11-8a719046.pth", "vgg13": "vgg13-19584684.pth",
         "vgg16": "vgg16-397923af.pth", "vgg19": "vgg19-dcbb9e9d.pth",
         "vgg11_bn": "vgg11_bn-6002323d.pth", "vgg13_bn": "vgg13_bn-abd245e5.pth",
         "vgg16_bn": "vgg16_bn-6c64b313.pth", "vgg19_bn": "vgg19_bn-c79401a0.pth"}


class VGG(nn.Module):
    """Convolutions, then three linear layers; scores [n, num_classes]."""

    def __init__(self, features: nn.Module, num_classes: int = 1000, init_weights: bool = True,
                 dropout: float = 0.5) -> None:
        super().__init__()
        self.features = features
        self.avgpool = nn.AdaptiveAvgPool2d((7, 7))
        self.classifier = nn.Sequential(
            nn.Linear(512 * 7 * 7, 4096), nn.ReLU(True), nn.Dropout(p=dropout),
            nn.Linear(4096, 4096), nn.ReLU(True), nn.Dropout(p=dropout),
            nn.Linear(4096, num_classes))
        for m in self.modules() if init_weights else ():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
                nn.init.constant_(m.bias, 0)
            elif isinstance(m, nn.BatchNorm2d):
                nn.init.constant_(m.weight, 1)
                nn.init.constant_(m.bias, 0)
            elif isinstance(m, nn.Linear):
                nn.init.normal_(m.weight, 0, 0.01)
                nn.init.constant_(m.bias, 0)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes of pictures [n, 3, h, w]."""
        return self.classifier(self.avgpool(self.features(x)).flatten(1))


def make_layers(config: list[Any], batch_norm: bool = False) -> nn.Sequential:
    """The convolutions of a row of CONFIGS."""
    layers: list[nn.Module] = []
    inputs = 3
    for v in config:
        if v == "M":
            layers.append(nn.MaxPool2d(2, 2))
            continue
        layers.append(nn.Conv2d(inputs, v, 3, padding=1))
        layers += [nn.BatchNorm2d(v)] if batch_norm else []
        layers.append(nn.ReLU(inplace=True))
        inputs = v
    return nn.Sequential(*layers)


def _maker(name: str, kind: Any) -> Callable[..., VGG]:
    def make(*, weights: Any = None, progress: bool = True, pretrained: Any = None,
             **kwargs: Any) -> VGG:
        if weights is not None or pretrained:
            kwargs["init_weights"] = False
        layers = make_layers(CONFIGS[name.removesuffix("_bn")], name.endswith("_bn"))
        return fill(VGG(layers, **kwargs), kind, weights, pretrained)
    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"{name} of CONFIGS."
    return make


for _name, _file in FILES.items():
    _kind = named(_name.upper(), IMAGENET1K_V1=_file)
    globals()[f"{_name.upper()}_Weights"] = _kind
    globals()[_name] = _maker(_name, _kind)


class AlexNet(nn.Module):
    """Five convolutions and three linear layers; scores [n, num_classes]."""

    def __init__(self, num_classes: int = 1000, dropout: float = 0.5) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 64, 11, 4, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2),
            nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2),
            nn.Conv2d(192, 384, 3, padding=1), nn.ReLU(inplace=True),
            nn.Conv2d(384, 256, 3, padding=1), nn.ReLU(inplace=True),
            nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2))
        self.avgpool = nn.AdaptiveAvgPool2d((6, 6))
        self.classifier = nn.Sequential(
            nn.Dropout(p=dropout), nn.Linear(256 * 6 * 6, 4096), nn.ReLU(inplace=True),
            nn.Dropout(p=dropout), nn.Linear(4096, 4096), nn.ReLU(inplace=True),
            nn.Linear(4096, num_classes))

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes of pictures [n, 3, h, w]."""
        return self.classifier(self.avgpool(self.features(x)).flatten(1))


AlexNet_Weights = named("AlexNet", IMAGENET1K_V1="alexnet-owt-7be5be79.pth")


def alexnet(*, weights: Any = None, progress: bool = True, pretrained: Any = None,
            **kwargs: Any) -> AlexNet:
    """AlexNet."""
    return fill(AlexNet(**kwargs), AlexNet_Weights, weights, pretrained)  # type: ignore
