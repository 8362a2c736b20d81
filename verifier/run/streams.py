"""Random numbers of a rank's own: torch's, numpy's and Python's are seeded for each, and what is left of that is told.

Special here: what reads the states is taken hold of before a strategy is loaded, which may replace anything.
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
    """Give this rank random numbers of its own: replicas that draw the same dropout train on less than they seem to."""
    seed = scenario.seed * 1009 + 7 * rank + 11
    seed_torch(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)


def seed_torch(seed: int) -> None:
    """As ``torch.manual_seed``, which takes a millisecond to keep a stack trace for devices that are not there."""
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(seed)


def states() -> dict[str, str]:
    """Digests of the states, by whose they are. Torch's is that of the CPU; a GPU has one of its own."""
    others = {"numpy": _of_numpy(legacy=False), "Python": _of_python()}
    told = {whose: xxhash.xxh3_128_hexdigest(pickle.dumps(state)) for whose, state in others.items()}
    if torch.cuda.is_initialized():
        told["CUDA"] = digest(_of_cuda())
    return {"torch": digest(_of_torch()), **told}


def drawn_so_far() -> list[torch.Tensor]:
    """The states of torch's streams, of the CPU and of the GPU that this process uses; for ``draw_on``."""
    return [_of_torch(), *([_of_cuda()] if torch.cuda.is_initialized() else [])]


def draw_on(states: list[torch.Tensor]) -> None:
    """Go on drawing from where ``drawn_so_far`` was told."""
    torch.set_rng_state(states[0])
    for state in states[1:]:
        torch.cuda.set_rng_state(state)
