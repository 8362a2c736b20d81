"""Optimizer state lockstep: after the last step all replicas hold the same momentum (moments, ...), to the byte.

Claim: weights that agree today drift apart tomorrow if the optimizer state differs. Compared by digest, for optimizers
that keep torch's ``state``.

Catches: a step that one rank skipped or took twice while its weights were overwritten by a broadcast; state that was
initialised from other gradients; a weight decay or learning rate that differs on one rank.

Blind to: replicas whose weights have differed before (LS101); state that a rank does not have at all, as where only its
owner steps a parameter; optimizers that keep their state elsewhere, or under names that torch's SGD and AdamW do not
have (a compressor's error feedback, which rightly differs by rank, may be kept there).

Seen in the wild: huggingface/transformers#28270 and deepmodeling/deepmd-kit#5570 (ranks resumed from different places).

Remedy: step with the same gradients on every rank; when resuming, load the same optimizer state on all of them.
"""

from __future__ import annotations

from verifier.check import Findings, check
from verifier.judge.agreement import STATES, compare_across_ranks
from verifier.judge.arithmetic import contract_of
from verifier.judge.late_tags import REASON, equal_on_arrival
from verifier.recording import Recording


@check
def optimizer_state_lockstep(recording: Recording) -> Findings:
    if contract_of(recording).get("sharded"):
        return Findings(not_claimed="the strategy declares sharded=True: state is spread over the ranks")
    if equal_on_arrival(recording):
        return Findings(not_claimed=REASON)
    if any(_weights_differ(recording, step) for step in range(recording.scenario.num_steps)):
        return Findings(blocked="the weights differ already: see LS101")
    return compare_across_ranks(
        recording,
        "optimizer_state",
        recording.scenario.num_steps - 1,
        cause="optimizer_state_diverged",
        explain=lambda rank, other, name: (
            f"after the last step rank {rank}'s optimizer holds other {name} than rank {other}'s"
        ),
        hint="let every rank step with the same gradients, as often",
        spread=True,
        only=lambda name: name.rpartition("/")[2] in STATES,
    )


def _weights_differ(recording: Recording, step: int) -> bool:
    """Return whether weights differed after ``step``; small numbers may become equal again while the state does not."""
    found = compare_across_ranks(
        recording, "weight", step, cause="replicas_diverged", explain=lambda rank, other, name: "", hint=""
    )
    return bool(found.failures)


CHECK = optimizer_state_lockstep
