"""Code of ours that runs amid a strategy's own, where no compiler of the strategy's may follow.

Special here: while something runs that ``torch.compile`` made, Dynamo compiles whatever Python it meets, and so the
observer below a collective, or a hook. Inductor's code then no longer leaves the poison's bits as they are, which
accused DDP of writing to what it broadcasts; and a minute went into compiling the verifier.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


def uncompiled(function: Callable[P, R]) -> Callable[P, R]:
    """``function``, run as it is, with all that it calls; a compiled caller has a break in its graph there."""
    kept: Callable[P, R] = torch.compiler.disable(function, reason="the verifier's own")
    return kept
