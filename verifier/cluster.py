"""Ranks that somebody else starts: ``torchrun ... -m verifier.worker --scenario FILE --out DIR``, on any cluster.

Each rank finds its place in the environment that torchrun (or Slurm, with the same names) sets, and writes its
recording below DIR, which all hosts must share. Rank 0 also runs the single process, beside it. ``lockstep judge`` then
reads all of it.

Special here: nothing watches the ranks from outside. A rank that hangs is ended by whoever started it; its board and
its recording up to its last act are then all that is known of it.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import subprocess
import sys
from pathlib import Path

from verifier import devices
from verifier.launcher import STACK_SIGNAL
from verifier.nodes import place
from verifier.scenario import Scenario


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m verifier.worker", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--scenario", type=Path, required=True, help="a scenario.json, made by lockstep verify --out")
    parser.add_argument("--out", type=Path, help="where recordings go; by default beside the scenario")
    parser.add_argument("--reference", action="store_true", help="be the single process, and no rank")
    given = parser.parse_args(words)
    if not given.scenario.is_file():
        parser.error(f"there is no file '{given.scenario}'. Give a scenario.json, made by lockstep verify --out RUN.")
    scenario, out = Scenario.load(given.scenario.parent), given.out or given.scenario.parent
    if given.reference:
        from verifier.run.reference import run_reference

        devices.settle(scenario)
        run_reference(scenario, out / "reference" / "rank0")
        return 0
    if missing := [name for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]:
        parser.error(f"{', '.join(missing)} not set in the environment: start it with torchrun")
    if int(os.environ["WORLD_SIZE"]) != scenario.world_size:
        parser.error(
            f"this scenario is for {scenario.world_size} ranks, and torchrun started {os.environ['WORLD_SIZE']}"
        )
    if (journal := out / "subject" / f"rank{os.environ['RANK']}" / "journal.jsonl").exists():
        parser.error(f"there is a recording in '{journal.parent}' already. Remove it, or give --out another.")
    be_rank(scenario, out)
    return 0


def be_rank(scenario: Scenario, out: Path) -> None:
    """Run one rank to its end. Does not return, because the strategy's leftovers could keep the process alive."""
    import torch
    import torch.distributed as dist

    from verifier.run.acts import run_rank

    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    if one_host := os.environ.get("LOCAL_WORLD_SIZE") == os.environ["WORLD_SIZE"]:
        os.environ.update(place(scenario, rank, devices.num_gpus(scenario)))
    devices.settle(scenario, one_host=one_host)
    folder = out / "subject" / f"rank{rank}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "stack.txt").open("w") as stack:
        faulthandler.register(STACK_SIGNAL, stack, all_threads=True)
        reference = _start_reference(scenario, out) if rank == 0 else None
        store, _, _ = next(dist.rendezvous("env://"))
        run_rank(scenario, rank, dist.PrefixStore(f"lockstep/{scenario.name}", store), folder)
        if reference is not None:
            reference.wait()
            if not (out / "launch.json").exists():
                (out / "launch.json").write_text(json.dumps({"members": []}), encoding="utf-8")
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)  # a correct run may hang at teardown


def _start_reference(scenario: Scenario, out: Path) -> subprocess.Popen[bytes]:
    if not (out / "scenario.json").exists():
        scenario.save(out)
    alone = {n: v for n, v in os.environ.items() if n not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "GROUP_WORLD_SIZE")}
    words = [sys.executable, "-m", "verifier.worker", "--reference", "--scenario", str(out / "scenario.json")]
    return subprocess.Popen([*words, "--out", str(out)], env=alone)
