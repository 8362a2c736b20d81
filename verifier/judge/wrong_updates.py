"""Why a weight differs from the single process's though its gradient was right, from its values around the step.

Special here: patterns are tried from the surest to the vaguest. If none fits, that is reported with low confidence.
"""

from __future__ import annotations

import math

import numpy as np

from verifier.judge.lost_options import lost_options
from verifier.judge.misplaced import same_in_another_order
from verifier.judge.movement import common_factor, is_about, rests, told, told_by_the_world_size
from verifier.judge.narrowing import held_in
from verifier.judge.weight_bounds import narrow_noise
from verifier.marker import holds_poison
from verifier.recording import RankRecording, Recording, Tensor
from verifier.scenario import SGD_LR, SGD_MOMENTUM, Scenario
from verifier.scheduling import FACTOR

EXPLAINS = "LS202"  # failures of this check: `causes` reads it here


def moved_unused(step: int, name: str) -> tuple[str, str, str, float]:
    """Cause, explanation, hint and confidence for a weight that has no gradient in the single process."""
    return (
        "unused_parameter_moved",
        f"no rank used {name} in step {step}, and its weights are not those of the single process, whose gradient "
        "is None there: a gradient of zeros lets weight decay and momentum move it",
        "leave the gradient of a parameter that no rank used at None",
        0.9,
    )


def explain_weight(recording: Recording, rank: RankRecording, step: int, name: str) -> tuple[str, str, str, float]:
    """Cause, explanation, hint and confidence for wrong weights of ``name`` on ``rank`` after ``step``."""
    assert recording.reference is not None
    before, after = rank.tensor("weight", step - 1, name), rank.tensor("weight", step, name)
    wanted = recording.reference.tensor("weight", step, name)
    gradient = recording.reference.tensor("gradient", step, name)
    if gradient is None:
        return moved_unused(step, name)
    if after is not None and after.values is not None and holds_poison(after.values):
        return (
            "update_differs",
            f"the weights of {name} hold, after step {step}, the marker that fills a tensor while its collective is in "
            "flight",
            "call work.wait() before the step that reads what the collective works on",
            0.5,
        )
    if rests(rank, name, step - 1, step):
        return _why_it_rests(recording, rank, step, name, gradient)
    if before is not None and after is not None and wanted is not None:
        pattern = _pattern(recording, step, wanted, before.values, after.values)
        if pattern is not None:
            return pattern
    if (observed := rank.tensor("gradient", step, name)) is None or observed.values is None:
        return (
            "update_differs",
            f"the weights of {name} are wrong after step {step}; their gradient was not whole on this rank to compare",
            "look at what each rank gives and gets of this gradient, also where some rank did not use the parameter",
            0.5,
        )
    return (
        "update_differs",
        f"the gradient of {name} was right in step {step}, and the weights after the optimizer's step are not",
        "look at what happens between the gradient and the step: clipping, scaling, skipped steps, optimizer state",
        0.5,
    )


def _why_it_rests(
    recording: Recording, rank: RankRecording, step: int, name: str, gradient: Tensor
) -> tuple[str, str, str, float]:
    """The same for weights that did not move. ``gradient``: the single process's."""
    if rank.tensor("gradient", step, name) is None and gradient.values is not None and not gradient.values.any():
        return (
            "zero_taken_for_none",
            f"the gradient of {name} is zero in step {step}, in every element, and not None; rank {rank.rank} has "
            "None, and there neither weight decay nor momentum moves the weights",
            "tell by whether a rank had a gradient at all that nobody used a parameter, and not by its sum; and do not "
            "make None of the zeros that zero_grad(set_to_none=False) leaves",
            0.9,
        )
    if step > 0 and _all_rest(recording, step):
        return (
            "step_left_out",
            f"no weight moved in step {step}, on any rank, though gradients are right",
            "step in each; if a rule of the strategy's own leaves steps out, as a single process with it would, say "
            "Contract(optimizer='own')",
            0.9,
        )
    return (
        "not_stepped",
        f"the weights of {name} did not move in step {step}",
        "hand the optimizer the parameters that are trained, and step on every rank, or send the new weights to those "
        "that do not",
        0.9,
    )


def _all_rest(recording: Recording, step: int) -> bool:
    return all(rests(rank, name, step - 1, step) for rank in recording.ranks for name in recording.parameter_names)


def _pattern(
    recording: Recording,
    step: int,
    expected: Tensor,
    before: np.ndarray | None,
    after: np.ndarray | None,
) -> tuple[str, str, str, float] | None:
    """The same if a pattern fits the weights before and after a step and the expected ones; else None."""
    name, wanted = expected.name, expected.values
    if (unheard := _unheard(recording, step, name, after, wanted)) is not None:
        return unheard
    if (lost := lost_options(recording, step, name, after)) is not None:
        return _explain_lost(name, lost)
    factor = common_factor(before, after, wanted)
    if factor is not None:
        return _explain_factor(recording.scenario, step, name, factor)
    if (rested := _rested(before, after, wanted)) is not None:
        return (
            "not_stepped",
            f"elements {rested} of {name}, laid flat, did not move in step {step}, and all others did as they should",
            "where a rank did not use the parameter, its part needs the mean gradient all the same"
            if _unused_by_some(recording, name)
            else "pad what is divided among ranks, so that the last elements have an owner, too",
            0.9,
        )
    if (dtype := held_in(after, wanted, step, narrow_noise(recording, step, expected))) is not None:
        return (
            "held_narrower",
            f"after step {step} {name} holds numbers of {dtype}, as near to the right ones as that dtype allows",
            "keep copies of weights in the dtype of the parameter, or say that this is not claimed: "
            'Contract(disclaims={"float64"})',
            0.9,
        )
    if same_in_another_order(after, wanted):
        return (
            "misplaced_elements",
            f"after step {step} every number of {name} is there, and not at its index: these are the right weights "
            "in another order",
            "copy weights by index: a view of a transposed tensor has its elements elsewhere in memory",
            0.9,
        )
    return None


