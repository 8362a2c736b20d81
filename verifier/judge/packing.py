"""Reading tagged payloads: which ranks' elements a collective added up.

Special here: this turns "the number is wrong" into "element 0 of `north.weight` on rank 1 was added to element 0 of
`east.weight` of rank 0". Pure. LS301, LS402, LS501 and LS701 compare by it what was sent; elsewhere it explains.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np

from verifier.judge.arithmetic import contract_of
from verifier.judge.lanes import Lane, lanes
from verifier.recording import REDUCTIONS, Collective, Recording
from verifier.tags import Segment, TagBook

FEW_FIGURES = 8  # in one collective: tokens, batches, a loss and its like
FEW_PARTS = 1000  # of a payload; a longer list is decoded again instead of cached


def tag_book(recording: Recording) -> TagBook | None:
    """The codes of this recording's parameters; None if its gradients were not tagged, or tags were rounded."""
    if not recording.scenario.tagged or _rounded(recording):
        return None
    for rank in [*([recording.reference] if recording.reference else []), *recording.ranks]:
        entries = rank.notes.get("parameters")
        if entries:
            return TagBook([(e["name"], e["numel"]) for e in entries], recording.scenario.world_size)
    return None


def _rounded(recording: Recording) -> bool:
    """Return whether any tag went through a dtype that cannot hold it: it would then decode to another element."""
    if contract_of(recording).get("lossy"):  # rounded on the wire, which may have another dtype
        return True
    narrow = ("bfloat16", "float16")
    return any(
        any(c.dtype in narrow and not c.is_a_figure for c in rank.collectives)
        or any(t.dtype in narrow for t in rank.tensors.values() if t.what in ("gradient", "weight"))
        for rank in recording.ranks
    )


def parts_of(book: TagBook, collective: Collective, rank: int) -> list[Segment] | None:
    """The elements that ``rank`` brought to ``collective``; None if they are no tagged gradients, or were not kept.

    Several checks ask, once for each pair of ranks. Short results are cached.
    """
    if collective not in _read:
        payload = collective.payload
        parts = None if payload is None else book.decode(payload, rank)
        if parts is not None and len(parts) > FEW_PARTS:
            return parts
        _read[collective] = parts
    return _read[collective]


def holds_figures(recording: Recording, collective: Collective, rank: int) -> bool:
    """Return whether ``collective`` carries numbers that a loop logs, and no gradient: a single number, or a few that
    hold no tags. Where nothing is tagged, a few numbers get the benefit of the doubt.
    """
    if collective.is_a_figure or collective.numel > FEW_FIGURES:
        return collective.is_a_figure
    book = tag_book(recording)
    return book is None or parts_of(book, collective, rank) is None


_read: WeakKeyDictionary[Collective, list[Segment] | None] = WeakKeyDictionary()


def partners(recording: Recording, rank: int, step: int, name: str, element: int) -> str | None:
    """The elements that every rank brought to the reduction in which ``rank`` sent ``name[element]``, in words.

    None if this is unknown, or if all ranks brought the same element.
    """
    book = tag_book(recording)
    if book is None:
        return None
    for lane in lanes(recording):
        for number, mine in enumerate(lane.members.get(rank, [])):
            if mine.step != step or mine.op not in REDUCTIONS:
                continue
            place = _place_of(parts_of(book, mine, rank) or [], name, element)
            if place is not None:
                return _laid_together(book, lane, number, place)
    return None


def elsewhere(recording: Recording, name: str, gradient: np.ndarray) -> str | None:
    """The other elements whose means ``gradient`` holds in place of those of ``name``; None if there are none."""
    book = tag_book(recording)
    for part in (book.decode_mean(gradient) if book is not None else None) or []:
        if part.name != name or part.start != part.offset:
            last = part.offset + part.stop - part.start
            return f"{name}[{part.offset}:{last}] holds what belongs into {part.describe()}"
    return None


def _laid_together(book: TagBook, lane: Lane, number: int, place: int) -> str | None:
    """The element that each member has at ``place`` in the group's collective ``number``, in words."""
    brought = {}
    for rank, issued in lane.members.items():
        payload = issued[number].payload if number < len(issued) else None
        if payload is not None:
            parts = parts_of(book, issued[number], rank)
            if parts is None and payload.any():  # sums, as a second level of groups sends them, do not decode
                return None
            brought[rank] = _element_at(parts or [], place)
    if len(set(brought.values())) < 2:
        return None
    return " + ".join(f"rank {r}'s {what or 'zeros'}" for r, what in sorted(brought.items()))


def _place_of(parts: list[Segment], name: str, element: int) -> int | None:
    for part in parts:
        if part.name == name and part.start <= element < part.stop:
            return part.offset + element - part.start
    return None


def _element_at(parts: list[Segment], place: int) -> str | None:
    for part in parts:
        if part.offset <= place < part.offset + part.stop - part.start:
            return f"{part.name}[{part.start + place - part.offset}]"
    return None
