"""`asterism reproduce`."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from asterism.cli.common import command_line, resumable, show
from asterism.cli.output import Csv, Json, flat, is_text, print_data
from asterism.cli.voice import say


class BudgetName(str, Enum):
    smoke = "smoke"
    quick = "quick"
    standard = "standard"
    paper = "paper"
    tradeoff = "tradeoff"
    ablation = "ablation"
    record = "record"
    lenet300 = "lenet300"
    forms = "forms"
    cifar10 = "cifar10"
    resnet20 = "resnet20"


def share_cores(jobs: int | None, threads: int | None, cores: int) -> tuple[int, int]:
    """Jobs at a time and the threads of each; what is not given is chosen to use all cores.

    >>> share_cores(None, None, 4), share_cores(2, None, 4), share_cores(None, 4, 4)
    ((4, 1), (2, 2), (1, 4))
    """
    if jobs is None:
        jobs = max(1, cores // (threads or 1))
    return jobs, threads or max(1, cores // jobs)


def reproduce(
    budget: Annotated[
        BudgetName,
        typer.Option(
            metavar="NAME",
            help="smoke: seconds; quick: minutes; standard: our numbers; paper: literal;"
            " tradeoff: against the control at many densities; ablation: one thing changed at a"
            " time; record: as few weights as we can; lenet300: the other network;"
            " forms: forms of re-weighting on it; cifar10: ResNet-8; resnet20:"
            " ResNet-20.",
        ),
    ] = BudgetName.quick,
    methods: Annotated[
        str | None, typer.Option(help="Comma-separated rows, e.g. reweighted_l1,dns; default all.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds; mean ± std over them.")] = 1,
    data: Annotated[
        str | None,
        typer.Option(
            help="mnist, digits (needs no download) or cifar10; default what the budget's network"
            " is for."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder of the run; default runs/BUDGET.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the run that is in the folder.")
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Rows trained at a time, each in a process; default one a core."),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="CPU threads of each row; default the cores over --jobs. A run resumes exactly at"
            " the same number.",
        ),
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Train on the workers of this Dask scheduler."),
    ] = None,
    print_slurm: Annotated[
        bool,
        typer.Option("--print-slurm", help="Print a script for sbatch, one task a row and seed."),
    ] = False,
    only: Annotated[
        str | None,
        typer.Option(metavar="NAME-SEED", help="One row and seed, as in the Slurm script."),
    ] = None,
    tensorboard: Annotated[
        Path | None, typer.Option(help="A folder for TensorBoard, with one for each job in it.")
    ] = None,
    as_json: Json = False,
    as_csv: Csv = False,
) -> None:
    """Reproduce the paper's Table 1 and Figure 1, our numbers beside theirs.

    Example:  asterism reproduce --budget quick --methods reweighted_l1,magnitude --seeds 3
    """
    import torch

    from asterism.cli.progress import monitoring
    from asterism.experiments.budgets import find as find_budget
    from asterism.experiments.data import load
    from asterism.experiments.duration import expected_seconds, in_words
    from asterism.experiments.networks import DATA, NETWORK_NAMES
    from asterism.experiments.reproduce import data_of
    from asterism.experiments.reproduce import jobs as all_jobs
    from asterism.experiments.reproduce import reproduce as run_all

    text = is_text(as_json, as_csv)
    torch.set_flush_denormal(True)  # weights that sink towards zero would slow the CPU down
    jobs, threads = share_cores(jobs, threads, torch.get_num_threads())
    out = out or Path("runs") / budget.value
    chosen = find_budget(budget.value)
    network, data = NETWORK_NAMES[chosen.model], data or DATA[chosen.model]
    keys = [key.strip() for key in methods.split(",") if key.strip()] if methods else None
    if print_slurm:
        _print_slurm(budget.value, keys, seeds, data, out, threads)
        return
    with resumable():
        todo = all_jobs(chosen, keys, seeds, threads)
        say(f"{network} on {data}, budget {budget.value}: {len(todo)} trainings, into {out}/")
        dataset = data_of(chosen, load(data))
        if scheduler is None and only is None:
            left = expected_seconds(todo, dataset, out, workers=jobs)
            say(f"{in_words(left)} on this machine, {jobs} at a time; Ctrl-C keeps what is done")
        with monitoring(chosen, keys, seeds) as monitor:
            if tensorboard is not None:
                from asterism.cli.progress import also

                monitor = also(tensorboard, monitor)
            results = run_all(
                chosen,
                dataset,
                out,
                methods=keys,
                seeds=seeds,
                resume=resume,
                workers=jobs,
                threads=threads,
                scheduler=scheduler,
                only=only,
                caption=f"{network} on {data}, budget {budget.value}; `{command_line()}`",
                monitor=monitor,
            )
    if only is not None:
        return
    if not text:
        print_data(results, [flat(each) for each in results], as_json)
    else:
        show(out / "table.md")
    say(f"written to {out}/")


def _print_slurm(
    budget: str, keys: list[str] | None, seeds: int, data: str, out: Path, threads: int
) -> None:
    """The script for the rows that this command would train, with the threads of each."""
    from asterism.experiments.budgets import find as find_budget
    from asterism.experiments.cluster import slurm_script
    from asterism.experiments.reproduce import jobs

    options = {"--budget": budget, "--seeds": seeds, "--data": data, "--threads": threads}
    rows = [] if keys is None else ["--methods", ",".join(keys)]
    pairs = [str(part) for pair in options.items() for part in pair]
    command = ["asterism", "reproduce", *pairs, *rows, "--out", str(out), "--resume"]
    names = [job.name for job in jobs(find_budget(budget), keys, seeds)]
    print(slurm_script(names, command, out=out, threads=threads), end="")
