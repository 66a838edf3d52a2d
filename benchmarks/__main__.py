"""`make bench`: every benchmark, one after the other, or those that are named."""

from __future__ import annotations

import argparse

import torch

from benchmarks import (
    file,
    many_layers,
    networks,
    retraining,
    runtime,
    scale,
    sixteen_bits,
    training,
)

ALL = {
    module.__name__.partition(".")[2]: module
    for module in (training, many_layers, retraining, scale, file, runtime, networks, sixteen_bits)
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        epilog="Example: python -m benchmarks runtime",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(ALL)}")
    names = parser.parse_args().names
    if unknown := set(names) - set(ALL):
        parser.error(
            f"no benchmark is called {', '.join(sorted(unknown))}: one of {', '.join(ALL)}"
        )
    torch.set_flush_denormal(True)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    for name in names or ALL:
        for line in ALL[name].report():
            print(line, flush=True)
