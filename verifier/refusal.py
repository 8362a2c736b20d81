"""Did the strategy refuse a scenario, as it may refuse what it does not claim, or did it fail in it? Pure.

Special here: an error is a refusal only if the observer cannot have caused it. Where something was read or written too
early, the marker that fills tensors in flight spreads as NaN, and torch may raise at that. And where nothing but the
dtype is asked of a strategy, an error that does not speak of dtypes is a failure like any other; nor does one, in the
making of another optimizer than SGD, that does not name that optimizer.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from verifier.lines import MAKING_OPTIMIZER, SHARES_MEMORY, WRAPPING
from verifier.marker import holds_poison

if TYPE_CHECKING:
    from verifier.recording import RankRecording, Recording

FROM_C = re.compile(r"\[rank\d+\]:\[[A-Z]\d{4} [\d:.]+ \S+\] ")  # before what torch's C++ says: who, when and where
WAITED_FOR = ("waited", "polled", "future")
NAMES_A_DTYPE = re.compile(r"dtype|float(16|32|64)|\bdouble(tensor)?\b|\bb?fp?(16|32|64)\b", re.IGNORECASE)


def refusal(recording: Recording) -> str | None:
    """What the strategy said when it refused: every rank raised, at least one of them for a reason of its own, the
    contract does not claim what the scenario needs, and no rank had misused what was in flight. None: no refusal.
    """
    contract = recording.ranks[0].notes.get("contract")  # absent: it was not even imported
    unclaimed = [need for need in recording.scenario.needs if contract and not claims(contract, need)]
    outcomes = {rank.rank: rank.outcome or {} for rank in recording.ranks}
    unclaimed += ["small_caps"] if recording.scenario.small_caps else []  # nobody claims that any cap will do
    if not unclaimed or not all(outcome.get("status") == "raised" for outcome in outcomes.values()):
        return None
    if any(SHARES_MEMORY in rank.notes for rank in recording.ranks):  # it is the observer that said no
        return None
    own = [rank for rank in recording.ranks if outcomes[rank.rank].get("error", "own") == "own"]
    if not own or any(misused_in_flight(rank) for rank in recording.ranks):
        return None
    said = last_words(str(outcomes[own[0].rank]["detail"]))
    if unclaimed == ["float64"] and not (NAMES_A_DTYPE.search(said) or _refuses_the_optimizer(recording, own[0], said)):
        return None
    if any(rank.notes.get("loading") for rank in own) and not said.startswith("NotImplementedError"):
        return None  # it has saved, and cannot load what it saved: who does not offer this says so before
    if any(stopped_by_what_it_loaded(recording, rank) for rank in own):
        return None
    return said


def _refuses_the_optimizer(recording: Recording, rank: RankRecording, said: str) -> bool:
    """Did it raise before there was a step, and name the optimizer, as who is made for one class of them does? An
    AttributeError names the class as well, and says that something was not thought of.
    """
    optimizer, when = recording.scenario.optimizer, str((rank.outcome or {}).get("when"))
    named = optimizer != "sgd" and optimizer in said.lower() and not said.startswith("AttributeError")
    return named and when in (WRAPPING, MAKING_OPTIMIZER)


def stopped_by_what_it_loaded(recording: Recording, rank: RankRecording) -> bool:
    """Did the optimizer raise in its first step after it was loaded, as where a state is another parameter's?"""
    last, outcome = recording.scenario.resume_after, rank.outcome or {}
    if last is None or rank.notes.get("loading") is not False or outcome.get("error") != "own":
        return False
    return str(outcome.get("when")) == f"in step {last + 1} (step)"


def misused_in_flight(rank: RankRecording) -> bool:
    """Did the strategy touch what was in flight on this rank, and wait for it later?

    What was never waited for tells nothing: a wrapper that refuses leaves it behind, with gradients that are views of
    it, or that autograd has meanwhile added to.
    """
    if any(c.written_in_flight and c.how in WAITED_FOR for c in rank.collectives):
        return True
    for (what, step, _), tensor in rank.tensors.items():
        if what == "gradient" and tensor.values is not None and holds_poison(tensor.values):
            return all(c.how in WAITED_FOR for c in rank.collectives if c.step <= step)
    return False


def last_words(detail: str) -> str:
    """The exception of a traceback, on one line: what follows the last frame."""
    lines = detail.splitlines()
    frames = [place for place, line in enumerate(lines) if line.startswith('  File "')]
    after = frames[-1] + 1 if frames else -1
    while frames and lines[after:] and lines[after].startswith("  "):  # its source; an exception may go on indented
        after += 1
    message = " ".join(line.strip() for line in lines[after:] if line.strip())
    message = message or next((line.strip() for line in reversed(lines) if line.strip()), "")
    message = FROM_C.sub("", message)
    return message if len(message) <= 300 else message[:297] + "..."


def claims(contract: dict[str, Any], need: str) -> bool:
    """Does ``contract`` (as recorded) claim ``need``: a field of its own, or one of ``supports``?"""
    return bool(contract.get(need, need in contract.get("supports", ())))
