"""`make bench`: every benchmark, one after the other."""

from __future__ import annotations

import torch

from benchmarks import file, many_layers, networks, retraining, runtime, scale, training

if __name__ == "__main__":
    torch.set_flush_denormal(True)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    for benchmark in (training, many_layers, retraining, scale, file, runtime, networks):
        for line in benchmark.report():
            print(line, flush=True)
