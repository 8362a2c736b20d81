"""Buckets of a fixed 25 MB leave when they are full; what is left over is sent only where no bucket was.

A class of mistake: every model that fits into one bucket is right, and so is every small test. Of a larger one the last
parameters are never synchronised.
"""

from __future__ import annotations

from ddp_core import DataParallel, Strategy
from ddp_core.strategy import drop_if_nobody_used, gradient_to_send

TRIPS = {"LS101", "LS201"}
CAUSE = "not_synchronised"
CAP_BYTES = 25 * 2**20


class FullBucketsOnly(Strategy):
    def backward_done(self):
        bucket, held, sent = [], 0, 0
        for parameter in self.parameters:
            bucket.append(parameter)
            held += parameter.numel() * parameter.element_size()
            if held >= CAP_BYTES:
                self._reduce(bucket)
                bucket, held, sent = [], 0, sent + 1
        if not sent:
            self._reduce(bucket)

    def _reduce(self, bucket):
        for parameter in bucket:
            used_here = parameter.grad is not None
            gradient = gradient_to_send(parameter)
            self.comm.all_reduce(gradient)
            drop_if_nobody_used(parameter, used_here=used_here)
            self.average(gradient)


def wrap(model):
    return DataParallel(model, FullBucketsOnly())
