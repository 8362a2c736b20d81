"""With a norm over samples two gradients are correct, and no other value between or beside them."""

from __future__ import annotations

import numpy as np
import pytest

from verifier.judge.norms import is_right
from verifier.recording import RankRecording, Recording, Tensor
from verifier.scenario import Scenario

MEAN, OF_ALL = np.array([1.0, -2.0, 1e-9]), np.array([1.5, -1.0, -1e-9])
SYNCHRONISED_AND_HALVED = """
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from ddp_core import Contract
from tests.controls import synchronised_norm

CONTRACT = Contract(lossy="float16", disclaims={"complex_parameters"})

def wrap(model):
    wrapped = synchronised_norm.wrap(model)
    wrapped.register_comm_hook(None, fp16_compress_hook)
    return wrapped
"""
FREED = """
from torch.nn.parallel import DistributedDataParallel

def wrap(model):
    def after(module, args, output):
        whole = [(p, p.data) for p in module.parameters()]
        for p, data in whole:
            p.data = data.new_empty(0)

        def restore(gradient):
            for p, data in whole:
                p.data = data

        output.register_hook(restore)
        return output

    model.register_forward_hook(after)
    return DistributedDataParallel(model)
"""


def _recording(**contract):
    def tensor(what, values):
        return Tensor(what, 0, "norm.weight", "float64", values.shape, "", values)

    reference, rank = RankRecording(0), RankRecording(0)
    found = [tensor("gradient", OF_ALL), *(tensor(f"local_gradient_{r}", MEAN * (1 + r)) for r in range(2))]
    reference.tensors = {(t.what, 0, t.name): t for t in found}
    rank.notes["contract"] = contract
    scenario = Scenario.model_construct(world_size=2, workload="buffers")
    return Recording(scenario, [rank, RankRecording(1)], reference, {})


@pytest.mark.parametrize(
    ("values", "right"),
    [
        (MEAN, True),
        (OF_ALL, True),
        (OF_ALL + np.array([0, 0, 1e-7]), True),  # the rounding left by terms that cancel
        ((MEAN + OF_ALL) / 2, False),
        (MEAN * 2, False),
        (OF_ALL / 2, False),
        (np.where(np.arange(3) < 1, MEAN, OF_ALL), False),
        (MEAN * np.nan, False),
    ],
)
def test_the_mean_of_the_ranks_own_or_that_of_all_samples(values, right):
    assert is_right(_recording(), 0, "norm.weight", values, MEAN) == right


def test_a_declared_rounding_may_be_in_either():
    rounded = OF_ALL.astype(np.float16).astype(np.float64) * (1 + 2**-11)
    assert not is_right(_recording(), 0, "norm.weight", rounded, MEAN)
    assert is_right(_recording(lossy="float16"), 0, "norm.weight", rounded, MEAN)
    assert not is_right(_recording(lossy="float16"), 0, "norm.weight", OF_ALL * 2, MEAN)


@pytest.mark.parametrize(
    ("body", "workload"), [(SYNCHRONISED_AND_HALVED, "buffers"), (FREED, "layers")], ids=["synchronised", "freed"]
)
def test_honest_ones_pass(lockstep, tmp_path, body, workload):
    path = tmp_path / "mine.py"
    path.write_text(body)
    report = lockstep.verify(f"{path}:wrap", out=tmp_path / "out", profile="standard", workloads=(workload,))
    assert report.verdict == "pass", report.summary
