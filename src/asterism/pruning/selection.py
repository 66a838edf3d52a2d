"""A given number of the highest scores over all layers, exactly, found by counting.

Nothing is sorted, joined or gathered. Within a layer every score ranks weights as their magnitude
does, so the choice is one magnitude per layer. It is closed in on from both sides: magnitudes are
counted in bins of equal leading bits, a bin bounds the scores in it, and only bins whose bounds
leave them undecided are divided further: down to single magnitudes, then to single weights.

Sums are of integers, over chunks and over ranks alike, so that neither their order nor the
sharding can change a mask. Magnitudes are compared as float32, scores as float64.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from asterism.errors import InputError
from asterism.pruning.selection_bins import Bins, Score, decide, find, join, share_out
from asterism.weights.sharding import from_local, local, place_of, sum_over_shards

SHIFTS = (16, 8, 0)  # how many trailing bits each round leaves out
CHUNK = 2**17  # over which sums of squares of 16 bits are exact in float64
BLOCK = 2**16  # positions counted together in the search for the last of equal weights
ALL_BITS = 2**31 - 1
LARGEST = torch.finfo(torch.float32).max


def magnitude(value: Tensor, total: Tensor) -> Tensor:
    """|theta|."""
    return value


def lamp(value: Tensor, total: Tensor) -> Tensor:
    """theta² over the sum of the layer's theta² at or above it (Lee et al. 2021).

    A layer's largest weight scores 1, so a global cut leaves each layer something, and layers
    of different scales compete fairly. Of equal weights the earlier counts as the larger.
    """
    return (value.square() / total).nan_to_num_(0.0)


SCORES: dict[str, Score] = {"magnitude": magnitude, "lamp": lamp}


@dataclass(frozen=True)
class Candidates:
    """The weights of one layer that may be chosen: all, or those where `alive` is not 0."""

    theta: Tensor
    alive: Tensor | None = None

    def chunks(self) -> Iterator[Tensor]:
        """The bits of the magnitudes in this rank's shard, which order as they do; dead: -1."""
        theta = local(self.theta.detach()).reshape(-1)
        alive = None if self.alive is None else local(self.alive).reshape(-1)
        for start in range(0, theta.numel(), CHUNK):
            sizes = theta[start : start + CHUNK].abs()
            if sizes.dtype != torch.float32:
                sizes = sizes.clamp_(max=LARGEST).float()
            bits = sizes.view(torch.int32)
            if alive is not None:
                bits.masked_fill_(alive[start : start + CHUNK] == 0, -1)
            yield bits

    def count(self) -> int:
        """How many there are, on all ranks together."""
        here = local(self.theta) if self.alive is None else local(self.alive)
        found = here.new_tensor(here.numel(), dtype=torch.int64)
        if self.alive is not None:
            found = here.count_nonzero()
        return int(sum_over_shards(found, self.theta))


