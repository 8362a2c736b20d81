"""DataParallel: replicas that start equal, and a strategy that keeps their gradients equal.

Special here: the parts that all data-parallel wrappers need and often get wrong are in this module: agreement at the
start checked by *name*, buffers, ``no_sync`` that is restored on exceptions, a backward that raises, and a model that
changes after wrapping. It finds the end of backward through autograd's own callback, so ``loss.backward()`` returns
with synchronised gradients and a training loop needs no further call.
"""

from __future__ import annotations

import warnings
import weakref
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, NoReturn

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join, Joinable

from ddp_core import joining
from ddp_core.agreement import require_agreement, require_equal_values
from ddp_core.backward import BackwardWatch, current_backward
from ddp_core.broadcasting import broadcast_all
from ddp_core.census import Census
from ddp_core.comm import Comm
from ddp_core.sparse import SparseGradients, sparse_parameters
from ddp_core.strategy import Strategy
from ddp_core.unwrapped import FirstWrapHook, hook_objection, objection_to

_live: weakref.WeakSet[DataParallel] = weakref.WeakSet()


class DataParallel(nn.Module, Joinable):
    """Wrap ``module`` so that every rank's gradients are the mean over ranks when ``backward()`` returns.

    ``backward()`` averages all gradients accumulated so far, unless it runs inside ``no_sync()``. A parameter that no
    rank used keeps ``grad=None``. ``state_dict()`` is the bare model's. The wrapper refuses
    ``backward(create_graph=True)``, copying and pickling.

    Args:
        module: the same architecture on every rank; its weights may differ, rank 0's are taken.
        strategy: how gradients travel, for example ``Bucketed(bucket_cap_mb=25)``.
        comm: the ranks that take part; all of them by default.
        broadcast_buffers: copy rank 0's buffers (BatchNorm's running statistics, ...) to all ranks before each
            synchronised training forward. Unlike torch's DDP, it does not copy them before other forwards, so that one
            rank may evaluate alone. To evaluate with equal statistics on all ranks, call ``broadcast_state()`` first.
        start: ``"broadcast"`` rank 0's state, or ``"require_equal"``: refuse replicas that differ by a byte.

    Raises:
        ValueError: on every rank, if ``module`` has no trainable parameter, is wrapped already, lies on a device that
            the process group does not serve, or if names, shapes, strides or dtypes of parameters or buffers differ
            between ranks; the message names the first rank and parameter that differ.
        RuntimeError: there is no process group.
    """

    def __init__(
        self,
        module: nn.Module,
        strategy: Strategy,
        *,
        comm: Comm | None = None,
        broadcast_buffers: bool = True,
        start: Literal["broadcast", "require_equal"] = "broadcast",
    ) -> None:
        nn.Module.__init__(self)
        Joinable.__init__(self)
        self.module, self.strategy, self.comm = module, strategy, comm or Comm()
        self.broadcast_buffers = broadcast_buffers
        self.synchronises = True
        self.join_divisor: int | None = None  # None: always the world size; 0: the number of active ranks
        self._announced: bool | None = None
        self._gradients_seen = self._sparse_seen = self._first_without_graph = False
        self._backward = BackwardWatch(self._backward_over, self._abandon_backward)
        parameters, buffers = list(module.named_parameters()), list(module.named_buffers())
        require_agreement(self.comm, parameters, buffers, objection_to(module, self.comm))
        if start == "require_equal":
            require_equal_values(self.comm, [*parameters, *buffers])
        else:
            self.broadcast_state()
        self._prepare()

    def _prepare(self) -> None:
        named = [(name, p) for name, p in self.module.named_parameters() if p.requires_grad]
        sparse = sparse_parameters(self.module)
        self._parameters_in_turn = [p for _, p in named]
        self._sparse = SparseGradients([p for _, p in named if p in sparse], self.comm)
        self._announce_to_strategy = {id(p) for _, p in named if p not in sparse}
        self._apart: set[int] = set()
        self.strategy.prepare([(name, p) for name, p in named if p not in sparse], self.comm)
        hook = FirstWrapHook(weakref.WeakMethod(self._gradient_ready))
        self._handles = [p.register_post_accumulate_grad_hook(hook) for _, p in named]
        self._census = Census(self.module)
        self._buffer_holders = [part._buffers for part in self.module.modules()]  # the buffers may be replaced

    # -- a training step ---------------------------------------------------------------------------------------

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if not self._handles:
            raise RuntimeError("this model was unwrapped: use the bare model, or wrap it again")
        if not torch.is_grad_enabled():
            self._first_without_graph = True
            return self.module(*args, **kwargs)
        # Inside a backward a checkpoint repeats this forward. Only a re-entrant one ran it without a graph before.
        if current_backward() < 0 or self._first_without_graph:
            self._before_forward()
        self._first_without_graph = False
        output = self.module(*args, **kwargs)
        self._backward.enter_from(output, owner=self)
        return output

    @torch.compiler.disable
    def _before_forward(self) -> None:
        if self._backward.under_way and current_backward() < 0:
            self._abandon_backward()
        if objection := self._census.change() or hook_objection(self._parameters_in_turn):
            raise RuntimeError(objection)
        source = 0
        if self._join_config.enable:
            if self._announced:
                raise RuntimeError(
                    "inside join() each synchronised forward is followed by one backward before the next"
                )
            source = joining.announce(self)
            self._announced = self.synchronises
        if self.synchronises and self.training:
            self.broadcast_buffers_from(source)

    def _gradient_ready(self, parameter: nn.Parameter) -> None:
        if not self.synchronises:
            self._sparse_seen |= parameter.grad is not None and parameter.grad.is_sparse
            return
        outermost = self._backward.enter()
        if not self._gradients_seen:
            self._gradients_seen = True
            self._check_announcement()
            self._refuse_company()
            self._find_shared_gradients()
            self.strategy.backward_started()
        gradient = parameter.grad
        if gradient is None:  # autograd passed an undefined gradient: as if this rank had not used the parameter
            return
        if torch.is_grad_enabled():
            raise RuntimeError(
                "backward(create_graph=True) cannot be synchronised: the mean over ranks is not part of the graph. "
                "Use torch.autograd.grad(..., create_graph=True) for the inner gradient, then backward() as usual."
            )
        if id(parameter) not in self._announce_to_strategy or id(parameter) in self._apart:
            return
        if gradient.is_sparse:  # from an operator that no module declares as sparse: other ranks expect it dense
            parameter.grad = gradient.to_dense()
        if outermost:
            self.strategy.gradient_ready(parameter)
        else:
            self.strategy.gradient_late(parameter)

    def _backward_over(self) -> None:
        if self._gradients_seen:  # else it was torch.autograd.grad, which leaves no gradients behind
            self._synchronise_rest()

    def _synchronise_rest(self) -> None:
        """End a synchronised backward: send the gradients that were not announced, as they are or as absent."""
        for parameter in self._parameters_in_turn if self._apart or self._sparse_seen else ():
            if id(parameter) in self._apart and parameter.grad is not None:
                parameter.grad = parameter.grad.clone()
            if parameter.grad is not None and parameter.grad.is_sparse and id(parameter) in self._announce_to_strategy:
                parameter.grad = parameter.grad.to_dense()
        self._gradients_seen = self._sparse_seen = False
        self._apart, self._announced = set(), None
        with torch.no_grad():
            self.strategy.backward_done()
            self._sparse.reduce()

    def _abandon_backward(self) -> None:
        """Take part in the collectives that the last backward, which raised, still owes its peers; drop the results."""
        self._backward.forget()
        if not self._gradients_seen:
            return
        warnings.warn(
            "the last backward() did not come to its end; its gradients are dropped. If it raised on this rank alone, "
            "the others have averaged without it: call broadcast_state() on every rank if they have stepped",
            stacklevel=4,
        )
        self.synchronise_nothing(keep=False)

    def synchronise_nothing(self, *, keep: bool) -> None:
        """Take part in the others' backward without own gradients; keep the resulting means if ``keep``."""
        if not self._gradients_seen:
            self.strategy.backward_started()
        for parameter in self._parameters_in_turn:
            parameter.grad = None
        self._synchronise_rest()
        for parameter in () if keep else self._parameters_in_turn:
            parameter.grad = None

    def _refuse_company(self) -> None:
        """Raise if two wrapped models share a backward and a process group: their collectives could pair wrongly."""
        _live.add(self)
        for other in _live:
            together = other is not self and other._backward.outermost == self._backward.outermost
            if together and other.comm.shares(self.comm):
                raise RuntimeError(
                    "two wrapped models take part in one backward and share a process group, where collectives of the "
                    "one could meet those of the other. Wrap both as one model, or give each a group of its own: "
                    "wrap(model, comm=Comm(dist.new_group()))"
                )

    def _find_shared_gradients(self) -> None:
        """Find parameters that share a gradient tensor, which is final only when all of them have added to it."""
        holders: defaultdict[int, list[int]] = defaultdict(list)
        for parameter in self._parameters_in_turn:
            if parameter.grad is not None:
                holders[id(parameter.grad)].append(id(parameter))
        self._apart = {key for keys in holders.values() if len(keys) > 1 for key in keys}

    # -- accumulation and uneven inputs ------------------------------------------------------------------------

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """A context in which backwards only accumulate; the first one outside synchronises the accumulated sum."""
        before, self.synchronises = self.synchronises, False
        try:
            yield
        finally:
            self.synchronises = before

    def join(self, *, divide_by_initial_world_size: bool = True, throw_on_early_termination: bool = False) -> Join:
        """A context for uneven inputs: ranks that leave early take part in the others' collectives until all are done.

        Args:
            divide_by_initial_world_size: gradients are divided by the world size, or by the number of active ranks.
            throw_on_early_termination: raise on every rank as soon as one has left.
        """
        options = {"throw_on_early_termination": throw_on_early_termination}
        return joining.Joined(self, divide_by_initial_world_size=divide_by_initial_world_size, **options)

    def join_hook(self, **kwargs: Any) -> joining.Answering:
        return joining.Answering(self, kwargs.get("divide_by_initial_world_size", True))

    @property
    def join_device(self) -> torch.device:
        return self._parameters_in_turn[0].device

    @property
    def join_process_group(self) -> Any:
        return self.comm.group or dist.group.WORLD

    def set_divisor(self, num_active: int) -> None:
        self.strategy.divisor = self._sparse.divisor = num_active if self.join_divisor == 0 else self.comm.world_size

    def plan_of_step(self) -> int:
        """The code (see ``joining``) of what this forward and its backward synchronise."""
        if not self.synchronises:
            return joining.SILENT
        return joining.GRADIENTS_AND_BUFFERS if self.training else joining.GRADIENTS

    def left_join(self) -> None:
        """End the join() context: later steps are as before it."""
        self.join_divisor = self._announced = None
        self._join_config = type(self._join_config).construct_disabled_join_config()
        self.set_divisor(self.comm.world_size)

    def _check_announcement(self) -> None:
        if self._join_config.enable and self._announced is not True:
            raise RuntimeError("inside join(), forward and backward must both be inside or both outside of no_sync()")

    # -- state -------------------------------------------------------------------------------------------------

    def broadcast_state(self, src: int = 0) -> None:
        """Copy rank ``src``'s parameters and buffers, frozen ones included, to every rank."""
        with torch.no_grad():
            broadcast_all(self.comm, [*self.module.parameters(), *self.module.buffers()], src)

    def broadcast_buffers_from(self, src: int) -> None:
        """Copy rank ``src``'s buffers to every rank."""
        if self.broadcast_buffers:
            held = [buffer for holder in self._buffer_holders for buffer in holder.values() if buffer is not None]
            broadcast_all(self.comm, held, src)

    def unwrap(self) -> nn.Module:
        """Remove the hooks and return the bare model, which may then be changed and wrapped again."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        return self.module

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The bare model's state: names have no ``module.`` prefix, so checkpoints fit both wrapper and bare model."""
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> Any:
        return self.module.load_state_dict(state_dict, strict=strict, assign=assign)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Load names without ``module.``, where this wrapper is part of a larger model."""
        for name in [n for n in state_dict if n.startswith(prefix)]:
            state_dict[prefix + "module." + name.removeprefix(prefix)] = state_dict.pop(name)

    def __deepcopy__(self, memo: dict[int, Any]) -> NoReturn:
        raise TypeError("a DataParallel holds hooks and a process group; copy the bare model: deepcopy(wrapped.module)")

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(
            "a DataParallel holds hooks and a process group and cannot be pickled; save wrapped.state_dict()"
        )

    def extra_repr(self) -> str:
        return f"strategy={self.strategy!r}, rank={self.comm.rank}, world_size={self.comm.world_size}"
