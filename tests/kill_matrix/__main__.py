"""``python -m tests.kill_matrix``: try everybody, say what is not as expected, write the page.

    python -m tests.kill_matrix --write docs/kill-matrix.md     the documentation's table (10 minutes on two cores)
    python -m tests.kill_matrix --only tied --only unused       subjects whose names contain a word
    python -m tests.kill_matrix --repeat 20                     seeds 0 to 19, world sizes 2, 3 and 4 in turn, every
                                                                second time with the observer's delays
    python -m tests.kill_matrix --repeat 21 --share 7           the same, a seventh of all in each round, in turn
    python -m tests.kill_matrix --repeat 20 --keep FOLDER       goes on where it was broken off; a FOLDER for each code
    python -m tests.kill_matrix ... --rounds docs/repetitions.md   adds a line for each round that is whole

Exit code 0: all as expected.
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from queue import SimpleQueue

from tests.kill_matrix.population import Subject, everybody
from tests.kill_matrix.rounds import code_digest, with_rounds
from tests.kill_matrix.running import Trial, keep, kept, try_subject
from tests.kill_matrix.table import page, summary
from verifier import engine
from verifier.files import write_atomically
from verifier.launcher import Launcher

DELAY_MS = 3.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.kill_matrix", description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", default=[], metavar="WORD", help="only names that contain this")
    parser.add_argument("--kind", action="append", default=[], help="fault, specimen, control or strategy")
    parser.add_argument(
        "--world-size", type=int, action="append", help="3, and 2, 3 and 4 in turn where rounds are repeated"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--delay", type=float, default=0.0, metavar="MS")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument(
        "--share", type=int, default=1, metavar="K", help="each round tries every K-th subject, in turn"
    )
    parser.add_argument("--jobs", type=int, default=2, help="verifications side by side")
    parser.add_argument(
        "--from", type=Path, dest="folder", help="the page of what was kept here, with --seed, running nothing"
    )
    parser.add_argument("--keep", type=Path, help="write trials here, and do not repeat those that are there already")
    parser.add_argument("--write", type=Path, help="write the table here")
    parser.add_argument("--rounds", type=Path, metavar="PAGE", help="add a line for each whole round to this page")
    words = parser.parse_args()
    chosen = [
        subject
        for subject in everybody()
        if (not words.only or any(word in subject.name for word in words.only))
        and (not words.kind or subject.kind in words.kind)
    ]
    if not chosen:
        parser.error("nobody of that name")
    if words.folder:
        found = [trial for subject in chosen if (trial := kept(subject, words.folder, words.seed)) is not None]
        absent = [subject for subject in chosen if kept(subject, words.folder, words.seed) is None]
        write_atomically(words.write, page(found, absent))
        print(summary(found))
        return 0 if all(trial.as_expected for trial in found) else 1
    sizes = words.world_size or ([3] if words.repeat == 1 else [2, 3, 4])
    rounds = [(sizes[0], words.seed, words.delay)]
    if words.repeat > 1:
        rounds = [(sizes[n % len(sizes)], words.seed + n, DELAY_MS * (n % 2)) for n in range(words.repeat)]
    begun, code = time.monotonic(), code_digest()
    share = words.share
    work = [(subject, *how) for n, how in enumerate(rounds) for subject in chosen[n % share :: share]]
    with ExitStack() as stack, ThreadPoolExecutor(words.jobs) as pool:
        launchers = SimpleQueue[Launcher]()
        for _ in range(words.jobs):
            launchers.put(stack.enter_context(engine.start_launcher("local")))
        trials = list(pool.map(partial(_try, launchers, words.keep), work))
    print(summary(trials))
    print(f"{len(trials)} verifications in {time.monotonic() - begun:.0f} s")
    if words.write:
        write_atomically(words.write, page(trials))
    if words.rounds:
        before = words.rounds.read_text() if words.rounds.exists() else ""
        write_atomically(words.rounds, with_rounds(before, trials, len(everybody()), code))
    return 0 if all(trial.as_expected for trial in trials) else 1


def _try(launchers: SimpleQueue[Launcher], folder: Path | None, work: tuple[Subject, int, int, float]) -> Trial:
    subject, world_size, seed, delay_ms = work
    if folder is not None and (before := kept(subject, folder, seed)) is not None:
        return before
    launcher = launchers.get()
    try:
        trial = try_subject(subject, launcher, world_size=world_size, seed=seed, delay_ms=delay_ms)
    finally:
        launchers.put(launcher)
    if folder is not None:
        keep(trial, folder)
    _tell(trial)
    return trial


def _tell(trial: Trial) -> None:
    leading = trial.leading
    if not trial.as_expected:
        print("NOT AS EXPECTED", trial.complaint(), flush=True)
    elif sys.stderr.isatty():
        print(f"{trial.subject.kind} {trial.subject.name}: as expected", file=sys.stderr)
    if leading is not None and leading.confidence >= 0.9 and leading.cause not in trial.subject.causes:
        expected = ", ".join(sorted(trial.subject.causes))
        print(f"CAUSE {trial.subject.name}: {leading.cause} ({leading.confidence:g}), expected {expected}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
