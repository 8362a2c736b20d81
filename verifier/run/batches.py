"""Which samples a rank takes: its own slice of the large batch, or, alone, everybody's; some steps take them whole."""

from __future__ import annotations

import torch

from verifier.scenario import Scenario
from verifier.workload import Workload


def micro_batch(workload: Workload, scenario: Scenario, step: int, micro: int, rank: int) -> tuple[torch.Tensor, ...]:
    """Inputs, and targets last, of ``rank``'s ``micro``-th backward of ``step``."""
    if step not in scenario.whole_steps:
        return _own(workload, scenario, step, micro, rank)
    each = [_own(workload, scenario, step, one, rank) for one in range(scenario.num_micro_batches)]
    return tuple(map(torch.cat, zip(*each, strict=True)))


def _own(workload: Workload, scenario: Scenario, step: int, micro: int, rank: int) -> tuple[torch.Tensor, ...]:
    if scenario.alone_for is not None:
        return workload.everybodys_micro_batch(step, micro)
    return workload.micro_batch(step, micro, rank)
