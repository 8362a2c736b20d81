"""A Communicator/Synchronizer pair beside a bare model: the loop broadcasts once and synchronises before each step.

Nothing is wrapped, no hook is set. ``wrap`` binds the pair to torch.distributed and broadcasts; over MPI, pass
``comm=MpiCommunicator()``. Calls and bytes are counted in ``.comm``.
"""

from __future__ import annotations

from torch import nn

from ddp_core.communicator import Communicator, TorchCommunicator
from ddp_core.strategy import ALL_CLAIMS, Contract
from ddp_core.synchronizer import Synchronizer

CONTRACT = Contract(
    sync_buffers=False,
    supports=ALL_CLAIMS - {"changes_after_wrap", "state_dict", "uneven_inputs"},
    disclaims=frozenset({"state_dict"}),
)


def wrap(
    model: nn.Module, *, use_bucketing: bool = True, bucket_cap_mb: float = 25.0, comm: Communicator | None = None
) -> Synchronizer:
    synchronizer = Synchronizer(comm or TorchCommunicator(), use_bucketing=use_bucketing, bucket_cap_mb=bucket_cap_mb)
    synchronizer.broadcast_parameters(model)
    return synchronizer
