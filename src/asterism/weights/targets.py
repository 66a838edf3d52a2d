"""Which parameters a model offers for sparsity, and why the others are left alone.

By default every weight of rank ≥ 2 of the convolutional, linear, recurrent and attention layers.
Nothing is traced: modules are asked for their type, parameters for their owner.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import nn

from asterism.errors import InputError
from asterism.weights.names import check_patterns, matches

SPARSE_MODULES = (
    nn.Linear,
    nn.Bilinear,
    nn.modules.conv._ConvNd,
    nn.RNNBase,
    nn.RNNCellBase,
    nn.MultiheadAttention,
)


@dataclass(frozen=True)
class Candidate:
    """A parameter, under every name it has, and the verdict on it."""

    names: tuple[str, ...]
    param: nn.Parameter
    chosen: bool
    reason: str

    @property
    def name(self) -> str:
        return self.names[0]


def survey(
    model: nn.Module,
    include: Sequence[str] | None = None,
    exclude: Sequence[str] | None = None,
) -> list[Candidate]:
    """Every parameter with the verdict on it: the dry run of `choose`.

    Patterns are globs over the parameter's name or its module's: `fc1.weight`, `fc1`, `encoder.*`.
    """
    for patterns in (include, exclude):
        _check_patterns(model, patterns or ())
    candidates = []
    for param, owners in _owners(model).items():
        names = tuple(name for name, _ in owners)
        chosen, reason = _verdict(param, owners, include, exclude)
        candidates.append(Candidate(names, param, chosen, reason))
    return candidates


def choose(
    model: nn.Module,
    include: Sequence[str] | None = None,
    exclude: Sequence[str] | None = None,
) -> list[Candidate]:
    """The parameters to make sparse; an error where there are none."""
    candidates = survey(model, include, exclude)
    chosen = [candidate for candidate in candidates if candidate.chosen]
    if not chosen:
        reasons = sorted({candidate.reason for candidate in candidates}) or ["no parameters at all"]
        raise InputError(
            f"{type(model).__name__} has nothing to prune ({'; '.join(reasons)}):"
            " name weights with include=[...]"
        )
    return chosen


def _verdict(
    param: nn.Parameter,
    owners: list[tuple[str, nn.Module]],
    include: Sequence[str] | None,
    exclude: Sequence[str] | None,
) -> tuple[bool, str]:
    names = [name for name, _ in owners]
    weight = param.ndim >= 2 and not any(_is_bias(name) for name in names)
    if not param.requires_grad:
        return False, "frozen"
    if exclude and any(matches(name, exclude) for name in names):
        return False, "excluded by name"
    if include and any(matches(name, include) for name in names):
        return (True, "included by name") if weight else (False, "a bias or vector")
    if include is not None:
        return False, "not included"
    if not weight:
        return False, "a bias or vector"
    for _, module in owners:
        if not isinstance(module, SPARSE_MODULES):
            # A head tied to an embedding is the embedding.
            return False, f"belongs to {type(module).__name__}"
    return True, f"weight of {type(owners[0][1]).__name__}"


def _owners(model: nn.Module) -> dict[nn.Parameter, list[tuple[str, nn.Module]]]:
    owners: dict[nn.Parameter, list[tuple[str, nn.Module]]] = {}
    for name, module, param in _named_parameters(model):
        owners.setdefault(param, []).append((name, module))
    return owners


def _named_parameters(model: nn.Module) -> Iterator[tuple[str, nn.Module, nn.Parameter]]:
    for prefix, module in model.named_modules(remove_duplicate=False):
        for name, param in module.named_parameters(recurse=False, remove_duplicate=False):
            yield f"{prefix}.{name}" if prefix else name, module, param


def _is_bias(name: str) -> bool:
    """Attention's bias_k and bias_v have rank 3, and are biases all the same."""
    return name.rpartition(".")[2].split("_")[0] == "bias"


def _check_patterns(model: nn.Module, patterns: Sequence[str]) -> None:
    if isinstance(patterns, str):
        raise InputError(f"include and exclude are lists of patterns: write [{patterns!r}]")
    check_patterns(patterns, (name for name, _, _ in _named_parameters(model)))
