"""Liveness: every rank comes to the end of every scenario; where ranks hang, who waits for whom.

Claim: no rank waits for ever. The launcher declares a hang if no rank wrote a line of its recording or used a processor
until the launcher's patience was over. Each rank's board shows what it was doing then, and its recording what it had
issued; the two together show whom it waited for.

Catches: a collective that some member never issues (skipped batches, uneven inputs, a branch on a rank's own loss);
groups used in another order on each rank; a rank that sleeps, waits or loops for ever in its own code; a tensor whose
elements share memory, given to gloo, which reads and writes past its end, so that ranks die or compute garbage.

Blind to: why a rank did not go on in its own code (its stack, in the report, says where); hangs that only a longer or
larger run would meet; what others would have done after a rank that raised or died, which is reported instead of a
hang.

Seen in the wild: pytorch/pytorch#33148 (ranks with different numbers of batches), Lightning-AI/pytorch-lightning#5243
(a rank skips a step, the others wait in an all-reduce), meta-pytorch/torchrec#4149 (two groups, in another order on two
ranks of 64).

Remedy: do not let one rank decide by what it alone knows whether a collective is issued; agree first (one all-reduce of
a flag), or join in with zeros. Use several groups in one order on all ranks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from verifier.check import Findings, check
from verifier.judge.lanes import lanes
from verifier.lines import SHARES_MEMORY
from verifier.recording import Collective, RankRecording, Recording
from verifier.verdict import Failure

NEVER_JOINED = "let every member of a group issue each of its collectives, with zeros if it has nothing to bring"
_BOARD = re.compile(r"^(issues|waits for|after) step (-?\d+), (\w+): .*? number (\d+)")


@dataclass(frozen=True)
class Standing:
    """Where a rank stood when all were stopped. ``call`` is the call that it was inside, or else the last it left."""

    rank: int
    inside: bool
    call: Collective | None
    waits_for: tuple[int, ...] = ()

    def describe(self) -> str:
        if self.call is None:
            return "had not reached its first collective"
        verb = "waits in" if self.inside else "came out of"
        where = f"step {self.call.step}, {self.call.phase}" if self.call.step >= 0 else self.call.phase
        return f"{verb} {self.call.describe()} (its number {self.call.seq}, group {self.call.group}, {where})"


@check(always=True)
def liveness(recording: Recording) -> Findings:
    findings = Findings(comparisons=sum(rank.completed for rank in recording.ranks))
    findings.failures = [failure for rank in recording.ranks if (failure := _would_have_died(recording, rank))]
    if recording.complete or findings.failures:
        return findings
    members = {member["name"]: member for member in recording.launch.get("members", [])}
    standings = {
        rank.rank: _standing(recording, rank.rank, member.get("board") or "")
        for rank in recording.ranks
        if (member := members.get(f"rank {rank.rank}")) and _hung(member) and not rank.completed
    }
    if not standings:
        findings.blocked = _otherwise(recording, members)
        return findings
    findings.comparisons += len(standings)
    findings.failures = _explain(recording, standings)
    if not findings.failures:
        findings.blocked = "all ranks hung inside the same collective: the transport did not finish it"
    return findings


def _would_have_died(recording: Recording, rank: RankRecording) -> Failure | None:
    told = rank.notes.get(SHARES_MEMORY)
    if told is None:
        return None
    return Failure(
        scenario=recording.scenario.name,
        rank=rank.rank,
        cause="elements_share_memory",
        confidence=1.0,
        expected="a tensor of its own memory",
        observed="one whose elements share it",
        explanation=f"rank {rank.rank} was stopped before its memory was damaged: {told}",
        hint="reduce a copy where tensor.is_contiguous() says no: tensor.contiguous(), and copy the result back",
    )


def _hung(member: dict[str, Any]) -> bool:
    return (member.get("ended") or "").startswith("hung")


def _otherwise(recording: Recording, members: dict[str, dict[str, Any]]) -> str:
    """Why a rank did not finish, if nothing hung."""
    for rank in recording.ranks:
        member = members.get(f"rank {rank.rank}", {})
        if rank.completed or (rank.outcome and rank.outcome.get("error") == "transport"):
            continue
        if rank.outcome is not None:
            return f"rank {rank.rank} raised, which is no hang"
        if not member.get("ended"):
            return f"rank {rank.rank} died, which is no hang"
    return next((m["ended"] for m in members.values() if m.get("ended")), "not every rank came to its end")


def _standing(recording: Recording, rank: int, board: str) -> Standing:
    """Where ``rank`` stands, by its board, and whom it waits for, by the others' recordings."""
    seen = _BOARD.match(board)
    calls = {call.seq: call for call in recording.ranks[rank].collectives}
    call = calls.get(int(seen[4])) if seen else None
    inside = bool(seen) and seen[1] != "after" and call is not None  # type: ignore[index]
    return Standing(rank, inside, call, _missing_from(recording, rank, call) if inside and call is not None else ())


