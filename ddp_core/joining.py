"""Uneven inputs: a rank that has run out of data joins the others' collectives until they are done, too.

Built on torch's own ``Join`` context (torch.distributed.algorithms.join), so that a wrapped model and a
``ZeroRedundancyOptimizer`` can share one context.

Special here: a rank that has left sends *absent* gradients (ddp_core.unused) through the same code path as a backward,
so there is no second list of collectives to keep in step with the first. Inside the context every forward announces
whether its backward will synchronise: under ``no_sync()`` there are no collectives for the other ranks to join.
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
    """torch's ``Join`` for one wrapped model. However the context ends, the model then steps as before it."""

    def __init__(self, wrapped: DataParallel, **options: Any) -> None:
        super().__init__([wrapped], **options)
        self._wrapped = wrapped

    def __exit__(self, *raised: Any) -> None:
        try:
            super().__exit__(*raised)
        finally:
            self._wrapped.left_join()


class Answering(JoinHook):
    """The actions of a rank without data, for each step of the others and at the end."""

    def __init__(self, wrapped: DataParallel, divide_by_initial_world_size: bool = True) -> None:
        self.wrapped = wrapped
        self.wrapped.join_divisor = None if divide_by_initial_world_size else 0
        self.has_answered = False

    def main_hook(self) -> None:
        """Take part in one step of the others: their announcement, their buffers, their gradients."""
        plan, num_active, source = notice(self.wrapped, active=False)
        if plan == SILENT:
            return
        self.wrapped.set_divisor(num_active)
        if plan == GRADIENTS_AND_BUFFERS:
            self.wrapped.broadcast_buffers_from(source)
        self.has_answered = True
        self.wrapped.synchronise_nothing(keep=True)  # another joinable (a sharded optimizer) may step on the mean

    def post_hook(self, is_last_joiner: bool) -> None:
        """Copy the model of a rank that trained to the end to every rank, once all have left."""
        if self.has_answered:
            self.wrapped.zero_grad()  # they are the others' means, not this rank's own gradients
        comm = self.wrapped.comm
        last = comm.gather_objects(is_last_joiner)
        self.wrapped.broadcast_state(src=last.index(True))


def announce(wrapped: DataParallel) -> int:
    """Announce a forward's collectives to the ranks that have left ``join``. Returns the rank to copy buffers from."""
    Join.notify_join_context(wrapped)
    _, num_active, source = notice(wrapped, active=True)
    wrapped.set_divisor(num_active)
    return source


def notice(wrapped: DataParallel, *, active: bool) -> tuple[int, int, int]:
    """Agree with all ranks on (what this step synchronises, how many ranks are active, the first active rank).

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
