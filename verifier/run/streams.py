"""Random numbers of a rank's own: torch's, numpy's and Python's are seeded per rank, and their states are reported.

Special here: the functions that read the states are kept from before a strategy is loaded, which may replace anything.
"""

from __future__ import annotations

import pickle
import random

import numpy as np
import torch
import xxhash

from verifier.journal import digest
from verifier.scenario import Scenario

_of_torch, _of_numpy, _of_python = torch.get_rng_state, np.random.get_state, random.getstate
_of_cuda = torch.cuda.get_rng_state


def seed_streams(scenario: Scenario, rank: int) -> None:
    """Seed this rank's own random numbers: replicas that draw the same dropout train on less than they seem to."""
    seed = scenario.seed * 1009 + 7 * rank + 11
    seed_torch(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)


def seed_torch(seed: int) -> None:
    """Seed like ``torch.manual_seed``, which spends a millisecond on a stack trace for devices that are not there."""
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(seed)


def states() -> dict[str, str]:
    """Return digests of the states, by whose they are. Torch's is that of the CPU; a GPU has one of its own."""
    others = {"numpy": _of_numpy(legacy=False), "Python": _of_python()}
    told = {whose: xxhash.xxh3_128_hexdigest(pickle.dumps(state)) for whose, state in others.items()}
    if torch.cuda.is_initialized():
        told["CUDA"] = digest(_of_cuda())
    return {"torch": digest(_of_torch()), **told}


def drawn_so_far() -> list[torch.Tensor]:
    """Return the states of torch's streams, of the CPU and of this process's GPU, for ``draw_on``."""
    return [_of_torch(), *([_of_cuda()] if torch.cuda.is_initialized() else [])]


def draw_on(states: list[torch.Tensor]) -> None:
    """Go on drawing from the states that ``drawn_so_far`` returned."""
    torch.set_rng_state(states[0])
    for state in states[1:]:
        torch.cuda.set_rng_state(state)
