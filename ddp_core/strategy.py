"""A strategy: the part of a data-parallel wrapper that decides when gradients are reduced, and in what groups.

Special here: a strategy never touches hooks, broadcasts or ``no_sync``. ``DataParallel`` owns those and calls the
methods below at the right moments, so each file in ``strategies/`` holds one mechanism and no more.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import nn

from ddp_core.comm import Comm
from ddp_core.unused import absent_gradient, mark_present, nobody_used

# What a strategy may claim beyond the plain case, by name. The claims that torch's DistributedDataParallel meets, or
# refuses with an error, are expected of every strategy: it may answer with an error, but not with a wrong number.
EXPECTED_CLAIMS = {
    "unused_parameters": "a parameter that a rank, or no rank, used in a step",
    "branch_order": "layers that run in another order on some ranks, as branches taken by the data do",
    "accumulation": "several backwards before a step, under no_sync() where there is one",
    "two_backwards": "several backwards before a step, each of which synchronises",
    "loose_forwards": "forwards before the only backward, one of them without gradients, and one that none follows, "
    "or that raises",
    "dropped_batches": "a batch whose gradients are thrown away by zero_grad(), after a backward that no step follows",
    "late_zero_grad": "zero_grad() between the forward and the backward",
    "evaluation": "evaluations before the first step and between steps",
    "several_models": "a second model of the process under the strategy as well, trained in turns",
    "joint_backward": "one backward through two models of the process that were wrapped each by itself",
    "subgroups": "a process group smaller than the job, where wrap() takes one",
    "structured_outputs": "a model that returns a dict, with a tuple in it, or a dataclass, and not a tensor",
    "several_inputs": "a model that takes several inputs",
    "input_gradients": "an input that asks for its gradient, as the output of an encoder does",
    "named_inputs": "a model that is given an input by name",
    "checkpointing": "activation checkpointing, not re-entrant",
    "reentrant_checkpointing": "re-entrant activation checkpointing, which runs a backward inside the backward",
    "complex_parameters": "complex parameters",
    "mixed_dtypes": "parameters of several dtypes in one model",
    "odd_parameters": "tied, frozen, scalar and twice-used parameters, two that share a gradient tensor, "
    "up to five dimensions, frozen bytes",
    "strided_parameters": "parameters in other layouts than row-major (transposed, channels-last)",
    "sparse_gradients": "sparse gradients (nn.Embedding(sparse=True))",
    "clipping": "the norm of gradients is clipped before the step, by the strategy's clip_grad_norm_() if it has one",
    "parameter_groups": "an optimizer with groups of parameters that have options of their own (weight decay, say)",
    "schedules": "a learning rate, or another option, that a scheduler changes in param_groups between steps",
    "evaluation_mode": "training while the model is in evaluation mode, as fine-tuning with fixed statistics does",
    "state_dict": "state_dict() and load_state_dict() carry a run over to fresh replicas",
    "efficiency": "in one step each gradient is reduced once, and what is frozen not at all",
    "float64": "models in float64, where most comparisons are made (an error is a refusal if it names a dtype)",
}
# Claims that DistributedDataParallel gets wrong without an error, or does not offer: judged only where claimed.
EXTRA_CLAIMS = {
    "two_forwards": "two forwards, then a backward for each",
    "reentrant_sharing": "a weight used inside a re-entrant checkpoint and outside of it",
    "registration_order": "equal parameters registered in another order on some rank are matched by name, or refused",
    "holes_in_memory": "parameters that are slices with gaps between their elements (x[:, 0])",
    "uneven_inputs": "ranks with different numbers of batches, inside join()",
    "changes_after_wrap": "parameters frozen, unfrozen or replaced after wrapping are followed, or refused",
}


@dataclass(frozen=True)
class Contract:
    """The claims of a strategy. The verifier judges these, and nothing that the strategy does not claim.

    The defaults are those of torch's DistributedDataParallel. A module that provides ``wrap`` may provide
    ``CONTRACT`` beside it, or ``contract(**options)`` where the claims depend on the options.

    Attributes:
        average: gradients are the mean over ranks, or their sum.
        broadcasts_at_start: replicas that start unequal are made equal. False: they are refused, or left alone.
        sync_buffers: every forward of a training step sees rank 0's buffers (BatchNorm's running statistics).
        lossy: the dtype to which gradients may be rounded on the wire, for example ``"bfloat16"``; None: none.
        sharded: parameters, gradients or optimizer state are spread over ranks.
        optimizer: ``"own"`` if the strategy brings its own update rule (Muon, say), whatever optimizer the loop makes.
        supports: further claims, from EXPECTED_CLAIMS (then an error is a failure, too) and EXTRA_CLAIMS.
        disclaims: names from EXPECTED_CLAIMS that it does not claim: not judged, and reported as not claimed.
    """

    average: Literal["mean", "sum"] = "mean"
    broadcasts_at_start: bool = True
    sync_buffers: bool = True
    lossy: str | None = None
    sharded: bool = False
    optimizer: Literal["asked", "own"] = "asked"
    supports: frozenset[str] = field(default_factory=frozenset)
    disclaims: frozenset[str] = field(default_factory=frozenset)

    def __post_init__(self) -> None:
        values: dict[str, tuple[str | None, ...]] = {
            "average": ("mean", "sum"),
            "lossy": (None, "float32", "bfloat16", "float16"),
            "optimizer": ("asked", "own"),
        }
        for name, valid in values.items():
            if getattr(self, name) not in valid:
                raise ValueError(f"Contract({name}={getattr(self, name)!r}): must be one of {valid}")
        for name, known in (("supports", EXPECTED_CLAIMS | EXTRA_CLAIMS), ("disclaims", EXPECTED_CLAIMS)):
            object.__setattr__(self, name, frozenset(getattr(self, name)))
            if unknown := sorted(getattr(self, name) - set(known)):
                raise ValueError(f"Contract({name}=...): {unknown[0]!r} is no claim; there are: {', '.join(known)}")


ALL_CLAIMS = frozenset(EXPECTED_CLAIMS | EXTRA_CLAIMS)
# Of ``DataParallel``, which refuses a backward through two models that share a group: their collectives could meet.
CLAIMS_OF_A_WRAPPER = ALL_CLAIMS - {"joint_backward"}


class Strategy(ABC):
    """Decides how the gradients of ``parameters`` become their mean over ranks.

    The calls: ``prepare`` once; then per synchronised backward ``backward_started``, ``gradient_ready`` once for each
    parameter in the order autograd finishes them (which may differ from rank to rank), ``backward_done``.
    When ``backward_done`` returns, every ``parameter.grad`` is the mean over ranks, or None if no rank has one.

    ``gradient_ready`` does not come for a parameter that this rank does not use, nor for a gradient that ends inside a
    re-entrant checkpoint, where more may follow (``gradient_late``). ``backward_done`` finds those in place.
    """

    parameters: Sequence[nn.Parameter]
    names: Sequence[str]
    comm: Comm
    divisor: int  # the world size; under join(divide_by_initial_world_size=False) the number of active ranks

    def prepare(self, named_parameters: Sequence[tuple[str, nn.Parameter]], comm: Comm) -> None:
        """Take the trainable parameters (same names, order, shapes and dtypes on every rank).

        Raises ValueError if this strategy serves a model already: its state belongs to that model.
        """
        if hasattr(self, "comm"):
            raise ValueError(f"{self!r} serves a model already: make a new {type(self).__name__} for each model")
        self.names = [name for name, _ in named_parameters]
        self.parameters = [parameter for _, parameter in named_parameters]
        self.comm = comm
        self.divisor = comm.world_size

    def backward_started(self) -> None:
        """Prepare for a synchronised backward: its first gradient is about to be reported."""

    def gradient_ready(self, parameter: nn.Parameter) -> None:
        """Take note that ``parameter.grad`` is final on this rank in this backward."""

    def gradient_late(self, parameter: nn.Parameter) -> None:
        """Take note that a nested backward has added to ``parameter.grad``, and may add again."""

    @abstractmethod
    def backward_done(self) -> None:
        """Leave the mean over ranks in every ``parameter.grad``: all gradients of this rank are final."""

    def average(self, gradient: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """Divide by the number of ranks, in place or into ``out``. A strategy may do so before or after the sum.

        It divides, because a multiplication by 1/W rounds twice and can be off by one unit in the last place for W = 7,
        13, 14, 15 and others. For powers of two both are exact, and a multiplication takes a fraction of the time.
        """
        out = gradient if out is None else out
        if self.divisor & (self.divisor - 1) == 0:
            return torch.mul(gradient, 1 / self.divisor, out=out)
        return torch.div(gradient, self.divisor, out=out)


def gradient_to_send(parameter: nn.Parameter) -> torch.Tensor:
    """This rank's gradient of ``parameter``; where there is none, ``parameter.grad`` is set to an absent one (-0.0).

    Its memory is laid out like the parameter's, as on every other rank: transports add elements at the same place in
    memory, not elements with the same index.
    """
    gradient = parameter.grad
    if gradient is None:
        gradient = parameter.grad = absent_gradient(parameter)
        return gradient
    if gradient.stride() != parameter.stride():
        laid_out = torch.empty_like(parameter, memory_format=torch.preserve_format).detach()
        if laid_out.stride() != gradient.stride():
            gradient = parameter.grad = laid_out.copy_(gradient)
    mark_present(gradient)
    return gradient


def drop_if_nobody_used(parameter: nn.Parameter, *, used_here: bool) -> None:
    """Set the gradient of a parameter that no rank used to None, as in a single process.

    Call it after the sum and before the mean, because a division may round a tiny negative sum to -0.0.
    """
    if not used_here and parameter.grad is not None and nobody_used(parameter.grad):
        parameter.grad = None


Wrap = Callable[..., Any]
