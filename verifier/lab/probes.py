"""Measurements on the ranks: messages of many sizes, a workload's compute, both at once, whole steps.

Special here: all measurements alternate in one run, round by round, in a random order that is equal on all ranks, so
that a prediction and its inputs have the same noise. Functions return raw seconds, one figure a round;
``verifier.lab.calibration`` reads them.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from verifier.lab.replica import Replica
from verifier.request import StrategyRef

Rounds = dict[Any, list[float]]
WARM_ROUNDS = 2  # they connect ranks, touch memory and settle the order of buckets
SMALL_BYTES = 65536


class Messages:
    """Times one all-reduce of each size; small ones many times in a row."""

    def __init__(self, sizes_bytes: Sequence[int], device: torch.device) -> None:
        self.buffers = {size: torch.zeros(max(size // 4, 1), device=device) for size in sizes_bytes}
        self.found: Rounds = {size: [] for size in sizes_bytes}

    def round(self, order: random.Random, keep: bool) -> None:
        for size in order.sample(list(self.buffers), len(self.buffers)):
            times = 20 if size <= SMALL_BYTES else 3 if size <= 2**20 else 1
            dist.barrier()
            begun = time.perf_counter()
            for _ in range(times):
                dist.all_reduce(self.buffers[size])
            if self.buffers[size].is_cuda:
                torch.cuda.synchronize()
            if keep:
                self.found[size].append((time.perf_counter() - begun) / times)


class Compute:
    """Times forward, backward and optimizer under the strategy without communication, and when gradients are ready.

    ``ready_s`` holds, by parameter in registration order, seconds from the start of the bare model's backward.
    """

    def __init__(self, bare: Replica, alone: Replica) -> None:
        self.bare, self.alone = bare, alone
        self.found: Rounds = {key: [] for key in ("forward_s", "backward_s", "optimizer_s", "bare_backward_s")}
        self.ready_s: list[list[float]] = []
        for parameter in bare.model.parameters():
            if parameter.requires_grad:
                self.ready_s.append([])
                parameter.register_post_accumulate_grad_hook(self._noting(self.ready_s[-1]))

    def _noting(self, times: list[float]) -> Any:
        return lambda _: times.append(time.perf_counter() - self.bare.began)

    def round(self, order: random.Random, keep: bool) -> None:
        num_before = len(self.ready_s[0])
        dist.barrier()
        seconds = {"bare_backward_s": backward(self.bare)["backward_s"]}
        self.bare.driver.step(self.bare.optimizer)
        dist.barrier()
        seconds |= backward(self.alone)
        begun = time.perf_counter()
        self.alone.driver.step(self.alone.optimizer)
        self.alone.driver.after_step()
        self.alone.settle()
        seconds["optimizer_s"] = time.perf_counter() - begun
        for key, value in seconds.items():
            self.found[key] += [value] if keep else []
        for times in self.ready_s:
            del times[num_before if not keep else len(times) :]


def backward(replica: Replica) -> dict[str, float]:
    """Run zero_grad, forward, and backward up to synchronised gradients; return the seconds of the last two."""
    begun = time.perf_counter()
    replica.driver.start_step(replica.optimizer)
    replica.driver.zero_grad(replica.optimizer)
    loss = replica.forward()
    replica.settle()
    replica.began = time.perf_counter()
    replica.driver.backward(loss)
    replica.driver.before_step()
    replica.settle()
    return {"forward_s": replica.began - begun, "backward_s": time.perf_counter() - replica.began}


class Both:
    """Times backward alone, one message alone, and the ends of both when started together.

    There is one message at a time, as in the cost model, and it takes about as long as backward. Several in flight
    would also share the cores with one another, and look slower beside backward than a bucket is.
    """

    def __init__(self, alone: Replica) -> None:
        self.alone = alone
        self.buffer = torch.zeros(2**18, device=alone.device)  # 1 MB, until the time of backward is known
        self.found: list[dict[str, float]] = []

    def _message_s(self) -> float:
        dist.barrier()
        begun = time.perf_counter()
        dist.all_reduce(self.buffer)
        self.alone.settle()
        return time.perf_counter() - begun

    def _decide(self, backward_s: float) -> None:
        """Set the size of the message to rank 0's choice, on every rank."""
        numel = torch.tensor([self.buffer.numel() * backward_s / self._message_s()], device=self.alone.device)
        dist.broadcast(numel, 0)
        self.buffer = torch.zeros(min(max(int(numel.item()), 2**14), 2**24), device=self.alone.device)

    def round(self, order: random.Random, keep: bool) -> None:
        dist.barrier()
        alone_s = backward(self.alone)["backward_s"]
        if not keep:
            self._decide(alone_s)
        message_s = self._message_s()
        self.alone.driver.zero_grad(self.alone.optimizer)
        loss = self.alone.forward()
        self.alone.settle()
        dist.barrier()
        begun = time.perf_counter()
        work = dist.all_reduce(self.buffer, async_op=True)
        ended = []
        if self.alone.device.type == "cpu":  # called by the transport's thread, while this one is in backward
            work.get_future().add_done_callback(lambda _: ended.append(time.perf_counter()))
        self.alone.driver.backward(loss)
        self.alone.driver.before_step()
        if self.alone.device.type == "cuda":
            torch.cuda.current_stream().synchronize()  # of compute only: NCCL has its own stream
        backward_end = time.perf_counter()
        work.wait()
        self.alone.settle()
        communication_end = ended[0] if ended else time.perf_counter()
        if keep:
            self.found.append({"backward_alone_s": alone_s, "communication_alone_s": message_s,
                               "backward_end_s": backward_end - begun,
                               "communication_end_s": communication_end - begun})  # fmt: skip


