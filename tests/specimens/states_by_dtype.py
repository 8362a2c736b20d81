"""States of the optimizer are saved buffer by buffer, one for each dtype, and loaded in the order of the group.

NVIDIA/Megatron-LM#5835. With one dtype the two orders are the same.
"""

from __future__ import annotations

from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS504"}
CAUSE = "resumed_differently"


class WithOptimizer(DistributedDataParallel):
    def wrap_optimizer(self, cls, parameters, **options):
        class ByDtype(cls):
            def state_dict(self):
                saved = super().state_dict()
                places = [place for group in saved["param_groups"] for place in group["params"]]
                dtypes = [p.dtype for group in self.param_groups for p in group["params"]]
                order = [
                    place
                    for dtype in dict.fromkeys(dtypes)
                    for place, own in zip(places, dtypes, strict=True)
                    if own == dtype
                ]
                state = {
                    new: saved["state"][old] for new, old in zip(places, order, strict=True) if old in saved["state"]
                }
                return {**saved, "state": state}

        return ByDtype(parameters, **options)


def wrap(model):
    return WithOptimizer(model, find_unused_parameters=True)
