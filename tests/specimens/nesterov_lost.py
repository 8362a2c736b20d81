"""SGD over shards is built with the rate, the momentum and the decay of the one that was asked for: Nesterov is not.

A class of mistake, as betas_lost is.
"""

from __future__ import annotations

from tests.controls.optimizer_sharded import CONTRACT as CONTRACT
from tests.controls.optimizer_sharded import ShardedOptimizer

TRIPS = {"LS202"}
CAUSE = "options_lost"
ATTRIBUTE = "Owners"


class Owners(ShardedOptimizer):
    def __init__(self, params, optimizer_cls, nesterov=False, **options):
        super().__init__(params, optimizer_cls, **options)
