"""State dict names: what is saved has the bare model's names, all of them, perhaps behind one common prefix.

Claim: a checkpoint of the wrapped model can be loaded without the wrapper, and the reverse, once a prefix such as
``module.`` is removed, or the model's part is taken out of an enclosing dictionary, such as an engine's
``{"model": ..., "scale": ...}``. If rank 0 alone saves, and the others return an empty dictionary, its names count.

Catches: flat buffers saved in place of parameters; parameters or buffers left out; names that the wrapper inserts.

Blind to: whether the values are right, which LS504 sees; what is saved in another form than a dictionary (bytes).

Seen in the wild: a class of mistake: ``Missing key(s) in state_dict``, months after the run.

Remedy: hand ``state_dict()`` and ``load_state_dict()`` on to the wrapped module.
"""

from __future__ import annotations

from verifier.check import Findings, check
from verifier.lines import SAVED_WITHOUT_NAMES
from verifier.recording import Recording
from verifier.verdict import Failure


@check(when=lambda scenario: scenario.resume_after is not None)
def state_dict_names(recording: Recording) -> Findings:
    findings = Findings()
    kinds = (rank.notes.get(SAVED_WITHOUT_NAMES) for rank in recording.ranks)
    if kind := next(filter(None, kinds), None):
        return Findings(not_claimed=f"state_dict() returns {kind}, which shows no names: LS504 sees what is in it")
    for rank in recording.ranks:
        saved, bare = rank.notes.get("saved_names"), rank.notes.get("bare_names")
        if saved is None or bare is None:
            findings.blocked = f"rank {rank.rank} did not come to save its model"
            continue
        if not saved and recording.ranks[0].notes.get("saved_names") != []:
            continue  # rank 0 saves for all, or was about to
        findings.comparisons += len(bare)
        prefix = _prefix(saved, bare)
        missing = [name for name in bare if prefix + name not in saved]
        if missing and not _only_transient(missing, rank.notes.get("transient_names", [])):
            findings.failures.append(
                Failure(
                    scenario=recording.scenario.name,
                    rank=rank.rank,
                    parameter=missing[0],
                    expected=f"{len(bare)} names of the bare model",
                    observed=f"{len(missing)} of them missing; saved: {', '.join(saved[:4])}, ...",
                    cause="names_missing_in_state_dict",
                    confidence=1.0,
                    explanation=f"state_dict() on rank {rank.rank} has no '{missing[0]}', with or without a prefix",
                    hint="hand state_dict() on to the wrapped module",
                )
            )
    return findings


def _prefix(saved: list[str], bare: list[str]) -> str:
    """The prefix before the bare names: the one that fits the most names, and of those the shortest."""
    found = {name.removesuffix(end) for name in saved for end in bare if name == end or name.endswith("." + end)}
    kept = set(saved)
    return max(found, key=lambda prefix: (sum(prefix + end in kept for end in bare), -len(prefix)), default="")


def _only_transient(missing: list[str], transient: list[str]) -> bool:
    """Return whether only buffers with ``persistent=False`` are missing, which torch does not save."""
    return set(missing) <= set(transient)


CHECK = state_dict_names
