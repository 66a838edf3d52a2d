"""Small residual networks for CIFAR-10's images of 3×32×32."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class Block(nn.Module):
    """Two 3×3 convolutions with batch norms, added to a shortcut, then ReLU.

    inputs    channels in
    channels  channels out
    stride    of the first convolution; the shortcut follows it
    project   whether a shortcut between other sizes is a 1×1 convolution; else it takes every
              second pixel and pads channels with zeros (option A of He et al.), without weights
    """

    def __init__(self, inputs: int, channels: int, stride: int, project: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.stride, self.added = stride, channels - inputs
        changes = stride > 1 or self.added > 0
        self.shortcut = nn.Conv2d(inputs, channels, 1, stride) if changes and project else None

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + self._around(x))

    def _around(self, x: Tensor) -> Tensor:
        if self.shortcut is not None:
            around: Tensor = self.shortcut(x)
            return around
        if self.stride > 1:
            x = x[:, :, :: self.stride, :: self.stride]
        half = self.added // 2
        return F.pad(x, (0, 0, 0, 0, half, self.added - half)) if self.added else x


class ResNet(nn.Module):
    """A convolution, stages of blocks with 16, 32 and 64 channels, a mean, a linear layer.

    (N, 3, 32, 32) → (N, 10)

    blocks   of each stage; the second and the third stage halve the image
    project  as for `Block`
    """

    def __init__(self, blocks: int, project: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.stage1 = _stage(16, 16, 1, blocks, project)
        self.stage2 = _stage(16, 32, 2, blocks, project)
        self.stage3 = _stage(32, 64, 2, blocks, project)
        self.fc = nn.Linear(64, 10)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        features = F.relu(self.bn1(self.conv1(images)))
        features = self.stage3(self.stage2(self.stage1(features)))
        logits: Tensor = self.fc(features.mean((2, 3)))
        return logits


def _stage(inputs: int, channels: int, stride: int, blocks: int, project: bool) -> nn.Sequential:
    rest = [Block(channels, channels, 1, project) for _ in range(blocks - 1)]
    return nn.Sequential(Block(inputs, channels, stride, project), *rest)


def resnet8() -> ResNet:
    """The network of MLPerf Tiny's image classification: a block a stage, 1×1 shortcuts.

    >>> sum(param.numel() for param in resnet8().parameters() if param.ndim > 1)
    77360
    """
    return ResNet(1, project=True)


def resnet20() -> ResNet:
    """He et al.'s network of 20 layers: three blocks a stage, shortcuts without weights.

    >>> sum(param.numel() for param in resnet20().parameters() if param.ndim > 1)
    268336
    """
    return ResNet(3, project=False)
