"""Initial buffers agree: the first forward finds the same buffers and frozen parameters on every rank.

Claim: replicas start from one model, and a model is its parameters *and* its buffers. Tested with ranks whose buffers
differ before wrapping; what the first forward reads is compared.

Catches: a broadcast of ``model.parameters()`` that leaves out BatchNorm's statistics, positional tables or masks; a
broadcast of trained parameters that leaves out a frozen backbone; a broadcast of floating-point tensors that leaves out
integer buffers; a broadcast of all dtypes in one flat float32 tensor, which rounds large counts.

Blind to: whether the buffers are those of rank 0; buffers that no forward reads; buffers that are
not saved (``persistent=False``), which a broadcast of ``state_dict()`` leaves out.

Seen in the wild: pytorch/pytorch#13711 and open-mmlab/mmdetection#4582 (statistics differ by rank).

Remedy: broadcast buffers, too: ``for t in [*model.parameters(), *model.buffers()]: dist.broadcast(t.data, 0)``. A
strategy that leaves buffers alone on purpose declares ``Contract(sync_buffers=False)``. This does not excuse frozen
parameters.
"""

from __future__ import annotations

from verifier.check import Findings, check
from verifier.judge.agreement import compare_across_ranks
from verifier.judge.arithmetic import contract_of
from verifier.recording import Recording


@check(when=lambda scenario: not scenario.same_start)
def initial_buffers(recording: Recording) -> Findings:
    contract, buffers_too = contract_of(recording), contract_of(recording).get("sync_buffers", True)
    if not contract.get("broadcasts_at_start", True):
        return Findings(not_claimed="the strategy declares broadcasts_at_start=False")
    if not buffers_too and not recording.frozen_names:
        return Findings(not_claimed="the strategy declares sync_buffers=False")
    return compare_across_ranks(
        recording,
        "buffer",
        0,
        only=lambda name: buffers_too or name in recording.frozen_names,
        cause="no_initial_broadcast",
        explain=lambda rank, other, name: (
            f"rank {rank}'s first forward finds other values of {_kind(recording, name)} {name} than rank {other}'s"
        ),
        hint="broadcast buffers and frozen parameters as well as what is trained, from rank 0 when wrapping",
    )


def _kind(recording: Recording, name: str) -> str:
    return "frozen parameter" if name in recording.frozen_names else "buffer"


CHECK = initial_buffers
