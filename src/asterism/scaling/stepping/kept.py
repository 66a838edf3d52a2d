"""What a step has sorted and looked up for its layers, kept until one of them changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from asterism.scaling.layer import Layer

T = TypeVar("T")


class Kept(Generic[T]):
    """`make(layers)`, made anew for other layers, or where omega, mask or penalty is another."""

    def __init__(self, make: Callable[[list[Layer]], T]) -> None:
        self.make = make
        self.layers: list[Layer] = []
        self.changes: list[int] = []
        self.made: T | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Kept, (self.make,)  # a copy has tensors of its own, elsewhere

    def of(self, layers: list[Layer]) -> T:
        changes = [layer.changes for layer in layers]
        if self.made is None or layers != self.layers or changes != self.changes:
            self.layers, self.changes, self.made = layers, changes, self.make(layers)
        return self.made
