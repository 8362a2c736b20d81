"""Whether the wrapped model's forward ran under the loop's autocast. Pure functions on recordings.

Special here: the model reports it, on the ranks and in the single process, and the first forward counts. The numbers
cannot show it: in bfloat16, a forward in float32 changes them no more than another order of additions does.
"""

from __future__ import annotations

from verifier.lines import AUTOCAST
from verifier.recording import Recording
from verifier.verdict import Failure

EXPLAINS = "LS201"  # failures of this check: `causes` reads it here


def unreported(recording: Recording) -> str | None:
    """Which rank's model did not say whether it ran under autocast, in words; None if all did."""
    silent = [rank.rank for rank in recording.ranks if rank.tensor("buffer", 0, AUTOCAST) is None]
    return f"rank {silent[0]}'s model did not say whether it ran under autocast" if silent else None


def without_autocast(recording: Recording) -> list[Failure]:
    """A failure for each rank whose first forward was not under autocast, where the single process's was."""
    alone = recording.reference.tensor("buffer", 0, AUTOCAST) if recording.reference is not None else None
    if alone is None:
        return []
    seen = {rank.rank: rank.tensor("buffer", 0, AUTOCAST) for rank in recording.ranks}
    return [
        Failure(
            scenario=recording.scenario.name,
            step=0,
            rank=rank,
            expected="a forward under autocast",
            observed="a forward without it",
            cause="autocast_lost",
            confidence=1.0,
            explanation=f"the loop calls rank {rank}'s replica under torch.autocast, and inside, where the model runs, "
            "there is none: it computes in float32",
            hint="run the model in the thread that calls forward(), or enter torch.autocast again where it runs: "
            "autocast is the state of a thread",
        )
        for rank, tensor in seen.items()
        if tensor is not None and tensor.digest != alone.digest
    ]
