"""Resume: after the second of four steps the run is saved, and fresh replicas go on from what was saved.

It was saved once before, as most runs are: what is gathered for the first checkpoint is not what the second has to
hold.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="llama",
    samples_per_micro_batch=2,
    fields={
        "num_steps": 4,
        "save_after": 0,
        "resume_after": 1,
        "small_buckets": True,
        "needs": ("state_dict", "broadcasts_at_start", "float64"),
        "judged_by": ("LS503", "LS504", "LS801"),
    },
)