def _missing_from(recording: Recording, rank: int, call: Collective) -> tuple[int, ...]:
    """The ranks that have not issued the collective that ``rank`` is in; for a message, the peer."""
    if call.point_to_point:
        return () if call.peer is None else (call.peer,)
    for lane in lanes(recording):
        mine = lane.members.get(rank, [])
        if call in mine:
            members = lane.members if call.ranks is not None else {r.rank: [] for r in recording.ranks} | lane.members
            return tuple(other for other in sorted(members) if len(members[other]) <= mine.index(call))
    return ()


def _explain(recording: Recording, standings: dict[int, Standing]) -> list[Failure]:
    """A failure for each cause of the hang; ranks that merely waited are mentioned in it."""
    failures = [_stuck(recording, s, standings) for s in standings.values() if not s.inside]
    if not failures:
        failures = _never_issued(recording, standings)
    if not failures and (circle := _circle(standings)):
        failures = [_deadlock(recording, circle)]
    if not failures and len({s.call.signature for s in standings.values() if s.call}) > 1:
        failures = [_mismatch(recording, standings)]
    return failures


def _stuck(recording: Recording, standing: Standing, standings: dict[int, Standing]) -> Failure:
    waiting = [s for s in standings.values() if standing.rank in s.waits_for]
    told = "".join(f"; rank {s.rank} {s.describe()}" for s in waiting[:3])
    return _failure(
        recording,
        standing,
        cause="hang",
        expected="to go on",
        observed="no progress in the strategy's own code",
        explanation=f"rank {standing.rank} {standing.describe()}, and does not go on in the strategy's own code{told}",
        hint="its stack, in the report, shows where it stands; what only takes long (a compiler, a download) is "
        "better done before the model is wrapped",
    )


def _never_issued(recording: Recording, standings: dict[int, Standing]) -> list[Failure]:
    """Failures for ranks that wait for a rank that has finished or died, and so will never issue the collective."""
    failures = []
    for standing in standings.values():
        gone = [rank for rank in standing.waits_for if rank not in standings]
        if gone:
            who = f"rank{'s' if len(gone) > 1 else ''} {', '.join(map(str, gone))}"
            failures.append(
                _failure(
                    recording,
                    standing,
                    cause="collective_never_issued",
                    expected=f"{who} to issue it, too",
                    observed=f"{who} came to the end without",
                    explanation=f"rank {standing.rank} {standing.describe()}, which {who} never issued",
                    hint=NEVER_JOINED,
                )
            )
    return failures


def _circle(standings: dict[int, Standing]) -> list[Standing]:
    """Ranks that wait for one another in a circle, each for the next and the last for the first; empty if none do."""
    for first in standings:
        path, rank = list[int](), first
        while rank not in path:
            path.append(rank)
            ahead = [other for other in standings[rank].waits_for if other in standings]
            if not ahead:
                break
            rank = ahead[0]
        else:
            return [standings[rank] for rank in path[path.index(rank) :]]
    return []


def _deadlock(recording: Recording, circle: list[Standing]) -> Failure:
    told = ", ".join(
        f"rank {one.rank} {one.describe()} for rank {other.rank}"
        for one, other in zip(circle, [*circle[1:], circle[0]], strict=True)
    )
    return _failure(
        recording,
        circle[0],
        cause="deadlock",
        expected="all members of a group in the same collective",
        observed=f"ranks {', '.join(str(s.rank) for s in circle)} wait for one another",
        explanation=told,
        hint="issue the collectives of all groups in one order that is the same on every rank",
    )


def _mismatch(recording: Recording, standings: dict[int, Standing]) -> Failure:
    told = "; ".join(f"rank {s.rank} {s.describe()}" for s in standings.values())
    return _failure(
        recording,
        next(iter(standings.values())),
        cause="collectives_differ",
        expected="the same collective on all ranks",
        observed="different ones",
        explanation=told,
        hint="issue the same collectives in the same order on every rank",
    )


def _failure(recording: Recording, standing: Standing, **said: Any) -> Failure:
    call = standing.call
    step = call.step if call is not None and call.step >= 0 else None
    place = None
    if call is not None and step is not None and standing.inside:
        place = recording.ranks[standing.rank].place_in_step(call)
    return Failure(
        scenario=recording.scenario.name, step=step, rank=standing.rank, bucket=place, confidence=1.0, **said
    )


CHECK = liveness
