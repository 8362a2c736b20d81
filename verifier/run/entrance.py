"""The first time that the bare model begins a forward: the state at that moment, and whose inputs have reached it.

Special here: torch's global hook on all modules is used, because wrappers copy models and call what they like. The
loop's inputs are copied before, because a strategy may write into them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Protocol

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

from verifier.journal import Journal
from verifier.lines import NOT_CALLED, OTHER_INPUTS
from verifier.run.batches import micro_batch
from verifier.scenario import Scenario
from verifier.uncompiled import uncompiled
from verifier.workload import Workload

ROUNDINGS = 2.0**-7  # of bfloat16, relative to the largest element: casting the inputs does not make them other inputs


class Replica(Protocol):
    """The attributes of a rank's subject that are needed here."""

    workload: Workload
    scenario: Scenario
    journal: Journal
    rank: int
    model: nn.Module


@contextmanager
def entering(replica: Replica, given: Sequence[torch.Tensor], told: Callable[[], None]) -> Iterator[None]:
    """While inside, watch for the first forward of a module of the bare model's class. Then ``told()`` is called, and
    if its inputs are not those ``given``, whose they are is noted. If no such module is called, that is noted as well.
    """
    kind, mine, waiting = type(replica.model), [tensor.detach().clone() for tensor in given], [told]

    @uncompiled
    def begin(module: nn.Module, inputs: Any) -> None:
        if isinstance(module, kind) and waiting:
            waiting.pop()()
            with suppress(Exception):  # tensors may be of any kind: inputs that cannot be compared are not reported
                if (others := whose(replica, mine, inputs)) is not None:
                    replica.journal.note(OTHER_INPUTS, others)

    handle = register_module_forward_pre_hook(begin)
    try:
        yield
        if waiting:
            replica.journal.note(NOT_CALLED, True)
    finally:
        handle.remove()


def whose(replica: Replica, mine: Sequence[torch.Tensor], entered: Any) -> str | None:
    """Return, in words, whose samples ``entered`` has in place of ``mine``. None: they are mine, or not tensors."""
    if not isinstance(entered, tuple) or len(entered) != len(mine) or not entered:
        return None
    if not all(type(tensor) is torch.Tensor for tensor in entered) or _same(mine, entered):
        return None
    world_size = replica.scenario.world_size
    for rank in (rank for rank in range(world_size) if rank != replica.rank):
        if _same(_inputs(replica, rank), entered):
            return f"rank {rank}'s inputs"
    every = [_inputs(replica, rank) for rank in range(world_size)]
    if _same([torch.cat(parts) for parts in zip(*every, strict=True)], entered):
        return "the inputs of all ranks"
    if [tensor.shape for tensor in mine] == [tensor.shape for tensor in entered]:
        return "inputs with other numbers in them"
    return f"inputs of shape {_shapes(entered)}, where the loop gave {_shapes(mine)}"


def _inputs(replica: Replica, rank: int) -> Sequence[torch.Tensor]:
    *inputs, _ = micro_batch(replica.workload, replica.scenario, 0, 0, rank)
    return inputs


def _same(wanted: Sequence[torch.Tensor], entered: Sequence[torch.Tensor]) -> bool:
    return all(_alike(one.detach(), other.detach()) for one, other in zip(wanted, entered, strict=True))


def _alike(wanted: torch.Tensor, entered: torch.Tensor) -> bool:
    if wanted.shape != entered.shape:
        return False
    wide = torch.complex128 if wanted.is_complex() or entered.is_complex() else torch.float64
    wanted, entered = wanted.to("cpu", wide), entered.to("cpu", wide)
    allowed = wanted.abs().max() * ROUNDINGS if wanted.numel() else 0.0
    return bool(((wanted - entered).abs() <= allowed).all())


def _shapes(tensors: Sequence[torch.Tensor]) -> str:
    return ", ".join(str(tuple(tensor.shape)) for tensor in tensors)
