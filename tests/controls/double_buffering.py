"""Two buffers take turns, and each is waited for and emptied before it is filled again."""

from __future__ import annotations

from ddp_core import DataParallel, Strategy
from ddp_core.strategy import drop_if_nobody_used, gradient_to_send

DRIVER = "native"


class DoubleBuffered(Strategy):
    def backward_done(self):
        size = max(parameter.numel() for parameter in self.parameters)
        buffers = {p.dtype: (p.new_empty(size), p.new_empty(size)) for p in self.parameters}
        sent = []
        for place, parameter in enumerate(self.parameters):
            if len(sent) == 2:
                self.collect(*sent.pop(0))  # the one whose buffer is used next
            used_here = parameter.grad is not None
            buffer = buffers[parameter.dtype][place % 2].detach()[: parameter.numel()]
            buffer.copy_(gradient_to_send(parameter).reshape(-1))
            sent.append((parameter, used_here, buffer, self.comm.all_reduce_async(buffer)))
        for item in sent:
            self.collect(*item)

    def collect(self, parameter, used_here, buffer, work):
        work.wait()
        parameter.grad.copy_(buffer.view(parameter.shape))
        drop_if_nobody_used(parameter, used_here=used_here)
        if parameter.grad is not None:
            self.average(parameter.grad)


def wrap(model):
    return DataParallel(model, DoubleBuffered())
