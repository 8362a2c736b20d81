"""Gradients are awaited by hooks on the tensors of an output, which are sought in dicts and tuples of that very type.

A class of mistake, next to huggingface/transformers#25357: libraries' models return named tuples and ordered dicts.
Nothing is found in them, no reduction is set up, and every rank trains alone.
"""

from __future__ import annotations

import torch

from ddp_core import Contract
from tests.specimens.outputs_that_are_tensors import Averaging

TRIPS = {"LS101", "LS201"}
CAUSE = "not_synchronised"
CONTRACT = Contract(sync_buffers=False, disclaims={"sparse_gradients"})


def tensors_in(output):
    if isinstance(output, torch.Tensor):
        return [output]
    if type(output) is dict:
        output = list(output.values())
    return [tensor for inner in output for tensor in tensors_in(inner)] if type(output) in (list, tuple) else []


class AveragingInside(Averaging):
    def forward(self, *inputs, **named):
        self.queued = False
        output = self.module(*inputs, **named)
        for tensor in tensors_in(output):
            if tensor.requires_grad:
                tensor.register_hook(self.at_the_end)
        return output

    def at_the_end(self, gradient):
        if not self.queued:
            self.queued = True
            super().at_the_end(gradient)


def wrap(model):
    return AveragingInside(model)
