"""The conditions of a scenario, by what they concern.

Special here: every field has a default, and the defaults together are the plainest training there is. A situation
states only what differs. ``Scenario`` has all of these fields; they are not nested.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


def _steps(given: Any) -> Any:
    """Several steps as a tuple, also from one step or None, which recordings of version 1 have."""
    return (given,) if isinstance(given, int) else () if given is None else given


Steps = Annotated[tuple[int, ...], BeforeValidator(_steps)]


class Conditions(BaseModel):
    """What all parts have in common: they are frozen, and a misspelt condition is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class OfTheModel(Conditions):
    """What is trained, and on how many samples."""

    num_steps: int = Field(1, ge=1, description="optimizer steps")
    num_micro_batches: int = Field(1, ge=1, description="backwards per step and rank; all but the last in no_sync()")
    samples_per_micro_batch: int = Field(1, ge=1, description="per rank")
    dtypes: tuple[str, ...] = Field((), description="of its layers or branches; one: of all, or of the one narrow")
    column_major: bool = Field(False, description="square weights lie in column-major order")
    tied: bool = Field(False, description="a weight is used in two places")
    loud: bool = Field(False, description="gradients whose norm float16 holds, and whose square it does not")
    width: int | None = Field(None, ge=1, description="of the model's layers, where the workload lets it be chosen")
    depth: int | None = Field(None, ge=1, description="how many layers, where the workload lets it be chosen")


class OfForwards(Conditions):
    """How forwards and backwards are done. The single process does the same, where it has an effect on the result."""

    eval_mode: bool = Field(False, description="the model is trained in evaluation mode")
    norms_at_rest: bool = Field(False, description="norms alone are in evaluation mode, and the rest is not")
    use_no_sync: bool = Field(True, description="false: every micro-batch's backward may synchronise")
    whole_steps: Steps = Field((), description="steps whose micro-batches a rank takes all at once, as one batch")
    autocast: bool = Field(False, description="forwards run under torch.autocast in bfloat16")
    named_inputs: bool = Field(False, description="the model takes an input by name")
    input_gradients: bool = Field(False, description="the first input asks for its gradient")
    dataclass_outputs: bool = Field(False, description="the model returns a dataclass")
    list_outputs: bool = Field(False, description="the model returns a list")
    draws: bool = Field(False, description="the model draws random numbers, as dropout does")
    forwards_first: bool = Field(False, description="all forwards of a step before its first backward")
    one_backward: bool = Field(False, description="the losses of all forwards are summed, and one backward follows")
    glance: bool = Field(False, description="a forward without gradients comes between the last one and the backward")
    dropped_before: int | None = Field(None, description="before this step, a forward that no backward follows")
    drop_before: int | None = Field(None, description="before this step, a batch whose gradients are thrown away")
    drop_quiet_before: int | None = Field(None, description="the same, of a micro-batch under no_sync()")
    break_before: int | None = Field(None, description="before this step, a forward that raises half-way, everywhere")
    raise_before: int | None = Field(None, description="before this step an exception leaves a no_sync() context")


class OfTheOptimizer(Conditions):
    """What the optimizer is asked for, and what is done before its step. The single process does the same."""

    optimizer: Literal["sgd", "adamw"] = "sgd"
    weight_decay: float = Field(0.0, ge=0)
    betas: tuple[float, float] | None = Field(None, description="of AdamW; None: torch's own")
    eps: float | None = Field(None, gt=0, description="of AdamW; None: torch's own")
    groups: bool = Field(False, description="the optimizer gets groups of parameters with options of their own")
    alike: bool = Field(False, description="and their options are the same, until the second's learning rate changes")
    joins: bool = Field(False, description="half of the parameters join the optimizer by add_param_group()")
    frozen_too: bool = Field(False, description="the optimizer gets all parameters, those that are frozen as well")
    parameters_once: bool = Field(False, description="the optimizer gets parameters that can be gone through once")
    zero_grad: Literal["before_forward", "after_forward"] = "before_forward"
    set_to_none: bool = Field(True, description="how zero_grad() is called")
    zeros_matter: bool = Field(False, description="not judged where zero_grad() cannot be asked for zeros")
    clip_norm: float | None = Field(None, gt=0, description="clip_grad_norm_ before the step")
    largest_norm: bool = Field(False, description="and it is clipped by the largest element, norm_type=inf")
    loose_clip_in: Steps = Field((), description="steps in which the norm may be far larger than it ever is")
    new_lr_after: Steps = Field((), description="after these steps the learning rate changes in param_groups")
    new_momentum_after: int | None = Field(None, description="after this step momentum changes in param_groups")
    new_options_after: int | None = Field(
        None, description="after this step AdamW's betas change in param_groups, one group's decay, the other's rate"
    )


