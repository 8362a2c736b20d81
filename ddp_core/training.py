"""A training loop with micro-batches, synchronisation, clipping and step; and evaluation.

Special here: it handles edge cases that published loops get wrong. An incomplete last group of micro-batches is
averaged over its actual number of micro-batches. Gradients are clipped after they were synchronised, so every rank
clips by the same norm. Batches of uneven size are weighted, so that the mean over ranks is the mean over samples, and
metrics are added up as numerators and denominators, so that each sample counts once.

The loop trains any wrapper that a ``Driver`` can drive.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import nn

from ddp_core.communicator import Ranks
from ddp_core.driver import Driver
from ddp_core.recognition import drive

Forward = Callable[..., Any]
Loss = Callable[[Forward, Any], torch.Tensor]  # (the wrapper's forward, micro-batch) -> the mean over its samples
Metric = Callable[[Any, Any], tuple[Any, Any]]  # (the model's output, batch) -> (numerator, denominator)


@dataclass(frozen=True)
class StepRecord:
    """One optimizer step as this rank saw it. ``loss`` is the mean over this rank's own samples.

    ``grad_norm`` is the 2-norm of the synchronised gradients before clipping, equal on every rank.
    """

    step: int
    loss: float
    grad_norm: float
    seconds: float
    samples: int
    micro_batches: int


def supervised(criterion: Callable[[Any, Any], torch.Tensor]) -> Loss:
    """The loss for batches ``(*inputs, target)``: ``criterion(forward(*inputs), target)``."""

    def loss(forward: Forward, batch: Sequence[Any]) -> torch.Tensor:
        *inputs, target = batch
        return criterion(forward(*inputs), target)

    return loss


def train(
    wrapped: Any,
    batches: Iterable[Any],
    optimizer: torch.optim.Optimizer,
    loss: Loss,
    *,
    model: nn.Module | None = None,
    num_micro_batches: int = 1,
    clip_norm: float | None = None,
    count: Callable[[Any], int] | None = None,
    comm: Ranks | None = None,
    device: Any = None,
) -> list[StepRecord]:
    """Train on ``batches`` once; one optimizer step for every ``num_micro_batches`` of them, and one for the rest.

    Every rank must pass the same number of batches (torch's DistributedSampler ensures it).

    Args:
        wrapped: what a strategy's ``wrap(model)`` returned, in any style that ``ddp_core.recognition`` knows.
        loss: see ``supervised``; returns the mean over a micro-batch.
        model: the bare model; needed where ``wrapped`` is no module, as with a synchroniser.
        clip_norm: clip the 2-norm of the synchronised gradients to this.
        count: how many samples or tokens a micro-batch's loss is the mean of. Given with ``comm``, each micro-batch is
            weighted by its count relative to the sum over all ranks, at the cost of one small all-reduce per step;
            without it all weigh the same. For a count of 0 the loss must be 0, not NaN, the mean of no samples.
        device: where to move the batches' tensors.

    Raises ValueError if ``num_micro_batches`` is not positive, ``count`` is given without ``comm``, or a step's counts
    are zero on all ranks; TypeError if ``wrapped`` is of no style that can be driven.
    """
    if num_micro_batches < 1:
        raise ValueError(f"num_micro_batches must be at least 1, got {num_micro_batches}")
    if count is not None and comm is None:
        raise ValueError("weighing by count needs the counts of all ranks: give comm as well")
    driver = drive(wrapped, wrapped if model is None else model)
    stepper = Stepper(driver, optimizer, loss, clip_norm, count, comm, device)
    records: list[StepRecord] = []
    remaining = iter(batches)
    while group := list(islice(remaining, num_micro_batches)):
        records.append(stepper.step(len(records), group))
    return records


@dataclass(frozen=True)
class Stepper:
    """One optimizer step over a group of micro-batches; the fields are as for ``train``."""

    driver: Driver
    optimizer: torch.optim.Optimizer
    loss: Loss
    clip_norm: float | None
    count: Callable[[Any], int] | None
    comm: Ranks | None
    device: Any

    def step(self, number: int, group: list[Any]) -> StepRecord:
        start = time.perf_counter()
        counts = [self.count(batch) if self.count else num_samples(batch) for batch in group]
        weights, shares = self._weights(counts)
        self.driver.zero_grad(self.optimizer)
        total: Any = 0.0
        for place, batch in enumerate(group):
            last = place == len(group) - 1
            with nullcontext() if last else self.driver.no_sync():
                mean = self.loss(self.driver.forward, move(batch, self.device))
                self.driver.backward(mean * weights[place] if self.count else mean / len(group))
            total = total + mean.detach() * shares[place]
        self.driver.before_step()
        norm = self._clip()
        self.driver.step(self.optimizer)
        value, grad_norm = float(total), float(norm)
        return StepRecord(number, value, grad_norm, time.perf_counter() - start, sum(counts), len(group))

    def _weights(self, counts: list[int]) -> tuple[list[float], list[float]]:
        """The weight of each micro-batch in the gradient, and in the loss that this rank reports."""
        if self.count is None:
            return [], [1 / len(counts)] * len(counts)
        assert self.comm is not None
        over_ranks = total_count(self.comm, sum(counts), self.device)
        own = max(sum(counts), 1)
        return [count * self.comm.world_size / over_ranks for count in counts], [count / own for count in counts]

    def _clip(self) -> torch.Tensor:
        parameters = [p for _, p in self.driver.named_parameters() if p.grad is not None]
        norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        if self.clip_norm is not None:
            torch.nn.utils.clip_grads_with_norm_(parameters, self.clip_norm, norm)
        return norm


def weight(comm: Ranks, count: int, device: Any = None) -> float:
    """The weight of this rank's mean loss over ``count`` samples: ``count * W / (sum of counts over ranks)``.

    All ranks must call it. The mean over ranks of weighted means is then the mean over all samples. Counts may be of
    tokens.

    Raises ValueError on every rank if all counts are zero.
    """
    return count * comm.world_size / total_count(comm, count, device)


def total_count(comm: Ranks, count: int, device: Any = None) -> int:
    """The sum over ranks of ``count``: one all-reduce of 8 bytes. Raises ValueError on every rank if it is zero."""
    total = torch.tensor([count], dtype=torch.int64, device=device)
    comm.all_reduce(total)
    if not total.item():
        raise ValueError("every rank has a count of 0: there is nothing to take a mean over")
    return int(total.item())


def accuracy(output: torch.Tensor, batch: Sequence[torch.Tensor]) -> tuple[torch.Tensor, int]:
    """Metric for ``(*inputs, target)``: (targets equal to the argmax over ``output``'s last axis, all targets)."""
    target = batch[-1]
    return (output.argmax(-1) == target).sum(), target.numel()


def evaluate(
    model: nn.Module,
    batches: Iterable[Any],
    metrics: Mapping[str, Metric],
    *,
    comm: Ranks | None = None,
    forward: Callable[[nn.Module, Any], Any] | None = None,
    device: Any = None,
) -> dict[str, float]:
    """Each metric over the batches of all ranks: sum of numerators over sum of denominators, on every rank.

    There is one collective, after the last batch, so ranks may have different numbers of batches, or none. Give each
    sample to one rank (``ddp_core.data.ShardSampler``): DistributedSampler repeats some to make shards equal.

    ``model`` is the bare model, because a wrapper may communicate in its forward. ``forward(model, batch)`` gives the
    output; by default the batch is ``(*inputs, target)``. Every module is put in evaluation mode and back to its own
    mode afterwards.

    Raises ValueError on every rank if a metric's denominator is zero over all ranks.
    """
    modes = [(module, module.training) for module in model.modules()]
    sums = torch.zeros(len(metrics), 2, dtype=torch.float64, device=device)
    model.eval()
    try:
        with torch.no_grad():
            for batch in batches:
                moved = move(batch, device)
                output = forward(model, moved) if forward else model(*moved[:-1])
                for row, metric in enumerate(metrics.values()):
                    for column, part in enumerate(metric(output, moved)):
                        sums[row, column] += part
    finally:
        for module, mode in modes:
            module.training = mode
    if comm is not None:
        comm.all_reduce(sums)
    for name, denominator in zip(metrics, sums[:, 1].tolist(), strict=True):
        if not denominator:
            raise ValueError(f"metric '{name}' counted nothing on any rank: there were no samples to evaluate")
    return dict(zip(metrics, (sums[:, 0] / sums[:, 1]).tolist(), strict=True))


def num_samples(batch: Any) -> int:
    """The length of the first tensor in ``batch`` (a tensor, or a sequence or mapping of tensors)."""
    if isinstance(batch, torch.Tensor):
        return len(batch)
    return num_samples(next(iter(batch.values() if isinstance(batch, Mapping) else batch)))


def move(batch: Any, device: Any) -> Any:
    """``batch`` with its tensors on ``device``; ``batch`` itself if ``device`` is None."""
    if device is None:
        return batch
    if isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, Mapping):
        return {key: move(value, device) for key, value in batch.items()}
    return [move(value, device) for value in batch]
