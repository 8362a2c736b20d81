"""Builds a report from judged recordings: verdicts and the facts around them. Pure, but reads installed versions."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shlex
from collections import Counter
from collections.abc import Sequence
from itertools import takewhile
from math import isfinite
from pathlib import Path
from typing import Any

import ddp_core
from verifier.judge.diagnosis import CONSEQUENCES, WASTE
from verifier.naming import describe
from verifier.recording import Recording
from verifier.refusal import last_words
from verifier.report.model import CRASHES, RankOutcome, Repeat, Report, ScenarioResult
from verifier.request import Request
from verifier.scenario import Scenario
from verifier.verdict import CheckResult, Failure, combine

MAX_TIMELINE = 400
MOST_NAMED = 6  # of the scenarios that were not run


def build_report(
    request: Request,
    scenarios: Sequence[Scenario],
    recordings: Sequence[Recording],
    checks: list[CheckResult],
    *,
    judging_s: float,
    total_s: float | None,
) -> Report:
    verdict = combine(check.verdict for check in checks if check.claimed)
    results = [_scenario_result(recording) for recording in recordings]
    problems = _problems(recordings, results)
    if missing := [s.name for s in scenarios if s.name not in {r.name for r in results}]:
        late = total_s is not None and total_s >= request.timeout_s
        because = f"the {request.timeout_s:g} seconds of --timeout were over; " if late else ""
        named = ", ".join(missing[:MOST_NAMED])
        more = f" and {len(missing) - MOST_NAMED} more" if len(missing) > MOST_NAMED else ""
        problems.append(f"{because}not run: {named}{more}")
    if verdict == "pass" and problems:
        verdict = "unknown"
    report = Report(
        verdict=verdict,
        strategy={**request.strategy.model_dump(exclude={"files"}), "as_typed": describe(request.strategy)},
        request=request.model_dump(mode="json"),
        scenarios=results,
        environment=_environment(recordings),
        checks=checks,
        problems=problems,
        communication=_communication(recordings),
        timings={
            "judging_s": round(judging_s, 4),
            "total_s": None if total_s is None else round(total_s, 3),
            "scenarios_s": {result.name: result.seconds for result in results},
            **_observer(recordings),
        },
        repeat=Repeat(command=repeat_command(request)),
    )
    report.summary = summarise(report)
    return report


def tells_most(failure: Failure) -> tuple[float, float]:
    """A sort key for the failure to report first: a cause before a consequence, a consequence before an unexplained
    failure, and all of these before what is merely reduced too much.
    """
    if failure.cause is None:
        return -len(CONSEQUENCES) - 1, failure.confidence
    if failure.cause in CONSEQUENCES:
        return -CONSEQUENCES.index(failure.cause) - 1, failure.confidence
    return (-len(CONSEQUENCES) - 2 if failure.cause == WASTE[0] else 0), failure.confidence


def summarise(report: Report) -> str:
    """One sentence: the verdict, and the most telling reason for it."""
    name, world_size = report.strategy["as_typed"], report.request["world_size"]
    if report.verdict == "pass":
        comparisons = sum(check.comparisons for check in report.checks)
        told = f"{name}: {world_size} replicas compute what one process would have ({comparisons} comparisons"
        told += f" in {_tried(report)})."
        updates = next((c for c in report.checks if c.code == "LS202" and not c.claimed and c.why), None)
        return told if updates is None else f"{told} Updates (LS202) were not judged: {updates.why}"
    if report.verdict == "fail":
        failed = [check for check in report.checks if check.verdict == "fail"]
        # A wrong gradient leads to divergence, so divergence comes first only if nothing explains it.
        found = [f for check in failed for f in check.failures]
        first = max(found, key=tells_most)
        codes = ", ".join(check.code for check in failed)
        what = "not what one process would have computed"
        compared = any(check.code == "LS201" and check.claimed and check.verdict == "pass" for check in report.checks)
        if compared and all(failure.cause in WASTE for failure in found):
            what = "right, and more is reduced than has to be"
        untrained = "" if any(_has_trained(r) for r in report.scenarios) else _why_untrained(report)
        return f"{name}: {what} ({codes}): {first.explanation}.{untrained}"
    reasons = (
        report.problems
        or [f"{c.code}: {c.why}" for c in report.checks if c.why and c.claimed]
        or ["nothing was compared"]
    )
    return f"{name}: no verdict: {reasons[0].splitlines()[0]}"


def _tried(report: Report) -> str:
    """In how many scenarios it was tried: those refused or left out say nothing."""
    total = len(report.scenarios)
    tried = sum(scenario.refused is None and scenario.not_claimed is None for scenario in report.scenarios)
    if tried < total:
        crashed = sum((scenario.refused or "").startswith(CRASHES) for scenario in report.scenarios)
        but = f", and in {crashed} of them it crashed" if crashed else ""
        return f"{tried} of {total} scenarios; the others: refused or left out{but}"
    return "1 scenario" if total == 1 else f"{total} scenarios"


def _has_trained(result: ScenarioResult) -> bool:
    return result.complete and not (result.refused or result.not_claimed)


def _why_untrained(report: Report) -> str:
    """For the summary, if no scenario finished: the first problem, because failures alone do not explain that."""
    return f" No scenario came to its end: {report.problems[0].splitlines()[0]}." if report.problems else ""


def _scenario_result(recording: Recording) -> ScenarioResult:
    scenario = recording.scenario
    members = {member["name"]: member for member in recording.launch.get("members", [])}
    outcomes = [_rank_outcome(recording, rank, members.get(f"rank {rank}", {})) for rank in range(scenario.world_size)]
    first = recording.ranks[0]
    return ScenarioResult(
        name=scenario.name,
        workload=scenario.workload,
        world_size=scenario.world_size,
        num_steps=scenario.num_steps,
        num_micro_batches=scenario.num_micro_batches,
        driver=first.notes.get("driver"),
        own_rule=recording.own_rule if recording.alone is not None else None,
        complete=recording.complete,
        refused=recording.refused,
        not_claimed=recording.not_claimed,
        seconds=recording.launch.get("seconds", 0.0),
        ranks=outcomes,
        losses=[*takewhile(isfinite, (first.losses[step] for step in sorted(first.losses)))],  # JSON has no inf, NaN
        evaluation=first.notes.get("evaluation", {}),
        timeline=_timeline(recording),
    )


def _rank_outcome(recording: Recording, rank: int, member: dict[str, Any]) -> RankOutcome:
    outcome = recording.ranks[rank].outcome
    shown = {"stack": their_stack(member.get("stack")), "output": member.get("output")}
    if outcome is not None and outcome["status"] == "completed":
        return RankOutcome(rank=rank, status="completed", output=member.get("output"))
    if outcome is not None:
        return RankOutcome(rank=rank, status="raised", detail=outcome["detail"], output=member.get("output"))
    doing = member.get("board") or "it had not reached its first collective"
    ended = member.get("ended")
    if ended:
        hung = ended.startswith("hung")
        return RankOutcome(
            rank=rank,
            status="hung" if hung else "stopped",
            detail=f"{ended.partition(': ')[2]}; last seen: {doing}",
            **shown,
        )
    how = f"killed by {member['signal']}" if member.get("signal") else f"exit code {member.get('exit_code')}"
    if member.get("exit_code") == 0:
        how += ", without a last word in its recording: it left by itself (os._exit), or the recording was cut"
    if member.get("reason"):
        how = member["reason"]
    return RankOutcome(rank=rank, status="died", detail=f"{how}; last seen: {doing}", **shown)


def their_stack(stack: str | None) -> str | None:
    """A stack from faulthandler without the verifier's frames and the list of extension modules."""
    if not stack:
        return None
    root = Path(__file__).parent.parent.parent
    ours = tuple(f'File "{root / part}' for part in ("verifier", "ddp_core/driver"))
    kept = [line for line in stack.splitlines() if not line.strip().startswith(ours) and "<frozen runpy>" not in line]
    return "\n".join(line for line in kept if line and not line.startswith("Extension modules")) or None


