"""Checks on one rank whether a model may be wrapped; the ranks then agree on the result (ddp_core.agreement).

Special here: a model that is wrapped already is recognised by the hook on its parameters, even if the bare model is
passed a second time. Two wrappers would sum and divide its gradients twice.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ddp_core.comm import Comm


class FirstWrapHook:
    """The hook on each parameter. It marks the parameter as wrapped, and does not keep its wrapper alive."""

    def __init__(self, method: weakref.WeakMethod[Callable[[nn.Parameter], None]]) -> None:
        self.method = method

    def __call__(self, parameter: nn.Parameter) -> None:
        ready = self.method()
        if ready is not None:
            ready(parameter)


def objection_to(module: nn.Module, comm: Comm) -> str | None:
    """The reason why ``module`` cannot be wrapped on this rank; None if it can."""
    for name, part in module.named_modules():
        if isinstance(part, DistributedDataParallel) or hasattr(part, "broadcast_state"):
            return f"{f'submodule {name!r}' if name else 'the model'} is wrapped already: wrap the bare model, once"
    for name, parameter in module.named_parameters():
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            return f"parameter '{name}' is not initialised yet: run one forward before wrapping"
        if getattr(parameter, "grad_dtype", None) not in (None, parameter.dtype):
            return f"parameter '{name}' is {parameter.dtype} with a gradient of {parameter.grad_dtype}: not supported"
        if not comm.serves(parameter.device):
            return f"parameter '{name}' is on device '{parameter.device}', which the process group does not serve"
        if objection := hook_objection([parameter]):
            return objection.replace(f"a parameter of shape {list(parameter.shape)}", f"parameter '{name}'")
        if any(_is_live(hook) for hook in (parameter._post_accumulate_grad_hooks or {}).values()):
            return f"parameter '{name}' belongs to a model that is wrapped already: wrap it once, or unwrap() it first"
    if not any(parameter.requires_grad for parameter in module.parameters()):
        return "the model has no parameter that requires a gradient: there is nothing to synchronise"
    return None


def hook_objection(parameters: Iterable[nn.Parameter]) -> str | None:
    """The reason to refuse ``parameters`` if other hooks use gradients during backward, before averaging; else None.

    An optimizer that steps there uses this rank's own gradients, and the replicas diverge.
    """
    for parameter in parameters:
        if hasattr(parameter, "_in_backward_optimizers"):
            return f"an optimizer runs inside backward (torch's _apply_optimizer_in_backward), where {TOO_EARLY}"
        hooks = parameter._post_accumulate_grad_hooks
        if hooks and any(not isinstance(hook, FirstWrapHook) for hook in hooks.values()):
            shape = list(parameter.shape)
            return f"a parameter of shape {shape} has a post-accumulate-grad hook of its own, where {TOO_EARLY}"
    return None


TOO_EARLY = "gradients are not averaged over ranks yet: do after backward() what is to be done with them"


def _is_live(hook: Any) -> bool:
    return isinstance(hook, FirstWrapHook) and hook.method() is not None
