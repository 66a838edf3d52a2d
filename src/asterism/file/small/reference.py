"""The stream in Python: slow, needs nothing compiled, and defines what is right."""

from __future__ import annotations

from collections.abc import Sequence

from asterism.file.small.indices import code_indices
from asterism.file.small.mixing import Mixer
from asterism.file.small.positions import code_bits, code_rows
from asterism.file.small.ranges import Decoder, Encoder
from asterism.file.small.streams import FLAGS, Indices, Mask, Places, Slot
from asterism.file.small.symbols import Numbers, Text
from asterism.file.small.units import Grid


class Reference:
    """Reads `data`, or writes where there are none."""

    def __init__(self, data: bytes | None = None) -> None:
        self._coder = Encoder() if data is None else Decoder(data)
        self._flags = Mixer(self._coder, FLAGS)
        self._numbers = Numbers(self._coder, len(Slot))
        self._text = Text.primed(self._coder)

    @property
    def decoding(self) -> bool:
        return self._coder.decoding

    @property
    def used(self) -> float:
        return self._coder.bits if isinstance(self._coder, Decoder) else 0.0

    def flag(self, value: bool, flag: int) -> bool:
        return bool(self._flags.code(int(value), flag))

    def number(self, value: int, slot: int) -> int:
        return self._numbers.code(value, slot)

    def numbers(self, values: Sequence[int], slot: int) -> list[int]:
        return [self.number(value, slot) for value in values]

    def text(self, text: bytes) -> bytes:
        return self._text.code(text)

    def bits(self, bits: Mask, hints: bytes) -> Mask:
        return code_bits(self._coder, bits, hints)

    def rows(self, mask: Mask, grid: Grid, rows: Places, channels: Places, hints: bytes) -> None:
        code_rows(self._coder, mask, grid, rows, channels, hints)

    def indices(self, index: Indices, where: Places, grid: Grid, size: int) -> Indices:
        return code_indices(self._coder, index, where, grid, size)

    def finish(self) -> bytes:
        return self._coder.finish()
