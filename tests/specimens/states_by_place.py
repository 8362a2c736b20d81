"""The optimizer's states are saved as a list of those there are, and handed out in turn when they are loaded.

A class of mistake (facebookresearch/fairscale#922 and pytorch/pytorch#88353 are of its kind): a parameter that is
frozen, or was never used, has none, and all that come after it get another's.
"""

from __future__ import annotations

import copy

from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS504"}
CAUSE = {"resumed_differently", "not_loaded"}


class InTurn(DistributedDataParallel):
    def wrap_optimizer(self, cls, parameters, **options):
        class SavesAList(cls):
            def parameters(self):
                return [p for group in self.param_groups for p in group["params"]]

            def state_dict(self):
                groups = [{n: value for n, value in g.items() if n != "params"} for g in self.param_groups]
                states = [self.state[p] for p in self.parameters() if self.state.get(p)]
                return {"groups": groups, "states": copy.deepcopy(states)}

            def load_state_dict(self, saved):
                for group, options in zip(self.param_groups, saved["groups"], strict=True):
                    group.update(options)
                for parameter, state in zip(self.parameters(), saved["states"], strict=False):
                    self.state[parameter] = state

        return SavesAList(parameters, **options)


def wrap(model):
    return InTurn(model, find_unused_parameters=True)
