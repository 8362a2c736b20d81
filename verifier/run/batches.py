"""Which samples a rank takes: its own slice of the large batch, or, alone, everybody's; some steps take them whole."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from verifier.journal import Journal
from verifier.lines import INPUT_GRADIENT
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


def asking_for_gradients(
    scenario: Scenario, inputs: Sequence[torch.Tensor], journal: Journal
) -> Sequence[torch.Tensor]:
    """``inputs``; where the scenario says so the first of them asks for its gradient, as what an encoder before the
    model has made does. That it comes is noted.
    """
    if not scenario.input_gradients:
        return inputs
    made_from = inputs[0].clone().requires_grad_()
    made_from.register_hook(lambda gradient: journal.note(INPUT_GRADIENT, True))
    return [made_from * 1, *inputs[1:]]  # no leaf: it may be written to
