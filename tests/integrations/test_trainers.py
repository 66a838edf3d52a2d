"""Each trainer cuts on schedule, keeps the zeros, and goes on from its own checkpoint."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from asterism import Routine
from support.explicit import make_model

ROUTINE = Routine(density=0.25, cut_at=4, reweight_every=2)
NAMES = ("fc1.weight", "fc2.weight")


def data() -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    return TensorDataset(
        torch.randn(64, 6, generator=generator), torch.randn(64, 3, generator=generator)
    )


def nonzeros(model: nn.Module) -> int:
    return sum(int(model.get_parameter(name).count_nonzero()) for name in NAMES)


def assert_same(model: nn.Module, other: nn.Module) -> None:
    for (name, found), expected in zip(model.named_parameters(), other.parameters(), strict=True):
        assert torch.equal(found, expected), name


# ---------------------------------------------------------------------- Lightning


def quiet_lightning(test: Any) -> Any:
    """Without Lightning's own warnings: an old call of torch, and the wish for loader processes."""
    for message in (
        "ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning",
        "ignore:The 'train_dataloader' does not have many workers",
    ):
        test = pytest.mark.filterwarnings(message)(test)
    return test


def lightning_module(norm: bool = False) -> Any:
    import lightning.pytorch as pl

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            model = make_model(torch.float32)
            self.fc1, self.fc2 = model.fc1, model.fc2
            self.norm = nn.BatchNorm1d(8) if norm else nn.Identity()

        def training_step(self, batch: Any, number: int) -> Tensor:
            x, y = batch
            return nn.functional.mse_loss(self.fc2(torch.tanh(self.norm(self.fc1(x)))), y)

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
            return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)]

    torch.manual_seed(0)
    return Module()


def lightning_fit(
    module: Any, callbacks: list[Any], folder: Path, epochs: int, resume: Path | None = None
) -> Any:
    import lightning.pytorch as pl

    trainer = pl.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        callbacks=callbacks,
        default_root_dir=folder,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        accumulate_grad_batches=2,
    )
    trainer.fit(module, DataLoader(data(), 8), ckpt_path=resume)  # 4 steps an epoch
    return trainer


def lightning_callback(routine: Routine = ROUTINE) -> Any:
    from asterism.integrations.lightning import AffineScalingCallback

    return AffineScalingCallback(routine)


@quiet_lightning
def test_lightning(tmp_path: Path) -> None:
    undisturbed = lightning_module()
    lightning_fit(undisturbed, [lightning_callback()], tmp_path, 3)
    half = lightning_module()
    trainer = lightning_fit(half, [lightning_callback()], tmp_path, 1)
    assert nonzeros(half) == 18
    trainer.save_checkpoint(tmp_path / "half.ckpt")
    resumed = lightning_module()
    lightning_fit(resumed, [lightning_callback()], tmp_path, 3, tmp_path / "half.ckpt")
    assert nonzeros(resumed) == 18
    assert_same(resumed, undisturbed)


@quiet_lightning
def test_a_second_fit_keeps_the_zeros_of_the_first(tmp_path: Path) -> None:
    module, callback = lightning_module(), lightning_callback()
    lightning_fit(module, [callback], tmp_path, 1)
    zeros = module.fc1.weight == 0
    lightning_fit(module, [callback], tmp_path, 1)
    assert nonzeros(module) == 18
    assert torch.equal(module.fc1.weight == 0, zeros)
    assert callback.scaling.steps == 8


@quiet_lightning
def test_a_second_fit_counts_on_where_the_first_ended(tmp_path: Path) -> None:
    module, callback = lightning_module(), lightning_callback(Routine(0.25, 6, 2))
    with pytest.warns(UserWarning, match="ends after 4 steps, before cut_at=6"):
        lightning_fit(module, [callback], tmp_path, 1)
    assert nonzeros(module) == 72
    lightning_fit(module, [callback], tmp_path, 1)
    assert nonzeros(module) == 18


@quiet_lightning
def test_another_module_starts_from_the_beginning(tmp_path: Path) -> None:
    callback = lightning_callback()
    lightning_fit(lightning_module(), [callback], tmp_path, 1)
    lightning_fit(other := lightning_module(), [callback], tmp_path, 1)
    assert nonzeros(other) == 18
    assert callback.scaling.steps == 4


