"""Tests for machines with a GPU, one at least: ``pytest tests/gpu``. Elsewhere all of them are skipped.

Special here: two ranks share one GPU, over NCCL, as they do under ``lockstep verify --device cuda``. Ranks are spawned
and not forked: whoever counts GPUs has started the driver.
"""

from __future__ import annotations

import multiprocessing
import time

import pytest

from tests.gpu.ranks import LIMIT_S, Rank, live
from verifier import devices
from verifier.errors import UsageError
from verifier.recording import Recording
from verifier.request import Builtin
from verifier.scenario import Scenario


def pytest_collection_modifyitems(items):
    try:
        devices.require_gpus()
    except UsageError as error:
        for item in items:
            if "tests/gpu" in str(item.path):
                item.add_marker(pytest.mark.skip(reason=str(error)))


@pytest.fixture
def on_gpus(tmp_path):
    """Run ``body(rank)`` on two ranks over NCCL; returns what they wrote. Any error fails the test."""

    def run(body, size=2):
        scenario = Scenario(
            name="t", situation="t", workload="exact", strategy=Builtin(name="naive"), world_size=size,
            device="cuda", backend="nccl",
        )  # fmt: skip
        scenario.save(tmp_path)
        spawn = multiprocessing.get_context("spawn")
        processes = [spawn.Process(target=live, args=(Rank(r, size, tmp_path), scenario, body)) for r in range(size)]
        for process in processes:
            process.start()
        end = time.monotonic() + LIMIT_S
        for process in processes:
            process.join(max(end - time.monotonic(), 0.1))
        hung = [number for number, process in enumerate(processes) if process.is_alive()]
        for process in processes:
            process.kill()
        errors = [path.read_text() for path in sorted(tmp_path.glob("error*"))]
        assert not errors, "\n".join(errors)
        boards = [tmp_path / f"board{r}" for r in hung]
        assert not hung, f"ranks {hung} hang: {[b.read_bytes().rstrip(bytes(1)) for b in boards if b.exists()]}"
        return Recording.load(tmp_path)

    return run
