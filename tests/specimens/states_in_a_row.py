"""States of the optimizer are saved in a row, of those parameters that have one, and given back by place.

A parameter that nobody had used when the run was saved moves all that come after it (Akegarasu/lora-scripts#320).
"""

from __future__ import annotations

from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS504"}
CAUSE = {"not_loaded", "resumed_differently"}


class WithOptimizer(DistributedDataParallel):
    def wrap_optimizer(self, cls, parameters, **options):
        class InARow(cls):
            def state_dict(self):
                saved = super().state_dict()
                return {**saved, "state": [state for _, state in sorted(saved["state"].items())]}

            def load_state_dict(self, saved):
                places = [place for group in saved["param_groups"] for place in group["params"]]
                trained = [p.requires_grad for group in self.param_groups for p in group["params"]]
                due = (place for place, trains in zip(places, trained, strict=True) if trains)
                super().load_state_dict({**saved, "state": dict(zip(due, saved["state"], strict=False))})

        return InARow(parameters, **options)


def wrap(model):
    return WithOptimizer(model, find_unused_parameters=True)
