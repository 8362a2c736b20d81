"""Whether a gradient reaches the model's input, when the layers that produce the input are trained as well.

Special here: only the presence of that gradient is checked. Its size depends on where a strategy divides, which may be
at the model's output, and the parameters' gradients are judged elsewhere. Its presence is therefore not reported as a
pass: some strategies show no parameter gradients at all. Pure functions on recordings.
"""

from __future__ import annotations

from verifier.check import Findings
from verifier.lines import INPUT_GRADIENT
from verifier.recording import Recording
from verifier.verdict import Failure

EXPLAINS = "LS201"  # failures of this check: `causes` reads it here
IT_COMES = "a gradient comes to the input; those of the parameters may not be what the strategy's own rule steps by"


def look_for_input_gradients(recording: Recording) -> Findings | None:
    """Findings with a failure for each rank on which no gradient reached the input; None if it reached all of them."""
    if not recording.complete:
        return Findings(blocked="not every rank came to its end with an input that asks for its gradient")
    failures = [
        Failure(
            scenario=recording.scenario.name,
            step=0,
            rank=rank.rank,
            expected="a gradient of the input",
            observed="none",
            cause="input_detached",
            confidence=1.0,
            explanation=f"on rank {rank.rank} the model's input asks for its gradient, and none comes: what is before "
            "the wrapped model, an encoder or a generator, does not learn",
            hint="hand inputs on as they are: no detach(), no .data, no copy under no_grad(), and loss.backward() "
            "rather than torch.autograd.grad() of the parameters alone",
        )
        for rank in recording.ranks
        if not rank.notes.get(INPUT_GRADIENT)
    ]
    return Findings(comparisons=len(recording.ranks), failures=failures) if failures else None
