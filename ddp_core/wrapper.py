"""DataParallel: replicas that start equal, and a strategy that keeps their gradients equal.

Special here: this is everything that data-parallel wrappers share and so often get wrong on the side: agreement
at the start checked by *name*, buffers, ``no_sync`` that is restored on exceptions, and the end of backward found
through autograd's own callback, so that ``loss.backward()`` returns with synchronised gradients and a training
loop needs no further call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.autograd import Variable

from ddp_core.comm import Comm
from ddp_core.strategy import Strategy


class DataParallel(nn.Module):
    """Wrap ``module`` so that every rank's gradients are the mean over ranks when ``backward()`` returns.

    Args:
        module: the same architecture on every rank; its weights may differ, rank 0's are taken.
        strategy: how gradients travel, for example ``Bucketed(bucket_cap_mb=25)``.
        comm: the ranks that take part; all of them by default.
        broadcast_buffers: copy rank 0's buffers (BatchNorm's running statistics, ...) to all ranks before
            each synchronised training forward, as torch's DDP does.

    Raises:
        ValueError: on every rank, if ``module`` has no trainable parameter, or if names, shapes or dtypes of
            parameters differ between ranks; the message names the first rank and parameter that do.
    """

    def __init__(
        self, module: nn.Module, strategy: Strategy, *, comm: Comm | None = None, broadcast_buffers: bool = True
    ) -> None:
        super().__init__()
        self.module = module
        self.strategy = strategy
        self.comm = comm or Comm()
        self.broadcast_buffers = broadcast_buffers
        self._synchronise = True
        self._in_backward = False
        # Agreement first: a refusal that only some ranks reach would leave the others waiting for them.
        require_agreement(self.comm, list(module.named_parameters()))
        named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        if not named:
            raise ValueError("the model has no parameter that requires a gradient: there is nothing to synchronise")
        self.broadcast_state()
        strategy.prepare(named, self.comm)
        for _, parameter in named:
            parameter.register_post_accumulate_grad_hook(self._gradient_ready)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        # An exception in mid-backward leaves autograd's end-of-backward callback uncalled; a new forward
        # is where the next step begins, so that is where the flag is put right.
        self._in_backward = False
        if self.broadcast_buffers and self._synchronise and self.training and torch.is_grad_enabled():
            for buffer in self.module.buffers():
                self.comm.broadcast(buffer)
        return self.module(*args, **kwargs)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backwards inside this context only accumulate; the first one outside synchronises the accumulated sum."""
        before, self._synchronise = self._synchronise, False
        try:
            yield
        finally:
            self._synchronise = before

    def broadcast_state(self) -> None:
        """Copy rank 0's parameters and buffers, frozen ones included, to every rank."""
        with torch.no_grad():
            for tensor in [*self.module.parameters(), *self.module.buffers()]:
                self.comm.broadcast(tensor.data)

    def _gradient_ready(self, parameter: nn.Parameter) -> None:
        if not self._synchronise:
            return
        if not self._in_backward:
            self._in_backward = True
            self.strategy.backward_started()
            Variable._execution_engine.queue_callback(self._backward_done)
        self.strategy.gradient_ready(parameter)

    def _backward_done(self) -> None:
        self._in_backward = False
        with torch.no_grad():
            self.strategy.backward_done()

    def extra_repr(self) -> str:
        return f"strategy={self.strategy!r}, rank={self.comm.rank}, world_size={self.comm.world_size}"


def require_agreement(comm: Comm, named_parameters: Sequence[tuple[str, nn.Parameter]]) -> None:
    """Raise ValueError on every rank if any rank's parameters differ from rank 0's in name, shape, dtype or order.

    torch's DDP compares counts and shapes only: same-shape siblings registered in another order on one rank are
    swapped without a word, at the start and in every step.
    """
    mine = [(name, tuple(p.shape), str(p.dtype), p.requires_grad) for name, p in named_parameters]
    every = comm.gather_objects(mine)
    for rank, theirs in enumerate(every):
        for place, (ours, other) in enumerate(zip(every[0], theirs, strict=False)):
            if ours != other:
                raise ValueError(
                    f"replicas do not agree on parameter number {place}: rank 0 has {_describe(ours)}, "
                    f"rank {rank} has {_describe(other)}"
                )
        if len(theirs) != len(every[0]):
            raise ValueError(f"rank 0 has {len(every[0])} parameters, rank {rank} has {len(theirs)}")


def _describe(entry: tuple[str, tuple[int, ...], str, bool]) -> str:
    name, shape, dtype, trainable = entry
    return f"'{name}' ({dtype.removeprefix('torch.')}, shape {list(shape)}{'' if trainable else ', frozen'})"
