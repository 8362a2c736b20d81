"""Large gradients: float16 can hold their mean over ranks, and cannot hold their sum.

torch's own hook for float16 therefore divides before it adds up. In ``standard`` where the strategy's own text has a
word for float16. Not judged where the strategy multiplies the loss, as a scaler does, because float16 holds even less
of that and a scaler may rightly skip the step; nor where it declares a sum in float16.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    standard_where="float16",
    workload="loud",
    repeat=False,
    fields={"small_buckets": True, "unscaled": True, "judged_by": ("LS201", "LS202", "LS601")},
)
