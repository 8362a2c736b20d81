"""Checks judge any contents of a rank, in any shape and dtype: none raises, because that would give no verdict.

Special here: a real run's recordings are read, and one rank's tensors are replaced before they are judged: by tensors
of one element less, of another dtype, and of values at which arithmetic breaks.
"""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest

from verifier import reading
from verifier.judge import judging
from verifier.pytest_plugin import Lockstep

ODD = [0.0, np.nan, np.inf, -np.inf, 5e-324, 1e-300, 1e-45, 6e-8, -1.0, 65504.0, 3.4e38, 1.7e308]
ROUNDS = 12  # for each scenario

NARROWED = """
import torch, torch.distributed as dist
from ddp_core import Contract
CONTRACT = Contract(disclaims={"unused_parameters", "sparse_gradients"}, sync_buffers=False)
class Narrows(torch.optim.SGD):
    def step(self, closure=None):
        for p in (p for group in self.param_groups for p in group["params"]):
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
        super().step()
        if dist.get_rank() == 1:
            for p in (p for group in self.param_groups for p in group["params"]):
                p.data = CHANGED
def wrap(optimizer, model):
    for tensor in model.state_dict().values():
        dist.broadcast(tensor, src=0)
    optimizer.__class__ = Narrows
    return optimizer
"""


@pytest.fixture(scope="module")
def run(lockstep_launcher, tmp_path_factory):
    out = tmp_path_factory.mktemp("whole")
    recorded = Lockstep(lockstep_launcher, out).verify("bucketed", world_size=2, profile="quick", out=out / "run")
    recorded.assert_pass()
    return out / "run"


def test_no_check_fails_by_itself(run):
    draw, judged = random.Random(0), 0
    for folder in sorted(path.parent for path in run.glob("scenarios/*/scenario.json")):
        for _ in range(ROUNDS):
            recording = reading.read(folder)
            rank = draw.choice(recording.ranks)
            what = draw.choice(sorted({what for what, _, _ in rank.tensors} - {"norm"}))  # a norm is a single number
            for key in [key for key in rank.tensors if key[0] == what and draw.random() < 0.6]:
                rank.tensors[key] = another(rank.tensors[key], draw)
            for check in judging.load_checks():
                if check.wants(recording.scenario):
                    assert "itself failed" not in (judging._judge(check, recording).blocked or ""), check.code
                    judged += 1
    assert judged > 100


def another(tensor, draw):
    """``tensor`` with other contents, and perhaps of another shape or dtype."""
    values = tensor.values
    if values is None or not values.size:
        return tensor
    odd = draw.choice(ODD if values.dtype.kind in "fc" else [0, 1])
    with np.errstate(all="ignore"):
        mixed = np.where(np.arange(values.size).reshape(values.shape) % 3 == 0, odd, values)
        changed = {
            "one": np.concatenate([[odd], values.reshape(-1)[1:]]).reshape(values.shape),
            "some": mixed,
            "all": np.full_like(values, odd, dtype=mixed.dtype),
            "times": values * odd,
            "shorter": values.reshape(-1)[:-1],
            "narrower": values.real.astype(np.float16),
            "whole": np.nan_to_num(values.real).astype(np.int64),
            "truths": values != 0,
        }[draw.choice(["one", "some", "all", "times", "shorter", "narrower", "whole", "truths"])]
    if changed.dtype.kind in "fc" and draw.random() < 0.8 and changed.dtype.kind == values.dtype.kind:
        with np.errstate(all="ignore"):
            changed = changed.astype(values.dtype)
    digest = str(draw.random())
    return dataclasses.replace(tensor, contents=changed, shape=changed.shape, dtype=str(changed.dtype), digest=digest)


@pytest.mark.parametrize(
    ("changed", "kind"),
    [
        ("p.data.double()", "float64 of shape [8, 6]"),
        ("p.data.half()", "float16 of shape [8, 6]"),
    ],
)
def test_weights_of_another_kind_are_wrong_and_not_unknown(lockstep, tmp_path, only, changed, kind):
    only("plain")
    path = tmp_path / "mine.py"
    path.write_text(NARROWED.replace("CHANGED", changed))
    report = lockstep.verify(f"{path}:wrap", world_size=2, profile="quick", checks=["LS101"])
    check = next(check for check in report.checks if check.code == "LS101")
    assert check.verdict == report.verdict == "fail"
    assert (check.failures[0].expected, check.failures[0].observed) == ("float32 of shape [8, 6]", kind)
