"""Small versions of the vision networks that people have, as plain torch modules."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm


class OptionA(nn.Module):
    """A residual block whose shortcut has no weights: pixels left out, channels of zeros added."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.stride, self.more = stride, outputs - inputs

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        if self.more:
            half = self.more // 2
            x = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, half, half))
        return F.relu(y + x)


def resnet_a() -> nn.Module:
    widths = [(8, 8, 1), (8, 16, 2), (16, 16, 1), (16, 32, 2)]
    stem = [nn.Conv2d(3, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU()]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)]
    return nn.Sequential(*stem, *(OptionA(*width) for width in widths), *head)


class Excite(nn.Module):
    """Squeeze and excitation: each channel times a number that all of them decide."""

    def __init__(self, channels: int, inner: nn.Module, outer: nn.Module) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(channels, 4, 1), nn.Conv2d(4, channels, 1)
        self.inner, self.outer = inner, outer

    def forward(self, x: Tensor) -> Tensor:
        return x * self.outer(self.up(self.inner(self.down(x.mean((2, 3), keepdim=True)))))


class Inverted(nn.Module):
    """An inverted residual: wider by 1×1, depthwise, narrow again."""

    def __init__(
        self, inputs: int, outputs: int, stride: int, act: Callable[[], nn.Module], se: nn.Module
    ) -> None:
        super().__init__()
        wide = 3 * inputs
        self.body = nn.Sequential(
            nn.Conv2d(inputs, wide, 1, bias=False), nn.BatchNorm2d(wide), act(),
            nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False), nn.BatchNorm2d(wide),
            act(), se, nn.Conv2d(wide, outputs, 1, bias=False), nn.BatchNorm2d(outputs),
        )  # fmt: skip
        self.same = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.same else self.body(x)


def _mobile(
    act: Callable[[], nn.Module], excite: Callable[[int], nn.Module], *head: nn.Module
) -> nn.Module:
    blocks = [Inverted(i, o, s, act, excite(3 * i)) for i, o, s in [(8, 12, 2), (12, 12, 1)]]
    stem = [nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), act()]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), *head)


def mobile_v2() -> nn.Module:
    return _mobile(nn.ReLU6, lambda _: nn.Identity(), nn.Dropout(), nn.Linear(12, 10))


def mobile_v3() -> nn.Module:
    head = nn.Linear(12, 16), nn.Hardswish(), nn.Linear(16, 10)
    return _mobile(nn.Hardswish, lambda n: Excite(n, nn.ReLU(), nn.Hardsigmoid()), *head)


def efficient() -> nn.Module:
    excite = lambda n: Excite(n, nn.SiLU(), nn.Sigmoid())  # noqa: E731
    return _mobile(nn.SiLU, excite, nn.Linear(12, 10))


class Mix(nn.Module):
    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.tokens = nn.Sequential(nn.Linear(tokens, 20), nn.GELU(), nn.Linear(20, tokens))
        self.channels = nn.Sequential(nn.Linear(width, 40), nn.GELU(), nn.Linear(40, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))


class Mixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 24, 4, 4)
        self.blocks = nn.Sequential(Mix(36, 24), Mix(36, 24))
        self.norm, self.head = nn.LayerNorm(24), nn.Linear(24, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.blocks(x)).mean(dim=1))


class UNet(nn.Module):
    """One way up by a transposed convolution, one by each kind of upsampling."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList(
            nn.Sequential(nn.Conv2d(i, o, 3, 1, 1), nn.GroupNorm(2, o), nn.PReLU(o))
            for i, o in [(3, 6), (6, 8), (8, 10), (10, 12)]
        )
        self.up1 = nn.ConvTranspose2d(12, 10, 2, 2)
        self.up2 = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
        self.merge = nn.ModuleList(
            nn.Sequential(nn.Conv2d(i, o, 3, 1, 1, bias=False), nn.InstanceNorm2d(o, affine=True))
            for i, o in [(20, 10), (18, 8), (14, 6)]
        )
        self.last = nn.Conv2d(6, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = x / 255 - 0.5
        seen = []
        for layer in self.down:
            x = layer(x if not seen else F.max_pool2d(x, 2))
            seen.append(x)
        x = F.elu(self.merge[0](torch.cat([self.up1(x), seen[2]], 1)))
        x = F.elu(self.merge[1](torch.cat([self.up2(x), seen[1]], 1)))
        bigger = F.interpolate(x, size=seen[0].shape[2:], mode="bilinear", align_corners=False)
        bigger = bigger + F.interpolate(x, scale_factor=2)
        x = F.elu(self.merge[2](torch.cat([bigger, seen[0]], 1)))
        return F.log_softmax(self.last(x), 1)


class Rms(nn.Module):
    """Written by hand, as most are."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class Enlarge(nn.Module):
    """Super-resolution by pixel shuffle, with weight norm, constants and hand-written norms."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.4, 0.5, 0.6]).view(1, 3, 1, 1))
        self.std = nn.Parameter(torch.tensor([0.2, 0.3, 0.4]).view(3, 1, 1))
        self.head = weight_norm(nn.Conv2d(3, 8, 3, padding=1))
        self.body = weight_norm(nn.Conv2d(8, 12, 3, padding=1))
        self.rms, self.own = nn.RMSNorm(24), Rms(24)

    def forward(self, x: Tensor) -> Tensor:
        x = (x - self.mean) / self.std
        y = self.body(F.selu(self.own(self.rms(self.head(x)))))
        return F.pixel_shuffle(y, 2) * self.std + self.mean


def volume() -> nn.Module:
    return nn.Sequential(
        nn.Conv3d(2, 6, 3, padding=1), nn.BatchNorm3d(6), nn.ReLU(), nn.MaxPool3d(2),
        nn.Conv3d(6, 8, (3, 1, 2), stride=(1, 2, 1), bias=False), nn.ReLU(),
        nn.ConvTranspose3d(8, 4, 2, stride=2), nn.AvgPool3d((1, 2, 2), ceil_mode=True),
        nn.AdaptiveAvgPool3d((2, 1, 2)), nn.Flatten(), nn.Linear(16, 5), nn.LogSoftmax(1),
    )  # fmt: skip


VISION: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "resnet option a": (resnet_a, (3, 32, 32)),
    "mobilenet v2": (mobile_v2, (3, 24, 24)),
    "mobilenet v3": (mobile_v3, (3, 24, 24)),
    "efficientnet": (efficient, (3, 24, 24)),
    "mixer": (Mixer, (3, 24, 24)),
    "u-net": (UNet, (3, 24, 24)),
    "super-resolution": (Enlarge, (3, 24, 24)),
    "volume": (volume, (2, 8, 8, 8)),
}


def make_vision(name: str, density: float) -> tuple[nn.Module, tuple[int, ...]]:
    """A network in eval mode, pruned at random, its norms far from the identity."""
    factory, shape = VISION[name]
    torch.manual_seed(0)
    model = factory()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d | nn.BatchNorm3d):
            module.running_mean = torch.randn(module.num_features) / 4
            module.running_var = torch.rand(module.num_features) + 0.5
    for key, param in model.named_parameters():
        if (param.ndim > 3 and "original0" not in key) or param.ndim == 2:
            keep = torch.rand_like(param) < density
            keep.view(len(param), -1)[:, 0] = True  # a weight norm needs a direction
            param.data *= keep
    return model.eval(), shape
