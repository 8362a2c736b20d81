"""Restart: the run is saved, everything is built anew, model and optimizer, and then both are loaded.

Most training scripts do it this way; in ``resume`` the optimizer is made from loaded weights. The model has frozen
weights and buffers drawn at random, and AdamW counts its steps: a checkpoint has to hold those as well. The second
checkpoint is the one that is loaded, here too.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="saved",
    fields={
        "num_steps": 4,
        "optimizer": "adamw",
        "save_after": 0,
        "resume_after": 1,
        "built_first": True,
        "small_buckets": True,
        "needs": ("state_dict", "broadcasts_at_start", "odd_parameters", "float64"),
        "judged_by": ("LS503", "LS504"),
    },
)
