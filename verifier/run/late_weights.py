"""Weights that arrive after ``step()`` has returned: under way when it ends, or fetched when the next forward begins.

Sharded optimizers hide their gathers behind the next forward, and the workers of a parameter server ask for weights
when they need them. What counts is what the next forward computes with, so weights are written down once more after it.

Special here: after the last step somebody has to ask for one more forward, and on all ranks, or those that do would
wait for the others. Nobody is asked: each rank decides by what is the same on all of them, a contract that says
``sharded``, or by what its own transport carried between the last step and the first backward, and a transport has two
ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from verifier.run.evaluating import evaluate
from verifier.run.loading import StrategyError
from verifier.run.streams import draw_on, drawn_so_far

if TYPE_CHECKING:
    from verifier.worker import Subject

SHARE = 0.4  # of the weights' bytes, carried before the backward: they are fetched, perhaps at half their width


class LateWeights:
    """Follows one replica through its steps, and records ``weight`` again where it may have changed since the step."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        weights = [parameter for _, parameter in subject.parameters]
        in_shards = any(hasattr(weight, "device_mesh") for weight in weights)  # and so recorded; no gather moves those
        self._many = float("inf") if in_shards else SHARE * sum(w.numel() * w.element_size() for w in weights)
        self._spread = bool(subject.contract.sharded) and not in_shards
        self._carried = subject.observer.num_carried  # when the last step had ended
        self._shapes: list[torch.Size] = []  # then
        self._under_way = self._fetched = False

    def forwarded(self, step: int, micro: int) -> None:
        """The forward of a micro-batch has returned: what it used are the weights of the step before."""
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
        """The model is another one now: what is still under way belongs to the old one."""
        self._under_way = False

    def last(self, step: int) -> None:
        """No step follows ``step``."""
        if self._fetched or self._spread:
            self._record(step, met=_one_more_forward(self._subject, step))
        elif self._under_way:
            self._record(step, met=evaluate(self._subject, step))

    def _record(self, step: int, met: Any = None) -> None:
        """``met``: what the forward returned, where no backward follows that would show it. NaN: nobody waited."""
        self._under_way = False
        if self._shapes != [parameter.shape for _, parameter in self._subject.parameters]:
            return  # put together for the forward: other tensors than those that were recorded
        if isinstance(met, torch.Tensor) and bool(met.isnan().any()):
            for name, parameter in self._subject.parameters:
                self._subject.journal.tensor("weight", step, name, parameter, keep=True)
        else:
            self._subject.record("weight", step, only_if_changed=True)


def _one_more_forward(subject: Subject, step: int) -> Any:
    """As the next step would begin: some fetch only while they train. Streams and buffers stay as they are."""
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
