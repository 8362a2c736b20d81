"""Which samples a rank takes: its slice of the large batch or, alone, everybody's. Some steps take one whole batch."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from verifier.journal import Journal
from verifier.lines import INPUT_GRADIENT
from verifier.scenario import Scenario
from verifier.workload import Workload


def micro_batch(workload: Workload, scenario: Scenario, step: int, micro: int, rank: int) -> tuple[torch.Tensor, ...]:
    """Return the inputs of ``rank``'s ``micro``-th backward of ``step``, and the targets last."""
    if step not in scenario.whole_steps:
        return _own(workload, scenario, step, micro, rank)
    each = [_own(workload, scenario, step, one, rank) for one in range(scenario.num_micro_batches)]
    return tuple(map(torch.cat, zip(*each, strict=True)))


def _own(workload: Workload, scenario: Scenario, step: int, micro: int, rank: int) -> tuple[torch.Tensor, ...]:
    if scenario.alone_for is not None:
        return workload.everybodys_micro_batch(step, micro)
    return workload.micro_batch(step, micro, rank)


def asking_for_gradients(
    scenario: Scenario, inputs: Sequence[torch.Tensor], journal: Journal
) -> Sequence[torch.Tensor]:
    """Return ``inputs``; where the scenario says so, the first of them requires a gradient, as the output of an encoder
    in front of the model does. When that gradient arrives, it is noted.
    """
    if not scenario.input_gradients:
        return inputs
    made_from = inputs[0].clone().requires_grad_()
    made_from.register_hook(lambda gradient: journal.note(INPUT_GRADIENT, True))
    return [made_from * 1, *inputs[1:]]  # not a leaf, so it may be written to in place