@quiet_lightning
@pytest.mark.parametrize("first", [True, False], ids=["ours first", "theirs first"])
@pytest.mark.parametrize("norm", [False, True], ids=["plain", "batch norm"])
def test_averages_from_before_the_cut_have_its_zeros(
    tmp_path: Path, first: bool, norm: bool
) -> None:
    import lightning.pytorch.callbacks as callbacks

    module, ours = lightning_module(norm), lightning_callback(Routine(0.25, 10, 3))
    swa = callbacks.StochasticWeightAveraging(0.01, swa_epoch_start=1)
    lightning_fit(module, [ours, swa] if first else [swa, ours], tmp_path, 4)
    assert nonzeros(module) == 18
    for name, mask in ours.scaling.masks().items():
        assert not module.get_parameter(name)[~mask].any()


@quiet_lightning
@pytest.mark.parametrize(("cut_at", "warned"), [(8, 0), (9, 1)])
def test_a_cut_that_is_never_reached_is_announced(tmp_path: Path, cut_at: int, warned: int) -> None:
    callback = lightning_callback(Routine(0.25, cut_at, reweight_every=3))
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        lightning_fit(lightning_module(), [callback], tmp_path, 2)
    messages = [str(each.message) for each in seen]
    assert sum("ends after 8 steps, before cut_at=9" in each for each in messages) == warned
    assert sum("cut_at" in each for each in messages) == warned


# ---------------------------------------------------------------------- Hugging Face


def test_transformers(tmp_path: Path) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel, TrainingArguments

    from asterism.integrations.transformers import SparseTrainer

    words = [{"input_ids": (ids := torch.arange(i, i + 8) % 20), "labels": ids} for i in range(32)]
    config = GPT2Config(vocab_size=20, n_positions=8, n_embd=8, n_layer=1, n_head=2)
    config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.0
    # GPT-2's own Conv1D is no torch.nn layer: its weights are named.
    routine = Routine(0.25, cut_at=4, reweight_every=2, include=["transformer.h.*"])

    def run(steps: int, resume: bool = False) -> Any:
        torch.manual_seed(0)
        arguments = TrainingArguments(
            str(tmp_path / ("resumed" if resume or steps < 8 else "whole")),
            max_steps=steps,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=2,
            save_steps=5,
            lr_scheduler_type="constant",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            seed=0,
        )
        model = GPT2LMHeadModel(config)
        trainer = SparseTrainer(model, arguments, train_dataset=words, routine=routine)
        trainer.train(resume_from_checkpoint=resume)
        return model

    def live(model: nn.Module) -> float:
        weights = [p for p in model.transformer.h.parameters() if p.ndim > 1]  # type: ignore
        kept = sum(int(weight.count_nonzero()) for weight in weights)
        return kept / sum(weight.numel() for weight in weights)

    undisturbed = run(8)
    assert live(undisturbed) == 0.25
    with pytest.warns(UserWarning, match="ends after 3 steps, before cut_at=4"):
        run(3)
    assert live(run(5)) == 0.25
    resumed = run(8, resume=True)
    assert live(resumed) == 0.25
    assert_same(resumed, undisturbed)


# ---------------------------------------------------------------------- Accelerate


def test_accelerate(tmp_path: Path) -> None:
    import accelerate

    from asterism.integrations.accelerate import prepare

    def start() -> tuple[Any, ...]:
        accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
        model = make_model(torch.float32)
        adam = torch.optim.AdamW(model.parameters(), lr=0.01)
        loader = DataLoader(data(), 8)
        return accelerator, *prepare(accelerator, ROUTINE, model, adam, loader)

    def epoch(accelerator: Any, model: nn.Module, optimizer: Any, loader: Any) -> None:
        for x, y in loader:
            with accelerator.accumulate(model):
                accelerator.backward(nn.functional.mse_loss(model(x), y))
                optimizer.step()
                optimizer.zero_grad()

    parts = start()
    epoch(*parts)
    assert nonzeros(parts[1]) == 18
    parts[0].save_state(tmp_path / "state")
    epoch(*parts)
    resumed = start()
    resumed[0].load_state(tmp_path / "state")
    epoch(*resumed)
    assert nonzeros(resumed[1]) == 18
    assert_same(resumed[1], parts[1])
