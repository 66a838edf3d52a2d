"""What `test_trainer_ranks.py` runs on each rank, under torchrun.

    torchrun --nproc-per-node 2 -m support.trainer_ranks TRAINER FOLDER [die]

With `die` rank 1 is killed on the way. Without it the run is continued from its last checkpoint,
and then done once more undisturbed; the weights of both are left in the folder.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from asterism import Routine
from support.explicit import make_model

RANK = int(os.environ.get("RANK", "0"))
ROUTINE = Routine(density=0.25, cut_at=6, reweight_every=2)
STEPS_PER_EPOCH, EPOCHS, DIE_AT = 4, 3, 10
Weights = dict[str, torch.Tensor]


def data() -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    return TensorDataset(
        torch.randn(64, 6, generator=generator), torch.randn(64, 3, generator=generator)
    )


def die_if(condition: bool) -> None:
    if condition and RANK == 1:
        os.kill(os.getpid(), signal.SIGKILL)


def weights(model: nn.Module) -> Weights:
    found = {name: param.detach().clone() for name, param in model.named_parameters()}
    return {name.removeprefix("module."): each for name, each in found.items()}


def lightning(folder: Path, die: bool, resume: bool) -> Weights:
    import lightning.pytorch as pl
    from lightning.pytorch.callbacks import ModelCheckpoint

    from asterism.integrations.lightning import AffineScalingCallback

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            model = make_model(torch.float32)
            self.fc1, self.fc2 = model.fc1, model.fc2

        def training_step(self, batch: Any, number: int) -> torch.Tensor:
            x, y = batch
            return nn.functional.mse_loss(self.fc2(torch.tanh(self.fc1(x))), y)

        def on_train_batch_start(self, batch: Any, number: int) -> None:
            die_if(die and self.global_step == DIE_AT)

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=0.01)

    trainer = pl.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        strategy="ddp",
        devices=2,
        callbacks=[AffineScalingCallback(ROUTINE), ModelCheckpoint(folder, save_last=True)],
        default_root_dir=folder,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    module = Module()
    trainer.fit(module, DataLoader(data(), 8), ckpt_path=folder / "last.ckpt" if resume else None)
    return weights(module)


def transformers(folder: Path, die: bool, resume: bool) -> Weights:
    from transformers import TrainerCallback, TrainingArguments

    from asterism.integrations.transformers import SparseTrainer

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            model = make_model(torch.float32)
            self.fc1, self.fc2 = model.fc1, model.fc2

        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            out = self.fc2(torch.tanh(self.fc1(x)))
            return {"loss": nn.functional.mse_loss(out, labels), "logits": out}

    class Die(TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            die_if(die and state.global_step == DIE_AT)

    arguments = TrainingArguments(
        str(folder),
        max_steps=STEPS_PER_EPOCH * EPOCHS,
        per_device_train_batch_size=8,
        save_steps=7,
        lr_scheduler_type="constant",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        ddp_backend="gloo",
        seed=0,
    )
    examples = [{"x": x, "labels": y} for x, y in data()]
    net = Net()
    trainer = SparseTrainer(
        net, arguments, train_dataset=examples, routine=ROUTINE, callbacks=[Die()]
    )
    trainer.train(resume_from_checkpoint=resume)
    return weights(net)


def accelerate(folder: Path, die: bool, resume: bool) -> Weights:
    from accelerate import Accelerator

    from asterism.integrations.accelerate import prepare

    accelerator = Accelerator(cpu=True)
    net: Any = make_model(torch.float32)
    adam = torch.optim.AdamW(net.parameters(), lr=0.01)
    net, optimizer, loader = prepare(accelerator, ROUTINE, net, adam, DataLoader(data(), 8))
    if resume:
        accelerator.load_state(folder / "state")
    for epoch in range(2 if resume else 0, EPOCHS):
        for number, (x, y) in enumerate(loader):
            die_if(die and epoch * STEPS_PER_EPOCH + number == DIE_AT)
            optimizer.zero_grad()
            accelerator.backward(nn.functional.mse_loss(net(x), y))
            optimizer.step()
        if epoch == 1:
            accelerator.save_state(folder / "state")
    return weights(net)


TRAINERS: dict[str, Callable[[Path, bool, bool], Weights]] = {
    "lightning": lightning,
    "transformers": transformers,
    "accelerate": accelerate,
}


def main(trainer: str, folder: Path, die: bool) -> None:
    train = TRAINERS[trainer]
    if die:
        train(folder / "run", True, False)
        raise AssertionError("rank 1 is still there")
    found = {"resumed": train(folder / "run", False, True)}
    found["whole"] = train(folder / "undisturbed", False, False)
    torch.save(found, folder / f"rank{RANK}.pt")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), "die" in sys.argv)
