"""Initial weights agree: when the first forward has run, every replica holds the same weights, to the byte.

Claim: whatever weights the ranks were built with, the wrapped replicas start from one and the same set. Tested with
replicas that drew different weights, because equal seeds make a missing broadcast invisible. If parameters are sharded,
the shards together must be the weights that one rank had built.

Catches: no broadcast at the start, also before sharding; a broadcast of some parameters only; a broadcast into copies
that are not trained; same-shape parameters registered in another order on one rank, so that the broadcast swaps them;
a model that is initialised again with one seed on all ranks, so that weights loaded before are lost; sharded parameters
of a strategy that does not declare sharding.

Blind to: whether the weights that all ranks got are those of rank 0, those of another rank, or a mean.

Seen in the wild: pytorch/torchtitan#166 (sharding turned off, and with it the initial synchronisation);
facebookresearch/detr#544. Of 42 public wrappers tried, 10 never made the replicas equal.

Remedy: broadcast every parameter and buffer from rank 0 in the constructor:
``for t in [*model.parameters(), *model.buffers()]: dist.broadcast(t.data, 0)``.
"""

from __future__ import annotations

import math

import numpy as np

from verifier.check import Findings, check
from verifier.judge.arithmetic import contract_of
from verifier.judge.comparison import odd_ones_out
from verifier.recording import Recording
from verifier.verdict import Failure

NEAR = 1e-2  # of the largest: weights rounded on the way, even to bfloat16, still count as the same


@check
def initial_weights(recording: Recording) -> Findings:
    scenario = recording.scenario
    findings = Findings()
    if scenario.world_size == 1:
        findings.not_claimed = "one rank has no other to agree with"
        return findings
    contract = contract_of(recording)
    if not contract.get("broadcasts_at_start", True) and not scenario.same_start:
        findings.not_claimed = "the strategy declares broadcasts_at_start=False"
        return findings
    for name in recording.parameter_names:
        tensors = [rank.tensor("weight", -1, name) for rank in recording.ranks]
        digests = {rank: t.digest for rank, t in enumerate(tensors) if t is not None}
        if len(digests) < scenario.world_size:
            findings.blocked = f"only {len(digests)} of {scenario.world_size} ranks recorded their initial weights"
            continue
        findings.comparisons += scenario.world_size - 1
        if in_parts := _in_parts(recording, name):
            findings.failures.append(in_parts)
            continue
        if patchwork := _patchwork(recording, name):
            findings.failures.append(patchwork)
            continue
        odd, majority = odd_ones_out(digests)
        if not odd and (replaced := _replaced(recording, name)):
            findings.failures.append(replaced)
        for rank in odd:
            standard = "the majority" if majority else "rank 0 (no majority)"
            findings.failures.append(
                Failure(
                    scenario=scenario.name,
                    rank=rank,
                    parameter=name,
                    expected=f"the bytes of {standard}",
                    observed=f"digest {digests[rank][:16]}",
                    cause="no_initial_broadcast",
                    confidence=1.0 if not scenario.same_start else 0.8,
                    explanation=f"rank {rank} starts with other values of {name} than {standard}",
                    hint="broadcast all parameters and buffers from rank 0 when wrapping" + _by_what(recording),
                )
            )
    return findings


def _in_parts(recording: Recording, name: str) -> Failure | None:
    """A failure if a rank holds only part of a parameter, ranks differ, and the strategy does not declare sharding.

    A strategy that frees or packs weights between forwards does so alike on all ranks, and is not meant.
    """
    due = next((entry["numel"] for entry in recording.ranks[0].notes.get("parameters", []) if entry["name"] == name), 0)
    if contract_of(recording).get("sharded") or not _differ(recording, name):
        return None
    for rank in recording.ranks:
        held = rank.tensor("weight", -1, name)
        if held is not None and math.prod(held.shape) < due:
            return Failure(
                scenario=recording.scenario.name,
                rank=rank.rank,
                parameter=name,
                expected=f"{due} numbers",
                observed=f"{math.prod(held.shape)} numbers",
                cause="undeclared_shards",
                confidence=1.0,
                explanation=f"rank {rank.rank} holds {math.prod(held.shape)} of the {due} numbers of {name}: a shard, "
                "it seems, and the strategy does not say that it shards",
                hint="if parameters are spread over ranks, declare Contract(sharded=True)",
            )
    return None


def _differ(recording: Recording, name: str) -> bool:
    return len({getattr(rank.tensor("weight", -1, name), "digest", None) for rank in recording.ranks}) > 1


def _patchwork(recording: Recording, name: str) -> Failure | None:
    """A failure if the shards of ``name`` together are not the weights that *one* rank had built."""
    whole = recording.ranks[0].tensor("weight", -1, name)
    built = [rank.tensor("built", -1, name) for rank in recording.ranks]
    sharded = contract_of(recording).get("sharded")
    if whole is None or whole.values is None or (whole.shard is None and not sharded):
        return None
    wholes = [t.values for t in built if t is not None and t.values is not None]
    if len(wholes) < len(built) or any(np.array_equal(whole.values, values) for values in wholes):
        return None
    return Failure(
        scenario=recording.scenario.name,
        rank=int(np.argmax([not np.array_equal(whole.values, values) for values in wholes])),
        parameter=name,
        expected="the weights that one rank had built",
        observed="a patchwork of several ranks' weights",
        cause="no_initial_broadcast",
        confidence=1.0,
        explanation=f"the shards of {name} come from different models: each rank has sharded its own initial weights",
        hint="broadcast rank 0's parameters and buffers before sharding",
    )


def _by_what(recording: Recording) -> str:
    """For the hint: the methods that may be meant for that, and that no loop calls."""
    names = recording.ranks[0].notes.get("make_equal")
    return f": call {' or '.join(f'{name}()' for name in names)} there, which a loop does not know" if names else ""


def _replaced(recording: Recording, name: str) -> Failure | None:
    """A failure if all ranks agree on weights that, up to rounding, no rank had built and that are not their mean."""
    held = recording.ranks[0].tensor("weight", -1, name)
    tensors = [rank.tensor("built", -1, name) for rank in recording.ranks]
    built = [tensor.values for tensor in tensors if tensor is not None and tensor.values is not None]
    if held is None or held.values is None or len(built) < recording.scenario.world_size:
        return None
    if any(values.shape != held.values.shape for values in built):
        return None
    apart = [float(np.abs(held.values - values).max(initial=0.0)) for values in (*built, np.mean(built, axis=0))]
    if min(apart) <= NEAR * float(np.abs(built).max(initial=0.0)):
        return None
    total = np.sum(built, axis=0)
    added = bool(np.abs(held.values - total).max(initial=0.0) <= NEAR * float(np.abs(total).max(initial=0.0)))
    return Failure(
        scenario=recording.scenario.name,
        rank=0,
        parameter=name,
        expected="the weights that one rank had built",
        observed=f"others, {min(apart):g} off at most from the nearest",
        cause="start_replaced",
        confidence=0.9,
        explanation=f"all ranks start with the sum of the values of {name} that ranks had built"
        if added
        else f"all ranks start with the same values of {name}, and no rank had built them: what was loaded is lost",
        hint="divide by the world size, or broadcast what rank 0 has"
        if added
        else "do not initialise the model again to make replicas equal: broadcast what rank 0 has",
    )


CHECK = initial_weights
