"""What is trained: a model, its data, its loss. The same code serves the ranks and the single process.

Special here: data is a function of (seed, step) alone: one large batch for all ranks, of which each rank takes its
slice. So ranks see different samples, and the single process sees exactly their union.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch import nn

from verifier import catalogue
from verifier.scenario import ADAMW_LR, SGD_LR, SGD_MOMENTUM, Scenario
from verifier.uncompiled import uncompiled

Watcher = Callable[[str, torch.Tensor], None]


def column_major(weight: torch.Tensor) -> nn.Parameter:
    """The same square matrix, in column-major order."""
    return nn.Parameter(torch.empty_like(weight.detach()).t().copy_(weight.detach()))


class Workload(ABC):
    """A model, its data, its loss. One instance per process and scenario."""

    exact: ClassVar[bool] = False  # every number is exact in its dtype, whatever the order of sums
    rows_may_turn: ClassVar[bool] = False  # the effect of another row order is measured: in narrow dtypes it shows

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.device = torch.device(scenario.device)  # a GPU: this process's current one

    def placed(self, rank: int | None) -> nn.Module:
        """The model on its device, built from the CPU's random numbers whatever the device."""
        return self.model(rank).to(self.device)

    @abstractmethod
    def model(self, rank: int | None) -> nn.Module:
        """Build the model from torch's current seed. ``rank`` is None for the single process.

        Rank may change *when* gradients become ready, never what they are.
        """

    def in_one_order(self, model: nn.Module) -> None:
        """Make ``model`` run its layers in one order on all ranks, for strategies that disclaim ``branch_order``."""

    @abstractmethod
    def batch(self, step: int, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
        """The large batch of ``step``: inputs first, targets last, ``scenario.samples_per_step`` rows each."""

    @abstractmethod
    def loss(self, output: Any, target: torch.Tensor) -> torch.Tensor:
        """The mean over the rows given."""

    def call(self, forward: Callable[..., Any], inputs: Sequence[torch.Tensor]) -> Any:
        """Call ``forward`` with ``inputs``; a model may take some of them by name."""
        return forward(*inputs)

    def require_alike(self, output: Any) -> None:
        """Raise TypeError if the wrapped model returned a type that the model itself never returns."""
        if not isinstance(output, torch.Tensor):
            raise TypeError(f"the wrapped model returned a {type(output).__name__}; the model itself returns a Tensor")

    def optimizer(self) -> tuple[type[torch.optim.Optimizer], dict[str, Any]]:
        """SGD with momentum, or AdamW, and its options. SGD first: Adam hides wrong scales."""
        decay = {"weight_decay": self.scenario.weight_decay} if self.scenario.weight_decay else {}
        if self.scenario.optimizer == "adamw":
            others = {"betas": self.scenario.betas, "eps": self.scenario.eps}
            return torch.optim.AdamW, {"lr": ADAMW_LR, **decay, **{k: v for k, v in others.items() if v is not None}}
        return torch.optim.SGD, {"lr": SGD_LR, "momentum": SGD_MOMENTUM, **decay}

    def begin(self, model: nn.Module) -> None:
        """Prepare the bare model before it is wrapped: freeze what will be unfrozen later."""

    def change(self, model: nn.Module) -> None:
        """Change the bare model under the wrapper, for ``change_after``; the single process does the same."""
        raise NotImplementedError(f"workload {self.scenario.workload} has no change")

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Figures of the bare model after the last step. Empty by default."""
        return {}

    def large_batch(self, step: int) -> tuple[torch.Tensor, ...]:
        generator = torch.Generator().manual_seed(self.scenario.seed * 1_000_003 + step)
        with float32_by_default():
            return tuple(tensor.to(self.device) for tensor in self.batch(step, generator))

    def micro_batch(self, step: int, micro: int, rank: int) -> tuple[torch.Tensor, ...]:
        """The slice of ``step``'s large batch that ``rank`` takes as its ``micro``-th micro-batch."""
        size = self.scenario.samples_per_micro_batch
        start = (rank * self.scenario.num_micro_batches + micro) * size
        return tuple(tensor[start : start + size] for tensor in self.large_batch(step))

    def everybodys_micro_batch(self, step: int, micro: int) -> tuple[torch.Tensor, ...]:
        """The ``micro``-th micro-batches of all ranks, concatenated."""
        each = [self.micro_batch(step, micro, rank) for rank in range(self.scenario.world_size)]
        return tuple(torch.cat(parts) for parts in zip(*each, strict=True))

    @contextmanager
    def watching(self, watcher: Watcher, leaving: Watcher | None = None) -> Iterator[None]:
        """While inside, call ``watcher(name, buffer)`` for buffers that a forward finds, before it changes them, and
        ``leaving(name, buffer)`` for what it leaves in them, if the model reports that.

        Uses globals, because wrappers copy models, and a copy must report as well.
        """
        global _watcher, _leaving
        _watcher, _leaving = watcher, leaving
        try:
            yield
        finally:
            _watcher = _leaving = None


@contextmanager
def float32_by_default() -> Iterator[None]:
    """While inside, torch's default dtype is float32, whatever default a strategy has set."""
    theirs = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(theirs)


_watcher: Watcher | None = None
_leaving: Watcher | None = None


@uncompiled
def saw(name: str, buffer: torch.Tensor) -> None:
    """Called by models at the start of a forward, for each buffer that must be equal on all ranks."""
    if _watcher is not None:
        _watcher(name, buffer)


@uncompiled
def saw_buffers(model: nn.Module) -> None:
    """Called by ``model`` at the start of a forward: ``saw`` for each of its buffers.

    A strategy may fetch those of a module that has pre-hooks just in time: they are seen when its last one has run.
    """
    for prefix, module in model.named_modules():
        names = [(f"{prefix}.{name}" if prefix else name, name) for name, _ in module.named_buffers(recurse=False)]
        if names and module is not model and module._forward_pre_hooks:
            _see_at_its_entrance(module, names)
        else:
            for name, own in names:
                saw(name, getattr(module, own))


def _see_at_its_entrance(module: nn.Module, names: list[tuple[str, str]]) -> None:
    def begins(module: nn.Module, _: Any) -> None:
        handle.remove()
        for name, own in names:
            saw(name, getattr(module, own))

    handle = module.register_forward_pre_hook(begins)


@uncompiled
def left(name: str, buffer: torch.Tensor) -> None:
    """Called by models at the end of a forward, for each buffer that it may have changed."""
    if _leaving is not None:
        _leaving(name, buffer)


def load(scenario: Scenario) -> Workload:
    """The workload of ``scenario``; for one rank run alone, that of all the ranks whose samples it takes."""
    cls: type[Workload] = catalogue.WORKLOADS.load(scenario.workload).WORKLOAD
    if scenario.alone_for is not None:
        scenario = scenario.model_copy(update={"world_size": scenario.alone_for, "alone_for": None})
    return cls(scenario)