def _unheard(
    recording: Recording, step: int, name: str, after: np.ndarray | None, wanted: np.ndarray | None
) -> tuple[str, str, str, float] | None:
    """The same if a change of options other than the learning rate was ignored, as schedulers make them; else None."""
    if recording.scenario.new_options_after == step - 1:
        return (
            "schedule_ignored",
            f"after step {step - 1}, up to which all weights were right, betas changed, the decay of one group and the "
            f"learning rate of the other, and in step {step} {name} does not move by the new ones",
            "read all options from the optimizer's param_groups in each step, each group its own: schedulers change "
            "them there",
            0.8,
        )
    if _with_old_momentum(recording, step, name, after, wanted):
        return (
            "schedule_ignored",
            f"momentum changed after step {step - 1}, and in step {step} {name} moved as with the old one",
            "read momentum, too, from the optimizer's param_groups in each step: schedulers change it there",
            0.95,
        )
    return None


def _with_old_momentum(
    recording: Recording, step: int, name: str, after: np.ndarray | None, wanted: np.ndarray | None
) -> bool:
    """Return whether ``after`` is SGD's second step with the old momentum, which was changed after the first step."""
    assert recording.reference is not None
    first = recording.reference.tensor("gradient", 0, name)  # it is also SGD's momentum buffer after that step
    if (recording.scenario.new_momentum_after, step) != (0, 1) or first is None or first.values is None:
        return False
    if after is None or wanted is None or after.shape != wanted.shape or not first.values.any():
        return False
    due = wanted - SGD_LR * SGD_MOMENTUM * (1 - FACTOR) * first.values
    return bool(np.allclose(after, due, rtol=1e-9, atol=0))


def _rested(before: np.ndarray | None, after: np.ndarray | None, wanted: np.ndarray | None) -> str | None:
    """The wrong elements, as "first-last", if they are one contiguous run of elements that did not move; else None."""
    if before is None or after is None or wanted is None or not before.shape == after.shape == wanted.shape:
        return None
    if not np.isfinite(after).all():  # NaN compares as neither right nor wrong
        return None
    start, end, due = (values.reshape(-1) for values in (before, after, wanted))
    largest = np.abs(due - start).max(initial=0.0)
    wrong = np.flatnonzero(np.abs(end - due) > 1e-3 * largest)
    if not wrong.size or wrong.size == due.size or wrong[-1] - wrong[0] >= wrong.size:
        return None
    return f"{wrong[0]}-{wrong[-1]}" if (end[wrong] == start[wrong]).all() else None


def _unused_by_some(recording: Recording, name: str) -> bool:
    """Return whether some rank had no gradient of its own in the first step."""
    alone, numbers = recording.reference, [rank.rank for rank in recording.ranks]
    return alone is not None and any(alone.tensor(f"local_gradient_{number}", 0, name) is None for number in numbers)


def _explain_lost(name: str, lost: str) -> tuple[str, str, str, float]:
    return (
        "options_lost",
        f"{name} moved as AdamW moves it with torch's own {lost}, and the optimizer was asked for with others",
        "hand on everything that an optimizer was given, and each group's own, where it is built over other tensors",
        0.95,
    )


_BY_RATE = "hand the optimizer the learning rate that the loop asks for; scale or clip no gradient inside step()"
_BY_SIZE = {  # by the power of the world size
    1: "divide the sum over ranks by their number before the update, or say Contract(average='sum'); and do not scale "
    "the learning rate",
    -1: "divide by the number of ranks once: not where gradients are reduced and again where they are used",
}


def _explain_factor(scenario: Scenario, step: int, name: str, factor: float) -> tuple[str, str, str, float]:
    if step == 0 and scenario.optimizer == "sgd" and is_about(factor, 2 + SGD_MOMENTUM):
        return (
            "stepped_twice",
            f"the weights of {name} moved {told(factor)} times as far as they should in step {step}, as two steps with "
            f"a momentum of {SGD_MOMENTUM:g} move them",
            "step once: in the loop or in the strategy, not in both",
            0.9,
        )
    if step - 1 in scenario.new_lr_after and is_about(factor, 1 / FACTOR):
        return (
            "schedule_ignored",
            f"the learning rate changed after step {step - 1}, and in step {step} {name} moved as far as "
            "with the old one",
            "read lr from the optimizer's param_groups in each step, where schedulers change it",
            0.95,
        )
    of_size = told_by_the_world_size(factor, scenario.world_size)
    return (
        "update_scaled",
        f"in step {step} the weights of {name} moved {told(factor)} times as far as the single process's{of_size}",
        _BY_SIZE.get(round(math.log(factor, scenario.world_size)) if of_size else 0, _BY_RATE),
        0.9 if of_size else 0.6,
    )
