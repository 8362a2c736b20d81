"""Every collective of torch, and how it is put under the observer: one row for each ``c10d::`` operator.

``torch.library`` lets Python run in front of the kernels of these operators. torch's C++ reducer, FSDP, functional
collectives and user code all go through them, and are observed alike; patching ``torch.distributed`` would miss most.

Special here: nothing is replaced. We register on BackendSelect, a dispatch key that every call passes before it reaches
the kernel of its device, and *redispatch* to that kernel with shadows in place of the outputs. So all backends, layouts
and reduce operations work, and errors are torch's own. ``redispatch`` lets go of the GIL, as a backend's bound method
does; ``call_boxed`` on the kernel holds it and deadlocks one run in three. The keys below ours are given explicitly:
excluding ours for the thread would be inherited by the transport's threads.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed import ProcessGroup, ReduceOp, Work

from verifier.errors import OurFault
from verifier.lines import SHARES_MEMORY
from verifier.observe import synchronising
from verifier.observe.exchanges import EXCHANGES
from verifier.observe.observer import Call, Observer
from verifier.uncompiled import uncompiled

_observers: list[Observer] = []  # of this process: one, or none yet
_libraries: list[torch.library.Library] = []  # a registration lives as long as its library object
_unknown: list[str] = []
_OURS = torch._C.DispatchKey.BackendSelect


@dataclass(frozen=True)
class Operator:
    """A known operator: its schema, and which arguments the transport reads and writes.

    The schema is written without class prefixes, ``async_op`` and ``timeout``; these two are passed on as they are.
    """

    schema: str
    reads: str | None = None
    writes: str | None = None  # an in-place argument is in ``writes`` alone
    peer: str | None = None

    def check(self, name: str, found: str) -> None:
        """Raise OurFault if torch's ``found`` schema is not the known one."""
        for noise in ("__torch__.torch.classes.c10d.", ", bool async_op=True", ", int timeout=-1"):
            found = found.replace(noise, "")
        if found != self.schema:
            raise OurFault(
                f"torch {torch.__version__} has changed the operator c10d::{name}, which the observer stands before. "
                f"Known: {self.schema}. Found: {found}. Use a torch of which Lockstep knows the operators (2.13), or "
                f"bring the row of {name} in verifier/observe/kernels.py up to date."
            )


