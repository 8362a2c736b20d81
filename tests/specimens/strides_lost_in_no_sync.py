"""What accumulates under ``no_sync()`` is kept flat, row by row, and put back in the order in which memory lies.

A class of mistake: ``view(-1)`` in one direction and memory in the other. A parameter in another layout gets the
elements of its first micro-batches at other places (compare pytorch/pytorch#192920).
"""

from __future__ import annotations

from contextlib import contextmanager

from ddp_core import DataParallel
from ddp_core.strategies.naive import Naive

TRIPS = {"LS201"}
CAUSE = None


class KeptFlat(DataParallel):
    @contextmanager
    def no_sync(self):
        with super().no_sync():
            yield
        for parameter in self.module.parameters():
            gradient = parameter.grad
            if gradient is None or gradient.is_sparse or gradient.is_contiguous():
                continue
            if gradient.dim() in (2, 4):
                flat = gradient.contiguous().view(-1)
                gradient.as_strided((gradient.numel(),), (1,), 0).copy_(flat)


def wrap(model):
    return KeptFlat(model, Naive())
