"""Sparse neural networks by re-weighted learning: a change of variables inside the optimizer.

Names are imported when first used, so that parts which need no torch start without it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asterism import runtime as runtime
    from asterism.checkpoints import load_state_dict as load_state_dict
    from asterism.checkpoints import save as save
    from asterism.compaction import Compacted as Compacted
    from asterism.compaction import compact as compact
    from asterism.errors import FormatError as FormatError
    from asterism.errors import InputError as InputError
    from asterism.front import Point as Point
    from asterism.groups import Group as Group
    from asterism.initialisers import Exact as Exact
    from asterism.initialisers import Greedy as Greedy
    from asterism.initialisers import Noise as Noise
    from asterism.live import live_forward as live_forward
    from asterism.penalties import Concave as Concave
    from asterism.penalties import Focuss as Focuss
    from asterism.penalties import HardThreshold as HardThreshold
    from asterism.penalties import ReweightedL1 as ReweightedL1
    from asterism.penalties import ReweightedL2 as ReweightedL2
    from asterism.pruning import apply_masks as apply_masks
    from asterism.scaling import AffineScaling as AffineScaling
    from asterism.schedules import AllLayers as AllLayers
    from asterism.schedules import ChartrandYin as ChartrandYin
    from asterism.schedules import ConstantTau as ConstantTau
    from asterism.schedules import GeometricTau as GeometricTau
    from asterism.schedules import InTurn as InTurn
    from asterism.search import SparsifyResult as SparsifyResult
    from asterism.search import sparsify as sparsify
    from asterism.supervision import supervised as supervised
    from asterism.units import Heads as Heads

__version__ = "0.1.0"

_HOME = {
    "AffineScaling": "scaling",
    **dict.fromkeys(["Compacted", "compact"], "compaction"),
    **dict.fromkeys(["load_state_dict", "save"], "checkpoints"),
    **dict.fromkeys(["FormatError", "InputError"], "errors"),
    "Point": "front",
    "live_forward": "live",
    **dict.fromkeys(["Exact", "Greedy", "Noise"], "initialisers"),
    **dict.fromkeys(
        ["Concave", "Focuss", "HardThreshold", "ReweightedL1", "ReweightedL2"], "penalties"
    ),
    "Group": "groups",
    "Heads": "units",
    "apply_masks": "pruning",
    **dict.fromkeys(
        ["AllLayers", "ChartrandYin", "ConstantTau", "GeometricTau", "InTurn"], "schedules"
    ),
    **dict.fromkeys(["SparsifyResult", "sparsify"], "search"),
    "supervised": "supervision",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name == "runtime":
        return importlib.import_module("asterism.runtime")
    if name in _HOME:
        return getattr(importlib.import_module(f"asterism.{_HOME[name]}"), name)
    raise AttributeError(f"module 'asterism' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
