"""Whether gradients were averaged before they were tagged: then tags say nothing about the reduction. The same holds
for an infinity that is put in on one rank (``overflow``).

Special here: tags are set at the parameter, the last place on a gradient's way that always exists. A strategy may
reduce before it, in an autograd node between the parameter and its use. What arrives is then already equal on all
ranks, though each has its own data, and tags would undo that. Scenarios without tags judge such a strategy, so not
claiming this one hides no mistake. A strategy may also train other tensors than those that were tagged.
"""

from __future__ import annotations

from verifier.recording import Recording

REASON = (
    "gradients are the same on all ranks when they arrive at the parameters, where tags (or an infinity) are put on"
)
COPIES = "the strategy trains copies of {which}, or has reduced them before: tags do not reach those"


def not_reached(recording: Recording) -> str | None:
    """Return why this recording's tags say nothing, if other tensors are trained than were tagged; else None.

    ``fully_shard(ignored_params=...)`` replaces some parameters and leaves the rest.
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
    """Return why this recording's tags say nothing, if gradients arrived equal; None otherwise or without tags."""
    scenario = recording.scenario
    if not (scenario.tagged or scenario.overflow or scenario.surges) or scenario.world_size == 1:
        return None
    arrived = [rank.notes.get("arrived", {}) for rank in recording.ranks]  # digests by parameter, zeros left out
    shared = set(arrived[0]).intersection(*arrived[1:])
    return REASON if any(len({digests[name] for digests in arrived}) == 1 for name in shared) else None
