"""Hooks that launch while backward runs, in one fixed order: a gradient that is early waits for those before it."""

from __future__ import annotations

from ddp_core import DataParallel, Strategy
from ddp_core.strategy import drop_if_nobody_used, gradient_to_send

DRIVER = "native"


class InOrder(Strategy):
    def backward_started(self):
        self.ready, self.queue, self.works = set(), list(reversed(self.parameters)), []

    def gradient_ready(self, parameter):
        self.ready.add(id(parameter))
        while self.queue and id(self.queue[0]) in self.ready:
            self.launch(self.queue.pop(0))

    def launch(self, parameter):
        used_here = parameter.grad is not None
        sent = gradient_to_send(parameter).clone()
        self.works.append((parameter, used_here, sent, self.comm.all_reduce_async(sent)))

    def backward_done(self):
        while self.queue:
            self.launch(self.queue.pop(0))
        for parameter, used_here, sent, work in self.works:
            work.wait()
            parameter.grad = sent
            drop_if_nobody_used(parameter, used_here=used_here)
            self.average(sent)


def wrap(model):
    return DataParallel(model, InOrder())
