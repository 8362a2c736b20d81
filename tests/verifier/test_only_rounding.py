"""Rules that scale a gradient by its norm, where that gradient is nothing but rounding."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from verifier.judge.only_rounding import decided_by_rounding

LARS = """
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from ddp_core import Contract

class Lars(torch.optim.Optimizer):
    def __init__(self, parameters, lr=0.05, **_):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                size = p.grad.norm()
                step = p.grad * (p.norm() / size) if size > 0 else p.grad
                momentum = self.state[p].setdefault("momentum", torch.zeros_like(p))
                p.sub_(momentum.mul_(0.9).add_(step FACTOR), alpha=group["lr"])

class Wrapped(DistributedDataParallel):
    def wrap_optimizer(self, cls, parameters, **options):
        return Lars(parameters, **options)

CONTRACT = Contract(optimizer="own", disclaims={"sparse_gradients"})

def wrap(model):
    return Wrapped(model, find_unused_parameters=True)
"""


@pytest.mark.parametrize("right", [True, False])
def test_a_trust_ratio_may_take_a_rounding_for_a_direction(lockstep, tmp_path, only, right):
    """With this seed the gradient of a bias cancels in the second step of `saving`: 4e-16 is left of it."""
    only("plain", "saving")
    path = tmp_path / "lars.py"
    path.write_text(LARS.replace("FACTOR", "" if right else ", alpha=1 + 0.1 * dist.get_rank()"))
    report = lockstep.verify(str(path), world_size=2, profile="standard", workloads=("exact",))
    assert report.verdict == ("pass" if right else "fail"), report.summary


def recording(nudged, gradient, before):
    def rank(weight, gradient=None, before=None):
        held = {"weight": weight, "gradient": gradient}

        def tensor(what, step, name):
            values = before if (what, step) == ("weight", 0) else held[what]
            return None if values is None else SimpleNamespace(values=np.array(values))

        return [SimpleNamespace(completed=True, tensor=tensor)]

    alone = SimpleNamespace(scenario=SimpleNamespace(loss_times=1), ranks=rank([3.0, 4.0], gradient, before))
    runs = [SimpleNamespace(scenario=SimpleNamespace(nudge=n), ranks=rank(w)) for n, w in nudged]
    return SimpleNamespace(alone=alone, nudged=runs)


APART, CLOSE = [(1e-12, [5.0, 0.0]), (-1e-12, [-5.0, 0.0])], [(1e-12, [3.1, 4.0]), (-1e-12, [2.9, 4.0])]


@pytest.mark.parametrize(
    ("nudged", "gradient", "observed", "decided"),
    [
        (APART, [1e-16, -2e-16], [-3.0, -4.0], True),  # the other end of the sphere
        (APART, [1e-16, -2e-16], [-9.0, -9.0], False),  # beyond it
        (APART, [1e-16, 1e-3], [-3.0, -4.0], False),  # there is a direction
        (CLOSE, [1e-16, -2e-16], [0.0, 0.0], False),  # the rule does not amplify
        (APART, None, [-3.0, -4.0], True),  # the runs are further apart than the step went
        (CLOSE, None, [3.05, 4.0], False),
        (APART[:1], [1e-16, -2e-16], [-3.0, -4.0], False),  # only one of two runs was made
    ],
)
def test_it_takes_a_gradient_without_a_direction_and_a_rule_that_amplifies(nudged, gradient, observed, decided):
    made = recording(nudged, gradient, before=[0.0, 0.0])
    assert decided_by_rounding(made, 1, "w", np.array(observed), np.array([3.0, 4.0])) is decided