class Steps:
    """Times a whole step under each strategy, by its key."""

    def __init__(self, replicas: dict[str, Replica]) -> None:
        self.replicas = replicas
        self.found: Rounds = {key: [] for key in replicas}

    def round(self, order: random.Random, keep: bool) -> None:
        for key in order.sample(list(self.replicas), len(self.replicas)):
            replica = self.replicas[key]
            seconds = replica.seconds_a_step(replica.work.steps_per_round)
            if keep:
                self.found[key].append(seconds)


def _go_round(parts: Sequence[Any], num_rounds: int) -> None:
    order = random.Random(0)
    for number in range(num_rounds + WARM_ROUNDS):
        for part in parts:
            part.round(order, number >= WARM_ROUNDS)


def survey(
    name: str,
    strategy: StrategyRef,
    also: dict[str, StrategyRef | None],
    sizes_bytes: Sequence[int],
    num_rounds: int,
    device: str,
) -> dict[str, Any]:
    """Measure all that a prediction for ``strategy`` needs, and, in the same rounds, whole steps of ``also``."""
    bare, alone = Replica(name, device=device), Replica(name, strategy, alone=True, device=device)
    num_bytes = [p.numel() * p.element_size() for p in bare.model.parameters() if p.requires_grad]
    messages = Messages(sizes_bytes, bare.device)
    compute, both = Compute(bare, alone), Both(alone)
    whole = Steps({key: Replica(name, ref, device=device) for key, ref in also.items()})
    _go_round([messages, compute, both, whole], num_rounds)
    return {"messages": messages.found, **compute.found, "ready_s": compute.ready_s, "both": both.found,
            "num_bytes": num_bytes, "steps": whole.found}  # fmt: skip


def steps(
    name: str, strategies: dict[str, StrategyRef | None], num_rounds: int, device: str, num_micro_batches: int = 1
) -> Rounds:
    """Seconds of a whole step under each strategy; None is the bare model, without synchronisation."""
    whole = Steps({key: Replica(name, ref, device=device, num_micro_batches=num_micro_batches)
                   for key, ref in strategies.items()})  # fmt: skip
    _go_round([whole], num_rounds)
    return whole.found
