"""Sparse neural networks by re-weighted learning: a change of variables inside the optimizer.

Names are imported when first used, so that parts which need no torch start without it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asterism import runtime as runtime
    from asterism.errors import FormatError as FormatError
    from asterism.errors import InputError as InputError
    from asterism.export.checkpoints import load_state_dict as load_state_dict
    from asterism.export.checkpoints import save as save
    from asterism.export.folding import fold_norms as fold_norms
    from asterism.export.imported import Imported as Imported
    from asterism.export.imported import from_onnx as from_onnx
    from asterism.graph.compaction import Compacted as Compacted
    from asterism.graph.compaction import compact as compact
    from asterism.graph.live_forward import live_forward as live_forward
    from asterism.pruning.masks import apply_masks as apply_masks
    from asterism.scaling.affine_scaling import AffineScaling as AffineScaling
    from asterism.scaling.group_penalty import Group as Group
    from asterism.scaling.initialisers import Exact as Exact
    from asterism.scaling.initialisers import Greedy as Greedy
    from asterism.scaling.initialisers import Noise as Noise
    from asterism.scaling.masked import DropAndGrow as DropAndGrow
    from asterism.scaling.masked import Masked as Masked
    from asterism.scaling.penalties import Concave as Concave
    from asterism.scaling.penalties import Focuss as Focuss
    from asterism.scaling.penalties import HardThreshold as HardThreshold
    from asterism.scaling.penalties import ReweightedL1 as ReweightedL1
    from asterism.scaling.penalties import ReweightedL2 as ReweightedL2
    from asterism.scaling.proximal import ProximalReweighting as ProximalReweighting
    from asterism.scaling.routine import Routine as Routine
    from asterism.scaling.schedules import AllLayers as AllLayers
    from asterism.scaling.schedules import ChartrandYin as ChartrandYin
    from asterism.scaling.schedules import ConstantTau as ConstantTau
    from asterism.scaling.schedules import GeometricTau as GeometricTau
    from asterism.scaling.schedules import InTurn as InTurn
    from asterism.scaling.sparse_optimizer import SparseOptimizer as SparseOptimizer
    from asterism.scaling.splicing import Splicing as Splicing
    from asterism.search.options import SparsifyOptions as SparsifyOptions
    from asterism.search.pareto import Point as Point
    from asterism.search.pareto import TrialRecord as TrialRecord
    from asterism.search.plan import plan as plan
    from asterism.search.sparsify import SparsifyResult as SparsifyResult
    from asterism.search.sparsify import sparsify as sparsify
    from asterism.search.task import Task as Task
    from asterism.search.task import supervised as supervised
    from asterism.weights.connections import Heads as Heads

__version__ = "0.1.0"

_HOME = {
    "AffineScaling": "scaling.affine_scaling",
    **dict.fromkeys(["DropAndGrow", "Masked"], "scaling.masked"),
    "ProximalReweighting": "scaling.proximal",
    "Routine": "scaling.routine",
    "SparseOptimizer": "scaling.sparse_optimizer",
    "Splicing": "scaling.splicing",
    **dict.fromkeys(["Compacted", "compact"], "graph.compaction"),
    **dict.fromkeys(["load_state_dict", "save"], "export.checkpoints"),
    "fold_norms": "export.folding",
    **dict.fromkeys(["Imported", "from_onnx"], "export.imported"),
    **dict.fromkeys(["FormatError", "InputError"], "errors"),
    **dict.fromkeys(["Point", "TrialRecord"], "search.pareto"),
    "live_forward": "graph.live_forward",
    **dict.fromkeys(["Exact", "Greedy", "Noise"], "scaling.initialisers"),
    **dict.fromkeys(
        ["Concave", "Focuss", "HardThreshold", "ReweightedL1", "ReweightedL2"], "scaling.penalties"
    ),
    "Group": "scaling.group_penalty",
    "Heads": "weights.connections",
    "apply_masks": "pruning.masks",
    **dict.fromkeys(
        ["AllLayers", "ChartrandYin", "ConstantTau", "GeometricTau", "InTurn"], "scaling.schedules"
    ),
    "SparsifyOptions": "search.options",
    **dict.fromkeys(["SparsifyResult", "sparsify"], "search.sparsify"),
    **dict.fromkeys(["Task", "supervised"], "search.task"),
    "plan": "search.plan",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name == "runtime":
        return importlib.import_module("asterism.runtime")
    if name in _HOME:
        return getattr(_import(name), name)
    raise AttributeError(f"module 'asterism' has no attribute {name!r}")


def _import(name: str) -> Any:
    try:
        return importlib.import_module(f"asterism.{_HOME[name]}")
    except ModuleNotFoundError as error:
        from asterism.errors import missing

        if error.name not in ("torch", "safetensors"):
            raise
        raise missing(f"asterism.{name} needs {error.name}", "train") from error


def __dir__() -> list[str]:
    return [*globals(), *__all__]
