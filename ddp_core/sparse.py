"""Sparse gradients, those of ``nn.Embedding(sparse=True)``, averaged over ranks without making them dense.

Special here: each rank has different rows, so an all-reduce in place is impossible. Every rank gathers all ranks'
indices and values, padded to the longest, and coalesces them in rank order: the same additions in the same order on
every rank, hence the same bytes. The modules, equal on every rank, tell which parameters are sparse; the gradients
cannot, because a rank may lack one.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from ddp_core.comm import Comm


def sparse_parameters(module: nn.Module) -> set[torch.Tensor]:
    """The trainable weights of embeddings that declare ``sparse=True``."""
    return {
        part.weight
        for part in module.modules()
        if isinstance(part, nn.Embedding | nn.EmbeddingBag) and part.sparse and part.weight.requires_grad
    }


class SparseGradients:
    """Averages the gradients of ``parameters`` over ranks, after backward. ``divisor``: the number of ranks."""

    def __init__(self, parameters: Sequence[nn.Parameter], comm: Comm) -> None:
        self.parameters, self.comm, self.divisor = list(parameters), comm, comm.world_size

    def reduce(self) -> None:
        for parameter in self.parameters:
            self._reduce(parameter)

    def _reduce(self, parameter: nn.Parameter) -> None:
        gradient = parameter.grad
        rows, values = _rows_and_values(gradient, parameter)
        mine = torch.tensor([rows.numel(), gradient is not None], dtype=torch.int64, device=parameter.device)
        every = [(int(num_rows), bool(used)) for num_rows, used in self.comm.all_gather(mine)]
        if not any(used for _, used in every):
            return  # no rank used it: no gradient, as in a single process
        longest = max(num_rows for num_rows, _ in every)
        if longest == 0:
            all_rows, all_values = rows, values
        else:
            all_rows = _trimmed(self.comm.all_gather(_padded(rows, longest)), every)
            all_values = _trimmed(self.comm.all_gather(_padded(values, longest)), every)
        summed = torch.sparse_coo_tensor(all_rows[None], all_values, parameter.shape, check_invariants=False).coalesce()
        summed.values().div_(self.divisor)
        parameter.grad = summed


def _rows_and_values(gradient: torch.Tensor | None, parameter: nn.Parameter) -> tuple[torch.Tensor, torch.Tensor]:
    """Row numbers, int64 of shape [n], and values of shape [n, *parameter.shape[1:]]."""
    if gradient is None:
        rows = torch.empty(0, dtype=torch.int64, device=parameter.device)
        return rows, torch.empty(0, *parameter.shape[1:], dtype=parameter.dtype, device=parameter.device)
    sparse = (gradient if gradient.is_sparse else gradient.to_sparse(1)).coalesce()  # dense if tied to a layer
    return sparse.indices()[0], sparse.values()


def _padded(tensor: torch.Tensor, length: int) -> torch.Tensor:
    return torch.cat([tensor, tensor.new_zeros(length - len(tensor), *tensor.shape[1:])])


def _trimmed(gathered: list[torch.Tensor], every: list[tuple[int, bool]]) -> torch.Tensor:
    return torch.cat([part[:num_rows] for part, (num_rows, _) in zip(gathered, every, strict=True)])
