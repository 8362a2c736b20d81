"""Restart: the run is saved, everything is built anew, model and optimizer, and then both are loaded.

As most training scripts do it; in ``resume`` the optimizer is made from what has been loaded. The model has frozen
weights and buffers drawn at random, and AdamW counts its steps: a checkpoint has to hold those as well. Here, too, it
is the second checkpoint that is loaded.
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
