"""A given number of the highest scores over all layers, exactly, found by counting.

Nothing is sorted, joined or gathered. Within a layer every score ranks weights as their magnitude
does, so that the choice is one magnitude per layer. It is found by narrowing in:

1. The magnitudes of each layer are counted in bins of equal leading bits, the bins of a histogram.
2. Each bin bounds the scores in it. Bins above where the cut can lie stay, bins below go.
3. The open bins with the widest bounds are divided: those of several magnitudes by counting again
   the weights in them, those of equal weights by their positions.
4. Back to 2, until each open bin has one score. The rest is given to them in the order of ties.

Only open bins are counted, a limited number at a time: memory and time depend on how many of them
there are, not on how far apart they lie.

Sums are of integers, over chunks and over ranks alike: neither their order nor the sharding can
change a mask. All ranks hold the same bins, and so they sum tables of the same shape. Magnitudes
are compared as float32, scores as float64.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from asterism.errors import InputError
from asterism.pruning.compiled import Compiled
from asterism.pruning.scores import Score, magnitude
from asterism.pruning.selection_bins import (
    FINER,
    Bins,
    decide,
    find_entry,
    join,
    split_by_magnitude,
    split_by_position,
    take_highest,
    whole_layers,
    widest,
)
from asterism.weights.sharding import from_local, local, place_of, sharding_of, sum_over_shards

CHUNK = 2**17  # over which sums of squares of 16 bits are exact in float64
BLOCK = 2**16  # positions counted together in the search for the last of equal weights
MOST_PARTS = 2**17  # of bins that are counted in one table, of three numbers each
ALL_BITS = 2**31 - 1
LARGEST = torch.finfo(torch.float32).max


@dataclass(frozen=True)
class Candidates:
    """The weights of one layer that may be chosen: all, or those where `alive` is not 0."""

    theta: Tensor
    alive: Tensor | None = None

    def chunks(self) -> Iterator[Tensor]:
        """The magnitudes in this rank's shard, as the bits of float32; -1 for the dead.

        Read as integers, the bits of numbers that are not negative order as the numbers do.
        """
        theta = local(self.theta).detach().reshape(-1)
        alive = None if self.alive is None else local(self.alive).reshape(-1)
        for start in range(0, theta.numel(), CHUNK):
            sizes = theta[start : start + CHUNK].abs()
            if sizes.dtype != torch.float32:
                sizes = sizes.clamp_(max=LARGEST).float()
            bits = sizes.view(torch.int32)
            if alive is not None:
                bits.masked_fill_(alive[start : start + CHUNK] == 0, -1)
            yield bits

    def compiled(self) -> Compiled | None:
        """The same for the compiled passes, where these can take it."""
        alive = None if self.alive is None else local(self.alive)
        return Compiled.of(local(self.theta).detach(), alive)

    def count_into(self, table: Tensor, starts: Tensor, free_bits: int, squares: bool) -> None:
        """Counts this rank's weights in each part of some bins.

        table      gets, for each bin and part, how many there are, the sum of their trailing bits,
                   and of those squared
        starts     the bits with which each bin begins, from small to large
        free_bits  how many trailing bits differ in a bin
        squares    whether the sums are needed
        """
        finer = FINER[free_bits]
        if (compiled := self.compiled()) is not None:
            return compiled.count(table, starts, free_bits, finer)
        starts = starts.to(table.device, torch.int32)
        table = table.view(-1, 3)
        for bits in self.chunks():
            if free_bits < 31 or self.alive is not None:
                bits = bits.masked_select(_between(bits, starts, free_bits))
            bits, part_of = _sort_into_parts(bits, starts, free_bits)
            table[:, 0] += torch.bincount(part_of, minlength=len(table))
            if squares and finer:  # with no bit left the magnitude says it all
                rest = (bits & (2**finer - 1)).double()
                table[:, 1] += torch.bincount(part_of, rest, minlength=len(table)).long()
                table[:, 2] += torch.bincount(part_of, rest.square_(), minlength=len(table)).long()
        return None

    def count_here(self) -> int:
        """How many there are on this rank."""
        if self.alive is None:
            return local(self.theta).numel()
        return int(local(self.alive).count_nonzero())


@dataclass(frozen=True)
class Cut:
    """What stays of one layer.

    candidates  its weights
    count       how many of them stay
    bits        magnitudes with at least these bits stay
    ties        how many weights of the next smaller magnitude stay too, the first ones
    """

    candidates: Candidates
    count: int
    bits: int
    ties: int = 0

    def mask(self) -> Tensor:
        """True where a weight is kept; sharded as the weights are."""
        theta = self.candidates.theta
        mask = torch.empty(place_of(theta)[0], dtype=torch.bool, device=theta.device)
        flat = mask.view(-1)
        compiled = self.candidates.compiled()
        if compiled is not None:
            compiled.mask(self.bits, flat)
        else:  # chunk by chunk, without a second tensor of the layer's size
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
        """The position in the whole of the last of the `ties` weights that stay."""
        theta = self.candidates.theta
        # How many tied weights there are in each block of positions tells which block it is in.
        blocks = torch.zeros(theta.numel() // BLOCK + 1, dtype=torch.int64, device=theta.device)
        for _, positions in self._tied():
            blocks += torch.bincount(positions // BLOCK, minlength=len(blocks))
        block, number = find_entry(sum_over_shards(blocks, theta), self.ties)
        # Then the same within that block, position by position.
        places = torch.zeros(BLOCK, dtype=torch.int64, device=theta.device)
        for _, positions in self._tied():
            inside = positions[positions // BLOCK == block]
            places += torch.bincount(inside % BLOCK, minlength=BLOCK)
        return block * BLOCK + find_entry(sum_over_shards(places, theta), number)[0]


def select(layers: Sequence[Candidates], count: int, score: Score) -> list[Cut]:
    """The cuts that keep exactly `count` of the highest scores over all layers together.

    Equal scores go to the earlier layer, then to the earlier position in it.

    layers  the weights to choose from
    count   how many of them stay
    score   one of `scores.SCORES`

    >>> layers = [Candidates(torch.tensor([3.0, 1.0])), Candidates(torch.tensor([1.0, 2.0]))]
    >>> [cut.mask() for cut in select(layers, 3, magnitude)]
    [tensor([True, True]), tensor([False,  True])]
    """
    bins = _divide(whole_layers(len(layers)), layers, score)
    if not 0 <= count <= bins.weights:
        raise InputError(f"cannot keep {count} weights: {bins.weights} are left to choose from")
    kept, undecided = decide(bins, count, score)
    while (chosen := widest(undecided, score)).any():
        divided = _divide(undecided[chosen], layers, score)
        bins = join([undecided[~chosen], divided])
        stays, undecided = decide(bins, count - kept.weights, score)
        kept = join([kept, stays])
    kept = join([kept, take_highest(undecided, count - kept.weights, score)])
    kept = kept[kept.layer.argsort()]
    ends = kept.layer.bincount(minlength=len(layers)).cumsum(0).tolist()
    starts = [0, *ends[:-1]]
    return [_cut(layer, kept[slice(*of)]) for layer, *of in zip(layers, starts, ends, strict=True)]


def _divide(bins: Bins, layers: Sequence[Candidates], score: Score) -> Bins:
    """Each bin in its parts. Those with free bits are counted, each layer in a pass of its own."""
    parts = [split_by_position(bins[bins.free_bits == 0])]
    for alike in _portions(bins, layers):
        counted = _count(alike, layers, squares=score is not magnitude)
        parts.append(split_by_magnitude(alike, *counted))
    return join(parts)


def _portions(bins: Bins, layers: Sequence[Candidates]) -> Iterator[Bins]:
    """The bins with free bits that can be counted in one table, sorted by layer and magnitude."""
    bins = bins[bins.bits.argsort()]
    bins = bins[bins.layer.argsort(stable=True)]
    kinds: dict[Hashable, list[int]] = defaultdict(list)
    for at, (layer, free_bits) in enumerate(
        zip(bins.layer.tolist(), bins.free_bits.tolist(), strict=True)
    ):
        if free_bits:
            kinds[free_bits, sharding_of(layers[layer].theta)].append(at)
    for places in kinds.values():
        alike = bins[torch.tensor(places)]
        most = MOST_PARTS >> _bits_of_parts(alike)
        yield from (alike[start : start + most] for start in range(0, len(alike), most))


def _bits_of_parts(alike: Bins) -> int:
    free_bits = int(alike.free_bits[0])
    return free_bits - FINER[free_bits]


def _count(bins: Bins, layers: Sequence[Candidates], *, squares: bool) -> tuple[Tensor, Tensor]:
    """The weights in each part of some bins, all ranks together: what `split_by_magnitude` needs.

    bins     those of a portion
    squares  whether the sums of the trailing bits and of their squares are needed
    """
    numbers = bins.layer.tolist()
    like = layers[numbers[0]].theta
    table = torch.zeros(
        len(bins), 1 << _bits_of_parts(bins), 3, dtype=torch.int64, device=local(like).device
    )
    for number in dict.fromkeys(numbers):
        here = slice(start := numbers.index(number), start + numbers.count(number))
        layer = layers[number]
        layer.count_into(table[here], bins.bits[here], int(bins.free_bits[0]), squares)
    # Most parts of a whole layer are empty, on all ranks: they need not be exchanged.
    filled = sum_over_shards(table[:, :, 0].any(0).int(), like).nonzero().flatten()
    table = table[:, filled].permute(2, 0, 1).contiguous()
    return filled.cpu(), sum_over_shards(table, like).cpu()


def _between(bits: Tensor, starts: Tensor, free_bits: int) -> Tensor:
    """Where a weight lies from the first bin to the last: of most layers only few do."""
    return torch.ge(bits, starts[0]) & torch.le(bits, starts[-1] + (2**free_bits - 1))


def _sort_into_parts(bits: Tensor, starts: Tensor, free_bits: int) -> tuple[Tensor, Tensor]:
    """The weights that are in a bin, and the number of the part that each is in."""
    finer = FINER[free_bits]
    if len(starts) == 1:
        return bits, (bits - starts[0]) >> finer
    bin_of = torch.searchsorted(starts, bits, right=True) - 1
    ahead = (bits - starts[bin_of]) >> finer
    parts = 1 << (free_bits - finer)
    inside = ahead < parts
    return bits[inside], (bin_of * parts + ahead)[inside]


def _cut(layer: Candidates, kept: Bins) -> Cut:
    """From all that is kept of a layer to where it ends."""
    if not len(kept):
        return Cut(layer, 0, ALL_BITS)
    lowest = int(kept.bits.min())
    last = kept[kept.bits == lowest]
    if last.weights == int(last.ties[0]):
        return Cut(layer, kept.weights, lowest)
    # Of the smallest magnitude that is kept, not all weights are.
    return Cut(layer, kept.weights, lowest + 1, ties=last.weights)
