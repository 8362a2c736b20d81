"""Gradient equivalence: what the optimizer sees is what one process would see on the large batch.

Claim: just before ``optimizer.step()``, every rank's gradient of every parameter equals the gradient that a single
process computes on the union of all ranks' micro-batches. In exact arithmetic "equals" means bit for bit; if a factor
that the strategy applies rounds, within 16 units in the last place of the gradient's dtype. In float64 it means within
1e-10 of the tensor's largest element (correct strategies agree to 1e-13, wrong ones are off by 1e-6 and more). In
float32 and bfloat16 it means, in the first step, within (W + 2) unit roundoffs of the mean of the ranks' own gradients;
after the first step, float32 must agree to a thousandth of the tensor's largest element. If the contract declares a
lossy dtype, it means within (W + 1) unit roundoffs of that dtype, in the first step. With tagged gradients every
element must carry its own name. Under autocast, and beside layers in bfloat16, the rounding that comes from another
order of rows is measured, and the bound is four times that. If the loop uses autocast, the model's forward must run
under it; the model itself reports whether it does.

Behind a norm over samples (BatchNorm) two gradients are right: the mean of the ranks' own gradients, and the gradient
on all samples, which a strategy with synchronised statistics has. They are compared in the first step.

Catches: a sum where a mean was due, or the reverse; one micro-batch instead of all; gradients never reduced, or reduced
with another parameter's; reads before a collective has finished; parameters averaged instead of gradients; clipping
before synchronisation; parameters that another rank did not use; a forward that has lost the caller's autocast; a
strategy's own ``clip_grad_norm_()`` that clips by, or returns, another norm than that of all gradients; where the
strategy was given a smaller process group, a mean over the whole job, a division by the job's size, or a root outside
the group; inputs that are cut off from the graph that produced them.

Where an optimizer reduces gradients inside its ``step()``, or leaves them to the owners of shards, or to a server that
sends weights, ``.grad`` does not show it. If the weights still come out right, this is not claimed, and LS202 judges
them.

Blind to: what happens after the gradient (the optimizer itself, see LS202); parameters whose gradient is zero; in the
profile quick, whose probes are small, mistakes that need several megabytes; in quick and standard, mistakes that need a
hundred parameters, or interpreters that order a set differently (standard has those if the strategy's source shows a
set); mistakes that need a tensor of more than 8 MB, or three buckets of 25 MB; mistakes that begin later than a few
steps after the start (longer runs keep the gradients of their first steps only), or later than the first step in dtypes
narrower than float32 and behind norms; after the first step, every gradient of a strategy that declares
``average="sum"`` or has its own update rule (LS202 goes on), and, if it declares ``lossy``, those in exact arithmetic.

Seen in the wild: huggingface/picotron#39 (the hook reduces the parameter, not the gradient);
volcengine/verl#3332 (micro-batch losses not divided); fairseq#494 (divided twice).

Remedy: the cause names the pattern; multiply, divide, wait or reduce accordingly.
"""

from __future__ import annotations

from verifier.check import Findings, check
from verifier.judge.alike_afterwards import told_by_state
from verifier.judge.autocasting import unreported, without_autocast
from verifier.judge.detached import IT_COMES, look_for_input_gradients
from verifier.judge.in_a_group import compare_in_groups
from verifier.judge.out_of_sight import compare_gradients, whose_weights_are_wrong
from verifier.judge.returned_norm import wrong_norms
from verifier.recording import Recording


@check
def gradient_equivalence(recording: Recording) -> Findings:
    if recording.scenario.subgroups:
        return compare_in_groups(recording)
    if recording.scenario.input_gradients:
        if (detached := look_for_input_gradients(recording)) is not None:
            return detached
        if recording.maybe_own_rule:
            return Findings(not_claimed=IT_COMES)
    findings = compare_gradients(recording)
    findings.failures = whose_weights_are_wrong(recording, told_by_state(recording, findings.failures))
    if recording.scenario.autocast:
        findings.failures = without_autocast(recording) + findings.failures
        findings.blocked = findings.blocked or unreported(recording)
    if not (findings.failures or findings.blocked or findings.not_claimed):
        findings.failures = wrong_norms(recording)
    return findings


CHECK = gradient_equivalence
