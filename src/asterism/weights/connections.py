"""The units that a weight tensor connects: outputs, inputs, attention heads.

Owns the layouts in which torch stores weights. Units are given as an *index*: an integer tensor
that, broadcast to the weight's shape, holds for each single weight the number of its unit. It has
size 1 along the dimensions that make no difference.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from asterism.errors import InputError
from asterism.weights.names import owner


@dataclass(frozen=True)
class Heads:
    """Attention heads in a projection: equal blocks along a dimension of its weight.

    count  how many heads
    dim    the dimension that they divide
    parts  how many projections are stacked along it, each with all heads

    Queries, keys and values make heads of rows (dim=0), the output projection reads them by
    columns (dim=1). A projection to all three at once has parts=3.

    count  of heads
    dim    the dimension of the weight that is divided into heads
    parts  how many projections are stacked along it, each with all the heads

    >>> Heads(2)(torch.Size([4, 3])).flatten()
    tensor([0, 0, 1, 1])
    """

    count: int
    dim: int = 0
    parts: int = 1

    def __call__(self, shape: torch.Size) -> Tensor:
        if self.count < 1 or shape[self.dim] % (self.count * self.parts):
            raise InputError(
                f"dimension {self.dim} of shape {tuple(shape)} does not divide into {self.parts} ×"
                f" {self.count} heads"
            )
        part = shape[self.dim] // self.parts
        numbers = torch.arange(shape[self.dim]) % part // (part // self.count)
        return along(self.dim, len(shape), numbers)


@dataclass(frozen=True)
class Weight:
    """A weight tensor and its place in the model.

    name    of the parameter
    shape   of the whole of it
    module  to which it belongs
    around  the module of which that one is a part
    """

    name: str
    shape: torch.Size
    module: nn.Module
    around: nn.Module

    @property
    def input_dim(self) -> int:
        """The dimension along which the weight reads its input."""
        return 0 if self._transposed else 1

    def rows(self) -> Tensor:
        """A unit for each entry of dimension 0, whatever it stands for."""
        return self._numbers(0)

    def outputs(self) -> Tensor:
        """The output unit of each weight; in a recurrent layer all gates of one hidden unit."""
        if self._transposed:
            return self._within_groups(owners=0, members=1)
        projection = self._attribute.startswith("weight_hr")
        if isinstance(self.module, nn.RNNBase | nn.RNNCellBase) and not projection:
            return self._numbers(0) % int(self.module.hidden_size)
        return self._numbers(0)

    def inputs(self) -> Tensor:
        """The input unit of each weight."""
        if self._transposed:
            return self._numbers(0)
        return self._within_groups(owners=0, members=1)

    def heads(self) -> Tensor:
        """The head of nn.MultiheadAttention that each weight belongs to."""
        if isinstance(self.module, nn.MultiheadAttention):
            parts = 3 if self._attribute == "in_proj_weight" else 1
            return Heads(self.module.num_heads, parts=parts)(self.shape)
        if isinstance(self.around, nn.MultiheadAttention):  # its output projection
            return Heads(self.around.num_heads, dim=1)(self.shape)
        raise InputError(
            f"{self.name} belongs to no nn.MultiheadAttention: say how many heads it has with"
            " by=Heads(count), and dim=1 where it reads them"
        )

    @property
    def _attribute(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def _transposed(self) -> bool:
        return bool(getattr(self.module, "transposed", False))

    def _numbers(self, dim: int) -> Tensor:
        return along(dim, len(self.shape), torch.arange(self.shape[dim]))

    def _within_groups(self, owners: int, members: int) -> Tensor:
        """Units on the side of a grouped convolution that is stored per group."""
        groups = getattr(self.module, "groups", 1)
        if groups == 1:
            return self._numbers(members)
        group = self._numbers(owners) // (self.shape[owners] // groups)
        return group * self.shape[members] + self._numbers(members)


def locate(model: nn.Module, name: str) -> Weight:
    """A parameter of the model, by its name, with the modules around it."""
    module = owner(name)
    return Weight(
        name=name,
        shape=model.get_parameter(name).shape,
        module=model.get_submodule(module),
        around=model.get_submodule(owner(module)),
    )


def along(dim: int, ndim: int, numbers: Tensor) -> Tensor:
    """A vector laid along one of several dimensions, with size 1 in the others.

    dim      along which it lies
    ndim     how many dimensions there are
    numbers  the vector

    >>> along(1, 3, torch.arange(4)).shape
    torch.Size([1, 4, 1])
    """
    shape = [1] * ndim
    shape[dim] = -1
    return numbers.view(shape)
