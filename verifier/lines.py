"""A rank's journal as it lies on disk: its lines, its last word, and whether nobody else has written there.

Special here: a journal may end anywhere, because a rank may, and hold anything, because a strategy may write into our
folders. Neither is an error of the reader's.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from verifier.appending import is_sealed_by

LONGEST_JOURNAL = 2**30  # bytes; no run writes a hundredth of it
SAVED_WITHOUT_NAMES = "saved_without_names"  # a note: the kind of a state_dict() that is no dictionary
TOOK_RANK_0S = "took_what_rank_0_saved"  # a note: what a rank loads is not its own
SHARES_MEMORY = "shares_memory"  # a note: what was given to a collective that would have read or written behind its end
WRAPPING = "in wrap(model)"  # when a strategy raised
MAKING_OPTIMIZER = "while the optimizer was made"  # the same
UNDRIVABLE = "undrivable"  # an outcome's error: no loop of ours can drive it, in whatever situation
MASTERS = "masters"  # a note: an optimizer has stepped that holds none of the model's parameters
STOPPED_AFTER = "stopped_after"  # a note: the last step, agreed on by all, where weights are no longer finite
NOT_RESCHEDULED = "not_rescheduled"  # a note: the step after which the single process had other options
AUTOCAST = "autocast"  # what a model says of itself, as if it were a buffer: was its forward under autocast?
NORM = "all gradients"  # the name of what a clip_grad_norm_() returns
TURNED = "turned"  # by rank, how far its gradients are from its own if its rows come turned round, or in two parts
OTHER_INPUTS = "other_inputs"  # by rank: whose inputs the model got in its first forward, where not the rank's own
NOT_CALLED = "not_called"  # by rank: in the first forward no module of the bare model's class was called
INPUT_GRADIENT = "input_gradient"  # by rank: has a gradient come to the first input?


def of(journal: Path) -> bytes:
    """What is in the file; nothing if it is not there, or longer than any of ours."""
    return journal.read_bytes() if journal.is_file() and journal.stat().st_size <= LONGEST_JOURNAL else b""


def events(written: bytes) -> list[dict[str, Any]]:
    """The lines of a journal, up to the first that is none: the last one of a rank that was killed while writing it."""
    lines = written.split(b"\n")
    with suppress(ValueError, TypeError):  # all at once takes a third of the time
        whole: list[dict[str, Any]] = json.loads(b"[" + b",".join(lines[:-1]) + b"]")
        events_only = all(isinstance(event, dict) and "kind" in event for event in whole)
        if events_only and len(whole) == len(lines) - 1 and not lines[-1]:
            return whole
    found: list[dict[str, Any]] = []
    for line in lines:
        try:
            event = json.loads(line)
            event["kind"]
        except (ValueError, LookupError, TypeError):
            break
        found.append(event)
    return found


def outcomes(folder: Path, world_size: int) -> list[dict[str, Any]]:
    """The last word of each rank, in the folder of a scenario; empty where there is none."""
    found = []
    for rank in range(world_size):
        journal = folder / "subject" / f"rank{rank}" / "journal.jsonl"
        found.append(outcome_in(of(journal)) or {})
    return found


def outcome_in(written: bytes) -> dict[str, Any] | None:
    """How the rank says that it ended; None: it did not come to say it."""
    begin = written.rfind(b'{"kind": "outcome"')
    words = events(written[begin:].partition(b"\n")[0] + b"\n") if begin >= 0 else []
    return words[0] if words else None


def intact(written: bytes, blobs: memoryview, seals: dict[str, Any]) -> bool:
    """Has nobody but its rank written this recording? Only collectives may still land after the last word."""
    with suppress(LookupError, ValueError, TypeError):  # what seals and lines cannot be, somebody else wrote
        return _intact(written, blobs, seals)
    return False


def _intact(written: bytes, blobs: memoryview, seals: dict[str, Any]) -> bool:
    ends = {name: seals[name][0] if name in seals else 0 for name in ("lines", "blobs")}
    if not (
        is_sealed_by(seals.get("lines"), written[: ends["lines"]])
        and is_sealed_by(seals.get("blobs"), blobs[: ends["blobs"]])
        and len(blobs) == ends["blobs"]
    ):
        return False
    kinds = [json.loads(line)["kind"] for line in written[ends["lines"] :].split(b"\n") if line]
    return sorted(kinds)[-1:] == ["outcome"] and kinds.count("outcome") == 1 and set(kinds) <= {"landed", "outcome"}
