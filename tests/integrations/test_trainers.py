"""Each trainer cuts on schedule, keeps the zeros, and goes on from its own checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from asterism import InputError, Routine
from support.explicit import make_model, train

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


# ---------------------------------------------------------------------- the routine


def test_the_routine_re_weights_then_cuts() -> None:
    model = make_model()
    optimizer = ROUTINE.wrap(torch.optim.AdamW(model.parameters(), lr=0.01), model)
    seen = []
    for step in range(7):
        train(model, optimizer, range(step, step + 1))
        seen.append((optimizer.iteration, nonzeros(model)))
    assert seen == [(0, 72), (1, 72), (1, 72), (1, 18), (1, 18), (1, 18), (1, 18)]


@pytest.mark.parametrize("bad", [{"cut_at": 0}, {"reweight_every": 0}])
def test_a_routine_counts_from_one(bad: dict[str, int]) -> None:
    with pytest.raises(InputError, match="count steps, from 1 on"):
        Routine(**{"density": 0.1, "cut_at": 5, "reweight_every": 1, **bad})


# ---------------------------------------------------------------------- Lightning


# Lightning's own: it asks torch in an old way, and wants one process per core to read a tensor.
@pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning")
@pytest.mark.filterwarnings("ignore:The 'train_dataloader' does not have many workers")
def test_lightning(tmp_path: Path) -> None:
    import lightning.pytorch as pl

    from asterism.integrations.lightning import AffineScalingCallback

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            model = make_model(torch.float32)
            self.fc1, self.fc2 = model.fc1, model.fc2

        def training_step(self, batch: Any, number: int) -> Tensor:
            x, y = batch
            return nn.functional.mse_loss(self.fc2(torch.tanh(self.fc1(x))), y)

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
            return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)]

    def fit(epochs: int, resume: Path | None = None) -> tuple[Any, Any]:
        torch.manual_seed(0)
        module, callback = Module(), AffineScalingCallback(ROUTINE)
        trainer = pl.Trainer(
            max_epochs=epochs,
            accelerator="cpu",
            callbacks=[callback],
            default_root_dir=tmp_path,
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            enable_checkpointing=False,
            accumulate_grad_batches=2,
        )
        trainer.fit(module, DataLoader(data(), 8), ckpt_path=resume)  # 4 steps an epoch
        return trainer, module

    _, undisturbed = fit(3)
    trainer, half = fit(1)
    assert nonzeros(half) == 18
    trainer.save_checkpoint(tmp_path / "half.ckpt")
    _, resumed = fit(3, tmp_path / "half.ckpt")
    assert nonzeros(resumed) == 18
    assert_same(resumed, undisturbed)


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
