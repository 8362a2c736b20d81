"""Launch, record, judge: from a request to a report.

Special here: the three stages meet only through the folder on disk. ``judge`` takes the folder of a run made yesterday,
or on another machine, exactly as it takes the one just made.

    OUT/request.json   OUT/scenarios/<name>/...   OUT/report.json (written last, whole or not at all)
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from verifier import catalogue, reading
from verifier.errors import UsageError
from verifier.files import UNKEPT, alone_in, place_in_memory, read_model, write_atomically
from verifier.judge.deriving import with_derived
from verifier.judge.judging import load_checks, run_check
from verifier.launcher import CONTAINING, Launcher, LaunchError
from verifier.performance import Performance
from verifier.recording import Recording
from verifier.report.build import build_report
from verifier.report.model import Report
from verifier.request import FromFile, Request, Source
from verifier.scenario import Scenario
from verifier.situation import plan as plan_scenarios

Progress = Callable[[str], None]
FEW_RANKS = 8  # their recordings fit into memory


def plan(request: Request) -> list[Scenario]:
    """Return the scenarios that ``run`` would run. Fast, starts nothing, imports no torch.

    Raises:
        UsageError: the request cannot be carried out; the message names the value, the rule and the remedy.
    """
    scenarios = _planned(request)
    if isinstance(request.strategy, FromFile) and not Path(request.strategy.path).is_file():
        raise UsageError(
            f"there is no file '{request.strategy.path}'. Give the path of a Python file, then ':attribute'."
        )
    launcher_for(request)
    return scenarios


def launcher_for(request: Request) -> str:
    """Return the launcher that ``request`` gets: the one it names, or the best one here for what it sends.

    Raises:
        UsageError: it sends source, and nothing here contains it.
    """
    sent = isinstance(request.strategy, Source)
    if not sent or request.launcher in CONTAINING:
        return "local" if request.launcher == "auto" else request.launcher
    if request.launcher == "auto" and (container := contained_by()) is not None:
        return container
    if not request.trust:
        raise UsageError(
            "source sent along runs only where ranks are contained. Here nothing does: no container engine with the "
            "image for ranks (docker compose build rank) and no bubblewrap, or another launcher was asked for. "
            "If you trust this code with this machine, say so: --trust."
        )
    return "local" if request.launcher == "auto" else request.launcher


def contained_by() -> str | None:
    """Return the best launcher here that keeps what it runs from this machine. None: there is none."""
    return next((name for name in CONTAINING if catalogue.LAUNCHERS.load(name).available()), None)


def _planned(request: Request) -> list[Scenario]:
    """Return the scenarios of the request's profile, or those of them that the checks it names read."""
    scenarios = plan_scenarios(request)
    if request.checks is None:
        return scenarios
    named = [check for check in load_checks(request.checks) if not check.always]
    if not named:
        return scenarios
    return [scenario for scenario in scenarios if any(check.wants(scenario) for check in named)]


def start_launcher(name: str = "auto") -> Launcher:
    """Make a launcher, and begin to warm it up in the background. 'auto' is local: `launcher_for` knows a request."""
    launcher: Launcher = catalogue.LAUNCHERS.load("local" if name == "auto" else name).LAUNCHER()
    return launcher


def run(
    request: Request, out_dir: Path, *, progress: Progress | None = None, launcher: Launcher | None = None
) -> Report:
    """Carry out ``request``; leave recordings and report in ``out_dir``; return the report.

    Blocks. ``progress`` is called with a text on what is being done. A ``launcher`` given is used and not closed.

    Raises:
        UsageError: as ``plan``; or ``out_dir`` is another run's, holds something else, or cannot be made.
        LaunchError: ranks could not be started at all.
    """
    scenarios = plan(request)
    with alone_in(out_dir):
        return _run(request, scenarios, out_dir, progress or (lambda text: None), launcher)


