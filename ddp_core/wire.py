"""bfloat16 on the wire, float32 in the sum: half the bytes, and an error that does not grow with the world size.

An all-reduce of bfloat16 rounds after every addition: over W ranks the error grows with W. Here each rank rounds its
gradients once, every rank adds up one W-th of the buffer in float32, in rank order, and the sums are rounded once more
when sent back. So an element is off by at most (u + u + u*u) times the sum of the magnitudes, with u = 2**-8 the unit
roundoff of bfloat16, for any W. Bytes per rank: 2 * (W-1)/W * n * 2, against 2 * (W-1)/W * n * 4 in float32.

Special here: the rank that adds up a part uses the rounded sum itself, as all other ranks do. Otherwise it would keep
more digits than the others, and replicas would diverge.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from ddp_core.comm import Comm


class Bfloat16Wire:
    """One all-reduce of ``buffer`` (float32, flat) in flight. ``wait()`` leaves the sum over ranks in ``buffer``."""

    def __init__(self, comm: Comm, buffer: torch.Tensor) -> None:
        self.comm, self.buffer = comm, buffer
        self.part = -(-buffer.numel() // comm.world_size)  # elements each rank adds up; the last part is padded
        outgoing = buffer.new_zeros(self.part * comm.world_size, dtype=torch.bfloat16)
        outgoing[: buffer.numel()].copy_(_rounded(buffer))
        self.outgoing, self.incoming = outgoing, torch.empty_like(outgoing)
        self.work = comm.all_to_all_async(self.incoming, outgoing)

    def wait(self) -> None:
        self.work.wait()
        shares = self.incoming.view(self.comm.world_size, self.part)
        summed = shares[0].float()
        for share in shares[1:]:
            summed.add_(share)
        every = torch.cat(self.comm.all_gather(_rounded(summed)))
        self.buffer.copy_(every[: self.buffer.numel()])


def _rounded(exact: torch.Tensor) -> torch.Tensor:
    """``exact`` in bfloat16. A value that rounds to zero becomes +0.0: -0.0 means "absent" (ddp_core.unused)."""
    rounded = exact.to(torch.bfloat16)
    return rounded.masked_fill_((rounded == 0) & (exact != 0), 0.0)
