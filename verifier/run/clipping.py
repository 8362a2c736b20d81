"""Whether a loop can clip the gradients that the strategy steps by, between the backward and the step.

Special here: a style may say so beforehand (``Driver.can_clip``). An optimizer, or a hook on it, shows only in the
first ``step()`` that it reduces gradients there, which each rank had clipped by its own norm. The signs are: gradients
change in ``step()``, or as many elements are reduced there as are trained (perhaps into a shard of its own).
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import torch

from verifier.lines import NORM
from verifier.run.together import any_rank_says

if TYPE_CHECKING:
    from verifier.worker import Subject

TOO_EARLY = "gradients may not be final before step(), and there is no clip_grad_norm_() of its own"
TORCHS = "there is no clip_grad_norm_() of its own that takes a norm_type"


def why_not(subject: Subject) -> str | None:
    """Return why a loop cannot clip here as the scenario has it. None: it can, or the scenario does not clip."""
    if subject.scenario.clip_norm is None:
        return None
    if subject.scenario.largest_norm and not subject.driver.clips_by_other_norms:
        return TORCHS
    return None if subject.driver.can_clip else TOO_EARLY


def clip(subject: Subject, step: int, max_norm: float) -> None:
    """Clip, and write down the returned norm if it is one number. Loops log it, and skip steps by it.

    To read a DTensor would be a collective, and not the strategy's.
    """
    other = {"norm_type": subject.scenario.norm_type} if subject.scenario.largest_norm else {}
    returned = subject.driver.clip([p for _, p in subject.parameters], max_norm, **other)
    if not isinstance(returned, bool | str | torch.Tensor) or type(returned) is torch.Tensor:
        with suppress(TypeError, ValueError, RuntimeError):  # it is no number: nothing was promised
            norm = float(returned.detach() if isinstance(returned, torch.Tensor) else returned)
            subject.journal.tensor("norm", step, NORM, torch.tensor(norm, dtype=torch.float64), keep=True)


def was_too_early(subject: Subject) -> bool:
    """Return whether the strategy's optimizer, in the first step, reduced on any rank what the loop had clipped.

    All ranks are asked: where one rank serves the others, only that rank puts sums in the gradients' place.
    """
    if subject.scenario.clip_norm is None:
        return False
    return any_rank_says(subject, "clipped_too_early", _reduced_in_step(subject))


def _reduced_in_step(subject: Subject) -> bool:
    driver = subject.driver
    if driver.own_clip is not None:
        return False
    trained, reduced = sum(parameter.numel() for _, parameter in subject.parameters), subject.observer.num_reduced
    already = reduced[0, "backward"] + reduced[0, "before_step"] >= trained  # then step() only hands out new weights
    return ("gradient", 0) in subject.journal.replaced or (reduced[0, "step"] >= trained > 0 and not already)
