"""What a command is given: a file, or the folder of a run, which knows its model and its data.

Owns finding the weights, the model and the data that belong together, and opening them: as a
network of torch's, as one that the runtime executes, and as a task.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from asterism.cli.onnx_options import read_fixed, read_shapes
from asterism.errors import InputError, one_line
from asterism.storage.atomic_files import read_json

if TYPE_CHECKING:
    from torch import Tensor, nn

    from asterism.experiments.data import Split
    from asterism.export.imported import Imported
    from asterism.graph.onnx.inputs import Shapes
    from asterism.runtime import Net
    from asterism.search.task import Supervised

WEIGHTS, RECIPE, COMMAND, CONFIG = "model.safetensors", "recipe.json", "command.json", "config.json"
"""What the folder of a run holds: the weights at the end, and what it was told."""

NETWORKS = "asterism.experiments.networks"
BATCH = 1000
EXAMPLES = 512  # on which scales are found

NetworkFile = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="An .asterism file with its graph, an .onnx file, or the folder of a run.",
    ),
]
CheckpointModel = Annotated[
    str | None,
    typer.Option(
        metavar="FILE.py:FUNCTION",
        help="For a plain checkpoint: the function that returns the model.",
    ),
]


@dataclass(frozen=True)
class Source:
    """Weights, and where their model and their data come from, as far as that is known.

    path   the file of the weights
    model  the function that makes the model: pkg.module:function or file.py:function
    data   the function that makes the loaders, or mnist, or digits
    shape  of one example, and
    fixed  numbers in the place of inputs: what an ONNX file leaves open
    """

    path: Path
    model: str | None = None
    data: str | None = None
    shape: Shapes = None
    fixed: Mapping[str, Any] = field(default_factory=dict)

    def network(self) -> nn.Module:
        """The model with these weights, in eval mode."""
        from asterism.cli.factories import make_model
        from asterism.export.checkpoints import load_into

        network = make_model(self._known("model"))
        load_into(network, self.path)
        return network.eval()

    def task(self, test: bool = False) -> Supervised:
        """The task of the data; of our own datasets with the test images, if asked for."""
        from asterism.cli.factories import make_data
        from asterism.search.task import supervised

        data = self._known("data")
        return supervised(**make_data(data)) if ":" in data else _task_of(data, test)

    def net(self, threads: int) -> Net:
        """The network for the runtime: from the file's graph, or from the model's."""
        from asterism.runtime import load

        if self.is_onnx:
            return self.imported().net(threads)
        if self.has_graph():
            return load(self.path, threads=threads)
        network = self.network()
        return make_net(network, self.example_inputs(network), threads)

    def example_inputs(self, network: nn.Module) -> tuple[Any, ...]:
        """A batch of the data as the network's arguments, in their order."""
        return by_position(network, self.task().example_inputs(network))

    def has_graph(self) -> bool:
        """Whether the file is one that may hold the graph beside the weights."""
        from asterism import file

        return file.recognises(self.path) or self.path.suffix == ".asterism" or self.is_onnx

    @property
    def is_onnx(self) -> bool:
        return self.path.suffix.lower() == ".onnx"

    def imported(self) -> Imported:
        """The network in an ONNX file."""
        from asterism.export.imported import from_onnx

        return from_onnx(self.path, shape=self.shape, fixed=self.fixed)

    def _known(self, option: str) -> str:
        value: str | None = getattr(self, option)
        if value is None:
            example = {"model": "--model net.py:model", "data": "--data net.py:loaders"}
            raise InputError(
                f"{self.path} holds weights alone: add {example[option]}, or give the folder of a"
                " search, which knows its model and its data"
            )
        return value


def find_source(
    given: Path,
    model: str | None = None,
    data: str | None = None,
    shape: list[str] | None = None,
    fix: list[str] | None = None,
) -> Source:
    """The weights in a file or a run's folder; what is not given is looked up in the folder.

    given  the file or the folder
    model  as on the command line; goes before what the folder tells
    data   the same
    shape  of an ONNX file, as on the command line
    fix    the same
    """
    folder = given if given.is_dir() else _folder_of(given)
    path = given / WEIGHTS if given.is_dir() else given
    if given.is_dir() and not path.exists():
        raise InputError(_without_weights(given))
    told = {} if folder is None else _told(folder)
    return Source(
        path,
        model or told.get("model"),
        data or told.get("data"),
        read_shapes(shape),
        read_fixed(fix),
    )


