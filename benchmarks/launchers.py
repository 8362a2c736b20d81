"""Measures ranks' speed and size: a warm verdict against ``torchrun``, 64 ranks, memory per rank, containers.

Special here: a warm verdict is timed from the request to the report, with a fork server that has run before. It
alternates with ``torchrun`` on a script of one all-reduce. A contained verdict is timed from the request to the report,
with containers made for it and removed; it alternates with a bare ``docker run`` of the same image that imports torch.
Memory is the proportional set size (PSS) of the whole family of processes, sampled while ranks train; per extra rank
it is the slope between 2 ranks and many.

    python benchmarks/launchers.py [--pairs 7] [--ranks 64] [--memory-ranks 32]
    python benchmarks/launchers.py --contained [--pairs 7]      needs an engine, and: docker compose build rank
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

from benchmarks.cold_start import HELLO, seconds
from verifier import engine
from verifier.forkserver import family
from verifier.launcher import Launcher
from verifier.launchers.local import LocalLauncher
from verifier.request import Builtin, Request


def verdict_s(launcher: Launcher, world_size: int, **fields: object) -> float:
    """Seconds from the request to the verdict, which must be pass."""
    request = Request(strategy=Builtin(name="bucketed"), world_size=world_size, profile="quick", **fields)
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        engine.run(request, Path(folder), launcher=launcher).assert_pass()
        return time.perf_counter() - begun


def warm(launcher: Launcher, num_pairs: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        hello = Path(folder, "hello.py")
        hello.write_text(HELLO)
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", str(hello)]
        seconds(torchrun), verdict_s(launcher, 2)
        pairs = [(verdict_s(launcher, 2), seconds(torchrun)) for _ in range(num_pairs)]
    ours, theirs = [a for a, _ in pairs], [b for _, b in pairs]
    ratios = sorted(b / a for a, b in pairs)
    print(
        f"warm quick verdict, 2 ranks: median {statistics.median(ours):.2f} s, from {min(ours):.2f} to {max(ours):.2f}"
    )
    print(f"torchrun's hello, 2 ranks:   median {statistics.median(theirs):.2f} s")
    print(f"torchrun takes {statistics.median(ratios):.1f} times as long, from {ratios[0]:.1f} to {ratios[-1]:.1f}")


def contained(num_pairs: int) -> None:
    from verifier.launchers.docker import IMAGES, DockerLauncher

    bare = ["docker", "run", "--rm", "--network", "none", "--entrypoint", "python", IMAGES, "-c", "import torch"]

    def ours() -> float:
        begun = time.perf_counter()
        with DockerLauncher() as launcher:
            verdict_s(launcher, 2)
        return time.perf_counter() - begun

    seconds(bare), ours()
    pairs = [(ours(), seconds(bare)) for _ in range(num_pairs)]
    ratios = sorted(a / b for a, b in pairs)
    mine, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(f"contained quick verdict, 2 ranks: median {mine:.2f} s; bare docker run that imports torch: {theirs:.2f} s")
    print(f"ours takes {statistics.median(ratios):.1f} times as long, from {ratios[0]:.1f} to {ratios[-1]:.1f}")


def memory(launcher: Launcher, world_size: int) -> float:
    """The largest PSS of all processes together while ``world_size`` ranks train, in MiB."""
    samples, over = [0.0], threading.Event()

    def sample() -> None:
        while not over.wait(0.1):
            samples.append(sum(pss_mib(process.pid) for process in family.descendants(os.getpid())))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        verdict_s(launcher, world_size, checks=("LS101",))
    finally:
        over.set()
        thread.join()
    return max(samples)


def pss_mib(pid: int) -> float:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    return 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--memory-ranks", type=int, default=32)
    parser.add_argument("--contained", action="store_true", help="measure containers, and nothing else")
    chosen = parser.parse_args()
    if chosen.contained:
        contained(chosen.pairs)
        return
    with LocalLauncher() as launcher:
        warm(launcher, chosen.pairs)
        few, many = memory(launcher, 2), memory(launcher, chosen.memory_ranks)
        per_rank = (many - few) / (chosen.memory_ranks - 2)
        print(f"PSS of all processes: {few:.0f} MiB with 2 ranks, {many:.0f} MiB with {chosen.memory_ranks}: ", end="")
        print(f"{per_rank:.1f} MiB for each more")
        print(f"quick verdict on {chosen.ranks} ranks: {verdict_s(launcher, chosen.ranks):.1f} s")


if __name__ == "__main__":
    main()
