"""Gradient equivalence: what the optimizer sees is what one process would see on the large batch.

Claim: just before ``optimizer.step()``, every rank's gradient of every parameter equals the gradient that a single
process computes on the union of all ranks' micro-batches. In exact arithmetic that means equal numbers, bit for bit,
or roundings of their own dtype where a factor of the strategy's rounds (16 in the last place); in
float64 it means within 1e-10 of the tensor's largest element (honest strategies agree to 1e-13, wrong ones are
off by 1e-6 and more); in float32 and bfloat16, in the first step, within (W + 2) unit roundoffs of the mean of the
ranks' own gradients; where the contract declares what is lost on the wire, within (W + 1) unit roundoffs of that
dtype, in the first step; with tagged gradients it means that every element carries its own name. After the first step
float32 is held to a thousandth of the tensor's largest element. Under autocast, and beside layers in bfloat16, what
other orders of rows come to is measured, and four times that is right; under autocast the model's forward has to be,
too, which the model itself tells.

Behind a norm over samples (BatchNorm) the mean of the ranks' own gradients is right, and so is the gradient of all
samples, which strategies have that synchronise statistics; that is compared in the first step.

Catches: a sum where a mean was due, or the reverse; one micro-batch instead of all; gradients never reduced, or reduced
with another parameter's; reads before a collective has finished; parameters averaged instead of gradients; clipping
before synchronisation; parameters that another rank did not use; a forward that has lost the caller's autocast; a
``clip_grad_norm_()`` of the strategy's own that clips by, or returns, another norm than that of all gradients; a mean
over the whole job, a division by its size, or a root that is not in it, where the strategy was given a smaller process
group; inputs that are cut off from what made them.

Where an optimizer reduces gradients inside its ``step()``, or leaves them to the owners of shards, or to a server that
sends weights, ``.grad`` does not show it. If the weights come out right all the same, this is not claimed, and LS202
judges them.

Blind to: what happens after the gradient (the optimizer itself, see LS202); parameters whose gradient is zero; in the
profile quick, whose probes are small, mistakes that need several megabytes; in quick and standard those that need a
hundred parameters, or interpreters that do not agree on the order of a set (standard has such where the text of the
strategy shows a set); mistakes that need a tensor of more than 8 MB, or three buckets of 25 MB; mistakes that begin
later than a few steps after the start (longer runs keep the gradients of their first steps only), in dtypes narrower
than float32, and behind norms, after the first; after the first step, all of a strategy that declares
``average="sum"`` or updates by a rule of its own (LS202 goes on), and exact arithmetic of one that declares ``lossy``.

Seen in the wild: huggingface/picotron#39 (the hook reduces the parameter, not the gradient);
volcengine/verl#3332 (micro-batch losses not divided); fairseq#494 (divided twice).

Remedy: the cause names the pattern; multiply, divide, wait or reduce accordingly.
"""

from __future__ import annotations

from verifier.check import Findings, check
from verifier.judge.alike_afterwards import told_by_state
from verifier.judge.autocasting import without_autocast
from verifier.judge.detached import look_for_input_gradients
from verifier.judge.in_a_group import compare_in_groups
from verifier.judge.out_of_sight import compare_gradients, whose_weights_are_wrong
from verifier.judge.returned_norm import wrong_norms
from verifier.recording import Recording


@check
def gradient_equivalence(recording: Recording) -> Findings:
    if recording.scenario.subgroups:
        return compare_in_groups(recording)
    if recording.scenario.input_gradients:
        return look_for_input_gradients(recording)
    findings = compare_gradients(recording)
    findings.failures = whose_weights_are_wrong(recording, told_by_state(recording, findings.failures))
    if recording.scenario.autocast:
        findings.failures = without_autocast(recording) + findings.failures
    if not (findings.failures or findings.blocked or findings.not_claimed):
        findings.failures = wrong_norms(recording)
    return findings


CHECK = gradient_equivalence