def _problems(recordings: Sequence[Recording], results: Sequence[ScenarioResult]) -> list[str]:
    """Why a verdict may be missing: which rank of which scenario did not finish, and how it ended."""
    problems = []
    for recording, result in zip(recordings, results, strict=True):
        if result.refused is not None:
            continue
        # A rank that died or hung is the cause; the errors of the others follow from it.
        told = [rank for rank in result.ranks if rank.status in ("died", "hung")]
        raised = [rank for rank in result.ranks if rank.status == "raised"]
        own = [r for r in raised if (recording.ranks[r.rank].outcome or {}).get("error", "own") != "transport"]
        told = told or own or raised
        problems += [
            f"{result.name}: rank {rank.rank} {rank.status}: "
            + with_advice(last_words(rank.detail or ""), recording.scenario.backend)
            for rank in told or [rank for rank in result.ranks if rank.status != "completed"]
        ]
    return problems


def with_advice(said: str, backend: str) -> str:
    """``said``, with advice if NCCL was given a CPU tensor, as flags and counters often are."""
    if "No backend type associated with device type cpu" not in said or backend != "nccl":
        return said
    return (
        f"{said} (NCCL moves tensors of GPUs alone: make this one on the parameters' device, or have gloo beside it, "
        "as init_process_group() has where no backend is named: --backend cpu:gloo,cuda:nccl)"
    )


