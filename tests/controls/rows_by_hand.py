"""Parameters cut by hand into rows: rank r keeps the r-th chunk of dimension 0, no padding, no DTensor.

Some ranks have fewer rows than others, or none, and nothing but the shapes of what they hold says which are whose.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from ddp_core import Contract, Driver

DRIVER = "native"


def cut(tensor):
    """The chunks of dimension 0, as torch.chunk cuts them, for each rank; empty ones at the end."""
    whole = tensor.contiguous()
    chunks = list(whole.chunk(dist.get_world_size())) if whole.dim() else [whole]
    none = whole.reshape(-1)[:0] if not whole.dim() else whole[:0]
    return chunks + [none] * (dist.get_world_size() - len(chunks))


class Rows:
    def __init__(self, module):
        self.module = module
        for tensor in [*module.parameters(), *module.buffers()]:
            whole = tensor.data.contiguous()
            dist.broadcast(whole, 0)
            tensor.data.copy_(whole)
        self.trained = [p for p in module.parameters() if p.requires_grad]
        self.sizes = {p: [c.shape for c in cut(p.data)] for p in self.trained}
        self.free()

    def free(self):
        for p in self.trained:
            p.data = cut(p.data)[dist.get_rank()].clone()

    def gather(self, p):
        whole = [p.data.new_empty(shape) for shape in self.sizes[p]]
        for owner, part in enumerate(whole):
            if owner == dist.get_rank():
                part.copy_(p.data)
            dist.broadcast(part, owner)
        p.data = torch.cat(whole) if whole[0].dim() else whole[0]
        p.grad = None  # a part's, and stepped with already

    def __call__(self, *inputs):
        for p in self.trained:
            self.gather(p)
        outputs = self.module(*inputs)
        if not torch.is_grad_enabled():
            self.free()
        return outputs

    def after_backward(self):
        gradients = [p.grad for p in self.trained]
        self.free()
        for p, gradient in zip(self.trained, gradients, strict=True):
            p.grad = None
            if gradient is not None:
                dist.all_reduce(whole := gradient.contiguous())
                p.grad = cut(whole / dist.get_world_size())[dist.get_rank()].clone()


class wrap(Driver):
    contract = Contract(
        sharded=True,
        sync_buffers=False,
        disclaims={"state_dict", "sparse_gradients", "unused_parameters"}
        | {"accumulation", "two_backwards", "checkpointing"},
    )
    can_clip = False

    def prepare(self, model):
        return Rows(model)

    def before_step(self):
        self.wrapped.after_backward()
