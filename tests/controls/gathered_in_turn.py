"""Owners step their parameters, and each module's are sent while the one before it computes: a bucket for each module.

As Megatron-LM's distributed optimizer does with ``overlap_param_gather``. Special here: a module that is used before
its turn starts its own bucket's transfer, so that modules may run in another order than they are registered in.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from ddp_core import Contract, Driver

DRIVER = "native"
CONTRACT = Contract(
    sync_buffers=False, disclaims={"sparse_gradients", "branch_order", "unused_parameters", "parameter_groups"}
)


class GatheredInTurn(Driver):
    def prepare(self, model):
        for tensor in [*model.parameters(), *model.buffers()]:
            whole = tensor.detach().contiguous()
            dist.broadcast(whole, src=0)
            tensor.data.copy_(whole)
        self.buckets, taken = [], set()
        for module in model.modules():
            own = [p for p in module.parameters(recurse=False) if p.requires_grad and p not in taken]
            taken.update(own)
            if own:
                number = len(self.buckets)
                self.buckets.append(own)
                module.register_forward_pre_hook(lambda *_, number=number: self.put_in_place(number))
        self.due, self.under_way = set(), {}
        return model

    def before_step(self):
        for parameter in self.model.parameters():
            if parameter.grad is not None:
                parameter.grad = parameter.grad.contiguous() / dist.get_world_size()
                dist.all_reduce(parameter.grad)

    def make_optimizer(self, cls, parameters, **options):
        owner = {p: number % dist.get_world_size() for number, bucket in enumerate(self.buckets) for p in bucket}
        return cls([p for p in parameters if owner.get(p) == dist.get_rank()], **options)

    def zero_grad(self, optimizer, *, set_to_none=True):
        self.model.zero_grad(set_to_none=set_to_none)

    def step(self, optimizer):
        optimizer.step()
        self.due = set(range(len(self.buckets)))
        self.send(0)

    def send(self, number):
        """Start to send bucket ``number``, if it is due."""
        if number in self.due:
            self.due.remove(number)
            copies = [p.detach().clone(memory_format=torch.contiguous_format) for p in self.buckets[number]]
            owner = number % dist.get_world_size()
            self.under_way[number] = [(dist.broadcast(copy, owner, async_op=True), copy) for copy in copies]

    def put_in_place(self, number):
        self.send(number)
        self.receive(number)
        self.send(number + 1)

    def receive(self, number):
        for parameter, (work, copy) in zip(self.buckets[number], self.under_way.pop(number, ()), strict=False):
            work.wait()
            parameter.data.copy_(copy)

    def receive_all(self):
        for number in range(len(self.buckets)):
            self.send(number)
            self.receive(number)

    def state_dict(self):
        self.receive_all()
        return self.model.state_dict()

    def load_state_dict(self, saved):
        self.receive_all()
        self.model.load_state_dict(saved)


def wrap(model):
    return GatheredInTurn(model)
