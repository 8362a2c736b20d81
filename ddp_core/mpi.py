"""A communicator over MPI (mpi4py), for clusters whose network is reached through ``mpirun`` or ``srun``.

Special here: mpi4py reads CPU tensors through their buffers, and it reads bfloat16 as 16-bit *integers*: the sum of
two ones is then 4.25e37, without an error. So only dtypes that MPI can add are handed over; half precision is sent as
float32, and other dtypes are refused. Broadcasts move bytes and take every dtype.

mpi4py is optional (``pip install 'lockstep-ddp[mpi]'``) and imported when a communicator is made. Start scripts with
``mpirun -n 4 python -m mpi4py script.py``: without ``-m mpi4py`` a rank that raises leaves the others waiting.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch

from ddp_core.communicator import Communicator

SUMMABLE = (
    torch.float32, torch.float64, torch.complex64, torch.complex128,
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
)  # fmt: skip
WIDENED = (torch.float16, torch.bfloat16)  # summed in float32, rounded once at the end
MAX_COUNT = 2**30  # elements a message: before MPI 4, counts are C ints


class MpiCommunicator(Communicator):
    """Over an MPI communicator, ``MPI.COMM_WORLD`` unless given. Tensors on other devices go through a CPU copy.

    float16 and bfloat16 are summed in float32 and rounded once at the end: twice the bytes on the wire (``num_bytes``
    counts the tensor's own bytes), and closer to the exact sum than a backend that rounds after each addition.

    Raises ImportError if mpi4py is not installed, RuntimeError if it finds no MPI library.
    """

    def __init__(self, comm: Any = None) -> None:
        super().__init__()
        self._mpi = _load_mpi()
        self.comm = self._mpi.COMM_WORLD if comm is None else comm
        self.rank, self.world_size = self.comm.Get_rank(), self.comm.Get_size()

    def gather_objects(self, item: Any) -> list[Any]:
        items: list[Any] = self.comm.allgather(item)
        return items

    def barrier(self) -> None:
        self.comm.Barrier()

    def _all_reduce(self, tensor: torch.Tensor) -> None:
        if tensor.dtype not in SUMMABLE + WIDENED:
            raise TypeError(f"MPI cannot add up {tensor.dtype}. Convert the tensor to float32 or int64 first.")
        wire = tensor.cpu().view(-1)
        if tensor.dtype in WIDENED:
            wire = wire.float()
        for piece in wire.split(MAX_COUNT):
            self.comm.Allreduce(self._mpi.IN_PLACE, piece, op=self._mpi.SUM)
        if wire.data_ptr() != tensor.data_ptr():
            tensor.copy_(wire.view(tensor.shape))

    def _bcast(self, tensor: torch.Tensor, root: int) -> None:
        wire = tensor.cpu()
        wire = wire.as_strided((wire.numel(),), (1,))  # view(-1) would keep the stride of a single element
        for piece in wire.view(torch.uint8).split(MAX_COUNT):
            self.comm.Bcast(piece, root=root)
        if wire.data_ptr() != tensor.data_ptr():
            tensor.copy_(wire.view(tensor.shape))


def _load_mpi() -> Any:
    try:
        importlib.import_module("mpi4py")
    except ImportError as error:
        raise ImportError(
            "MpiCommunicator needs mpi4py, which is not installed. Install it with: pip install 'lockstep-ddp[mpi]' "
            "and an MPI library, for example Debian's openmpi-bin"
        ) from error
    try:
        return importlib.import_module("mpi4py.MPI")  # initialises MPI
    except (ImportError, RuntimeError) as error:
        raise RuntimeError(
            f"mpi4py is installed but could not start MPI: {error}. "
            "Install an MPI library, for example Debian's openmpi-bin"
        ) from error
