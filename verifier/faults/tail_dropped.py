"""The transport works in blocks of 16 elements, and what is left over at the end of a buffer stays as it was.

As in NVIDIA/nccl#1950: sizes that are a multiple of the block, as in most tests, come out right.
"""

from __future__ import annotations

from typing import Any

from verifier.fault import fault

BLOCK = 16


@fault(trips={"LS101", "LS201"}, cause="not_synchronised", applies_to=("bucketed",))
def tail_dropped(model: Any, wrap: Any) -> Any:
    wrapped = wrap(model)
    comm = wrapped.comm
    all_reduce_async = comm.all_reduce_async

    class Nothing:
        def wait(self) -> None:
            pass

    def whole_blocks(buffer: Any) -> Any:
        covered = buffer.numel() // BLOCK * BLOCK
        return all_reduce_async(buffer[:covered]) if covered else Nothing()

    comm.all_reduce_async = whole_blocks
    return wrapped


FAULT = tail_dropped
