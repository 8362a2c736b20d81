"""A distributed optimizer with a ``clip_grad_norm_()`` of its own: it reduces first, and clips by the norm of all."""

from __future__ import annotations

from tests.specimens.clips_by_a_shards_norm import OwnersOptimizer

DRIVER = "distributed_optimizer"
ATTRIBUTE = "ClippingOptimizer"


class ClippingOptimizer(OwnersOptimizer):
    def owned(self):
        return self.everybody
