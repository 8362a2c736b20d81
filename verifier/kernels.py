"""The replacements for torch's collectives: one function for each ``c10d::`` operator, and their installation.

``torch.library`` lets Python replace the CPU and CUDA kernels of these operators. torch's C++ reducer, FSDP, functional
collectives and user code all go through them, so all are seen alike; patching ``torch.distributed`` would miss most.

Special here: each replacement runs the *backend's own bound method*. Calling the original kernel boxed holds the GIL
and deadlocks one run in three.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
from torch._C import _distributed_c10d as c10d
from torch.distributed import ReduceOp

from verifier.errors import OurFault
from verifier.observer import Observer

_installed: list[Observer] = []
_libraries: list[torch.library.Library] = []  # a registration lives as long as its library object


def install(observer: Observer) -> None:
    """Route this process's collectives through ``observer``. Once per process."""
    assert not _installed, "a process has one observer"
    _installed.append(observer)
    library = torch.library.Library("c10d", "IMPL")
    _libraries.append(library)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "overriding a previously registered kernel": yes, that is the point
        for name, kernel in _KERNELS.items():
            for key in ("CPU", "CUDA"):
                library.impl(name, _guarded(kernel), key)


def _observer() -> Observer:
    return _installed[0]


def _options(options: Any, timeout_ms: int, **fields: Any) -> Any:
    for name, value in fields.items():
        setattr(options, name, value)
    if timeout_ms > 0:
        options.timeout = timedelta(milliseconds=timeout_ms)
    return options


def _reduce(boxed: Any) -> ReduceOp:
    return ReduceOp(ReduceOp.RedOpType(boxed.op()))


def _name(op: ReduceOp) -> str:
    return str(ReduceOp.RedOpType(op.op)).rpartition(".")[2] if hasattr(op, "op") else str(op).rpartition(".")[2]


def _guarded(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Tell our own mistakes from the transport's errors, which are RuntimeErrors and the strategy's to explain."""

    def guarded(*args: Any, **kwargs: Any) -> Any:
        try:
            return kernel(*args, **kwargs)
        except (AttributeError, TypeError, NameError, LookupError, AssertionError) as error:
            raise OurFault(f"the observer failed in {kernel.__name__.strip('_')}: {error!r}") from error

    return guarded


# The replacements. Each has the operator's schema (torch/csrc/distributed/c10d/Ops.cpp) as its signature; arguments
# that equal their default are not passed by the dispatcher, so defaults are stated here, too.


def _allreduce(tensors: Any, pg: Any, op: Any, sparse: Any, async_op: bool = True, timeout: int = -1) -> Any:
    reduce_op = _reduce(op)

    def start(backend: Any, shadows: list[torch.Tensor]) -> Any:
        return backend.allreduce(shadows, _options(c10d.AllreduceOptions(), timeout, reduceOp=reduce_op))

    work = _observer().issue("allreduce_", pg, tensors, tensors, start, reduce_op=_name(reduce_op))
    return tensors, work.boxed()


def _allreduce_coalesced(tensors: Any, pg: Any, op: Any, async_op: bool = True, timeout: int = -1) -> Any:
    reduce_op = _reduce(op)

    def start(backend: Any, shadows: list[torch.Tensor]) -> Any:
        return backend.allreduce_coalesced(
            shadows, _options(c10d.AllreduceCoalescedOptions(), timeout, reduceOp=reduce_op)
        )

    work = _observer().issue("allreduce_coalesced_", pg, tensors, tensors, start, reduce_op=_name(reduce_op))
    return work.boxed()


def _broadcast(tensors: Any, pg: Any, root: int, root_tensor: int, async_op: bool = True, timeout: int = -1) -> Any:
    def start(backend: Any, shadows: list[torch.Tensor]) -> Any:
        options = _options(c10d.BroadcastOptions(), timeout, rootRank=root, rootTensor=root_tensor)
        return backend.broadcast(shadows, options)

    work = _observer().issue("broadcast_", pg, tensors, tensors, start, root=root)
    return tensors, work.boxed()


def _reduce_to_root(
    tensors: Any, pg: Any, op: Any, root: int, root_tensor: int, async_op: bool = True, timeout: int = -1
) -> Any:
    reduce_op = _reduce(op)

    def start(backend: Any, shadows: list[torch.Tensor]) -> Any:
        options = _options(c10d.ReduceOptions(), timeout, reduceOp=reduce_op, rootRank=root, rootTensor=root_tensor)
        return backend.reduce(shadows, options)

    return _observer().issue("reduce_", pg, tensors, tensors, start, reduce_op=_name(reduce_op), root=root).boxed()


def _allgather(outputs: Any, inputs: Any, pg: Any, async_op: bool = True, timeout: int = -1) -> Any:
    flat = [tensor for row in outputs for tensor in row]

    def start(backend: Any, shadows: list[torch.Tensor]) -> Any:
        width = len(outputs[0])
        rows = [shadows[i : i + width] for i in range(0, len(shadows), width)]
        return backend.allgather(rows, inputs, _options(c10d.AllgatherOptions(), timeout))

    return outputs, _observer().issue("allgather_", pg, inputs, flat, start).boxed()


def _allgather_base(output: Any, tensor: Any, pg: Any, async_op: bool = True, timeout: int = -1) -> Any:
    def start(backend: Any, shadows: list[torch.Tensor]) -> Any:
        # The input may be a slice of the output (in place): then it must be read before the output is poisoned.
        return backend._allgather_base(shadows[0], tensor.clone(), _options(c10d.AllgatherOptions(), timeout))

    return output, _observer().issue("_allgather_base_", pg, [tensor], [output], start).boxed()


def _reduce_scatter_base(output: Any, tensor: Any, pg: Any, op: Any, async_op: bool = True, timeout: int = -1) -> Any:
    reduce_op = _reduce(op)

    def start(backend: Any, shadows: list[torch.Tensor]) -> Any:
        options = _options(c10d.ReduceScatterOptions(), timeout, reduceOp=reduce_op)
        return backend._reduce_scatter_base(shadows[0], tensor.clone(), options)

    work = _observer().issue("_reduce_scatter_base_", pg, [tensor], [output], start, reduce_op=_name(reduce_op))
    return output, work.boxed()


def _barrier(tensor: Any, pg: Any, device_ids: Any, async_op: bool = True, timeout: int = -1) -> Any:
    def start(backend: Any, shadows: list[torch.Tensor]) -> Any:
        return backend.barrier(_options(c10d.BarrierOptions(), timeout))

    return _observer().issue("barrier", pg, [], [], start).boxed()


_KERNELS: dict[str, Callable[..., Any]] = {
    "allreduce_": _allreduce,
    "allreduce_coalesced_": _allreduce_coalesced,
    "broadcast_": _broadcast,
    "reduce_": _reduce_to_root,
    "allgather_": _allgather,
    "_allgather_base_": _allgather_base,
    "_reduce_scatter_base_": _reduce_scatter_base,
    "barrier": _barrier,
}