@dataclass(frozen=True)
class Cut:
    """What stays of a layer: weights from `bits` on, and the first `ties` of those just under."""

    candidates: Candidates
    count: int
    bits: int
    ties: int = 0

    def mask(self) -> Tensor:
        """True where a weight is kept; sharded as the weights are."""
        theta = self.candidates.theta
        mask = torch.empty(place_of(theta)[0], dtype=torch.bool, device=theta.device)
        flat = mask.view(-1)
        for number, bits in enumerate(self.candidates.chunks()):
            torch.ge(bits, self.bits, out=flat[number * CHUNK : (number + 1) * CHUNK])
        if self.ties:
            last = self._last_position()
            for indices, positions in self._tied():
                flat[indices[positions <= last]] = True
        return from_local(mask, theta)

    def _tied(self) -> Iterator[tuple[Tensor, Tensor]]:
        """The weights just under the cut: indices in this rank's shard, positions in the whole."""
        theta = self.candidates.theta
        shape, offset = place_of(theta)
        for number, bits in enumerate(self.candidates.chunks()):
            indices = (bits == self.bits - 1).nonzero().flatten() + number * CHUNK
            positions = torch.zeros_like(indices)
            places = torch.unravel_index(indices, shape)
            for place, first, size in zip(places, offset, theta.shape, strict=True):
                positions = positions * size + place + first
            yield indices, positions

    def _last_position(self) -> int:
        """Of the first `ties` weights just under the cut: its block, then its place in there."""
        theta = self.candidates.theta
        blocks = torch.zeros(theta.numel() // BLOCK + 1, dtype=torch.int64, device=theta.device)
        for _, positions in self._tied():
            blocks += torch.bincount(positions // BLOCK, minlength=len(blocks))
        block, number = find(sum_over_shards(blocks, theta), self.ties)
        places = torch.zeros(BLOCK, dtype=torch.int64, device=theta.device)
        for _, positions in self._tied():
            inside = positions[positions // BLOCK == block]
            places += torch.bincount(inside % BLOCK, minlength=BLOCK)
        return block * BLOCK + find(sum_over_shards(places, theta), number)[0]


def select(layers: Sequence[Candidates], count: int, score: Score) -> list[Cut]:
    """The cuts that keep exactly `count` of the highest scores over all layers together.

    Equal scores go to the earlier layer, then to the earlier position in it.

    >>> layers = [Candidates(torch.tensor([3.0, 1.0])), Candidates(torch.tensor([1.0, 2.0]))]
    >>> [cut.mask() for cut in select(layers, 3, magnitude)]
    [tensor([True, True]), tensor([False,  True])]
    """
    needed, chosen = count, []
    ranges = [_Range() for _ in layers]
    for shift in SHIFTS:
        bins = join(
            [
                _count(layer, number, within, shift, squares=score is not magnitude)
                for number, (layer, within) in enumerate(zip(layers, ranges, strict=True))
            ]
        )
        if shift == SHIFTS[0] and not 0 <= count <= int(bins.count.sum()):
            left = int(bins.count.sum())
            raise InputError(f"cannot keep {count} weights: {left} are left to choose from")
        sure, open_ = decide(bins, needed, score)
        ranges = [_range_of(open_[open_.layer == number], shift) for number in range(len(layers))]
        needed -= int(sure.count.sum())
        chosen.append(sure)
    while not open_.settled(score).all():
        sure, open_ = decide(open_.divided(score), needed, score)
        needed -= int(sure.count.sum())
        chosen.append(sure)
    kept = join([*chosen, share_out(open_, needed, score)])
    return [_cut(layer, kept[kept.layer == number]) for number, layer in enumerate(layers)]


@dataclass(frozen=True)
class _Range:
    """Magnitudes of a layer by their bits, both ends included, and the squares above them."""

    first: int = 0
    last: int = ALL_BITS
    before: float = 0.0


def _range_of(bins: Bins, shift: int) -> _Range:
    if not len(bins):
        return _Range(last=-1)
    last = int(bins.bits[0]) + 2**shift - 1
    return _Range(int(bins.bits[-1]), last, float(bins.before[0]))


def _count(layer: Candidates, number: int, within: _Range, shift: int, squares: bool) -> Bins:
    """The weights in a range, in bins of 2^shift neighbouring magnitudes."""
    size = (within.last + 1 - within.first) >> shift
    everything = within == _Range() and layer.alive is None
    # Of each bin the number of weights, the sum of their trailing bits and of those squared.
    table = torch.zeros(3, size, dtype=torch.int64, device=layer.theta.device)
    for bits in layer.chunks() if size else ():
        if not everything:
            bits = bits.masked_select((bits >= within.first) & (bits <= within.last))
        bin_of = (bits - within.first) >> shift
        table[0] += torch.bincount(bin_of, minlength=size)
        if squares and shift:
            rest = (bits & (2**shift - 1)).double()
            table[1] += torch.bincount(bin_of, rest, minlength=size).long()
            table[2] += torch.bincount(bin_of, rest.square_(), minlength=size).long()
    table = sum_over_shards(table, layer.theta).cpu() if size else table.cpu()
    return _bins(table, number, within, shift)


def _bins(table: Tensor, number: int, within: _Range, shift: int) -> Bins:
    """From what was counted to sums of squares: Σ(small + unit·rest)²."""
    filled = table[0].nonzero().flatten().flip(0)
    count, rest, square_of_rest = table[:, filled]
    bits = within.first + (filled << shift)
    small, large = _value(bits), _value(bits + (2**shift - 1))
    unit = _value(bits + 1) - small
    squares = count * small.square() + 2 * small * unit * rest + unit.square() * square_of_rest
    through = within.before + squares.cumsum(0)
    before = torch.cat([through.new_tensor([within.before]), through])[:-1]
    layer = torch.full_like(count, number)
    return Bins(layer, bits, count, small, large, before, through, count)


def _value(bits: Tensor) -> Tensor:
    return bits.to(torch.int32).view(torch.float32).double()


def _cut(layer: Candidates, kept: Bins) -> Cut:
    """From all that is kept of a layer to where it ends."""
    if not len(kept):
        return Cut(layer, 0, ALL_BITS)
    count, lowest = int(kept.count.sum()), int(kept.bits.min())
    last = kept[kept.bits == lowest]
    taken = int(last.count.sum())
    if taken == int(last.run[0]):
        return Cut(layer, count, lowest)
    return Cut(layer, count, lowest + 1, taken)
