"""Matches calls of different ranks: collectives by group and position, messages by channel.

Special here: a group is its name *and* its members, because two groups on different ranks may share a name. Only a
group's members are compared, and only their collectives: sends and receives are ordered per channel (from, to, tag),
not per group. Calls that the backend refused were never sent, and have no position. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from verifier.recording import SENDS, Collective, Recording


@dataclass
class Lane:
    """One group: the collectives that each member issued in it, in order; an empty list for one that issued none."""

    group: str
    members: dict[int, list[Collective]]


@dataclass(frozen=True)
class Address:
    group: str
    ranks: tuple[int, ...] | None
    source: int
    target: int
    tag: int | None


@dataclass
class Channel:
    """The sends from one rank to another under one tag, and the receives there, each in order."""

    address: Address
    sent: list[Collective] = field(default_factory=list)
    received: list[Collective] = field(default_factory=list)
    guessed: bool = False  # the receiver also received from anyone, and the sender of that is unknown


def lanes(recording: Recording) -> list[Lane]:
    """The groups in which collectives were seen, in the order of their first collective."""
    found: dict[tuple[str, tuple[int, ...] | None], Lane] = {}
    for rank in recording.ranks:
        for collective in rank.collectives:
            if collective.point_to_point or collective.refused:
                continue
            key = (collective.group, collective.ranks)
            if key not in found:
                found[key] = Lane(collective.group, {member: [] for member in collective.ranks or ()})
            found[key].members.setdefault(rank.rank, []).append(collective)
    return list(found.values())


def channels(recording: Recording) -> list[Channel]:
    found: dict[Address, Channel] = {}
    anonymous: defaultdict[tuple[str, int], int] = defaultdict(int)
    for rank in recording.ranks:
        for call in rank.collectives:
            if not call.point_to_point or call.refused:
                continue
            if call.peer is None:
                anonymous[call.group, rank.rank] += 1
                continue
            ends = (rank.rank, call.peer) if call.op in SENDS else (call.peer, rank.rank)
            address = Address(call.group, call.ranks, *ends, call.tag)
            channel = found.setdefault(address, Channel(address))
            (channel.sent if call.op in SENDS else channel.received).append(call)
    for channel in found.values():
        channel.guessed = anonymous[channel.address.group, channel.address.target] > 0
    return list(found.values())
