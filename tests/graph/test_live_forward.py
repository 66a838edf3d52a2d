"""Training through the non-zeros alone: torch's outputs, and its gradients but for the zeros."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import asterism.kernels.library as library
from asterism import AffineScaling, Masked, ReweightedL1, supervised
from asterism.errors import InputError
from asterism.experiments.networks import lenet5, lenet300
from asterism.experiments.networks.resnets import resnet8, resnet20
from asterism.graph.live.blocks import Kernels, from_blocks, to_blocks
from asterism.graph.live.chain import convolve
from asterism.graph.live.convolution import Geometry
from asterism.graph.live_forward import live_forward, live_if_worth
from support.properties import examples

pytestmark = pytest.mark.skipif(library.load() is None, reason="the kernels are not built")


def sparse(model: nn.Module, density: float, seed: int = 0) -> nn.Module:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for param in model.parameters():
            param.copy_(torch.randn(param.shape, generator=generator) / 4)
            if param.dim() > 1:
                param *= torch.rand(param.shape, generator=generator) < density
    return model


def outputs_and_gradients(model: nn.Module, forward, images: Tensor, labels: Tensor):
    model.zero_grad()
    outputs = forward(images)
    F.cross_entropy(outputs.flatten(1), labels).backward()
    return outputs.detach(), {name: param.grad.clone() for name, param in model.named_parameters()}


def assert_same(model: nn.Module, images: Tensor) -> None:
    """As torch in double precision, to the rounding of single precision."""
    labels = torch.arange(len(images)) % 3
    exact = copy.deepcopy(model).double()
    forward = live_forward(model, images[:1])
    found, found_gradients = outputs_and_gradients(model, forward, images, labels)
    truth, gradients = outputs_and_gradients(exact, exact, images.double(), labels)
    for (name, buffer), expected in zip(model.named_buffers(), exact.buffers(), strict=True):
        torch.testing.assert_close(
            buffer.double(), expected.double(), rtol=1e-5, atol=1e-6, msg=name
        )
    torch.testing.assert_close(found.double(), truth, rtol=1e-5, atol=1e-5)
    largest = max(float(gradient.abs().max()) for gradient in gradients.values())
    for name, param in model.named_parameters():
        expected = gradients[name] * (param != 0) if param.dim() > 1 else gradients[name]
        # Through a batch norm, little is left of large gradients: what they round by is seen.
        scale = float(gradients[name].abs().max()) + 0.1 * largest + 1e-6
        torch.testing.assert_close(
            found_gradients[name].double(), expected, rtol=0, atol=1e-5 * scale, msg=name
        )


def use(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = library.load()
    assert kernels is not None
    if library.LEVELS.index(level) > kernels.asterism_level():
        pytest.skip(f"this machine has no {level}")
    monkeypatch.setenv("ASTERISM_KERNELS", level)


@pytest.mark.parametrize("level", library.LEVELS)
@pytest.mark.parametrize("batch", [1, 31, 64, 88])
def test_lenet5_has_the_gradients_that_torch_gives_it(
    level: str, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(level, monkeypatch)
    images = torch.randn(batch, 1, 28, 28, generator=torch.Generator().manual_seed(batch))
    assert_same(sparse(lenet5(), 0.03), images)


@pytest.mark.parametrize("level", library.LEVELS)
@pytest.mark.parametrize(("make", "density"), [(resnet8, 0.05), (resnet20, 0.05), (resnet8, 1.0)])
def test_resnets_have_the_gradients_that_torch_gives_them(
    level: str, make: Callable[[], nn.Module], density: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(level, monkeypatch)
    images = torch.randn(19, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    assert_same(sparse(make(), density), images)


def convolved(forward: Callable[..., Tensor], value: Tensor, *params: Tensor | None):
    """What a convolution makes, and its gradients for one fixed way of reading it."""
    leaves = [None if each is None else each.clone().requires_grad_() for each in (value, *params)]
    made = forward(*leaves)
    weights = torch.randn(made.shape, generator=torch.Generator().manual_seed(1))
    (made * weights.to(made.dtype)).sum().backward()
    return [made.detach(), *(leaf.grad for leaf in leaves if leaf is not None)]


@examples(40)
@given(
    channels=st.integers(1, 37),
    units=st.integers(1, 37),
    kernel=st.sampled_from([(3, 3), (3, 3), (1, 1), (2, 3)]),
    stride=st.sampled_from([1, 1, 2]),
    padding=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    size=st.tuples(st.integers(3, 18), st.integers(3, 18)),
    images=st.sampled_from([1, 16, 20, 49]),
    level=st.sampled_from(library.LEVELS),
    bias=st.booleans(),
    density=st.sampled_from([1.0, 0.9]),
)
def test_dense_convolutions_round_as_single_precision_does(
    channels: int, units: int, kernel, stride, padding, size, images, level, bias, density
) -> None:
    """Outputs and gradients err by less than 4e-6 of the largest, whatever computes them."""
    loaded = library.load()
    assert loaded is not None
    kernels = Kernels(loaded, min(library.LEVELS.index(level), loaded.asterism_level()))
    generator = torch.Generator().manual_seed(channels)
    value = torch.randn(images, channels, *size, generator=generator)
    weight = torch.randn(units, channels, *kernel, generator=generator)
    weight *= torch.rand(weight.shape, generator=generator) < density
    shift = torch.randn(units, generator=generator) if bias else None
    geometry = Geometry((stride, stride), padding)

    def live(value: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        made = convolve(to_blocks(value, kernels), weight, bias, geometry, kernels)
        return from_blocks(made, images)

    def exact(value: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return F.conv2d(value, weight, bias, stride, padding)

    found = convolved(live, value, weight, shift)
    doubles = (each if each is None else each.double() for each in (value, weight, shift))
    expected = convolved(exact, *doubles)
    expected[2] *= weight != 0
    for one, other in zip(found, expected, strict=True):
        near = 4e-6 * float(other.abs().max())
        torch.testing.assert_close(one.double(), other, rtol=0, atol=near)


@examples(15)
@given(
    channels=st.integers(1, 3),
    units=st.integers(1, 5),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padding=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    size=st.tuples(st.integers(3, 9), st.integers(3, 9)),
    bias=st.booleans(),
    density=st.sampled_from([0.0, 0.3, 1.0]),
)
def test_convolutions_of_any_shape(
    channels: int, units: int, kernel, stride, padding, size, bias: bool, density: float
) -> None:
    first = nn.Conv2d(channels, units, kernel, stride, padding, bias=bias)
    second = nn.Conv2d(units, 2, 1, bias=bias)
    made = second(first(torch.zeros(1, channels, *size))).numel()
    model = nn.Sequential(first, nn.ReLU(), second, nn.Flatten(), nn.Linear(made, 3, bias=bias))
    images = torch.randn(5, channels, *size, generator=torch.Generator().manual_seed(units))
    assert_same(sparse(model, density), images)


@examples(25)
@given(
    groups=st.sampled_from([(1, 2, 3), (2, 4, 2), (3, 3, 3), (4, 4, 8)]),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padding=st.tuples(st.integers(0, 4), st.integers(0, 4)),
    dilation=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    size=st.tuples(st.integers(5, 13), st.integers(5, 13)),
    batch=st.sampled_from([1, 5, 16, 33]),
    density=st.sampled_from([0.0, 0.1, 1.0]),
)
def test_grouped_and_dilated_convolutions_and_padding_wider_than_the_kernel(
    groups, kernel, stride, padding, dilation, size, batch: int, density: float
) -> None:
    count, channels, units = groups
    first = nn.Conv2d(channels, channels, 1)
    second = nn.Conv2d(channels, units * count, kernel, stride, padding, dilation, groups=count)
    made = second(torch.zeros(1, channels, *size)).numel()
    model = nn.Sequential(first, nn.ReLU(), second, nn.Flatten(), nn.Linear(made, 3))
    images = torch.randn(batch, channels, *size, generator=torch.Generator().manual_seed(batch))
    assert_same(sparse(model, density), images)


def test_more_rows_than_fit_a_cache_go_in_bands() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 40, 3, padding=1), nn.Conv2d(40, 5, 3, 2, 1), nn.Flatten(), nn.Linear(2205, 3)
    )
    assert_same(
        sparse(model, 0.05), torch.randn(3, 3, 41, 41, generator=torch.Generator().manual_seed(0))
    )


class Block(nn.Module):
    """A residual block, whose shortcut is nothing, a convolution, or every other pixel."""

    def __init__(self, channels: int, units: int, stride: int, shortcut: str) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, units, 3, stride, 1, bias=False)
        self.norm = nn.BatchNorm2d(units)
        self.depthwise = nn.Conv2d(units, units, 3, padding=1, groups=units, bias=False)
        self.second = nn.Conv2d(units, units, 1, bias=False)
        self.last = nn.BatchNorm2d(units, momentum=None)
        self.shortcut, self.stride, self.more = shortcut, stride, units - channels
        if shortcut == "conv":
            self.short = nn.Conv2d(channels, units, 1, stride, bias=False)
            self.short_norm = nn.BatchNorm2d(units, affine=False)

    def forward(self, x: Tensor) -> Tensor:
        made = F.relu(self.norm(self.first(x)))
        made = self.last(self.second(self.depthwise(made)))
        if self.shortcut == "conv":
            x = self.short_norm(self.short(x))
        elif self.shortcut == "pixels":
            x = x[:, :, :: self.stride, :: self.stride]
            x = F.pad(x, (0, 0, 0, 0, self.more // 2, self.more - self.more // 2))
        return F.relu(made + x) if self.shortcut != "none" else F.relu(made)


def resnet(shortcut: str, stride: int, pool: nn.Module | None = None) -> nn.Module:
    start = [nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4, eps=1e-3), nn.ReLU()]
    blocks = [Block(4, 4, 1, "pixels"), Block(4, 7, stride, shortcut)]
    pool = nn.AdaptiveAvgPool2d(1) if pool is None else pool
    with torch.no_grad():
        size = nn.Sequential(*start, *blocks, pool)(torch.zeros(2, 3, 9, 7))[0].numel()
    return nn.Sequential(*start, *blocks, pool, nn.Flatten(), nn.Linear(size, 3))


@examples(20)
@given(
    shortcut=st.sampled_from(["none", "conv", "pixels"]),
    stride=st.integers(1, 2),
    batch=st.sampled_from([1, 2, 15, 16, 35]),
    density=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    training=st.booleans(),
)
def test_residual_networks(
    shortcut: str, stride: int, batch: int, density: float, training: bool
) -> None:
    images = torch.randn(batch, 3, 9, 7, generator=torch.Generator().manual_seed(batch))
    assert_same(sparse(resnet(shortcut, stride), density).train(training), images)


@pytest.mark.parametrize(
    "pool",
    [
        nn.AvgPool2d(2),
        nn.AvgPool2d(3, 2, 1, count_include_pad=False),
        nn.AvgPool2d((9, 7)),
        nn.AvgPool2d(2, divisor_override=3, ceil_mode=True),
        nn.AdaptiveAvgPool2d((3, 2)),
        nn.Flatten(2),
    ],
    ids=repr,
)
def test_means_over_windows(pool: nn.Module) -> None:
    images = torch.randn(21, 3, 9, 7, generator=torch.Generator().manual_seed(0))
    assert_same(sparse(resnet("conv", 1, pool), 0.2), images)


@pytest.mark.parametrize("threads", [1, 3])
def test_training_a_residual_network_is_what_torch_does_with_the_zeros_held(threads: int) -> None:
    images = torch.randn(45, 3, 9, 7, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(45) % 3
    before = torch.get_num_threads()

    def trained(live: bool) -> nn.Module:
        model = sparse(resnet("conv", 2), 0.3)
        optimizer = Masked(torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9), model)
        optimizer.prune(density=0.2)
        forward = live_forward(model, images[:1]) if live else model
        for _ in range(5):
            optimizer.zero_grad()
            F.cross_entropy(forward(images), labels).backward()
            optimizer.step()
        return model

    torch.set_num_threads(threads)
    try:
        fast, slow = trained(True), trained(False)
    finally:
        torch.set_num_threads(before)
    for name, expected in slow.state_dict().items():
        torch.testing.assert_close(fast.state_dict()[name], expected, rtol=1e-3, atol=1e-5)
    with torch.no_grad():
        fast.eval(), slow.eval()
        found = live_forward(fast, images[:1])(images)
        torch.testing.assert_close(found, fast(images), rtol=1e-4, atol=1e-5)


def test_means_far_from_zero_leave_the_variance_exact() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2), nn.Flatten())
    with torch.no_grad():
        model[0].weight.fill_(1.0)
        model[0].bias.fill_(1000.0)
    images = torch.randn(20, 1, 6, 5, generator=torch.Generator().manual_seed(0))
    live_forward(model, images[:1])(images)
    exact = (images.double() + 1000).float().double()  # as the convolution rounds it
    torch.testing.assert_close(
        model[1].running_var[0].double(), 0.9 + 0.1 * exact.var(), rtol=1e-5, atol=0
    )


def test_one_value_in_a_channel_is_refused_in_training_as_torch_refuses_it() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    forward = live_forward(model, torch.zeros(1, 4))
    with pytest.raises(ValueError, match="more than one value"):
        forward(torch.zeros(1, 4))
    assert_same(sparse(model, 0.5), torch.randn(19, 4, generator=torch.Generator().manual_seed(0)))


def test_a_batch_norm_whose_averages_lie_apart_is_refused() -> None:
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4))
    model[1].running_mean = torch.zeros(4, 2)[:, 0]
    with pytest.raises(InputError, match="in one piece of memory"):
        live_forward(model, torch.zeros(1, 1, 8, 8))


def test_live_weights_leave_the_running_averages_when_they_are_compared() -> None:
    inputs = torch.randn(8, 784, generator=torch.Generator().manual_seed(0))
    model = nn.Sequential(nn.Linear(784, 51), nn.BatchNorm1d(51), nn.ReLU(), nn.Linear(51, 4))
    before = copy.deepcopy(dict(model.named_buffers()))
    assert live_if_worth(model, pruned(model).masks, [inputs]) is not None
    for name, buffer in model.named_buffers():
        assert torch.equal(buffer, before[name]), name


def test_pooling_before_and_after_the_activation() -> None:
    images = torch.randn(40, 2, 10, 10, generator=torch.Generator().manual_seed(0))
    conv = nn.Conv2d(2, 4, 3)
    for middle in ([nn.ReLU(), nn.MaxPool2d(2)], [nn.MaxPool2d(2), nn.ReLU()]):
        assert_same(
            sparse(nn.Sequential(conv, *middle, nn.Flatten(), nn.Linear(64, 3)), 0.5), images
        )


def test_a_pooling_gives_the_gradient_to_the_first_of_equals() -> None:
    model = nn.Sequential(nn.Conv2d(1, 1, 1), nn.MaxPool2d(2), nn.Flatten())
    images = torch.ones(3, 1, 2, 2).requires_grad_()
    live_forward(model, images[:1])(images).sum().backward()
    weight = model[0].weight.item()
    assert images.grad is not None
    expected = torch.tensor([[weight, 0], [0, 0]]).expand(3, 1, 2, 2)
    torch.testing.assert_close(images.grad, expected)


def test_a_nan_is_not_lost_in_a_pooling() -> None:
    model = nn.Sequential(nn.Conv2d(1, 1, 1), nn.MaxPool2d(2), nn.Flatten())
    images = torch.zeros(4, 1, 2, 2)
    for place in range(4):
        images[place].view(-1)[place] = torch.nan
    assert bool(live_forward(model, images[:1])(images).isnan().all())


def test_what_is_pruned_later_is_seen_at_once_and_the_optimizer_notices_nothing() -> None:
    images = torch.randn(32, 784, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(32) % 10

    def trained(live: bool) -> nn.Module:
        model = sparse(lenet300(), 0.2)
        sgd = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        optimizer = AffineScaling(sgd, model, ReweightedL1(), freeze_zeros=True)
        forward = live_forward(model, images[:1]) if live else model
        for step in range(6):
            if step == 3:
                optimizer.prune(density=0.02)
            optimizer.zero_grad()
            F.cross_entropy(forward(images), labels).backward()
            optimizer.step()
        return model

    for (name, fast), slow in zip(
        trained(True).named_parameters(), trained(False).parameters(), strict=True
    ):
        torch.testing.assert_close(fast, slow, rtol=1e-3, atol=1e-5, msg=name)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Sequential(nn.Linear(4, 4), nn.Tanh()), "tanh"),
        (nn.Sequential(nn.Linear(4, 4).double()), "torch.export|float32"),
        (nn.Sequential(nn.Unflatten(1, (4, 1)), nn.Conv1d(4, 4, 1)), "two dimensions"),
        (nn.Sequential(nn.Unflatten(1, (2, 2)), nn.Linear(2, 4)), "sequences"),
        (nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)), "cannot|parameters"),
        (
            nn.Sequential(
                nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 2, 1, 1, 1, padding_mode="reflect")
            ),
            "cannot|padding",
        ),
    ],
)
def test_other_networks_are_refused(model: nn.Module, message: str) -> None:
    with pytest.raises(InputError, match=message):
        live_forward(model, torch.zeros(1, 4))


def test_an_odd_pooling_is_refused() -> None:
    model = nn.Sequential(nn.Conv2d(1, 1, 3), nn.MaxPool2d(2), nn.Flatten())
    with pytest.raises(InputError, match="5×5"):
        live_forward(model, torch.zeros(1, 1, 7, 7))


def test_a_pooling_that_keeps_what_is_left_over_is_not_taken_for_a_halving_one() -> None:
    model = nn.Sequential(nn.Conv2d(1, 1, 3), nn.MaxPool2d(2, ceil_mode=True), nn.Flatten())
    for size in (7, 8):
        with pytest.raises(InputError, match="max_pool cannot be trained"):
            live_forward(model, torch.zeros(1, 1, size, size))


def pruned(model: nn.Module) -> AffineScaling:
    sgd = torch.optim.SGD(model.parameters(), lr=0.05)
    optimizer = AffineScaling(sgd, model, ReweightedL1())
    optimizer.prune(density=0.05)
    return optimizer


def test_live_weights_are_used_where_that_is_exact() -> None:
    inputs = torch.randn(8, 784, generator=torch.Generator().manual_seed(0))
    model = lenet300()
    assert live_if_worth(model, pruned(model).masks, [inputs]) is not None
    assert live_if_worth(model, pruned(model).masks, [inputs, inputs]) is None


def test_a_network_of_3x3_convolutions_is_trained_live_at_any_density() -> None:
    images = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    for make in (resnet8, resnet20):
        assert live_if_worth(make(), dict, [images]) is not None


@pytest.mark.parametrize(("make", "shape"), [(resnet8, (3, 32, 32)), (lenet300, (784,))])
def test_a_zero_that_is_not_pruned_gets_the_gradient_that_torch_gives_it(
    make: Callable[[], nn.Module], shape: tuple[int, ...]
) -> None:
    """Half of what a cut left sinks to zero; of these zeros and the pruned only they may learn."""
    generator = torch.Generator().manual_seed(0)
    model = make()
    optimizer = pruned(model)
    asleep = {}
    with torch.no_grad():
        for param in model.parameters():
            if param.dim() == 1:  # no ReLU at exactly zero, where torch and we may differ
                param.copy_(torch.randn(param.shape, generator=generator))
        for name, weight in optimizer.weights().items():
            asleep[name] = (torch.rand(weight.shape, generator=generator) < 0.5) & (weight != 0)
            weight[asleep[name]] = 0
    images = torch.randn(32, *shape, generator=generator)
    forward = live_forward(model, images[:1], masks=optimizer.masks)
    labels = torch.arange(len(images)) % 10
    (_, found), (_, expected) = (
        outputs_and_gradients(model, way, images, labels) for way in (forward, model)
    )
    for name, mask in optimizer.masks().items():
        near = 1e-4 * float(expected[name].abs().max())
        torch.testing.assert_close(
            found[name][asleep[name]], expected[name][asleep[name]], rtol=1e-3, atol=near
        )
        assert asleep[name].any()
        assert not found[name][~mask].any()


@pytest.mark.parametrize("change", ["dense", "dropout"])
def test_live_weights_are_not_used_where_that_would_change_the_training(change: str) -> None:
    """With most weights alive dense kernels are faster; dropout is only there in training."""
    inputs = torch.randn(8, 784, generator=torch.Generator().manual_seed(0))
    layers = [nn.Linear(784, 50), nn.ReLU(), nn.Linear(50, 3)]
    if change == "dropout":
        layers.insert(2, nn.Dropout(0.5))
    model = nn.Sequential(*layers)
    optimizer = pruned(model)
    masks = optimizer.masks()
    with torch.no_grad():
        if change == "dense":
            model[0].weight.fill_(0.1)
            masks = {name: torch.ones_like(mask) for name, mask in masks.items()}
            model[2].weight.fill_(0.1)
    assert live_if_worth(model, lambda: masks, [inputs]) is None


def test_supervised_training_of_a_sparse_network_is_the_same_through_its_live_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inputs = torch.randn(64, 784, generator=torch.Generator().manual_seed(0))
    batches = [(inputs, torch.arange(64) % 10)]
    trained = []
    for live in (True, False):
        if not live:
            monkeypatch.setattr(library, "load", lambda: None)
        torch.manual_seed(0)
        model = lenet300()
        supervised(batches, batches).fit(model, pruned(model), epochs=5)
        trained.append(model)
    for fast, slow in zip(trained[0].parameters(), trained[1].parameters(), strict=True):
        torch.testing.assert_close(fast, slow, rtol=1e-3, atol=1e-5)
    assert any(
        not torch.equal(fast, slow)
        for fast, slow in zip(trained[0].parameters(), trained[1].parameters(), strict=True)
    ), "to the bit the same: the kernels were not used"
