"""Registration order: odd ranks register two equal layers the other way round. They are matched by name, or refused.

torch's DDP pairs parameters by place and compares shapes only, so it swaps the two without an error. Only strategies
that claim ``registration_order`` are tried.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="exact",
    fields={
        "same_registration": False,
        "small_buckets": True,
        "needs": ("matching_by_name",),
        "only_if_claimed": ("registration_order",),
    },
)