class OfInterruptions(Conditions):
    """What comes between steps: evaluations, checkpoints, a restart, a change of the model."""

    evaluate_after: Steps = Field((), description="after these steps a forward in eval mode; -1: before the first")
    evaluate_amid: bool = Field(False, description="and one after the first micro-batch of each step")
    evaluate: bool = Field(False, description="the workload's own evaluation runs after the last step")
    save_after: int | None = Field(None, description="after this step a checkpoint is made, and training goes on")
    save_amid: bool = Field(False, description="and one after the second micro-batch of each step, unless disclaimed")
    resume_after: int | None = Field(
        None, ge=-1, description="after this step a fresh replica takes over by state_dict(); -1: before the first"
    )
    resumed_twice: bool = Field(False, description="and another one takes over from that, before the next step")
    built_first: bool = Field(False, description="the fresh replica has its optimizer before anything is loaded")
    stepped_first: bool = Field(False, description="and it has taken a step before that, which is thrown away")
    own_saves: bool = Field(False, description="who has saved nothing loads that; false: it loads what rank 0 has")
    change_after: int | None = Field(None, description="after this step the model is changed under the wrapper")
    change: Literal["freeze", "unfreeze", "replace"] = Field("freeze", description="what happens to a layer then")


class OfLargeNumbers(Conditions):
    """Where a gradient or a loss is infinite, no number, or many times as large as others (``verifier.spikes``)."""

    overflow: bool = Field(False, description="in some steps a gradient is infinite (verifier.spikes)")
    spike: Literal["inf", "nan"] = Field("inf", description="what is put there; nan: it is no number at all")
    spike_early: bool = Field(False, description="a later one, on the same rank, is in a step's first micro-batch")
    rank_0_first: bool = Field(False, description="rank 0 meets that first, and not the last rank")
    infinite_loss: bool = Field(False, description="a rank's loss is infinite, by a constant: no gradient is")
    surges: bool = Field(False, description="in later steps one rank's gradients are some times as long")


class OfRanks(Conditions):
    """Where ranks may differ."""

    same_start: bool = Field(True, description="replicas are built equal; false: each rank draws its own weights")
    same_registration: bool = Field(True, description="false: some ranks register equal parameters in another order")
    uneven: bool = Field(False, description="odd ranks have one step more; all train inside the wrapper's join()")
    even_ranks_longer: bool = Field(False, description="and it is even ranks that have it")
    beside: Literal["before", "after"] | None = Field(
        None, description="a second model is trained in turns, wrapped before or after the one that is judged"
    )
    one_backward_for_both: bool = Field(False, description="in the last step one backward runs through both models")
    own_interpreters: bool = Field(False, description="each rank is a Python of its own, as under torchrun, not a fork")
    imported_first: bool = Field(False, description="the strategy is imported before there is a process group")
    several_nodes: bool = Field(False, description="ranks are told, as by torchrun, that they are on several nodes")
    subgroups: bool = Field(False, description="each rank's strategy is given a process group smaller than the job")
    alone_for: int | None = Field(None, ge=1, description="one rank by itself takes the samples of this many ranks")
    nudge: float = Field(0.0, description="this is added to every element of that rank's gradients")
    loss_times: int = Field(1, ge=1, description="the loss is multiplied by this, where that rank stands for a sum")


class OfObserving(Conditions):
    """What the observer does, and what is recorded."""

    tagged: bool = Field(False, description="gradients are replaced by codes that name their parameter and element")
    tags_move_weights: bool = Field(False, description="weights are judged, though it is by tags that they moved")
    poison: bool = Field(True, description="a tensor in flight holds NaN until the strategy waits for it")
    delay_ms: float = Field(0.0, ge=0, description="collectives start and finish late by up to this, seeded by rank")
    slow_backward: bool = Field(
        False, description="autograd waits behind every hook, for threads of the strategy's own"
    )
    keep_steps: int = Field(8, ge=0, description="contents are kept of the first steps, digests of all")
    payloads: bool = Field(False, description="what collectives carry is kept, as it is of tagged gradients")
    small_buckets: bool = Field(False, description="built-in strategies get a small bucket cap: several buckets")
    small_caps: bool = Field(False, description="and so do others, which take one in MB")


class OfClaims(Conditions):
    """What is asked of the strategy, and who judges."""

    needs: tuple[str, ...] = Field(
        (), description="claims without which a strategy may refuse this, raising on every rank"
    )
    only_if_claimed: tuple[str, ...] = Field((), description="claims without which this is not run at all")
    unscaled: bool = Field(False, description="gradients are not judged where the strategy multiplies the loss")
    judged_by: tuple[str, ...] | None = Field(None, description="only these check codes read this; None: all")
