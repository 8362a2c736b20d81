"""Scenarios under a launcher, and what each leaves in the run's folder: how its processes ended, and how long it took.

Special here: ``quick`` runs its scenarios *together*, in the same processes (``acts``), which takes a third of the
time. The first scenario in such processes is as good as alone. Those after it are in ``shared``: their result counts if
nothing was found in them, and any finding must be confirmed in processes of their own.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from verifier import lines, reading
from verifier.files import write_atomically
from verifier.judge.alone import FOLDER, scenario_alone, scenarios_nudged
from verifier.judge.own_rule import depends_on_roundings, is_summed, may_matter, needs_one_rank
from verifier.launcher import Launcher, place_of
from verifier.scenario import Scenario

SIMPLEST = "plain"  # a strategy that raises one error in this and all earlier scenarios, before a step, does so in all
AGAIN = "~again"  # the folder beside a scenario's own, while it is tried in another way


class Performance:
    """One run's scenarios, until ``deadline`` (``time.monotonic()``). ``tell`` is called with what is being done."""

    def __init__(self, launcher: Launcher, out_dir: Path, deadline: float, tell: Callable[[str], None]) -> None:
        self._launcher, self._folder, self._deadline, self._tell = launcher, out_dir / "scenarios", deadline, tell
        self.shared: set[str] = set()  # recorded in processes that had already run an earlier scenario

    def take_back(self, scenarios: list[Scenario]) -> list[Scenario]:
        """Return those of ``scenarios`` that are to be run again. Their recordings are no longer evidence."""
        for name in self.shared:
            (self._folder / name / "launch.json").unlink(missing_ok=True)
        return [scenario for scenario in scenarios if scenario.name in self.shared]

    def run_apart(self, scenarios: list[Scenario]) -> None:
        """Run each in processes of its own, until one shows that no later one can do better."""
        raised = set[str | None]()
        for number, scenario in enumerate(scenarios, 1):
            if (left := self._deadline - time.monotonic()) <= 0:
                return
            self._tell(f"scenario {number} of {len(scenarios)}: {scenario.name} on {scenario.world_size} ranks")
            folder = self._prepare(scenario)
            begun = time.monotonic()
            ended = self._launcher.run(scenario, folder, min(left, scenario.timeout_s))
            goes_on = self._file(scenario, ended, time.monotonic() - begun)
            if _failed_on_what_rank_0_saved(scenario, folder):
                goes_on = self._load_nothing(scenario, folder) or goes_on
            raised.update(map(_raised_at_once, lines.outcomes(folder, scenario.world_size)))
            if not goes_on or (scenario.situation == SIMPLEST and len(raised) == 1 and None not in raised):
                return

    def run_together(self, scenarios: list[Scenario]) -> None:
        """Run the scenarios in the same processes as far as possible; go on from there in new processes."""
        waiting = sorted(scenarios, key=_by_what_is_asked)
        while waiting and (left := self._deadline - time.monotonic()) > 0:
            first, names = len(scenarios) - len(waiting) + 1, ", ".join(scenario.name for scenario in waiting)
            numbers = f"{first} to {len(scenarios)}" if len(waiting) > 1 else f"{first}"
            self._tell(f"scenario {numbers} of {len(scenarios)}: {names} on {scenarios[0].world_size} ranks")
            folders = [self._prepare(scenario) for scenario in waiting]
            begun = time.monotonic()
            acts = self._launcher.run_together(waiting, folders, left)  # type: ignore[attr-defined]
            seconds = (time.monotonic() - begun) / len(acts)
            self.shared.update(scenario.name for scenario in waiting[1 : len(acts)])
            if acts[0].get("lost") and len(waiting) > 1:  # it is not known in which of them
                self.shared.update(scenario.name for scenario in waiting)
            for scenario, ended in zip(waiting, acts, strict=False):
                if not self._file(scenario, ended, seconds):
                    return
            waiting = waiting[len(acts) :]

    def run_alone(self, scenarios: list[Scenario]) -> None:
        """Run on one rank, with everybody's samples, those whose steps may rightly differ from a single process's."""
        for scenario in scenarios:
            left, folder = self._deadline - time.monotonic(), self._folder / scenario.name
            if not may_matter(scenario) or left <= 0 or not _may_have_steps_of_its_own(folder):
                continue
            recording = reading.read(folder)
            if not needs_one_rank(recording):
                continue
            self._tell(f"{scenario.name} once more, on one rank with everybody's samples, whose steps these should be")
            alone, folder = scenario_alone(scenario, summed=is_summed(recording)), folder / FOLDER
            alone.save(folder)
            ended = self._launcher.run(alone, folder, min(left, scenario.timeout_s))
            if ended.get("lost") or _hung(ended):  # the next one would hang as well
                return
            if depends_on_roundings(reading.read(folder.parent)):
                self._run_nudged(scenario, folder.parent)

    def _run_nudged(self, scenario: Scenario, folder: Path) -> None:
        self._tell(f"{scenario.name} on one rank twice more, to measure what its update rule makes of roundings")
        for name, nudged in scenarios_nudged(scenario).items():
            if (left := self._deadline - time.monotonic()) > 0:
                nudged.save(folder / name)
                self._launcher.run(nudged, folder / name, min(left, scenario.timeout_s))

    def _load_nothing(self, scenario: Scenario, folder: Path) -> bool:
        """Run again; ranks that saved nothing now load nothing. Keep the run, and return True, if it completes."""
        if (left := self._deadline - time.monotonic()) <= 0:
            return False
        self._tell(f"{scenario.name} once more: ranks that have saved nothing load nothing")
        again = scenario.model_copy(update={"own_saves": True})
        other = self._prepare(again, folder.with_name(f"{folder.name}{AGAIN}"))
        begun = time.monotonic()
        ended = self._launcher.run(again, other, min(left, again.timeout_s))
        if came := all(words.get("status") == "completed" for words in lines.outcomes(other, again.world_size)):
            shutil.rmtree(folder)
            other.rename(folder)
            self._file(again, ended, time.monotonic() - begun)
        else:
            shutil.rmtree(other)
        return came

    def _prepare(self, scenario: Scenario, folder: Path | None = None) -> Path:
        """Make an empty folder for ``scenario``, and return it."""
        folder = folder or self._folder / scenario.name
        shutil.rmtree(folder, ignore_errors=True)
        scenario.save(folder)
        return folder

    def _file(self, scenario: Scenario, ended: dict[str, Any], seconds: float) -> bool:
        """Write down how ``scenario`` ended. Return False if no later scenario can do better."""
        folder = self._folder / scenario.name
        scenario.save(folder)  # again, because a strategy that writes into our folders may have changed it
        text = json.dumps({**ended, "seconds": round(seconds, 4)}, indent=1)
        write_atomically(folder / "launch.json", text, durable=False)  # after a crash the run begins again
        last_words = lines.outcomes(folder, scenario.world_size)
        return not _hung(ended) and not ended.get("lost") and not all(map(_in_vain, last_words))


