"""Quantised parameters: which of a model's are to take few values, and the values they take.

What both ways of training with few values begin with: `codebooks` (straight-through, inside the
optimizer) and `value_sharing` (tied gradients).
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from asterism.errors import InputError
from asterism.export.checkpoints import to_arrays, to_tensors
from asterism.file.dtypes import BY_NAME
from asterism.file.quantising import quantise_elements

BitWidths = int | Mapping[str, int]
"""The bits of every parameter, or by name those of the ones that are to be quantised."""


def parameters_by_width(model: nn.Module, bits: BitWidths) -> dict[str, tuple[nn.Parameter, int]]:
    """The parameters that `bits` asks for by name, each with its width.

    >>> [(name, width) for name, (_, width) in parameters_by_width(nn.Linear(2, 2), 3).items()]
    [('weight', 3), ('bias', 3)]
    """
    named = dict(model.named_parameters())
    wanted = dict.fromkeys(named, bits) if isinstance(bits, int) else dict(bits)
    unknown = wanted.keys() - named.keys()
    if unknown:
        raise InputError(f"the model has no parameters {', '.join(sorted(unknown))}")
    return {name: (named[name], width) for name, width in wanted.items()}


def round_to_codebook(weights: Tensor, bits: int) -> Tensor:
    """The weights as a file with a codebook of 2^bits values would hold them, to the bit.

    >>> import torch
    >>> round_to_codebook(torch.tensor([0.0, 1.0, 1.02, -2.0, -2.1]), 1)
    tensor([ 0.,  1.,  1., -2., -2.])
    """
    arrays, dtypes = to_arrays({"weights": weights})
    rounded = quantise_elements(arrays["weights"], BY_NAME[dtypes["weights"]], bits)
    return to_tensors({"weights": rounded}, dtypes)["weights"].to(weights.device)