_PG = "ProcessGroup process_group"
OPERATORS: dict[str, Operator] = {
    "allreduce_": Operator(
        f"(Tensor[] tensors, {_PG}, ReduceOp reduce_op, Tensor? sparse_indices) -> (Tensor[], Work)", writes="tensors"
    ),
    "allreduce_coalesced_": Operator(f"(Tensor[] tensors, {_PG}, ReduceOp reduce_op) -> Work", writes="tensors"),
    "broadcast_": Operator(
        f"(Tensor[] tensors, {_PG}, int root_rank, int root_tensor) -> (Tensor[], Work)", writes="tensors"
    ),
    "reduce_": Operator(
        f"(Tensor[] tensors, {_PG}, ReduceOp reduce_op, int root_rank, int root_tensor) -> Work", writes="tensors"
    ),
    "allgather_": Operator(
        f"(Tensor[][] output_tensors, Tensor[] input_tensors, {_PG}) -> (Tensor[][], Work)",
        reads="input_tensors",
        writes="output_tensors",
    ),
    "_allgather_base_": Operator(
        f"(Tensor output_tensor, Tensor input_tensor, {_PG}) -> (Tensor, Work)",
        reads="input_tensor",
        writes="output_tensor",
    ),
    "allgather_coalesced_": Operator(
        f"(Tensor[][] output_lists, Tensor[] input_list, {_PG}) -> Work", reads="input_list", writes="output_lists"
    ),
    "allgather_into_tensor_coalesced_": Operator(
        f"(Tensor[] outputs, Tensor[] inputs, {_PG}) -> Work", reads="inputs", writes="outputs"
    ),
    "reduce_scatter_": Operator(
        f"(Tensor[] output_tensors, Tensor[][] input_tensors, {_PG}, ReduceOp reduce_op) -> (Tensor[], Work)",
        reads="input_tensors",
        writes="output_tensors",
    ),
    "_reduce_scatter_base_": Operator(
        f"(Tensor output_tensor, Tensor input_tensor, {_PG}, ReduceOp reduce_op) -> (Tensor, Work)",
        reads="input_tensor",
        writes="output_tensor",
    ),
    "reduce_scatter_tensor_coalesced_": Operator(
        f"(Tensor[] outputs, Tensor[] inputs, {_PG}, ReduceOp reduce_op) -> Work", reads="inputs", writes="outputs"
    ),
    "alltoall_": Operator(
        f"(Tensor[] output_tensors, Tensor[] input_tensors, {_PG}) -> (Tensor[], Work)",
        reads="input_tensors",
        writes="output_tensors",
    ),
    "alltoall_base_": Operator(
        f"(Tensor output, Tensor input, {_PG}, int[] output_split_sizes, int[] input_split_sizes) -> Work",
        reads="input",
        writes="output",
    ),
    "gather_": Operator(
        f"(Tensor[][] output_tensors, Tensor[] input_tensors, {_PG}, int root_rank) -> Work",
        reads="input_tensors",
        writes="output_tensors",
    ),
    "gather_into_tensor_": Operator(
        f"(Tensor output_tensor, Tensor input_tensor, {_PG}, int root_rank) -> (Tensor, Work)",
        reads="input_tensor",
        writes="output_tensor",
    ),
    "scatter_": Operator(
        f"(Tensor[] output_tensors, Tensor[][] input_tensors, {_PG}, int root_rank) -> (Tensor[], Work)",
        reads="input_tensors",
        writes="output_tensors",
    ),
    "barrier": Operator(f"(Tensor tensor, {_PG}, int[] device_ids) -> Work"),
    "monitored_barrier_": Operator(f"(Tensor tensor, {_PG}, int[] device_ids, int timeout, bool wait_all_ranks) -> ()"),
    "send": Operator(f"(Tensor[] tensors, {_PG}, int dst, int tag) -> Work", reads="tensors", peer="dst"),
    "recv_": Operator(f"(Tensor[] tensors, {_PG}, int src, int tag) -> Work", writes="tensors", peer="src"),
    "recv_any_source_": Operator(f"(Tensor[] tensors, {_PG}, int tag) -> Work", writes="tensors"),
}
TAKEN_AS_THEY_LIE = frozenset({"allreduce_", "broadcast_", "reduce_", "scatter_"})  # by gloo, whatever their strides
LATER = frozenset({"gather_into_tensor_"})  # since torch 2.14, and not in gloo: an older one need not have it
NOT_COLLECTIVES = frozenset({"check_for_nan"})


def install(observer: Observer) -> None:
    """Route this process's collectives through ``observer``, and no longer through an earlier one.

    Raises OurFault if torch's operators are not the known ones. Unknown operators go unobserved; the journal says so.
    """
    prepare()
    if _unknown:
        observer.journal.note("unobserved", _unknown)
    _observers[:] = [observer]
    synchronising.watch(_observers)


def prepare() -> None:
    """Register in front of torch's operators; all calls pass through unchanged until there is an observer.

    This takes longer than a small scenario, so the fork server does it once, for all the processes that it forks.

    Raises OurFault as ``install``.
    """
    if _libraries:
        return
    found = {schema.name.removeprefix("c10d::"): schema for schema in _schemas()}
    known = {name: operator for name, operator in OPERATORS.items() if name in found or name not in LATER}
    for name, operator in known.items():
        operator.check(name, str(found[name]).removeprefix(f"c10d::{name}") if name in found else "no such operator")
    _unknown.extend(sorted(found.keys() - OPERATORS.keys() - NOT_COLLECTIVES))
    library = torch.library.Library("c10d", "IMPL")
    _libraries.append(library)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, operator in known.items():
            library.impl(name, _kernel(name, operator, found[name]), _OURS.name, with_keyset=True)
    _watch_batches()


def _schemas() -> list[Any]:
    return [schema for schema in torch._C._jit_get_all_schemas() if schema.name.startswith("c10d::")]


