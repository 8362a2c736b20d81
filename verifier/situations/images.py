"""Images: two steps through a convolution and BatchNorm2d, whose statistics are over rows, height and width.

A strategy that synchronises norms has to count all of these, and to keep the channels apart. As in ``buffers``, a norm
over a rank's samples and one over all samples are both right, and gradients are compared in the first step.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="images",
    fields={
        "num_steps": 2,
        "judged_by": ("LS101", "LS102", "LS201"),
        "only_if_claimed": ("sync_buffers",),
    },
)
