"""Subgroup's complex parameters: a process group smaller than the job, and layers of complex numbers.

Complex numbers travel as pairs of real numbers, by a path of their own, which has to name the group, too. Only tried
where ``wrap`` takes a ``process_group``; in ``standard`` where the strategy's own text has a word for one.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    standard_where="a process group",
    workload="layers",
    repeat=False,
    fields={
        "dtypes": ("float32", "complex64", "complex128"),
        "subgroups": True,
        "small_buckets": True,
        "needs": ("subgroups", "complex_parameters"),
        "judged_by": ("LS201",),
    },
)
