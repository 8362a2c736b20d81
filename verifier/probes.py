"""What the backend's collectives really do: small questions with known answers, each asked of fresh ranks.

``python -m verifier.probes WORLD_SIZE`` prints the answers as JSON; ``verifier.doctor`` runs it and reads them.

Special here: some of what backends do is wrong without an error, and some of it ends the process or hangs. So every
question has its own processes, a deadline, and an answer in one word. A question is *relied on* if training with a
correct strategy needs it; the others show where a strategy must take care itself.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

from verifier.files import write_atomically
from verifier.forkserver.child import die_with_parent

DEADLINE_S = 8.0
HANG_S = 3.0  # for questions where a hang is an expected answer


@dataclass(frozen=True)
class Probe:
    """``ask(rank, world_size)`` returns what this rank got and what it should have got."""

    question: str
    relied_on: bool
    ask: Callable[[int, int], tuple[Any, Any]]
    advice: str = ""  # what a strategy does if the answer is not "right"


PROBES: list[Probe] = []


def probe(question: str, *, relied_on: bool = False, advice: str = "") -> Callable[..., Any]:
    def add(ask: Callable[[int, int], tuple[Any, Any]]) -> Any:
        PROBES.append(Probe(question, relied_on, ask, advice))
        return ask

    return add


def _mine(rank: int, dtype: torch.dtype = torch.float32, numel: int = 7) -> torch.Tensor:
    return (torch.arange(numel) + 1 + 10 * rank).to(dtype)


def _sum(size: int, dtype: torch.dtype = torch.float32, numel: int = 7) -> torch.Tensor:
    return sum((_mine(rank, dtype, numel) for rank in range(size)), torch.zeros(numel, dtype=dtype))


def _all_reduced(mine: torch.Tensor, op: Any = ReduceOp.SUM) -> torch.Tensor:
    dist.all_reduce(mine, op=op)
    return mine


for _dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64):
    probe(f"all_reduce SUM of {str(_dtype)[6:]}, odd size", relied_on=_dtype in (torch.float32, torch.float64))(
        lambda rank, size, dtype=_dtype: (_all_reduced(_mine(rank, dtype)), _sum(size, dtype))
    )


@probe("all_reduce, async_op=True, then wait", relied_on=True)
def _(rank: int, size: int) -> Any:
    tensors = [_mine(rank) for _ in range(3)]
    for work in [dist.all_reduce(tensor, async_op=True) for tensor in tensors]:
        work.wait()
    return torch.stack(tensors), torch.stack([_sum(size)] * 3)


@probe("broadcast from the last rank", relied_on=True)
def _(rank: int, size: int) -> Any:
    mine = _mine(rank)
    dist.broadcast(mine, src=size - 1)
    return mine, _mine(size - 1)


@probe("all_gather", relied_on=True)
def _(rank: int, size: int) -> Any:
    parts = [torch.zeros(7) for _ in range(size)]
    dist.all_gather(parts, _mine(rank))
    return torch.stack(parts), torch.stack([_mine(r) for r in range(size)])


@probe("reduce_scatter_tensor", relied_on=True)
def _(rank: int, size: int) -> Any:
    part = torch.zeros(2)
    dist.reduce_scatter_tensor(part, _mine(rank, numel=2 * size))
    return part, _sum(size, numel=2 * size)[2 * rank : 2 * rank + 2]


@probe("reduce: the root's result", relied_on=True)
def _(rank: int, size: int) -> Any:
    mine = _mine(rank)
    dist.reduce(mine, dst=0)
    return (mine, _sum(size)) if rank == 0 else (0, 0)


@probe("reduce: the others' tensors stay as they were", advice="do not read what you sent to a root; broadcast it")
def _(rank: int, size: int) -> Any:
    mine = _mine(rank)
    dist.reduce(mine, dst=0)
    return (0, 0) if rank == 0 else (mine, _mine(rank))


@probe("send and recv", relied_on=True)
def _(rank: int, size: int) -> Any:
    got = torch.zeros(7)
    if rank == 0:
        dist.send(_mine(0), dst=1)
        return 0, 0
    if rank == 1:
        dist.recv(got, src=0)
        return got, _mine(0)
    return 0, 0


@probe("a group of one: what goes in comes out, odd size", relied_on=True)
def _(rank: int, size: int) -> Any:
    groups = [dist.new_group([member]) for member in range(size)]
    mine = _mine(rank, numel=13)
    dist.all_reduce(mine, group=groups[rank])
    return mine, _mine(rank, numel=13)


@probe("all_reduce of no elements, and of a scalar", relied_on=True)
def _(rank: int, size: int) -> Any:
    _all_reduced(torch.empty(0))
    return _all_reduced(torch.tensor(1.0 + rank)), torch.tensor(float(sum(range(1, size + 1))))


@probe("all_reduce AVG", advice="sum, then divide by the world size")
def _(rank: int, size: int) -> Any:
    return _all_reduced(_mine(rank), ReduceOp.AVG), _sum(size) / size


@probe("all_reduce PREMUL_SUM by 1/2", advice="multiply before the sum")
def _(rank: int, size: int) -> Any:
    return _all_reduced(_mine(rank), dist._make_nccl_premul_sum(0.5)), _sum(size) / 2


@probe("all_reduce SUM of complex64", advice="reduce torch.view_as_real")
def _(rank: int, size: int) -> Any:
    return _all_reduced(_mine(rank) * (1 + 2j)), _sum(size) * (1 + 2j)


@probe("all_reduce SUM of bool is logical or", advice="reduce uint8 with MAX")
def _(rank: int, size: int) -> Any:
    return _all_reduced(torch.tensor([True, rank == 0, False])), torch.tensor([True, True, False])


@probe("all_reduce MAX of bool", advice="reduce uint8 with MAX")
def _(rank: int, size: int) -> Any:
    return _all_reduced(torch.tensor([rank == 0, False]), ReduceOp.MAX), torch.tensor([True, False])


@probe("all_reduce BAND of int64", advice="reduce a 0 or 1 with MIN")
def _(rank: int, size: int) -> Any:
    return _all_reduced(torch.tensor([7 if rank else 5]), ReduceOp.BAND), torch.tensor([5])


STRIDED = "make it contiguous, reduce that, copy it back"


@probe("all_reduce of a strided view, x[:, 0]", advice=STRIDED)
def _(rank: int, size: int) -> Any:
    whole = torch.stack([_mine(rank), torch.zeros(7)], 1)
    dist.all_reduce(whole[:, 0])
    return whole, torch.stack([_sum(size), torch.zeros(7)], 1)


@probe("broadcast of a strided view, x[:, 0]", advice=STRIDED)
def _(rank: int, size: int) -> Any:
    whole = torch.stack([_mine(rank), torch.zeros(7)], 1)
    dist.broadcast(whole[:, 0], src=0)
    return whole, torch.stack([_mine(0), torch.zeros(7)], 1)


def _refuses(mine: torch.Tensor) -> tuple[Any, Any]:
    """Whether members that do not agree get an error, which is the right answer."""
    try:
        dist.all_reduce(mine)
    except RuntimeError:
        return 0, 0
    return "went on", "an error"


@probe("members with different dtypes are told so", advice="LS301 sees it; agree on the dtype before the first step")
def _(rank: int, size: int) -> Any:
    return _refuses(_mine(rank, torch.int32 if rank == 1 else torch.float32))


@probe("members with different shapes of one size are told so", advice="LS301 sees what is inside, where tagged")
def _(rank: int, size: int) -> Any:
    return _refuses(_mine(rank, numel=6).view((2, 3) if rank == 1 else (3, 2)))


@probe("members with different sizes are told so", advice="LS301 names both; make sizes equal")
def _(rank: int, size: int) -> Any:
    return _refuses(_mine(rank, numel=8 if rank == 1 else 6))


def run(one: Probe, size: int) -> dict[str, Any]:
    """Ask ``one`` of ``size`` fresh ranks; the worst answer counts."""
    answers, ends, late = _gather(one, size)
    answer, detail = "right", ""
    if late and not ends:
        answer, detail = "hangs", f"rank {min(late)} did not come back"
    elif ends:
        answer, detail = "ends the process", ", ".join(f"rank {r}: {how}" for r, how in sorted(ends.items()))
    for kind in ("refused", "wrong"):
        told = next((f"rank {rank}: {why}" for rank, (got, why) in enumerate(answers) if got == kind), None)
        if told is not None and answer in ("right", "refused"):
            answer, detail = kind, told
    facts = {"question": one.question, "relied_on": one.relied_on, "answer": answer}
    return facts | {"detail": detail, "advice": one.advice}


def _gather(one: Probe, size: int) -> tuple[list[tuple[str, str]], dict[int, str], list[int]]:
    """Each rank's answer; how the ranks that failed ended; the ranks that did not end in time."""
    with tempfile.TemporaryDirectory(prefix="lockstep-doctor-") as name:
        folder = Path(name)
        waiting = {_fork(one, rank, size, folder): rank for rank in range(size)}
        deadline, ends = time.monotonic() + (DEADLINE_S if one.relied_on else HANG_S), dict[int, str]()
        while waiting and time.monotonic() < deadline:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                time.sleep(0.002)
                continue
            code = os.waitstatus_to_exitcode(status)
            if code:
                ends[waiting[pid]] = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            del waiting[pid]
        for pid in waiting:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        return [_read(folder / f"{rank}.json") for rank in range(size)], ends, list(waiting.values())


