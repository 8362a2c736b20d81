"""A backward that waits behind every hook, so that a strategy's own threads get their turn before it goes on.

Special here: on a small model the backward ends before a thread that a hook has started gets its turn. A thread that
writes to ``.grad``, which may not be there yet, or reads what autograd goes on to change, then seems right.
"""

from __future__ import annotations

import threading
import time

import torch
from torch import nn

from verifier.uncompiled import uncompiled

TURNS_S = 0.003  # long enough for many turns of another thread


def slow_down(model: nn.Module, delay_ms: float) -> None:
    """Wait behind the hooks that a strategy has put on gradients, before they are written to ``.grad``, and for longer
    than a collective takes that starts and finishes late by ``delay_ms``. It waits only if the strategy has threads.
    """
    hold_s = TURNS_S + 2 * delay_ms / 1000

    @uncompiled
    def hold(gradient: torch.Tensor) -> None:
        if threading.active_count() > 1:
            time.sleep(hold_s)

    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.register_hook(hold)
