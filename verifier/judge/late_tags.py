"""Whether gradients were averaged before they were tagged: then tags say nothing about the reduction. The same holds
for an infinity that is put in on one rank (``overflow``).

Special here: tags are set at the parameter, the last place on a gradient's way that always exists. A strategy may
reduce before it, in an autograd node between the parameter and its use. What arrives is then already equal on all
ranks, though each has its own data, and tags would undo that. Scenarios without tags judge such a strategy, so not
claiming this one hides no mistake. A strategy may also train other tensors than those that were tagged. Where it does
either with some parameters, the rest is judged.
"""

from __future__ import annotations

from verifier.recording import Recording

REASON = (
    "gradients are the same on all ranks when they arrive at the parameters, where tags (or an infinity) are put on"
)
COPIES = "the strategy trains copies of {which}, or has reduced them before: tags do not reach those"


def not_reached(recording: Recording) -> str | None:
    """Return why this recording's tags say nothing, if other tensors are trained than were tagged; else None."""
    fired = [rank.notes.get("tags_fired") for rank in recording.ranks]
    if not recording.scenario.tagged or recording.reference is None:
        return None
    if [] in fired:
        return COPIES.format(which="the parameters")
    missed = unreached(recording)
    return COPIES.format(which="some parameters") if missed and missed == _trained(recording) else None


def unreached(recording: Recording) -> set[str]:
    """The parameters that are trained, and whose tags have not fired: ``fully_shard(ignored_params=...)`` replaces some
    parameters and leaves the rest. Empty if a rank did not come to its end.
    """
    fired = [rank.notes.get("tags_fired") for rank in recording.ranks]
    if not recording.scenario.tagged or not all(isinstance(names, list) for names in fired):
        return set()
    return _trained(recording) - {name for names in fired for name in names or ()}


def _trained(recording: Recording) -> set[str]:
    assert recording.reference is not None
    wanted = {name for name, tensor in recording.reference.named("gradient", 0).items() if tensor.values is not None}
    return wanted & {name for rank in recording.ranks for name in rank.named("gradient", 0)}


def tagged_too_late(recording: Recording) -> str | None:
    """Return why this recording's tags say nothing, if all gradients arrived equal, or one did of which a rank's was to
    be infinite; None otherwise or without tags.
    """
    late, scenario = equal_on_arrival(recording), recording.scenario
    return REASON if late and (not scenario.tagged or late == _arrived_everywhere(recording)) else None


def equal_on_arrival(recording: Recording) -> set[str]:
    """The parameters whose gradients were equal on all ranks when they arrived, where each rank was to change them."""
    scenario = recording.scenario
    if not (scenario.tagged or scenario.overflow or scenario.surges) or scenario.world_size == 1:
        return set()
    arrived = [rank.notes.get("arrived", {}) for rank in recording.ranks]  # digests by parameter, zeros left out
    shared = _arrived_everywhere(recording)
    return {name for name in shared if len({digests[name] for digests in arrived}) == 1}


def _arrived_everywhere(recording: Recording) -> set[str]:
    arrived = [rank.notes.get("arrived", {}) for rank in recording.ranks]
    return set(arrived[0]).intersection(*arrived[1:])