def _kernel(name: str, operator: Operator, schema: Any) -> Callable[..., Any]:
    """Return the function that runs in front of operator ``name``."""
    handle = getattr(torch.ops.c10d, name).default
    names = [argument.name for argument in schema.arguments]
    returns_tensors, returns_work = len(schema.returns) == 2, len(schema.returns) > 0

    @uncompiled
    def kernel(keys: Any, *args: Any, **kwargs: Any) -> Any:
        below = keys.remove(_OURS)
        # A compiler or a fake tensor asks for shapes: nothing is sent.
        if not _observers or below.has(torch._C.DispatchKey.Meta):
            return handle.redispatch(below, *args, **kwargs)
        (observer,) = _observers
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        reads, writes = operator.reads, operator.writes
        if name == "broadcast_" and given["root_rank"] == ProcessGroup.unbox(given["process_group"]).rank():
            reads, writes = writes, None  # the root's tensor is only read, by the transport and perhaps by the caller

        def start(shadows: list[torch.Tensor], inputs: list[torch.Tensor]) -> Any:
            if (told := _ours(name, sharing_memory, name, [*call.inputs, *call.outputs])) is not None:
                observer.journal.note(SHARES_MEMORY, told)
                raise RuntimeError(told)
            swapped = dict(given)
            for argument, tensors in ((reads, inputs), (writes, shadows)):
                if argument is not None:
                    swapped[argument] = _refilled(given[argument], iter(tensors))
            result = handle.redispatch(
                below, *(swapped[n] for n in names[: len(args)]), **{n: swapped[n] for n in kwargs}
            )
            boxed = result[-1] if returns_tensors else result
            return None if boxed is None or not returns_work else Work.unbox(boxed)

        call = _ours(name, _call, name, operator, given, reads, writes)
        if writes is None and operator.writes:  # a broadcast on its root has a result, too
            call.results = call.inputs
        if not returns_work:
            return observer.issue_blocking(call, lambda: start([], []))
        work = observer.issue(call, start).boxed()
        return (given[operator.writes or ""], work) if returns_tensors else work

    return kernel


def _call(name: str, operator: Operator, given: dict[str, Any], reads: str | None, writes: str | None) -> Call:
    group = ProcessGroup.unbox(given["process_group"])
    call = Call(
        name,
        group,
        inputs=list(_flat(given[reads])) if reads else [],
        outputs=list(_flat(given[writes])) if writes else [],
        reduce_op=_reduce_name(given["reduce_op"]) if "reduce_op" in given else None,
        root=given.get("root_rank"),
        peer=given[operator.peer] if operator.peer else None,
        tag=given.get("tag"),
    )
    if name in EXCHANGES:
        call.sends, call.receives = EXCHANGES[name](given, group.rank(), group.size())
    return call


def sharing_memory(name: str, tensors: list[torch.Tensor]) -> str | None:
    """Return what is wrong with giving ``tensors`` to gloo, or None. gloo assumes memory for every element; if elements
    share memory, it goes on beyond the end (NCCL refuses such tensors). None also if gloo copies, or refuses by itself.
    """
    for tensor in tensors if name in TAKEN_AS_THEY_LIE else ():
        if tensor.device.type != "cpu" or tensor.layout != torch.strided or tensor.numel() < 2:
            continue
        if any(size > 1 and stride == 0 for size, stride in zip(tensor.shape, tensor.stride(), strict=True)):
            shape, strides = list(tensor.shape), list(tensor.stride())
            return (
                f"{name.strip('_')} was given a tensor of shape {shape} and strides {strides}, whose elements share "
                "memory, as expand() makes them, and as the gradient of a sum() is: gloo goes on behind its end"
            )
    return None


def _ours(name: str, function: Callable[..., Any], *args: Any) -> Any:
    """Call ``function``; turn an error into OurFault, since errors of the transport are the strategy's to explain."""
    try:
        return function(*args)
    except Exception as error:
        raise OurFault(f"the observer failed in {name.strip('_')}: {error!r}") from error


def _flat(nested: Any) -> Iterator[torch.Tensor]:
    if isinstance(nested, torch.Tensor):
        yield nested
    else:
        for item in nested:
            yield from _flat(item)


def _refilled(nested: Any, tensors: Iterator[torch.Tensor]) -> Any:
    """Return ``tensors``, nested as ``nested`` is."""
    if isinstance(nested, torch.Tensor):
        return next(tensors)
    return [_refilled(item, tensors) for item in nested]


def _reduce_name(boxed: Any) -> str:
    return str(ReduceOp.RedOpType(boxed.op())).rpartition(".")[2]


def _watch_batches() -> None:
    """Watch batches: NCCL launches the calls between these two methods as one, and only the end returns a Work."""
    start, end = ProcessGroup._start_coalescing, ProcessGroup._end_coalescing

    @uncompiled
    def started(group: ProcessGroup, device: torch.device) -> None:
        start(group, device)  # raises for a backend that has no batches
        for observer in _observers:
            observer.start_batch(group)

    @uncompiled
    def ended(group: ProcessGroup, device: torch.device) -> Work:
        work = end(group, device)
        for observer in _observers:
            work = observer.end_batch(group, work)
        return work

    patched: Iterable[tuple[str, Any]] = (("_start_coalescing", started), ("_end_coalescing", ended))
    for name, function in patched:
        setattr(ProcessGroup, name, function)
