"""The optimizer that ``wrap_optimizer()`` makes reduces in ``step()``; its own ``clip_grad_norm_()`` does so before.

As fairscale's OSS and Horovod's ``synchronize()`` are meant to be used: torch's clipping in the loop would come before
the reduction.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from ddp_core import Contract

DRIVER = "optimizer_wrapper"
CONTRACT = Contract(sync_buffers=False, disclaims={"sparse_gradients", "unused_parameters"})


class Started(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        for tensor in [*module.parameters(), *module.buffers()]:
            whole = tensor.detach().contiguous()
            dist.broadcast(whole, 0)
            tensor.data.copy_(whole)

    def forward(self, *inputs):
        return self.module(*inputs)

    def wrap_optimizer(self, cls, parameters, **options):
        class Reducing(cls):
            is_reduced = False

            def everything(self):
                return [p for group in self.param_groups for p in group["params"] if p.requires_grad]

            def reduce(self):
                if not self.is_reduced:
                    for parameter in self.everything():
                        whole = parameter.grad.contiguous()
                        flat = torch.view_as_real(whole) if whole.is_complex() else whole
                        dist.all_reduce(flat)
                        parameter.grad.copy_(whole / dist.get_world_size())
                self.is_reduced = True

            def clip_grad_norm_(self, max_norm, norm_type=2.0):
                self.reduce()
                return nn.utils.clip_grad_norm_(self.everything(), max_norm, norm_type)

            def step(self, closure=None):
                self.reduce()
                self.is_reduced = False
                super().step(closure)

        return Reducing(parameters, **options)


def wrap(model):
    return Started(model)
