"""Late ``zero_grad``: between forward and backward, and to zeros instead of None.

Gradients that are views into buckets, and buffers that are filled by adding, must survive both.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="llama",
    samples_per_micro_batch=2,
    fields={
        "num_steps": 3,
        "zero_grad": "after_forward",
        "set_to_none": False,
        "small_buckets": True,
        "needs": ("late_zero_grad", "float64"),
    },
)