def _run(
    request: Request, scenarios: list[Scenario], out_dir: Path, tell: Progress, launcher: Launcher | None
) -> Report:
    begun = time.monotonic()
    with contextlib.ExitStack() as stack:
        if launcher is None:
            launcher = stack.enter_context(start_launcher(launcher_for(request)))
        _prepare(out_dir, request)
        load_checks(request.checks)  # imported here, while the launcher warms up and nothing else is to be done
        performance = Performance(launcher, out_dir, begun + request.timeout_s, tell)
        if _may_share(request) and hasattr(launcher, "run_together"):
            performance.run_together(scenarios)
            performance.run_alone(scenarios)
            _file_request(out_dir, request)  # again: see Performance._file
            report = judge(out_dir, total_s=time.monotonic() - begun)
            if report.verdict == "pass" or not performance.shared:
                return report
            tell("asking again what is not right, in processes of its own")
            (out_dir / "report.json").unlink()
            scenarios = performance.take_back(scenarios)
        performance.run_apart(scenarios)
        performance.run_alone(scenarios)
    tell("judging")
    _file_request(out_dir, request)
    return judge(out_dir, total_s=time.monotonic() - begun)


def _may_share(request: Request) -> bool:
    """Return whether scenarios may share processes. Not with sent source: each is a package, importable only once."""
    return request.profile == "quick" and not isinstance(request.strategy, Source)


def _prepare(out_dir: Path, request: Request) -> None:
    """Make ``out_dir`` hold this run and nothing else; refuse a folder that holds anything but a run."""
    if out_dir.exists() and any(out_dir.iterdir()) and not (out_dir / "request.json").exists():
        raise UsageError(
            f"'{out_dir}' holds files that are not a Lockstep run. Choose an empty or new folder for --out."
        )
    shutil.rmtree(out_dir / "scenarios", ignore_errors=True)
    (out_dir / "report.json").unlink(missing_ok=True)
    _file_request(out_dir, request)


def _file_request(out_dir: Path, request: Request) -> None:
    out_dir.mkdir(parents=True, exist_ok=True)
    write_atomically(out_dir / "request.json", request.model_dump_json(indent=1))


def judge(out_dir: Path, *, total_s: float | None = None) -> Report:
    """Judge the recordings in ``out_dir`` and write ``report.json`` there.

    Raises:
        UsageError: ``out_dir`` holds no run.
    """
    request_file = out_dir / "request.json"
    if not request_file.is_file():
        raise UsageError(f"'{out_dir}' holds no run: there is no request.json in it. Give a folder made by --out.")
    request = read_model(Request, request_file)
    begun = time.monotonic()
    scenarios = _planned(request)
    recordings = with_derived(_read(out_dir, scenarios))
    results = [run_check(check, recordings, scenarios) for check in load_checks(request.checks)]
    judging_s = time.monotonic() - begun
    report = build_report(request, scenarios, recordings, results, judging_s=judging_s, total_s=total_s)
    write_atomically(out_dir / "report.json", report.to_json())
    return report


def _read(out_dir: Path, scenarios: list[Scenario]) -> Iterator[Recording]:
    for scenario in scenarios:
        folder = out_dir / "scenarios" / scenario.name
        if (folder / "launch.json").exists():
            yield reading.read(folder)


def unkept_folder(request: Request) -> tempfile.TemporaryDirectory[str]:
    """Make a folder for recordings that nobody keeps: in memory, if ranks are local and recordings small."""
    small = request.profile != "thorough" and request.world_size <= FEW_RANKS
    place = place_in_memory() if small and launcher_for(request) == "local" else None
    return tempfile.TemporaryDirectory(prefix=UNKEPT, ignore_cleanup_errors=True, dir=place)


def verify(strategy: Any = "bucketed", *, out: str | Path | None = None, **settings: Any) -> Report:
    """Verify a strategy from Python: ``verify("bucketed", world_size=4).verdict``.

    Args:
        strategy: a built-in name, ``"path/to/file.py:wrap"``, ``"module:attribute"``, or a function or class that is
            importable by module and name.
        out: where recordings go; a temporary folder, removed afterwards, by default.
        settings: the other fields of ``verifier.request.Request``.

    Raises:
        UsageError: the request cannot be carried out.
    """
    from verifier.naming import parse_strategy

    request = Request.of(parse_strategy(strategy, settings.pop("options", {})), settings)
    if out is not None:
        return run(request, Path(out))
    with unkept_folder(request) as folder:
        return run(request, Path(folder))


__all__ = ["LaunchError", "Report", "UsageError", "judge", "plan", "run", "start_launcher", "verify"]
