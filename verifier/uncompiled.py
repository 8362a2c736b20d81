"""Keeps a strategy's compiler away from code of ours that runs inside the strategy's.

Special here: while code made by ``torch.compile`` runs, Dynamo compiles all Python that it meets, also the observer
below a collective, or a hook. Inductor's code then did not preserve the bits of the marker, by which DDP was accused of
writing to what it broadcasts; and compiling the verifier took a minute.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


def uncompiled(function: Callable[P, R]) -> Callable[P, R]:
    """``function``, never compiled, nor what it calls; a compiled caller has a graph break there."""
    kept: Callable[P, R] = torch.compiler.disable(function, reason="the verifier's own")
    return kept
