"""Measures step times of our strategies against every configuration of torch's DDP: docs/step-time.md.

Special here: a speed is a ratio. All configurations run in the same processes and take turns, in an order drawn anew
for each round, so all meet the same noise. Each round gives one ratio to the best of torch's configurations (the one
with the lowest median); the result is the median of the ratios, with its quartiles. CPU time per rank, the transport's
threads included, is steadier than wall time where ranks outnumber cores. ``by hand`` is the lower bound: no wrapper and
no hook, one buffer and one call, for this loop only.

    python benchmarks/step_time.py [--workload mlp]... [--world-size 2]... [--rounds 60] [--write docs/step-time.md]
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.ranks import on_ranks
from benchmarks.workloads import WORKLOADS
from ddp_core.strategies import async_hook, bucketed, flat, hook, naive

TORCH: dict[str, dict[str, bool]] = {
    "torch plain": {},
    "torch views": {"gradient_as_bucket_view": True},
    "torch static": {"static_graph": True},
    "torch both": {"gradient_as_bucket_view": True, "static_graph": True},
}
OURS = {s.__name__.rpartition(".")[2]: s.wrap for s in (bucketed, async_hook, flat, hook, naive)}
STEPS = {"mlp": 6, "cnn": 6, "llama": 2}  # per round and configuration
SHARE_OF_ROUNDS = {"mlp": 1.0, "cnn": 1.0, "llama": 0.25}


class ByHand(nn.Module):
    """The minimum cost of one all-reduce of the whole model: correct only for this loop."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.buffer = torch.zeros(sum(p.numel() for p in module.parameters()))
        pieces = self.buffer.split([p.numel() for p in module.parameters()])
        self.places = [(p, piece.view_as(p)) for p, piece in zip(module.parameters(), pieces, strict=True)]

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.module(*inputs)
        return output

    @torch.no_grad()
    def synchronize(self) -> None:
        for parameter, place in self.places:
            assert parameter.grad is not None
            torch.mul(parameter.grad, 1 / dist.get_world_size(), out=place)
        dist.all_reduce(self.buffer)
        for parameter, place in self.places:
            parameter.grad = place


def measure(workload: str, num_rounds: int) -> dict[str, list[tuple[float, float]]]:
    """(wall, CPU) seconds per step, by configuration, one entry per round. Every rank calls it."""
    make, data = WORKLOADS[workload]
    torch.manual_seed(0)
    wrapped: dict[str, nn.Module] = {"compute alone": make(), "by hand": ByHand(make())}
    wrapped |= {name: DistributedDataParallel(make(), **options) for name, options in TORCH.items()}
    wrapped |= {name: wrap(make()) for name, wrap in OURS.items()}
    optimizers = {name: torch.optim.SGD(model.parameters(), lr=1e-4) for name, model in wrapped.items()}
    inputs, order = data(), random.Random(0)

    def steps(name: str) -> None:
        for _ in range(STEPS[workload]):
            optimizers[name].zero_grad()
            wrapped[name](inputs).float().square().mean().backward()
            if name == "by hand":
                wrapped[name].synchronize()
            optimizers[name].step()

    for name in wrapped:
        steps(name)
    figures: dict[str, list[tuple[float, float]]] = {name: [] for name in wrapped}
    for _ in range(num_rounds):
        for name in order.sample(list(wrapped), len(wrapped)):
            dist.barrier()
            figures[name].append(_seconds(lambda name=name: steps(name), STEPS[workload]))
    return figures


def _seconds(action: Callable[[], None], times: int) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    action()
    return (time.perf_counter() - wall) / times, (time.process_time() - cpu) / times


def table(workload: str, world_size: int, figures: dict[str, list[tuple[float, float]]]) -> str:
    medians = {name: statistics.median(wall for wall, _ in rounds) for name, rounds in figures.items()}
    best = min(TORCH, key=lambda name: medians[name])
    lines = [
        f"### {workload}, {world_size} ranks",
        "",
        f"{len(figures[best])} rounds. The best of torch's is `{best}`: {medians[best] * 1e3:.1f} ms a step.",
        "",
        "| | wall, ratio to the best of torch's | quartiles | CPU per rank, ratio |",
        "|---|---|---|---|",
    ]
    for name in figures:
        wall, cpu = (sorted(mine[i] / theirs[i] for mine, theirs in zip(figures[name], figures[best], strict=True))
                     for i in (0, 1))  # fmt: skip
        low, middle, high = statistics.quantiles(wall, n=4)
        lines.append(f"| {name} | {middle:.2f} | {low:.2f} to {high:.2f} | {statistics.median(cpu):.2f} |")
    return "\n".join(lines) + "\n"


HEAD = """# Step time

Written by `python benchmarks/step_time.py --write docs/step-time.md`; torch {torch}, gloo, one thread a rank,
{cpus} cores.

A step is `zero_grad`, forward, backward, `optimizer.step` (SGD). Configurations take turns in one run, in rounds
of random order; a figure is the median over rounds of the ratio to the best configuration of torch's DDP in the same
round. `compute alone` synchronises nothing; `by hand` is the floor of a single call: no wrapper, no hook, one flat
buffer written and reduced in the loop itself. Where `bucketed` is no dearer than that, what is left to save lies in
gloo's all-reduce, which all of them call. Where ranks outnumber cores, wall time is mostly waiting for a core.

"""


def main(arguments: Any) -> None:
    import os

    parts = [HEAD.format(torch=torch.__version__, cpus=os.cpu_count())]
    for workload in arguments.workload or WORKLOADS:
        for world_size in arguments.world_size or (2, 4):
            num_rounds = max(int(arguments.rounds * SHARE_OF_ROUNDS[workload]), 3)
            figures = on_ranks(world_size, measure, workload, num_rounds)
            parts.append(table(workload, world_size, figures))
            print(parts[-1], flush=True)
    if arguments.write:
        arguments.write.write_text("\n".join(parts))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", action="append", choices=list(WORKLOADS))
    parser.add_argument("--world-size", action="append", type=int)
    parser.add_argument("--rounds", type=int, default=60, help="a quarter of them for llama")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the tables as a page")
    main(parser.parse_args())
