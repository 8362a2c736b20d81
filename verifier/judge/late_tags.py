"""Were gradients averaged before they were tagged? Then tags tell nothing of how they travelled. So it is with an
infinity that is put in on one rank (``overflow``).

Special here: tags are put on at the parameter, the last place on a gradient's way that is sure to exist. A strategy may
reduce in front of it, in an autograd node between the parameter and its use; what arrives is then the same on all
ranks already, though each has data of its own, and tags would undo it. The scenarios without tags judge such a
strategy: what is not claimed here cannot hide a mistake there. And it may train other tensors than were tagged.
"""

from __future__ import annotations

from verifier.recording import Recording

REASON = (
    "gradients are the same on all ranks when they arrive at the parameters, where tags (or an infinity) are put on"
)
COPIES = "the strategy trains copies of {which}, or has reduced them before: tags do not reach those"


def not_reached(recording: Recording) -> str | None:
    """Why this recording's tags say nothing, where other tensors are trained than were tagged; None: they may.

    ``fully_shard(ignored_params=...)`` puts others in the place of some parameters, and leaves the rest.
    """
    fired = [rank.notes.get("tags_fired") for rank in recording.ranks]
    if not recording.scenario.tagged or recording.reference is None:
        return None
    if [] in fired:
        return COPIES.format(which="the parameters")
    if not all(isinstance(names, list) for names in fired):
        return None  # a rank that did not come to its end
    met = {name for names in fired for name in names or ()}
    wanted = {name for name, tensor in recording.reference.named("gradient", 0).items() if tensor.values is not None}
    having = {name for rank in recording.ranks for name in rank.named("gradient", 0)}
    return COPIES.format(which="some parameters") if (wanted & having) - met else None


def tagged_too_late(recording: Recording) -> str | None:
    """Why this recording's tags say nothing; None: they may, or there are none."""
    if not (recording.scenario.tagged or recording.scenario.overflow) or recording.scenario.world_size == 1:
        return None
    arrived = [rank.notes.get("arrived", {}) for rank in recording.ranks]  # digests by parameter, without those of 0
    shared = set(arrived[0]).intersection(*arrived[1:])
    return REASON if any(len({digests[name] for digests in arrived}) == 1 for name in shared) else None
