"""Reads a recording from its folder. Needs numpy and no torch.

Special here: nothing that was read is trusted. Each rank's last line seals what it wrote before, and a rank whose
recording was written to by something else counts as one that raised. What a rank did not come to write is absent.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel

from verifier import lines, sharding
from verifier.files import read_model
from verifier.recording import EARLIER, Collective, Contents, RankRecording, Recording, Tensor
from verifier.scenario import Scenario

CHANGED = "This rank's recording was written to, or cut, by something other than the verifier: nothing follows from it."


class _Launch(BaseModel, extra="allow"):
    """The fields that are read from ``launch.json``: how each process ended."""

    members: list[dict[str, Any]] = []
    seconds: float = 0.0


def read(folder: Path) -> Recording:
    """Read a scenario's folder.

    Raises FileNotFoundError if ``folder`` holds no scenario.
    """
    scenario = Scenario.load(folder)
    ranks = [_read_rank(folder / "subject" / f"rank{r}", r) for r in range(scenario.world_size)]
    sharding.assemble(ranks, in_groups=scenario.subgroups)
    reference = next((_read_rank(path, 0) for path in folder.glob("reference/rank0")), None)
    if ranks[0].notes.get("contract", {}).get("sharded") and not scenario.subgroups:
        sharding.assemble_by_hand(ranks, reference, ranks[0].notes.get("parameters", []))
    launch = next((read_model(_Launch, path).model_dump() for path in folder.glob("launch.json")), {})
    alone = next((read(path.parent) for path in folder.glob("alone/scenario.json")), None)
    nudged = [read(path.parent) for path in sorted(folder.glob("nudged_*/scenario.json"))]
    return Recording(scenario, ranks, reference, launch, alone, nudged)


def _read_rank(folder: Path, rank: int) -> RankRecording:
    found = RankRecording(rank)
    journal, blobs = folder / "journal.jsonl", folder / "blobs.bin"
    if not journal.is_file():
        return found
    store = np.empty(0, np.uint8)
    if blobs.is_file() and blobs.stat().st_size:
        store = np.asarray(np.memmap(blobs, np.uint8, mode="r"))  # only the parts that are read come into memory
    written = lines.of(journal)
    ended = lines.outcome_in(written)
    if ended is not None and not lines.intact(written, store.data, ended.get("seals", {})):
        return _changed(rank)
    try:
        return _read_events(found, store, lines.events(written))
    except (LookupError, TypeError, ValueError, AttributeError):
        if ended is not None:
            raise
        return _changed(rank)


def _changed(rank: int) -> RankRecording:
    changed = {"status": "raised", "when": "in its recording", "error": "recording", "detail": CHANGED}
    return RankRecording(rank, outcome=changed)


def _read_events(found: RankRecording, store: np.ndarray, events: list[dict[str, Any]]) -> RankRecording:
    landed: dict[int, dict[str, Any]] = {}
    issued: list[dict[str, Any]] = []
    for event in events:
        kind = event.pop("kind")
        if kind == "tensor":
            event["shape"] = tuple(event["shape"])
            entry = Tensor(contents=_contents(store, event.pop("blob"), event["dtype"], event["shape"]), **event)
            key = (entry.what, entry.step, entry.name)
            if entry.what == "gradient" and key in found.tensors:
                found.tensors.setdefault((EARLIER, *key[1:]), found.tensors[key])
            found.tensors[key] = entry
        elif kind == "collective":
            issued.append(event)
        elif kind in ("landed", "abandoned"):
            landed[event["seq"]] = event
        elif kind == "loss":
            found.losses[event["step"]] = event["value"]
            if "at" in event:
                found.step_ended[event["step"]] = event["at"]
        elif kind == "outcome":
            event.pop("seals", None)
            found.outcome = event
        else:
            found.notes[event["name"]] = event["value"]
    found.collectives = [_collective(store, event, landed.get(event["seq"], {})) for event in issued]
    return found


def _collective(store: np.ndarray, event: dict[str, Any], end: dict[str, Any]) -> Collective:
    """One collective from the journal lines of its issue and its landing (``end`` is empty if it never landed)."""
    contents = _contents(store, event.pop("blob"), event["dtype"], [event["numel"]])
    for name in ("ranks", "sends", "receives"):
        event[name] = None if event.get(name) is None else tuple(event[name])
    event["shapes"] = tuple(tuple(shape) for shape in event.get("shapes", ()))
    source, how, written = end.get("source"), end.get("how"), end.get("written")
    if source is not None and event["ranks"] is not None:
        event["peer"] = event["ranks"][source]
    return Collective(
        contents=contents,
        landed=end.get("at"),
        written_in_flight=bool(written),
        how=how,
        wait_began=end.get("wait_began"),
        written=written if isinstance(written, str) else None,
        **event,
    )


def _contents(store: np.ndarray, blob: list[Any] | None, dtype: str, shape: Sequence[int]) -> Contents | None:
    """The contents behind a journal line: ``blob`` is [offset, size in bytes], with a third entry "ramps" for ramps;
    None if they are incomplete, or of a dtype that numpy lacks (float8).
    """
    if blob is None or blob[0] + blob[1] > store.size or not (dtype == "bfloat16" or dtype in np.sctypeDict):
        return None
    raw = store[blob[0] : blob[0] + blob[1]]
    if len(blob) > 2:
        return raw.tobytes()
    if dtype == "bfloat16":  # numpy lacks it: its bits are the upper half of a float32
        return (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(shape)
    return raw.view(np.dtype(dtype)).reshape(shape)
