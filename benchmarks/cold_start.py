"""How long a person waits: ``lockstep verify`` cold, against ``torchrun`` on a script that does one all-reduce.

Special here: a speed is a ratio. The two commands alternate in one run, so both meet the same noise; the median of the
pairwise ratios is what counts, with its spread beside it.

    python benchmarks/cold_start.py [PAIRS]
"""

from __future__ import annotations

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


def main(num_pairs: int) -> None:
    python = sys.executable
    with tempfile.TemporaryDirectory() as folder:
        hello = Path(folder, "hello.py")
        hello.write_text(HELLO)
        torchrun = [python, "-m", "torch.distributed.run", "--nproc-per-node", "2", str(hello)]
        verify = [python, "-m", "verifier", "verify", "bucketed", "--world-size", "2", "--profile", "quick"]
        seconds(torchrun), seconds(verify)  # warm the page cache
        pairs = [(seconds(verify), seconds(torchrun)) for _ in range(num_pairs)]
    ratios = sorted(ours / theirs for ours, theirs in pairs)
    print(f"lockstep verify, quick, 2 ranks: median {statistics.median(ours for ours, _ in pairs):.2f} s")
    print(f"torchrun, one all-reduce:        median {statistics.median(theirs for _, theirs in pairs):.2f} s")
    print(f"ratio: median {statistics.median(ratios):.2f}, from {ratios[0]:.2f} to {ratios[-1]:.2f}, {num_pairs} pairs")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
