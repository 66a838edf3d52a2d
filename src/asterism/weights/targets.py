"""The parameters of a model that are made sparse, and the reason why each other one is not.

By default these are the weights of rank 2 and more in convolutional, linear, recurrent and
attention layers. Nothing is traced: modules are asked for their type, parameters for their owner.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import nn
from torch.nn.parameter import UninitializedParameter
from torch.nn.utils import parametrize
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

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
UNHIDE = (
    "make them plain weights first (torch.nn.utils.parametrize.remove_parametrizations, or"
    " torch.nn.utils.remove_weight_norm and remove_spectral_norm)"
)
# What the older functions hang before a layer's forward, and the parameters that they leave there.
OLD_HOOKS = {WeightNorm: ("_g", "_v"), SpectralNorm: ("_orig",)}


@dataclass(frozen=True)
class Candidate:
    """A parameter and the verdict on it.

    names   all that it has: more than one where it is tied
    param   the parameter
    chosen  whether it is made sparse
    reason  why, or why not
    hidden  whether it would be chosen if it were a weight itself, and not what the layer computes
            its weight from
    """

    names: tuple[str, ...]
    param: nn.Parameter
    chosen: bool
    reason: str
    hidden: bool = False

    @property
    def name(self) -> str:
        """The first of its names."""
        return self.names[0]


@dataclass(frozen=True)
class _Owner:
    """A module that holds a parameter, the name under which it does, and what hides it there.

    hidden_by  the parametrization through which the module sees the parameter, if there is one
    """

    name: str
    module: nn.Module
    hidden_by: str | None = None


def survey(
    model: nn.Module,
    include: Sequence[str] | None = None,
    exclude: Sequence[str] | None = None,
) -> list[Candidate]:
    """Every parameter with the verdict on it: the dry run of `choose`.

    model    whose parameters these are
    include  patterns of the only parameters to choose from
    exclude  patterns of parameters not to choose

    Patterns are globs over the parameter's name or its module's: `fc1.weight`, `fc1`, `encoder.*`.
    """
    for patterns in (include, exclude):
        _check_patterns(model, patterns or ())
    candidates = []
    for param, owners in _owners(model).items():
        names = tuple(owner.name for owner in owners)
        chosen, reason = _verdict(param, owners, include, exclude)
        hidden_by = next((owner.hidden_by for owner in owners if owner.hidden_by), None)
        if chosen and hidden_by:
            candidates.append(Candidate(names, param, False, f"hidden by {hidden_by}", hidden=True))
        else:
            candidates.append(Candidate(names, param, chosen, reason))
    return candidates


def choose(
    model: nn.Module,
    include: Sequence[str] | None = None,
    exclude: Sequence[str] | None = None,
) -> list[Candidate]:
    """The parameters to make sparse; an error where there are none.

    model    whose parameters these are
    include  patterns of the only parameters to choose from
    exclude  patterns of parameters not to choose
    """
    candidates = survey(model, include, exclude)
    chosen = [candidate for candidate in candidates if candidate.chosen]
    if not chosen:
        reasons = sorted({candidate.reason for candidate in candidates}) or ["no parameters at all"]
        hidden = any(candidate.hidden for candidate in candidates)
        remedy = UNHIDE if hidden else "name weights with include=[...]"
        raise InputError(
            f"{type(model).__name__} has nothing to prune ({'; '.join(reasons)}): {remedy}"
        )
    _warn_of_hidden([candidate for candidate in candidates if candidate.hidden])
    return chosen


def _warn_of_hidden(hidden: Sequence[Candidate]) -> None:
    """One line for all, and from one place: Python shows it once, however often it is called."""
    if hidden:
        names = ", ".join(f"{each.name} ({each.reason})" for each in hidden)
        warnings.warn(f"left dense: {names}: {UNHIDE}, or exclude them", stacklevel=1)


def _verdict(
    param: nn.Parameter,
    owners: Sequence[_Owner],
    include: Sequence[str] | None,
    exclude: Sequence[str] | None,
) -> tuple[bool, str]:
    """Whether a parameter is chosen by its kind and its names, and why."""
    names = [owner.name for owner in owners]
    if not param.requires_grad:
        return False, "frozen"
    if exclude and any(matches(name, exclude) for name in names):
        return False, "excluded by name"
    included = bool(include) and any(matches(name, include or ()) for name in names)
    if include is not None and not included:
        return False, "not included"
    _check_initialised(param, owners)
    if param.ndim < 2 or any(_is_bias(name) for name in names):
        return False, "a bias or vector"
    if included:
        return True, "included by name"
    for owner in owners:
        if not isinstance(owner.module, SPARSE_MODULES):
            # A head tied to an embedding is the embedding.
            return False, f"belongs to {type(owner.module).__name__}"
    return True, f"weight of {type(owners[0].module).__name__}"


def _check_initialised(param: nn.Parameter, owners: Sequence[_Owner]) -> None:
    """A lazy layer has no weights before its first batch, and could not be told from a vector."""
    if isinstance(owners[0].module, SPARSE_MODULES) and isinstance(param, UninitializedParameter):
        raise InputError(
            f"{owners[0].name} is lazy and has no shape yet: run one batch through the model first"
        )


def _owners(model: nn.Module) -> dict[nn.Parameter, list[_Owner]]:
    """The modules that hold each parameter; for a hidden one, the module that is parametrized."""
    hidden = dict(_hidden_parameters(model))
    owners: dict[nn.Parameter, list[_Owner]] = {}
    for name, module, param in _named_parameters(model):
        layer, hidden_by = hidden.get(param, (module, None))
        owners.setdefault(param, []).append(_Owner(name, layer, hidden_by))
    return owners


def _hidden_parameters(
    model: nn.Module,
) -> Iterator[tuple[nn.Parameter, tuple[nn.Module, str]]]:
    """Parameters from which a layer computes its weight, with the layer and the way it does.

    A zero in one of them is no zero of the weight, and weight norm divides by the norm of a row.
    """
    for module in model.modules():
        if parametrize.is_parametrized(module):
            assert isinstance(module.parametrizations, nn.ModuleDict)
            for steps in module.parametrizations.values():
                how = " and ".join(type(step).__name__.strip("_") for step in steps.children())
                for param in steps.parameters():
                    yield param, (module, how)
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, WeightNorm | SpectralNorm):
                for ending in OLD_HOOKS[type(hook)]:
                    param = module.get_parameter(f"{hook.name}{ending}")
                    yield param, (module, type(hook).__name__)


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
