"""What a strategy is: the part of a data-parallel wrapper that decides when gradients meet, and in what parcels.

Special here: a strategy never touches hooks, broadcasts or ``no_sync``. ``DataParallel`` owns those, calls
the four methods below at the right moments, and so each file in ``strategies/`` holds one mechanism and no more.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import nn

from ddp_core.comm import Comm


@dataclass(frozen=True)
class Contract:
    """What a strategy claims. The verifier holds it to this, and does not hold it to what it does not claim.

    The defaults are those of torch's DistributedDataParallel. A module that provides ``wrap`` may provide
    ``CONTRACT`` beside it.
    """

    average: Literal["mean", "sum"] = "mean"
    broadcasts_at_start: bool = True
    supports: frozenset[str] = field(default_factory=frozenset)


class Strategy(ABC):
    """Decides how the gradients of ``parameters`` become their mean over ranks.

    Life: ``prepare`` once; then per synchronised backward ``backward_started``, ``gradient_ready`` once for each
    parameter in the order autograd finishes them (which may differ from rank to rank), ``backward_done``.
    When ``backward_done`` returns, every ``parameter.grad`` is the mean over ranks.
    """

    parameters: Sequence[nn.Parameter]
    comm: Comm

    def prepare(self, named_parameters: Sequence[tuple[str, nn.Parameter]], comm: Comm) -> None:
        """Learn the trainable parameters (same names, order, shapes and dtypes on every rank)."""
        self.parameters = [parameter for _, parameter in named_parameters]
        self.comm = comm

    def backward_started(self) -> None:
        """The first gradient of a synchronised backward is about to be reported."""

    def gradient_ready(self, parameter: nn.Parameter) -> None:
        """``parameter.grad`` is final for this backward on this rank."""

    @abstractmethod
    def backward_done(self) -> None:
        """All gradients of this rank are final. Leave the mean over ranks in every ``parameter.grad``."""

    def average(self, summed: torch.Tensor) -> None:
        """Turn a sum over ranks into a mean, in place.

        By division, not by multiplying with 1/W: that rounds twice and is off by one unit in the last place
        for W = 7, 13, 14, 15 and others.
        """
        summed.div_(self.comm.world_size)


def gradient_or_zeros(parameter: nn.Parameter) -> torch.Tensor:
    """This rank's gradient; zeros, set in place, where this rank did not use the parameter.

    Every rank must bring something to every collective: whoever skips a parameter that others reduce pairs the
    wrong tensors from there on, or hangs. A parameter that no rank used therefore ends with zeros, not None.
    """
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter, memory_format=torch.preserve_format)
    return parameter.grad


Wrap = Callable[..., Any]
