"""ResNet-18 for small images as a PyTorch user writes it (He et al., 2015)."""

import lehr as torch
from lehr import nn

F = nn.functional


def convolution(inputs, outputs, size, stride=1):
    return nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)


class Residual(nn.Module):
    """Two convolutions around which the input goes: [N, C, H, W] -> [N, D, H / s, W / s]."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = convolution(inputs, outputs, 3, stride)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = convolution(outputs, outputs, 3)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.straight = stride == 1 and inputs == outputs
        if not self.straight:
            self.conv3 = convolution(inputs, outputs, 1, stride)
            self.norm3 = nn.BatchNorm2d(outputs)

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        return F.relu(y + (x if self.straight else self.norm3(self.conv3(x))))


class ResNet(nn.Module):
    """Images float32 [N, 3, H, W] and labels int64 [N] -> the mean cross entropy in nats."""

    def __init__(self, stages, classes):
        super().__init__()
        self.conv = convolution(3, 64, 7, 2)
        self.norm = nn.BatchNorm2d(64)
        self.blocks = nn.ModuleList([Residual(*row) for row in stages])
        self.head = nn.Linear(512, classes)

    def forward(self, images, labels):
        x = F.relu(self.norm(self.conv(images)))
        x = F.max_pool2d(x, 3, 2, 1)
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(torch.mean(x, (2, 3))), labels)
