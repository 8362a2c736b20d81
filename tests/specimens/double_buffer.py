"""Two buffers take turns, and the third bucket is filled into the first before the first has come back.

deepspeedai/DeepSpeed#5545 and EleutherAI/gpt-neox#1004: two buckets for overlap, and no event between them.
"""

from __future__ import annotations

import torch

from ddp_core import DataParallel, Strategy
from ddp_core.strategy import drop_if_nobody_used, gradient_to_send

TRIPS = {"LS401"}
CAUSE = "written_in_flight"


class DoubleBuffer(Strategy):
    def backward_done(self):
        size = max(parameter.numel() for parameter in self.parameters)
        buffers = {p.dtype: (p.new_empty(size), p.new_empty(size)) for p in self.parameters}
        sent = []
        for place, parameter in enumerate(self.parameters):
            used_here = parameter.grad is not None
            gradient = gradient_to_send(parameter)
            buffer = buffers[parameter.dtype][place % 2][: parameter.numel()]
            with torch.no_grad():
                buffer.copy_(gradient.reshape(-1))  # the work of two parameters before may still be under way here
            sent.append((parameter, used_here, buffer, self.comm.all_reduce_async(buffer)))
            if len(sent) > 2:
                self.collect(*sent.pop(0))
        for item in sent:
            self.collect(*item)

    def collect(self, parameter, used_here, buffer, work):
        work.wait()
        parameter.grad.copy_(buffer.view(parameter.shape))
        drop_if_nobody_used(parameter, used_here=used_here)
        if parameter.grad is not None:
            self.average(parameter.grad)


def wrap(model):
    return DataParallel(model, DoubleBuffer())
