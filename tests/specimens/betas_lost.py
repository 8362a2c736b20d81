"""A sharded optimizer builds AdamW over its part of the parameters with the rate and the decay, and without the betas.

A class of mistake: whoever takes an optimizer apart, to build it anew over shards, flat buffers or float32 masters,
hands on the options that came to mind. Nothing is wrong for those who train with torch's defaults.
"""

from __future__ import annotations

from tests.controls.optimizer_sharded import CONTRACT as CONTRACT
from tests.controls.optimizer_sharded import ShardedOptimizer

TRIPS = {"LS202"}
CAUSE = "options_lost"
ATTRIBUTE = "Owners"


class Owners(ShardedOptimizer):
    def __init__(self, params, optimizer_cls, lr, momentum=0.0, weight_decay=None, betas=None, eps=None):
        options = {} if momentum == 0.0 else {"momentum": momentum}
        if weight_decay is not None:
            options["weight_decay"] = weight_decay
        super().__init__(params, optimizer_cls, lr=lr, **options)
