"""Momentum is moved out of the way while the weights are saved, and moved back in another order.

A class of mistake, of offloading: the optimizer's order is the model's until somebody asks for groups. What is saved is
right, and training goes on with moments of other parameters.
"""

from __future__ import annotations

import copy

import torch
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS202"}
CAUSE = "update_differs"


class Offloads(DistributedDataParallel):
    def wrap_optimizer(self, cls, parameters, **options):
        models = list(self.module.parameters())

        class Offloading(cls):
            def state_dict(self):
                saved = copy.deepcopy(super().state_dict())
                for name in ("exp_avg", "exp_avg_sq"):
                    self.put_back(name)
                return saved

            def put_back(self, name):
                own = [p for group in self.param_groups for p in group["params"] if name in self.state.get(p, {})]
                if not own:
                    return
                row, begin = torch.cat([self.state[p][name].reshape(-1) for p in own]), 0
                for parameter in (p for p in models if name in self.state.get(p, {})):
                    end = begin + parameter.numel()
                    self.state[parameter][name] = row[begin:end].reshape(parameter.shape).clone()
                    begin = end

        return Offloading(parameters, **options)


def wrap(model):
    return Offloads(model, find_unused_parameters=True)
