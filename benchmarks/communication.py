"""Counts calls and bytes of each strategy, and compares them with the published figures: docs/communication.md.

Special here: nothing is timed, so the figures are the same on every machine, and a test checks the page against them.

    python benchmarks/communication.py [--write docs/communication.md]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.ranks import on_ranks
from benchmarks.workloads import WORKLOADS
from ddp_core.models import mnist_cnn, smollm2_360m
from ddp_core.strategies import async_hook, bucketed, flat, hook, naive, synchronizer

STRATEGIES = {s.__name__.rpartition(".")[2]: s.wrap for s in (naive, hook, async_hook, flat, bucketed)}
MICRO_BATCHES = 4
STEPS = 235  # an epoch of MNIST's 60,000 images on 4 ranks in batches of 64


def count() -> list[tuple[str, str, int, int, int, int]]:
    """(workload, strategy, tensors, calls per step, bytes per step, calls of 4 micro-batches), counted on this rank."""
    rows = []
    for workload, (make, data) in WORKLOADS.items():
        for name, wrap in STRATEGIES.items():
            model = wrap(make())
            tensors, inputs = len(list(model.parameters())), data()
            step(model, inputs, 1)  # the first step also settles the bucket order
            one, num_bytes = step(model, inputs, 1)
            accumulated, _ = step(model, inputs, MICRO_BATCHES)
            rows.append((workload, name, tensors, one, num_bytes, accumulated))
    return rows


def step(model: Any, inputs: torch.Tensor, num_micro_batches: int) -> tuple[int, int]:
    """Run one step; return (calls, bytes)."""
    model.zero_grad()
    calls, num_bytes = model.comm.num_calls, model.comm.num_bytes
    with model.no_sync():
        for _ in range(num_micro_batches - 1):
            model(inputs).sum().backward()
    model(inputs).sum().backward()
    return model.comm.num_calls - calls, model.comm.num_bytes - num_bytes


def published() -> list[tuple[str, int, int, float]]:
    """The published CNN over 235 steps: (buckets or not, calls, bytes, bytes per call)."""
    rows = []
    for use_bucketing in (False, True):
        model = mnist_cnn()
        sync = synchronizer.wrap(model, use_bucketing=use_bucketing)
        sync.comm.reset_counts()
        model(torch.ones(1, 1, 28, 28)).sum().backward()
        for _ in range(STEPS):  # no forward or backward: it would change no count
            sync.sync_gradients(model)
        name = "with buckets" if use_bucketing else "without"
        rows.append((name, sync.comm.num_calls, sync.comm.num_bytes, sync.comm.num_bytes / sync.comm.num_calls))
    return rows


def page() -> str:
    lines = [
        "# Calls and bytes",
        "",
        "Written by `python benchmarks/communication.py --write docs/communication.md`, counted on 2 gloo ranks.",
        "",
        "A call counts the bytes of its tensor, whatever the backend's algorithm then moves. The last column is one",
        f"step of {MICRO_BATCHES} micro-batches under `no_sync()`: accumulation over K divides calls by K.",
        "",
        "| workload | strategy | tensors | calls a step | bytes a step | calls, 4 micro-batches |",
        "|---|---|---|---|---|---|",
    ]
    lines += ["| " + " | ".join(f"{cell:,}" if isinstance(cell, int) else cell for cell in row) + " |"
              for row in on_ranks(2, count)]  # fmt: skip
    lines += [
        "",
        "## The published CNN",
        "",
        f"206,922 parameters in 8 tensors, {STEPS} steps, with `synchronizer`.",
        "",
    ]
    lines += ["| | calls | bytes | bytes a call |", "|---|---|---|---|"]
    lines += [f"| {n} | {calls:,} | {b:,} | {each:,.0f} |" for n, calls, b, each in on_ranks(2, published)]
    lines += ["", "## SmolLM2-360M", "", smollm2(), ""]
    return "\n".join(lines)


def smollm2() -> str:
    bare, classifier = (smollm2_360m(num_labels=labels, device="meta") for labels in (None, 5))
    sizes = [sum(p.numel() for p in m.parameters()) for m in (bare, classifier)]
    tensors = [len(list(m.parameters())) for m in (bare, classifier)]
    return (
        f"From its configuration: {sizes[0]:,} parameters in {tensors[0]} gradient tensors (1 embedding, tied to the\n"
        "head; 32 layers of 4 attention, 3 feed-forward and 2 norm weights; 1 last norm). The published figure of 291\n"
        f"calls a step is for a classifier of five stars: {tensors[1]} tensors, {sizes[1]:,} parameters. The\n"
        "published 582 are two such steps."
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the page")
    text = page()
    target = parser.parse_args().write
    print(text) if target is None else target.write_text(text)
