"""Uneven inputs: a rank that has run out of data answers the others' collectives until they are done, too.

Built on torch's own ``Join`` context (torch.distributed.algorithms.join), so that a wrapped model and a
``ZeroRedundancyOptimizer`` can share one.

Special here: a rank that has left brings *absent* gradients (ddp_core.unused) through the very code path that a
backward takes, so there is no second list of collectives to keep in step with the first. Inside the context every
forward says whether its backward will synchronise: a rank under ``no_sync()`` makes no collectives to be answered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.algorithms.join import Join, JoinHook

if TYPE_CHECKING:
    from ddp_core.wrapper import DataParallel


SILENT, GRADIENTS, GRADIENTS_AND_BUFFERS = 0, 1, 2
PLANS = ("nothing is synchronised", "gradients are", "gradients and buffers are")


class Joined(Join):
    """torch's ``Join`` for one wrapped model, which is as before when the context is over, however it ends."""

    def __init__(self, wrapped: DataParallel, **options: Any) -> None:
        super().__init__([wrapped], **options)
        self._wrapped = wrapped

    def __exit__(self, *raised: Any) -> None:
        try:
            super().__exit__(*raised)
        finally:
            self._wrapped.left_join()


class Answering(JoinHook):
    """What a rank without data does in place of a step, and at the end."""

    def __init__(self, wrapped: DataParallel, divide_by_initial_world_size: bool = True) -> None:
        self.wrapped = wrapped
        self.wrapped.join_divisor = None if divide_by_initial_world_size else 0
        self.has_answered = False

    def main_hook(self) -> None:
        """One step of the others: their notice, their buffers, their gradients."""
        plan, num_active, source = notice(self.wrapped, active=False)
        if plan == SILENT:
            return
        self.wrapped.set_divisor(num_active)
        if plan == GRADIENTS_AND_BUFFERS:
            self.wrapped.broadcast_buffers_from(source)
        self.has_answered = True
        self.wrapped.synchronise_nothing(keep=True)  # another joinable may step on the mean: a sharded optimizer

    def post_hook(self, is_last_joiner: bool) -> None:
        """All have left: everyone takes the model of a rank that trained to the end."""
        if self.has_answered:
            self.wrapped.zero_grad()  # the others' means: no gradients of this rank's own
        comm = self.wrapped.comm
        last = comm.gather_objects(is_last_joiner)
        self.wrapped.broadcast_state(src=last.index(True))


def announce(wrapped: DataParallel) -> int:
    """Called in a forward under ``join``: tell the ranks that have left what is coming. Returns the buffers' source."""
    Join.notify_join_context(wrapped)
    _, num_active, source = notice(wrapped, active=True)
    wrapped.set_divisor(num_active)
    return source


def notice(wrapped: DataParallel, *, active: bool) -> tuple[int, int, int]:
    """Agree on (what this step synchronises, how many ranks are active, the first active rank).

    Raises RuntimeError on every rank if active ranks disagree on what this step synchronises.
    """
    comm = wrapped.comm
    table = torch.zeros(comm.world_size, 2, dtype=torch.int32, device=wrapped.join_device)
    if active:
        table[comm.rank, 0] = 1
        table[comm.rank, 1] = wrapped.plan_of_step()
    comm.all_reduce(table)
    present = table[:, 0].nonzero().flatten().tolist()
    plans = {rank: int(table[rank, 1]) for rank in present}
    if len(set(plans.values())) > 1:
        said = ", ".join(f"rank {rank}: {PLANS[plan]}" for rank, plan in plans.items())
        raise RuntimeError(f"inside join(), active ranks differ in no_sync() or in train() and eval() mode: {said}")
    return (max(plans.values(), default=SILENT), len(present), present[0] if present else 0)
