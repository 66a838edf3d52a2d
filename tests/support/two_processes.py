"""What `test_distributed.py` runs in each of two processes, and once more in a single one.

`main` leaves in the folder what each rank has found, and a distributed checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.nn.functional import mse_loss

from asterism import (
    AffineScaling,
    ChartrandYin,
    Group,
    HardThreshold,
    InputError,
    Noise,
    ProximalReweighting,
    ReweightedL1,
    ReweightedL2,
    Splicing,
)
from asterism.pruning.scores import SCORES
from asterism.pruning.selection import Candidates, select
from asterism.scaling.reweighting import Reweighting
from asterism.scaling.stepping import blocks
from asterism.weights.noise import BLOCK, standard_normal
from asterism.weights.sharding import whole
from support.explicit import make_model, omegas, train, wrap

Prepare = Callable[[nn.Sequential], nn.Module]
Result = dict[str, dict[str, Tensor]]

PLACEMENTS = (Shard(0), Shard(1), Replicate())

SETTINGS: dict[str, dict[str, Any]] = {
    "noise": {"initialiser": Noise(0.1), "anneal": ChartrandYin(forced=False)},
    "penalty": {
        "penalty": ReweightedL2(0.3),
        "algorithm": ProximalReweighting,
        "lam": 0.05,
    },
    "in blocks": {"lam": 0.02, "anneal": ChartrandYin()},
    "latent": {"penalty": HardThreshold(0.5, 0.7), "algorithm": Splicing},
    "groups": {"penalty": Group(ReweightedL1(0.3), by="channel"), "lam": 0.02},
    "groups by step": {
        "penalty": Group(ReweightedL1(0.3), by="row"),
        "algorithm": ProximalReweighting,
        "lam": 0.05,
    },
}


def start(settings: str, prepare: Prepare) -> tuple[nn.Module, Reweighting]:
    model = prepare(make_model())
    adam = torch.optim.AdamW(model.parameters(), lr=0.01)
    return model, wrap(model, adam, **SETTINGS[settings])


def first_half(model: nn.Module, optimizer: Reweighting) -> None:
    """Up to a re-weighting whose effect on the inner state is still to come."""
    optimizer.reweight()
    train(model, optimizer, range(3))
    if all("asterism_latent" not in entry for entry in optimizer.state_dict()["state"].values()):
        optimizer.prune(density=0.4)
        optimizer.prune(masks=optimizer.masks())
    train(model, optimizer, range(3, 6))
    optimizer.reweight()


def second_half(model: nn.Module, optimizer: Reweighting) -> Result:
    train(model, optimizer, range(6, 8))
    norm = optimizer.clip_grad_norm_(0.01)
    optimizer.step()
    optimizer.flatten()
    train(model, optimizer, range(8, 10))
    return {
        "theta": {name: whole(weight.detach()) for name, weight in optimizer.weights().items()},
        "mask": {name: whole(mask) for name, mask in optimizer.masks().items()},
        "omega": {name: whole(omega) for name, omega in omegas(optimizer).items()},
        "norm": {"of the gradient": norm},
    }


def run(settings: str, prepare: Prepare) -> Result:
    with patch.object(blocks, "LARGE", 1 if settings == "in blocks" else blocks.LARGE):
        model, optimizer = start(settings, prepare)
        first_half(model, optimizer)
        return second_half(model, optimizer)


# ---------------------------------------------------------------------- checkpoints


def save(model: nn.Module, optimizer: Reweighting, folder: Path) -> None:
    model_state, state = get_state_dict(model, optimizer)
    dcp.save({"model": model_state, "optimizer": state}, checkpoint_id=folder)


def resume(settings: str, prepare: Prepare, folder: Path) -> Result:
    model, optimizer = start(settings, prepare)
    model_state, state = get_state_dict(model, optimizer)
    states = {"model": model_state, "optimizer": state}
    dcp.load(states, checkpoint_id=folder)
    set_state_dict(
        model, optimizer, model_state_dict=states["model"], optim_state_dict=states["optimizer"]
    )
    return second_half(model, optimizer)


def refuse_shards_of_another_world(folder: Path, rank: int) -> tuple[str, Result]:
    """What each rank has saved of its shards for itself, loaded where there is one process."""
    model, optimizer = start("noise", shard)
    first_half(model, optimizer)
    torch.save(optimizer.state_dict(), folder / f"shards of {rank}.pt")
    state = torch.load(folder / f"shards of {rank}.pt", weights_only=True)
    optimizer.load_state_dict(state)  # of the same world
    model, optimizer = start("noise", lambda model: model)
    first_half(model, optimizer)
    try:
        optimizer.load_state_dict(state)
    except InputError as error:
        return str(error), second_half(model, optimizer)
    return "no error", {}


def resume_from_whole(settings: str, prepare: Prepare) -> Result:
    """Through state dicts that are gathered on every rank and sharded again."""
    model, optimizer = start(settings, prepare)
    first_half(model, optimizer)
    options = StateDictOptions(full_state_dict=True)
    model_state, state = get_state_dict(model, optimizer, options=options)
    model, optimizer = start(settings, prepare)
    set_state_dict(
        model, optimizer, model_state_dict=model_state, optim_state_dict=state, options=options
    )
    return second_half(model, optimizer)


# ---------------------------------------------------------------------- selection and noise


def layers_to_cut() -> dict[str, Tensor]:
    """One that leaves a rank with nothing, one with many equal weights, one of many chunks."""
    generator = torch.Generator().manual_seed(0)
    shapes = {"single row": (1, 7), "tied": (41, 33), "uneven": (401, 777), "deep": (3, 5, 2, 2)}
    layers = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    return layers | {"tied": layers["tied"].round()}


def select_and_draw(place: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
    """Masks of several cuts, and noise over more than one of its blocks."""
    thetas = {name: place(theta) for name, theta in layers_to_cut().items()}
    alive = {name: place((theta.abs() > 0.1).float()) for name, theta in layers_to_cut().items()}
    found = {}
    for score in SCORES:
        for count in (3, 700, 5000, 250_000):
            layers = [Candidates(thetas[name], alive[name]) for name in thetas]
            cuts = select(layers, count, SCORES[score])
            for name, cut in zip(thetas, cuts, strict=True):
                found[f"{name}, {count} by {score}"] = whole(cut.mask())
    large = place(torch.empty(BLOCK // 500, 1111))
    found["noise"] = whole(standard_normal(large, "key"))
    return found


def collectives_of_a_cut() -> list[str]:
    from torch.distributed.tensor.debug import CommDebugMode

    _, optimizer = start("noise", shard)
    with CommDebugMode() as seen:
        optimizer.prune(density=0.4)
        optimizer.prune(density=0.2, score="magnitude")
        optimizer.prune(threshold=0.01)
    return [str(name) for name in seen.get_comm_counts()]


# ---------------------------------------------------------------------- two ranks


def shard(model: nn.Sequential) -> nn.Module:
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in (model.fc1, model.fc2, model):
        fully_shard(layer, mesh=mesh)
    return model


def train_in_halves(prepare: Prepare, part: slice) -> Result:
    """Each rank its own half of each batch; no zero_grad, so that gradients pile up."""
    model, optimizer = start("noise", prepare)
    optimizer.reweight()
    for step in range(6):
        generator = torch.Generator().manual_seed(step)
        x = torch.randn(16, 6, generator=generator, dtype=torch.float64)
        y = torch.randn(16, 3, generator=generator, dtype=torch.float64)
        if step != 3:
            optimizer.zero_grad(set_to_none=False)
        mse_loss(model(x[part]), y[part]).backward()
        optimizer.step()
        if step == 2:
            optimizer.prune(density=0.4)
    return {
        "theta": {name: weight.detach() for name, weight in optimizer.weights().items()},
        "mask": optimizer.masks(),
    }


def refuse_fsdp1() -> str:
    from torch.distributed.fsdp import FullyShardedDataParallel

    model = FullyShardedDataParallel(make_model(), device_id=torch.device("cpu"))
    try:
        AffineScaling(torch.optim.SGD(model.parameters(), lr=0.1), model, ReweightedL2())
    except InputError as error:
        return str(error)
    return "no error"


def main(rank: int, world: int, folder: Path) -> None:
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world
    )

    def replicate(model: nn.Sequential) -> nn.Module:
        return nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)

    found: dict[str, Any] = {f"fsdp2 {settings}": run(settings, shard) for settings in SETTINGS}
    for settings in ("noise", "latent"):
        model, optimizer = start(settings, shard)
        first_half(model, optimizer)
        save(model, optimizer, folder / f"checkpoint {settings}")
        checkpoint = folder / f"checkpoint {settings}"
        found[f"fsdp2 {settings} resumed"] = resume(settings, shard, checkpoint)
    found["fsdp2 noise from whole"] = resume_from_whole("noise", shard)
    half = slice(0, 8) if rank == 0 else slice(8, 16)
    found["ddp in halves"] = train_in_halves(replicate, half)
    found["ddp noise"] = run("noise", replicate)
    found["fsdp2 from one process"] = resume("noise", shard, folder / "checkpoint of one")
    mesh = init_device_mesh("cpu", (world,))
    for placement in PLACEMENTS:
        found[f"selected {placement}"] = {
            "": select_and_draw(
                lambda tensor, placement=placement: distribute_tensor(tensor, mesh, [placement])
            )
        }
    found["collectives"] = collectives_of_a_cut()
    found["another world"], found["refused"] = refuse_shards_of_another_world(folder, rank)
    found["fsdp1"] = refuse_fsdp1()
    torch.save(found, folder / f"rank{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()
