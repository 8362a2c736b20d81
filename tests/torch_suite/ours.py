"""``DataParallel`` with the constructor and the method names of torch's DDP, as far as they are public.

Special here: what is not offered raises ``NotApplicable``, which no ``except Exception`` of a test can swallow, so a
test that asks for it can neither pass nor fail by accident. Nothing is made up for a test: every method below only
calls one of ours that does the same under another name.
"""

from __future__ import annotations

import weakref
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, NoReturn

import torch.distributed as dist
from torch import nn

from ddp_core import DataParallel
from ddp_core.comm import Comm
from ddp_core.strategies.bucketed import Bucketed

HOOKS = "communication hooks: a strategy takes their place"
LOGGING = "DDP's logging data"
REDUCER = "internals of DDP's reducer"
IGNORING = "a private way to leave parameters out"

NOT_OFFERED = {
    "register_comm_hook": HOOKS,
    "_register_builtin_comm_hook": HOOKS,
    "_register_buffer_comm_hook": HOOKS,
    "_register_fused_optim": HOOKS,
    "_default_broadcast_coalesced": HOOKS,
    "_get_ddp_logging_data": LOGGING,
    "_set_ddp_runtime_logging_sample_rate": LOGGING,
    "logger": LOGGING,
    "reducer": REDUCER,
    "_build_params_for_reducer": REDUCER,
    "_build_debug_param_to_name_mapping": REDUCER,
    "_check_reducer_finalized": REDUCER,
    "_set_ddp_sink_clone": REDUCER,
    "_update_process_group": REDUCER,
    "bucket_bytes_cap_list": REDUCER,
    "broadcast_bucket_size": REDUCER,
    "_authoritative_rank": REDUCER,
    "parameters_to_ignore": IGNORING,
}
OPTIONS_NOT_OFFERED = {
    "mixed_precision": "DDP's own mixed precision",
    "delay_all_reduce_named_params": "delayed all-reduces",
    "param_to_hook_all_reduce": "delayed all-reduces",
    "bucket_cap_mb_list": "a list of bucket sizes",
    "skip_all_reduce_unused_params": "the option to skip all-reduces of unused parameters",
    "device_mesh": "a device mesh in place of a process group",
}


class NotApplicable(BaseException):
    """The test asks for something that ours does not offer; the message says what."""


class Ours(DataParallel):
    """DDP's constructor. ``device_ids`` and ``output_device`` mean nothing on the CPU; unused parameters are always
    found and a graph may always change, so that ``find_unused_parameters`` and ``static_graph`` need no option."""

    # True: a second look at a test, with what is refused done by this class: pickling, and taking an earlier wrapper
    # off a model before it is wrapped again. Does the rest of the test pass?
    lenient = False
    alive: ClassVar[weakref.WeakSet[DataParallel]] = weakref.WeakSet()

    def __init__(
        self,
        module: nn.Module,
        device_ids: Any = None,
        output_device: Any = None,
        dim: int = 0,
        broadcast_buffers: bool | None = None,
        init_sync: bool = True,
        process_group: Any = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
        forward_sync_buffers: bool | None = None,
        **others: Any,
    ) -> None:
        for name, value in others.items():
            if value not in (None, False):
                raise NotApplicable(OPTIONS_NOT_OFFERED[name])
        if not init_sync:
            raise NotApplicable("a start without any agreement of the ranks")
        self._options = {"gradient_as_bucket_view": gradient_as_bucket_view, "bucket_cap_mb": bucket_cap_mb}
        buffers = next(choice for choice in (forward_sync_buffers, broadcast_buffers, True) if choice is not None)
        if Ours.lenient:
            _take_earlier_wrappers_off(module)
        super().__init__(
            module,
            Bucketed(25.0 if bucket_cap_mb is None else bucket_cap_mb, gradient_as_bucket_view=gradient_as_bucket_view),
            comm=None if process_group is None else Comm(process_group),
            broadcast_buffers=buffers,
        )
        Ours.alive.add(self)

    def __getattr__(self, name: str) -> Any:
        if name in NOT_OFFERED:
            raise NotApplicable(NOT_OFFERED[name])
        return super().__getattr__(name)

    @staticmethod
    def _set_params_and_buffers_to_ignore_for_model(*args: Any) -> NoReturn:
        raise NotApplicable(IGNORING)

    @staticmethod
    def _get_data_parallel_params(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotApplicable(IGNORING)

    def _set_static_graph(self) -> None:
        """Nothing to set: see the class."""

    def _remove_autograd_hooks(self) -> None:
        self.unwrap()

    @property
    def process_group(self) -> Any:
        return self.join_process_group

    @property
    def forward_sync_buffers(self) -> bool:
        return self.broadcast_buffers

    def join(self, *args: Any, enable: bool = True, **kwargs: Any) -> AbstractContextManager[Any]:  # type: ignore[override]
        return super().join(*args, **kwargs) if enable else nullcontext()

    def __reduce_ex__(self, protocol: Any) -> Any:
        if not Ours.lenient:
            return super().__reduce_ex__(protocol)
        return _wrapped_again, (self.module, self._options)


def _take_earlier_wrappers_off(module: nn.Module) -> None:
    parameters, parts = set(module.parameters()), set(module.modules())
    for earlier in Ours.alive:
        if earlier not in parts and parameters & set(earlier.parameters()):
            earlier.unwrap()


def _wrapped_again(module: nn.Module, options: dict[str, Any]) -> Ours:
    assert dist.is_initialized()
    return Ours(module, **options)
