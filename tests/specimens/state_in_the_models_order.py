"""States of the optimizer are saved in one row, in the model's order, and taken out in that of the optimizer's groups.

A class of mistake, of flat checkpoints: the two orders are one until somebody asks for groups with and without decay.
"""

from __future__ import annotations

import torch
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS504"}
CAUSE = {"resumed_differently", "not_loaded"}


class SavesInARow(DistributedDataParallel):
    def wrap_optimizer(self, cls, parameters, **options):
        models = list(self.module.parameters())

        class InARow(cls):
            def state_dict(self):
                held = [p for p in models if self.state.get(p)]
                names = sorted({name for p in held for name in self.state[p] if self.state[p][name] is not None})
                groups = [{n: value for n, value in g.items() if n != "params"} for g in self.param_groups]
                return {"groups": groups, "row": {n: [self.state[p].get(n) for p in held] for n in names}}

            def load_state_dict(self, saved):
                for group, options in zip(self.param_groups, saved["groups"], strict=True):
                    group.update(options)
                trained = [p for group in self.param_groups for p in group["params"] if p.requires_grad]
                for name, row in saved["row"].items():
                    flat, begin = torch.cat([torch.as_tensor(one).reshape(-1) for one in row]), 0
                    for parameter in trained:
                        shape = () if name == "step" else parameter.shape
                        end = begin + max(shape.numel() if shape else 1, 1)
                        self.state[parameter][name] = flat[begin:end].reshape(shape).clone()
                        begin = end

        return InARow(parameters, **options)


def wrap(model):
    return SavesInARow(model, find_unused_parameters=True)
