"""Verdicts on GPUs: right strategies pass over NCCL, wrong ones fail by the checks that they fail by on the CPU."""

from __future__ import annotations

import pytest

from tests.conftest import ROOT
from verifier.engine import start_launcher


@pytest.fixture(scope="module")
def launcher():
    with start_launcher("local") as own:
        yield own


@pytest.fixture
def verify(launcher, tmp_path):
    from verifier import engine
    from verifier.naming import parse_strategy
    from verifier.request import Request

    def run(strategy, **settings):
        settings = {"world_size": 2, "profile": "quick", "device": "cuda", **settings}
        return engine.run(Request.of(parse_strategy(strategy, {}), settings), tmp_path, launcher=launcher)

    return run


@pytest.mark.parametrize("strategy", ["naive", "bucketed", "torch_ddp", "fsdp2", "zero1"])
def test_a_right_strategy_passes(verify, strategy):
    report = verify(strategy)
    assert report.verdict == "pass", report.summary
    assert report.environment["backend"] == "nccl"
    assert report.environment["device"].startswith("cuda (")
    assert "--device cuda" in report.repeat.command


@pytest.mark.parametrize("world_size", [1, 3, 4])
def test_on_other_numbers_of_ranks(verify, world_size):
    report = verify("bucketed", world_size=world_size)
    assert report.verdict == "pass", report.summary


COUNTS_ON_THE_CPU = """
import torch
import torch.distributed as dist
from ddp_core import DataParallel
from ddp_core.strategies.naive import Naive

class Counts(Naive):
    def backward_done(self):
        steps = torch.ones(1)
        dist.all_reduce(steps)
        super().backward_done()
        assert steps.item() == dist.get_world_size()

def wrap(model):
    return DataParallel(model, Counts())
"""


def test_gloo_beside_nccl_carries_tensors_of_the_cpu(verify, tmp_path_factory):
    path = tmp_path_factory.mktemp("mine") / "mine.py"
    path.write_text(COUNTS_ON_THE_CPU)
    report = verify(str(path), backend="cpu:gloo,cuda:nccl")
    assert report.verdict == "pass", report.problems
    report = verify(str(path))
    assert report.verdict == "unknown"
    assert any("--backend cpu:gloo,cuda:nccl" in problem for problem in report.problems)


def test_gloo_carries_tensors_of_gpus_too(verify):
    assert verify("torch_ddp", backend="gloo").verdict == "pass"


@pytest.mark.parametrize(
    ("strategy", "fault", "code", "cause"),
    [
        ("naive", "sum_instead_of_mean", "LS201", "missing_average"),
        ("bucketed", "read_before_wait", "LS401", "read_before_wait"),
    ],
)
def test_a_mistake_is_found(verify, strategy, fault, code, cause):
    report = verify(strategy, fault=fault)
    assert report.verdict == "fail"
    failed = {check.code: check.failures for check in report.checks if check.verdict == "fail"}
    assert any(failure.cause == cause for failure in failed.get(code, []))


def test_the_cpu_is_used_where_it_is_asked_for(verify):
    report = verify("naive", device="auto")
    assert report.verdict == "pass", report.summary
    assert (report.environment["backend"], report.environment["device"]) == ("gloo", "cpu")


def test_random_numbers_of_the_device_are_compared(verify):
    report = verify(str(ROOT / "tests/specimens/same_dropout.py"), profile="standard", workloads=("exact",))
    (streams,) = [check for check in report.checks if check.code == "LS801"]
    assert any("CUDA's random numbers" in failure.explanation for failure in streams.failures), streams
