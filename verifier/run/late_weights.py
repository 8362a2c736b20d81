"""Weights that arrive after ``step()`` has returned: still in flight when it ends, or fetched by the next forward.

Sharded optimizers hide their gathers behind the next forward, and the workers of a parameter server ask for weights
when they need them. What counts are the weights that the next forward uses, so they are recorded again after it.

Special here: after the last step there must be one more forward, on all ranks or on none, or some would wait for the
others. The ranks do not ask one another. Each decides by what is the same on all: a contract that says ``sharded``, or
what its transport carried between the last step and the first backward, since every transfer has two ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from verifier.run.evaluating import evaluate
from verifier.run.loading import StrategyError
from verifier.run.streams import draw_on, drawn_so_far

if TYPE_CHECKING:
    from verifier.worker import Subject

SHARE = 0.4  # of the weights' bytes, carried before the backward: weights are fetched, perhaps at half their width


class LateWeights:
    """Follows one replica through its steps, and records ``weight`` again where it may have changed since the step."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        weights = [parameter for _, parameter in subject.parameters]
        in_shards = any(hasattr(weight, "device_mesh") for weight in weights)  # recorded as such; no gather moves them
        self._many = float("inf") if in_shards else SHARE * sum(w.numel() * w.element_size() for w in weights)
        self._spread = bool(subject.contract.sharded) and not in_shards
        self._carried = subject.observer.num_carried  # when the last step had ended
        self._shapes: list[torch.Size] = []  # at that moment
        self._under_way = self._fetched = False

    def forwarded(self, step: int, micro: int) -> None:
        """The forward of a micro-batch has returned; in the first one, the weights of the previous step were used."""
        if micro == 0:
            self._fetched = self._subject.observer.num_carried - self._carried >= self._many
        if step > 0 and micro == 0 and (self._under_way or self._fetched or self._spread):
            self._record(step - 1)

    def end(self) -> None:
        """The optimizer has stepped, and weights are recorded as they are now."""
        self._under_way = self._subject.observer.on_their_way()
        self._carried = self._subject.observer.num_carried
        self._shapes = [parameter.shape for _, parameter in self._subject.parameters]

    def changed(self) -> None:
        """The model was changed: what is still in flight belongs to the old one."""
        self._under_way = False

    def last(self, step: int) -> None:
        """Look again after ``step``, the last one."""
        if self._fetched or self._spread:
            self._record(step, met=_one_more_forward(self._subject, step))
        elif self._under_way:
            self._record(step, met=evaluate(self._subject, step))

    def _record(self, step: int, met: Any = None) -> None:
        """Record again. ``met``: output of a forward without a backward. NaN in it: nobody waited for the weights."""
        self._under_way = False
        if self._shapes != [parameter.shape for _, parameter in self._subject.parameters]:
            return  # gathered for the forward: the shapes are not those that were recorded
        if isinstance(met, torch.Tensor) and bool(met.isnan().any()):
            for name, parameter in self._subject.parameters:
                self._subject.journal.tensor("weight", step, name, parameter, keep=True)
        else:
            self._subject.record("weight", step, only_if_changed=True)


def _one_more_forward(subject: Subject, step: int) -> Any:
    """Run a forward as the next step would: some fetch only in training. Random streams and buffers are restored."""
    *inputs, _ = subject.workload.micro_batch(step, 0, subject.rank)
    buffers = [(buffer, buffer.detach().clone()) for buffer in subject.model.buffers()]
    drawn = drawn_so_far()
    try:
        subject.driver.start_step(subject.optimizer)
        subject.phase("evaluation")
        output = subject.workload.call(subject.driver.forward, inputs)
    except BaseException as error:
        raise StrategyError.of(f"in a forward after step {step}", error) from error
    draw_on(drawn)
    with torch.no_grad():
        for buffer, before in buffers:
            buffer.copy_(before)
    return output
