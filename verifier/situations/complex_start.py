"""Complex start: real and complex parameters, built with other numbers on every rank.

A weight that is neither a floating point number nor a whole one, as ``is_floating_point()`` has it, is easily left out;
half of one, too. In ``standard`` where the strategy's own text has a word for one of those.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    standard_where="kinds of numbers",
    order=15,
    workload="layers",
    repeat=False,
    fields={
        "same_start": False,
        "judged_by": ("LS001", "LS301"),
        "small_buckets": True,
        "needs": ("complex_parameters", "broadcasts_at_start"),
    },
)
