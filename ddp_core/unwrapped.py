"""May this model be wrapped? What one rank can tell of it alone; the ranks then agree on it (ddp_core.agreement).

Special here: a model that is wrapped already is recognised by the hook on its parameters, also when only the bare model
is handed over a second time: two wrappers would average twice, and divide twice.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ddp_core.comm import Comm


class FirstWrapHook:
    """The hook on each parameter. It does not keep its wrapper alive, and marks the parameter as wrapped."""

    def __init__(self, method: weakref.WeakMethod[Callable[[nn.Parameter], None]]) -> None:
        self.method = method

    def __call__(self, parameter: nn.Parameter) -> None:
        ready = self.method()
        if ready is not None:
            ready(parameter)


def objection_to(module: nn.Module, comm: Comm) -> str | None:
    """Why ``module`` cannot be wrapped on this rank; None if it can."""
    for name, part in module.named_modules():
        if isinstance(part, DistributedDataParallel) or hasattr(part, "broadcast_state"):
            return f"{f'submodule {name!r}' if name else 'the model'} is wrapped already: wrap the bare model, once"
    for name, parameter in module.named_parameters():
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            return f"parameter '{name}' is not initialised yet: run one forward before wrapping"
        if not comm.serves(parameter.device):
            return f"parameter '{name}' is on device '{parameter.device}', which the process group does not serve"
        if any(_is_live(hook) for hook in (parameter._post_accumulate_grad_hooks or {}).values()):
            return f"parameter '{name}' belongs to a model that is wrapped already: wrap it once, or unwrap() it first"
    if not any(parameter.requires_grad for parameter in module.parameters()):
        return "the model has no parameter that requires a gradient: there is nothing to synchronise"
    return None


def optimizer_in_backward(parameters: Iterable[nn.Parameter]) -> str | None:
    """torch's ``_apply_optimizer_in_backward`` steps on what this rank alone has computed. None if it is not in use."""
    if any("_in_backward_optimizers" in parameter.__dict__ for parameter in parameters):
        return (
            "an optimizer runs inside backward, before gradients are averaged over ranks, and the replicas would drift "
            "apart: call optimizer.step() after backward()"
        )
    return None


def _is_live(hook: Any) -> bool:
    return isinstance(hook, FirstWrapHook) and hook.method() is not None
