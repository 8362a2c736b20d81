"""A rank's journal as a file: its lines, its outcome, and whether anybody else has written to it.

Special here: a journal may end anywhere, because a rank may, and hold anything, because a strategy may write into our
folders. The reader treats neither as an error.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from verifier.appending import is_sealed_by

LONGEST_JOURNAL = 2**30  # bytes; no run writes a hundredth of it
SAVED_WITHOUT_NAMES = "saved_without_names"  # a note: the kind of a state_dict() that is no dictionary
TOOK_RANK_0S = "took_what_rank_0_saved"  # a note: the rank loaded what rank 0 had saved, not its own
SHARES_MEMORY = "shares_memory"  # a note: the tensor given to a collective that would have read or written past its end
WRAPPING = "in wrap(model)"  # where a strategy raised
MAKING_OPTIMIZER = "while the optimizer was made"  # the same
UNDRIVABLE = "undrivable"  # an outcome's error: no loop of ours can drive it in any situation
MASTERS = "masters"  # a note: the optimizer that stepped holds none of the model's parameters
STOPPED_AFTER = "stopped_after"  # a note: the last step, agreed on by all ranks, if weights are no longer finite
NOT_RESCHEDULED = "not_rescheduled"  # a note: after this step the single process had other options
AUTOCAST = "autocast"  # reported by the model like a buffer: whether its forward was under autocast
NORM = "all gradients"  # the name under which the result of clip_grad_norm_() is recorded
TURNED = "turned"  # by rank: how far its gradients move if its rows come reversed, or in two parts
OTHER_INPUTS = "other_inputs"  # by rank: whose inputs the model got in its first forward, if not the rank's own
NOT_CALLED = "not_called"  # by rank: whether the first forward called no module of the bare model's class
UNTIED = "untied"  # a note: names of tied parameters that are no longer one tensor, by the first
OF_THE_WRAPPER = "of_the_wrapper"  # a note: names of trained parameters that a wrapper has beside the model's
INPUT_GRADIENT = "input_gradient"  # by rank: whether the first input got a gradient


def of(journal: Path) -> bytes:
    """The content of the file; empty if it is missing, or longer than any journal of ours."""
    return journal.read_bytes() if journal.is_file() and journal.stat().st_size <= LONGEST_JOURNAL else b""


def events(written: bytes) -> list[dict[str, Any]]:
    """The lines of a journal, up to the first broken one: a rank may have been killed while writing it."""
    lines = written.split(b"\n")
    with suppress(ValueError, TypeError):  # parsing all at once takes a third of the time
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
    """The outcome of each rank, from a scenario's folder; an empty dict for a rank without one."""
    found = []
    for rank in range(world_size):
        journal = folder / "subject" / f"rank{rank}" / "journal.jsonl"
        found.append(outcome_in(of(journal)) or {})
    return found


def outcome_in(written: bytes) -> dict[str, Any] | None:
    """The outcome that the rank wrote; None if it did not get that far."""
    begin = written.rfind(b'{"kind": "outcome"')
    words = events(written[begin:].partition(b"\n")[0] + b"\n") if begin >= 0 else []
    return words[0] if words else None


def intact(written: bytes, blobs: memoryview, seals: dict[str, Any]) -> bool:
    """Return whether only its rank wrote this recording. After the outcome, only collectives may still land."""
    with suppress(LookupError, ValueError, TypeError):  # malformed seals or lines were written by somebody else
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
