"""Flags, numbers and words of text, coded bit by bit.

Each kind of number has its own statistics, named by a slot, so that what a file repeats (ranks,
kernel sizes, gaps of a codebook) soon costs next to nothing.
"""

from __future__ import annotations

from functools import cache

from asterism.errors import FormatError
from asterism.file.small.mixing import Mixer
from asterism.file.small.ranges import Coder, Listener

MAX_BITS = 64
MAX_TEXT = 1 << 12
TOO_LONG = f"a name is longer than {MAX_TEXT} bytes"
_HALF = 1 << 15

# Both sides read this before the first name: what names of layers usually look like.
PRIMER = (
    b"conv1.weight\0conv1.bias\0conv2.weight\0conv2.bias\0fc1.weight\0fc1.bias\0fc2.weight\0"
    b"fc2.bias\0fc3.weight\0fc3.bias\0bn1.weight\0bn1.bias\0bn1.running_mean\0bn1.running_var\0"
    b"bn1.num_batches_tracked\0layer1.0.conv1.weight\0layer1.0.bn1.weight\0downsample.0.weight\0"
    b"features.0.weight\0features.0.bias\0classifier.1.weight\0classifier.1.bias\0"
    b"encoder.layers.0.self_attn.in_proj_weight\0embed_tokens.weight\0norm.weight\0"
    b"0.weight\0000.bias\0002.weight\0002.bias\0"
)


class Numbers:
    """Non-negative integers: their length in bits, learnt, and then the bits."""

    def __init__(self, coder: Coder, slots: int) -> None:
        self._coder = coder
        # By the length of the number before: is this one longer than …?
        self._lengths = Mixer(coder, slots * (MAX_BITS + 1), [slots * (MAX_BITS + 1) ** 2], prior=2)
        self._seconds = Mixer(coder, slots * (MAX_BITS + 1))
        self._last = [0] * slots

    def code(self, value: int, slot: int) -> int:
        length = self._length(value.bit_length(), slot)
        number = 1 if length else 0
        for place in range(length - 2, -1, -1):
            bit = value >> place & 1
            if place == length - 2:
                bit = self._seconds.code(bit, slot * (MAX_BITS + 1) + length)
            else:
                bit = self._coder.code(_HALF, bit)
            number = number << 1 | bit
        return number

    def _length(self, length: int, slot: int) -> int:
        row = slot * (MAX_BITS + 1)
        given = (row + self._last[slot]) * (MAX_BITS + 1)
        reached = 0
        while reached < MAX_BITS and self._lengths.code(
            int(length > reached), row + reached, (given + reached,)
        ):
            reached += 1
        self._last[slot] = reached
        return reached


def _hash(context: int, node: int) -> int:
    """A cell out of 2¹⁶ for a context of up to 24 bits and a place in the tree of a byte."""
    return ((context * 0x9E37_79B1 ^ node * 0x85EB_CA6B) & 0xFFFF_FFFF) >> 16


class Text:
    """Bytes, each in the light of the three before it."""

    def __init__(self, mixer: Mixer) -> None:
        self._mixer = mixer
        self._before = 0

    @classmethod
    def primed(cls, coder: Coder) -> Text:
        return cls(_primed().copy(coder))

    def byte(self, byte: int) -> int:
        contexts = (self._before & 0xFF, self._before & 0xFFFF, self._before)
        node = 1
        for place in range(7, -1, -1):
            cells = [_hash(context, node) for context in contexts]
            node = node << 1 | self._mixer.code(byte >> place & 1, node, cells)
        byte = node & 0xFF
        self._before = (self._before << 8 | byte) & 0xFFFFFF
        return byte

    def code(self, text: bytes) -> bytes:
        """A text without zero bytes, ended by one."""
        found = bytearray()
        for byte in text + b"\0" if text else [0] * (MAX_TEXT + 1):
            byte = self.byte(byte)
            if not byte:
                return bytes(found)
            found.append(byte)
        raise FormatError(TOO_LONG)


@cache
def _primed() -> Mixer:
    mixer = Mixer(Listener(), 256, [1 << 16] * 3, prior=1, weight=26_000)
    text = Text(mixer)
    for byte in PRIMER:
        text.byte(byte)
    return mixer