def _failed_on_what_rank_0_saved(scenario: Scenario, folder: Path) -> bool:
    """Return whether a rank loaded what rank 0 had saved, and not all completed. Loading nothing may then help."""
    outcomes = lines.outcomes(folder, scenario.world_size)
    if scenario.resume_after is None or all(words.get("status") == "completed" for words in outcomes):
        return False
    journals = [folder / place_of(f"rank {rank}") / "journal.jsonl" for rank in range(1, scenario.world_size)]
    return any(lines.TOOK_RANK_0S.encode() in lines.of(journal) for journal in journals)


def _in_vain(last_word: dict[str, Any]) -> bool:
    """Return whether the strategy could not even be tried, for a reason that holds in every scenario."""
    return last_word.get("when") == "on import" or last_word.get("error") == lines.UNDRIVABLE


def _raised_at_once(last_word: dict[str, Any]) -> str | None:
    """Return the kind of error that ended the strategy before anything was trained. None: there was none."""
    if last_word.get("when") not in (lines.WRAPPING, lines.MAKING_OPTIMIZER):
        return None
    return str(last_word.get("detail", "")).strip().rpartition("\n")[2].partition(":")[0]


def _hung(ended: dict[str, Any]) -> bool:
    return any((member["ended"] or "").startswith("hung") for member in ended["members"])


def _may_have_steps_of_its_own(folder: Path) -> bool:
    """Return whether rank 0's journal notes such steps. Loading a recording to find out would take longer."""
    journal = folder / place_of("rank 0") / "journal.jsonl"
    text = journal.read_bytes() if journal.is_file() else b""
    return any(word in text for word in (b'"own_rule"', b'"own_optimizer"', b'"average":"sum"', b'"average": "sum"'))


def _by_what_is_asked(scenario: Scenario) -> tuple[bool, bool]:
    """Sort key. First, as good as alone: what all checks read. Last: what may be refused, ending the processes."""
    return scenario.judged_by is not None, bool(scenario.needs)
