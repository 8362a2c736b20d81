"""One rank's replica as the lab trains it: a model under a strategy, its batch, its optimizer, one step at a time.

Special here: ``alone=True`` puts every rank in a process group of its own. The strategy then does everything except
communicate, so the difference from a normal step is communication, and not the strategy's own work.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from ddp_core.arguments import filled
from ddp_core.comm import Comm
from ddp_core.driver import Driver
from ddp_core.recognition import drive
from verifier.lab.workloads import LabWorkload, workload
from verifier.request import StrategyRef
from verifier.run.loading import load_strategy

_groups: dict[int, Any] = {}


def own_group() -> Any:
    """A process group of this rank alone. Collective: every rank makes the groups of all ranks."""
    if not _groups:
        for rank in range(dist.get_world_size()):
            _groups[rank] = dist.new_group([rank])
    return _groups[dist.get_rank()]


class Replica:
    """If ``strategy`` is None, it is the bare model, without synchronisation."""

    def __init__(
        self,
        name: str,
        strategy: StrategyRef | None = None,
        *,
        alone: bool = False,
        device: str = "cpu",
        num_micro_batches: int = 1,
    ) -> None:
        torch.manual_seed(0)
        self.work: LabWorkload = workload(name)
        self.device = torch.device(device, torch.cuda.current_device()) if device == "cuda" else torch.device("cpu")
        self.model = self.work.model().to(self.device)
        self.inputs, self.target = (part.to(self.device) for part in self.work.batch(dist.get_rank()))
        self.num_micro_batches, self.began = num_micro_batches, 0.0
        self.driver = self._wrapped(strategy, alone)
        parameters = [p for _, p in self.driver.named_parameters()]
        self.optimizer = self.driver.make_optimizer(torch.optim.SGD, parameters, lr=1e-4)

    def _wrapped(self, strategy: StrategyRef | None, alone: bool) -> Driver:
        if strategy is None:
            return Driver(self.model, self.model)
        loaded = load_strategy(strategy, Path.cwd())
        options = dict(loaded.options)
        if alone:
            options |= self._alone(loaded.wrap)
        options = filled(loaded.wrap, options, self.model, None)
        return drive(loaded.wrap(self.model, **options), self.model, companions=loaded.companions)

    def _alone(self, wrap: Callable[..., Any]) -> dict[str, Any]:
        own_name = wrap.__module__.rpartition(".")[2]
        if own_name == "torch_ddp":
            return {"process_group": own_group()}
        takes = inspect.signature(wrap).parameters
        if "comm" in takes or "options" in takes:
            return {"comm": Comm(own_group())}
        raise TypeError(f"{wrap.__module__} takes no process group of its own: it cannot be run without communication")

    def forward(self) -> torch.Tensor:
        return self.work.loss(self.driver.forward(self.inputs), self.target)

    def step(self) -> None:
        """Run one optimizer step: zero_grad, forward and backward of every micro-batch, synchronised, step."""
        self.driver.start_step(self.optimizer)
        self.driver.zero_grad(self.optimizer)
        for micro in range(self.num_micro_batches):
            last = micro == self.num_micro_batches - 1
            with nullcontext() if last else self.driver.no_sync():
                self.driver.backward(self.forward() / self.num_micro_batches)
        self.driver.before_step()
        self.driver.step(self.optimizer)
        self.driver.after_step()

    def settle(self) -> None:
        """Wait for the device; nothing to do on the CPU."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def seconds_a_step(self, steps: int) -> float:
        """The mean seconds of ``steps`` steps in a row, which all ranks begin together."""
        dist.barrier()
        begun = time.perf_counter()
        for _ in range(steps):
            self.step()
        self.settle()
        return (time.perf_counter() - begun) / steps