def _timeline(recording: Recording) -> list[dict[str, Any]]:
    """The last step's collectives on every rank, in milliseconds from the first of them."""
    last = max((c.step for rank in recording.ranks for c in rank.collectives), default=-1)
    chosen = [(r.rank, c) for r in recording.ranks for c in r.collectives if c.step == last and c.landed is not None]
    start = min((c.issued for _, c in chosen), default=0.0)
    return [
        {
            "rank": rank,
            "seq": c.seq,
            "op": c.describe(),
            "phase": c.phase,
            "start_ms": round((c.issued - start) * 1e3, 3),
            "end_ms": round(((c.landed or c.issued) - start) * 1e3, 3),
        }
        for rank, c in chosen[:MAX_TIMELINE]
    ]


def _communication(recordings: Sequence[Recording]) -> dict[str, Any]:
    """Calls and bytes that rank 0 issued in training steps (not in wrapping), over all scenarios."""
    issued = [c for r in recordings for c in r.ranks[0].collectives if c.step >= 0]
    calls: Counter[str] = Counter(c.op.strip("_") for c in issued)
    return {"rank": 0, "calls": len(issued), "bytes": sum(c.num_bytes for c in issued), "by_op": dict(calls)}


def _observer(recordings: Sequence[Recording]) -> dict[str, Any]:
    """The observer's share of the ranks' time: in each scenario, of the rank where it took most."""
    calls, spent_s, ranks_s = 0, 0.0, 0.0
    for recording in recordings:
        seen = [rank for rank in recording.ranks if "observer" in rank.notes and rank.outcome is not None]
        if seen:
            most = max(seen, key=lambda rank: float(rank.notes["observer"]["s"]))
            calls += most.notes["observer"]["calls"]
            spent_s += float(most.notes["observer"]["s"])
            ranks_s += most.outcome["at"] - most.notes.get("started", most.outcome["at"]) if most.outcome else 0.0
    return {"observer_s": round(spent_s, 4), "observed_calls": calls, "ranks_s": round(ranks_s, 3)}


def _environment(recordings: Sequence[Recording]) -> dict[str, Any]:
    """The environment of the run. The launcher reports torch's version if ranks have another than this process."""
    told: dict[str, Any] = next((r.launch["environment"] for r in recordings if "environment" in r.launch), {})
    return {
        "lockstep": ddp_core.__version__,
        "torch": told.get("torch") or importlib.metadata.version("torch"),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "num_cpus": os.cpu_count(),
        "backend": recordings[0].scenario.backend if recordings else "none",
        "device": _device(recordings),
        "launcher": told.get("launcher", "local"),
    }


def _device(recordings: Sequence[Recording]) -> str:
    """ "cpu", or the name of the GPUs and how many the ranks shared."""
    if not recordings or recordings[0].scenario.device == "cpu":
        return "cpu"
    told = {rank.rank: rank.notes["gpu"] for recording in recordings for rank in recording.ranks if "gpu" in rank.notes}
    names = sorted({name for _, name in told.values()})
    num_gpus = len({uuid for uuid, _ in told.values()})
    shared = f", {len(told)} ranks on {num_gpus}" if num_gpus < len(told) else ""
    return f"cuda ({', '.join(names) or 'no rank came to it'}{shared})"


def repeat_command(request: Request) -> str:
    """The command that repeats the verification."""
    words = ["lockstep", "verify", describe(request.strategy), "--world-size", str(request.world_size)]
    words += ["--profile", request.profile, "--seed", str(request.seed)]
    words += ["--device", request.device] if request.device != "auto" else []
    words += ["--backend", request.backend] if request.backend != "auto" else []
    words += ["--delay", f"{request.delay_ms:g}"] if request.delay_ms else []
    default_s = Request.model_fields["timeout_s"].default
    words += ["--timeout", f"{request.timeout_s:g}"] if request.timeout_s != default_s else []
    for flag, values in (("--workload", request.workloads), ("--check", request.checks)):
        words += [word for value in values or () for word in (flag, value)]
    for key, value in request.strategy.options.items():
        words += ["--option", f"{key}={value}"]
    for flag, named in (("--fault", request.fault), ("--driver", request.driver)):
        words += [flag, named] if named is not None else []
    return shlex.join(words)
