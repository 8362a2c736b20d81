"""Time of a cold ``lockstep verify``, relative to ``torchrun`` on a script that does one all-reduce.

Special here: a speed is a ratio. The two commands alternate in one run, so both meet the same noise; the result is the
median of the pairwise ratios, with its spread. Our targets: *quick* on 2 ranks at most 1, *standard* on 4 ranks at
most 6, *thorough* on 4 at most 60.

    python benchmarks/cold_start.py [PAIRS] [--profile quick] [--world-size 2]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HELLO = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
dist.destroy_process_group()
"""


def seconds(command: list[str]) -> float:
    begun = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pairs", nargs="?", type=int, default=7)
    parser.add_argument("--profile", default="quick", choices=("quick", "standard", "thorough"))
    parser.add_argument("--world-size", type=int, default=2)
    words = parser.parse_args()
    what = ["--world-size", str(words.world_size), "--profile", words.profile]
    with tempfile.TemporaryDirectory() as folder:
        hello = Path(folder, "hello.py")
        hello.write_text(HELLO)
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", str(hello)]
        verify = [sys.executable, "-m", "verifier", "verify", "bucketed", *what]
        seconds(torchrun), seconds(verify)  # warm the page cache
        pairs = [(seconds(verify), seconds(torchrun)) for _ in range(words.pairs)]
    ratios = sorted(ours / theirs for ours, theirs in pairs)
    ours, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(f"lockstep verify, {words.profile}, {words.world_size} ranks: median {ours:.2f} s")
    print(f"torchrun, one all-reduce, 2 ranks: median {theirs:.2f} s")
    print(
        f"ratio: median {statistics.median(ratios):.2f}, from {ratios[0]:.2f} to {ratios[-1]:.2f}, {len(ratios)} pairs"
    )


if __name__ == "__main__":
    main()