def make_net(network: nn.Module, example_inputs: Any, threads: int) -> Net:
    """A network of torch's, captured for the runtime.

    network         in eval mode
    example_inputs  what it is called with
    threads         that the runtime may use
    """
    from asterism.export.checkpoints import to_arrays
    from asterism.graph.capture import capture
    from asterism.runtime import Net

    return Net(
        capture(network, example_inputs), to_arrays(network.state_dict())[0], threads=threads
    )


def by_position(network: nn.Module, inputs: Any) -> tuple[Any, ...]:
    """Inputs by name in the order in which `forward` takes them; a tuple is left as it is."""
    if not isinstance(inputs, dict):
        return tuple(inputs)
    names = [name for name in inspect.signature(network.forward).parameters if name in inputs]
    if len(names) < len(inputs):
        others = ", ".join(name for name in inputs if name not in names)
        raise InputError(f"the model's forward has no argument for {others} of the data's batches")
    return tuple(inputs[name] for name in names)


def examples_of(loader: Any, option: str) -> Any:
    """The first inputs of a loader, as one batch.

    loader  gives (inputs, targets)
    option  what they are for, which an error names
    """
    import numpy as np

    from asterism.export.checkpoints import example_array

    parts: list[Any] = []
    try:
        for batch in loader:
            if not isinstance(batch, tuple | list) or len(batch) != 2:
                raise InputError(f"{option} needs a loader that gives (inputs, targets)")
            parts.append(example_array(batch[0], option))
            if sum(map(len, parts)) >= EXAMPLES:
                break
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"after {len(parts)} batches the training loader raised {one_line(error)}"
        ) from error
    if not parts:
        raise InputError(f"{option} needs examples, and the training loader has none")
    shapes = sorted({part.shape[1:] for part in parts})
    if len(shapes) > 1:
        raise InputError(f"{option} needs examples of one shape, found {shapes[0]} and {shapes[1]}")
    return np.concatenate(parts)[:EXAMPLES]


def _folder_of(file: Path) -> Path | None:
    """The run's folder in which a file lies, itself or in `front`."""
    places = [file.parent, *([file.parent.parent] if file.parent.name == "front" else [])]
    return next((each for each in places if (each / CONFIG).exists()), None)


def _without_weights(folder: Path) -> str:
    if (folder / "state.pt").exists():
        return (
            f"the search in {folder} is not finished:"
            f" asterism sparsify --resume --out {folder} continues it"
        )
    runs = sorted(path.parent.name for path in folder.glob(f"*/{WEIGHTS}"))
    inside = f": choose one of its runs: {', '.join(runs)}" if runs else " of a finished run"
    return f"{folder} is no file and holds no {WEIGHTS}{inside}"


def _told(folder: Path) -> dict[str, str]:
    """The model and the data of a search, or of one run of a reproduction."""
    if (folder / RECIPE).exists():
        recipe, about = read_json(folder / RECIPE), folder / COMMAND
        began = read_json(about).get("folder") if about.exists() else None
        return {name: _where(recipe[name], began) for name in ("model", "data")}
    config = read_json(folder / CONFIG) if (folder / CONFIG).exists() else {}
    if "method" not in config:
        return {}
    return {"model": f"{NETWORKS}:{config['model']}", "data": config["data"]}


def _where(spec: str, began: str | None) -> str:
    """A factory in a file that is not here, where the search was begun."""
    place, _, name = spec.rpartition(":")
    there = Path(began or "", place)
    moved = place.endswith(".py") and not Path(place).exists() and there.exists()
    return f"{there}:{name}" if moved else spec


def _task_of(name: str, test: bool) -> Supervised:
    """Of a dataset of the experiments: the validation images, or the test images."""
    from asterism.experiments.data import load
    from asterism.search.task import supervised

    data = load(name)
    part = data.test if test else data.validation
    return supervised(_batches(data.train), _batches(part))


def _batches(part: Split) -> list[tuple[Tensor, Tensor]]:
    places = range(0, len(part.labels), BATCH)
    return [(part.images[i : i + BATCH], part.labels[i : i + BATCH]) for i in places]