def _read(path: Path) -> tuple[str, str]:
    if not path.exists():
        return "none", ""
    kind, told = json.loads(path.read_text(encoding="utf-8"))
    return kind, told


def _fork(one: Probe, rank: int, size: int, folder: Path) -> int:
    parent, pid = os.getpid(), os.fork()
    if pid:
        return pid
    try:
        die_with_parent(parent)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        store = dist.FileStore(str(folder / "store"), size)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=timedelta(seconds=DEADLINE_S))
        answer = _ask(one, rank, size)
        write_atomically(folder / f"{rank}.json", json.dumps(answer), durable=False)  # it may be killed at any moment
        dist.barrier()  # a rank that leaves early would end the others' collectives
    except BaseException:
        os._exit(0 if (folder / f"{rank}.json").exists() else 1)
    os._exit(0)


def _ask(one: Probe, rank: int, size: int) -> tuple[str, str]:
    try:
        got, expected = one.ask(rank, size)
    except (RuntimeError, ValueError, TypeError) as error:
        return "refused", str(error).strip().splitlines()[0][:160]
    same = torch.equal(got, expected) if isinstance(got, torch.Tensor) else got == expected
    return ("right", "") if same else ("wrong", f"{_short(got)} instead of {_short(expected)}")


def _short(value: Any) -> str:
    text = str(value.tolist() if isinstance(value, torch.Tensor) else value)
    return text if len(text) <= 60 else text[:57] + "..."


def main() -> None:
    torch.set_num_threads(1)
    size = int(sys.argv[1])
    asked = [run(one, size) for one in PROBES]  # first: looking for GPUs starts a driver, which forbids forking
    devices = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    backends = [name for name in ("gloo", "nccl", "mpi", "ucc") if getattr(dist, f"is_{name}_available")()]
    print(json.dumps({"devices": devices, "backends": backends, "probes": asked}))


if __name__ == "__main__":
    main()
