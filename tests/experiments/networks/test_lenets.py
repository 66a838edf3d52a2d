import pytest
import torch
import torch.nn.functional as F
from torch import nn

from asterism.experiments.networks import MODELS, lenet5, lenet300

SHAPES = {
    "lenet5": {
        "conv1": (20, 1, 5, 5),
        "conv2": (50, 20, 5, 5),
        "fc1": (500, 800),
        "fc2": (10, 500),
    },
    "lenet300": {"fc1": (300, 784), "fc2": (100, 300), "fc3": (10, 100)},
}
COUNTS = {"lenet5": (430_500, 431_080), "lenet300": (266_200, 266_610)}


@pytest.mark.parametrize("name", ["lenet5", "lenet300"])
def test_layers_have_the_published_names_and_shapes(name: str) -> None:
    layers = dict(MODELS[name]().named_children())
    assert {key: tuple(layer.weight.shape) for key, layer in layers.items()} == SHAPES[name]


@pytest.mark.parametrize("name", ["lenet5", "lenet300"])
def test_weights_and_parameters_are_as_many_as_published(name: str) -> None:
    params = dict(MODELS[name]().named_parameters())
    weights = sum(param.numel() for key, param in params.items() if key.endswith("weight"))
    assert (weights, sum(param.numel() for param in params.values())) == COUNTS[name]


def test_lenet5_rectifies_after_fc1_only() -> None:
    model, images = lenet5(), torch.randn(3, 1, 28, 28)
    layers = [
        *(model.conv1, nn.MaxPool2d(2), model.conv2, nn.MaxPool2d(2)),
        *(nn.Flatten(), model.fc1, nn.ReLU(), model.fc2),
    ]
    torch.testing.assert_close(model(images), nn.Sequential(*layers)(images))


def test_lenet300_flattens_its_input_and_rectifies_twice() -> None:
    model, images = lenet300(), torch.randn(3, 1, 28, 28)
    hidden = F.relu(model.fc2(F.relu(model.fc1(images.view(3, 784)))))
    torch.testing.assert_close(model(images), model.fc3(hidden))


@pytest.mark.parametrize("name", ["lenet5", "lenet300"])
def test_channels_last_images_give_the_same_logits(name: str) -> None:
    model, images = MODELS[name](), torch.randn(2, 28, 28, 1).permute(0, 3, 1, 2)
    torch.testing.assert_close(model(images), model(images.contiguous()))
