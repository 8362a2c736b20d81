"""A loop that fits no style, said in its own words: a Driver that hands over all gradients itself before the step."""

import torch
import torch.distributed as dist

from ddp_core import Contract, Driver

CONTRACT = Contract(sync_buffers=False, disclaims={"sparse_gradients"})


class MyDriver(Driver):
    def prepare(self, model):
        for tensor in [*model.parameters(), *model.buffers()]:
            whole = tensor.detach().contiguous()
            dist.broadcast(whole, src=0)
            tensor.data.copy_(whole)
        return model

    def before_step(self):
        parameters = [p for _, p in self.named_parameters() if p.requires_grad]
        used = torch.tensor([int(p.grad is not None) for p in parameters])
        dist.all_reduce(
            used
        )  # a rank that had no use for a parameter sends zeros; where no rank had one, it stays None
        for parameter, number in zip(parameters, used.tolist(), strict=True):
            if number:
                mean = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                mean = mean.contiguous() / dist.get_world_size()
                dist.all_reduce(mean)
                parameter.grad = mean
