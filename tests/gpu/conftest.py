"""Tests for machines with a GPU, one at least: ``pytest tests/gpu``. Elsewhere all of them are skipped.

Special here: two ranks share one GPU, over NCCL, as they do under ``lockstep verify --device cuda``. Ranks are spawned
and not forked: whoever counts GPUs has started the driver.
"""

from __future__ import annotations

import os

import pytest
import torch
import torch.distributed as dist

from tests.verifier.forked import run_ranks
from verifier import devices
from verifier.errors import UsageError
from verifier.nodes import place
from verifier.scenario import Scenario

LIMIT_S = 120.0  # a spawned rank loads torch and starts CUDA


def pytest_collection_modifyitems(items):
    try:
        devices.require_gpus()
    except UsageError as error:
        for item in items:
            if "tests/gpu" in str(item.path):
                item.add_marker(pytest.mark.skip(reason=str(error)))


def join_over_nccl(rank, store):
    """Tensors are made on the GPU from here on, unless it is said otherwise."""
    scenario = Scenario.load(rank.folder)
    os.environ.update(place(scenario, rank.rank, devices.num_gpus(scenario)))
    devices.settle(scenario)
    torch.set_default_device("cuda")
    dist.init_process_group("nccl", store=store, rank=rank.rank, world_size=rank.size)


@pytest.fixture
def on_gpus(tmp_path):
    """Run ``body(rank)`` on two ranks over NCCL; returns what they wrote. Any error fails the test."""

    def run(body):
        how = {"join": join_over_nccl, "start": "spawn", "limit_s": LIMIT_S, "device": "cuda", "backend": "nccl"}
        return run_ranks(2, tmp_path, body, **how)

    return run
