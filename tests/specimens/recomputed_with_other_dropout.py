"""Blocks are run again for the backward, to save memory, and draw other random numbers than they drew before.

A class of mistake: ``preserve_rng_state=False`` of torch's checkpoint, which saves time, in a model with dropout. The
gradient is then that of another dropout than the loss.
"""

from __future__ import annotations

from tests.controls.blocks_checkpointed import checkpointed

TRIPS = {"LS801"}
CAUSE = "drawn_again"


def wrap(model):
    return checkpointed(model, preserve_rng_state=False)
