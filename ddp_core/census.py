"""Detects parameters that were replaced, moved, frozen or unfrozen after wrapping, so that they can be refused.

A wrapper puts its hooks on the parameters that it finds. A parameter added later has no hook: it trains on its own
rank's data alone, the loss still falls, and no error is raised. So the model is checked before every training forward.

Special here: the check costs time in every step. So it compares only identities and flags, through the modules' own
dictionaries found at the start, and does not call ``named_parameters()`` again.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

REMEDY = "Call unwrap() and wrap the model again, on every rank, and build the optimizer anew."


class Census:
    """The parameters and modules of ``module`` as they are now."""

    def __init__(self, module: nn.Module) -> None:
        self.parameters: list[tuple[dict[str, Any], str, str, nn.Parameter, tuple[Any, ...]]] = []
        self.modules: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any], int]] = []
        for prefix, part in module.named_modules():
            if isinstance(part, torch.jit.ScriptModule):  # Python can neither see nor change its parameters
                continue
            children, own = part._modules, part._parameters
            self.modules.append((prefix, children, dict(children), own, len(own)))
            for name, parameter in own.items():
                if parameter is not None:
                    full = f"{prefix}.{name}" if prefix else name
                    self.parameters.append((own, name, full, parameter, _state(parameter)))

    def change(self) -> str | None:
        """A message that names the first change since this census; None if nothing has changed."""
        for holder, name, full, parameter, state in self.parameters:
            now = holder.get(name)
            if now is not parameter:
                return f"parameter '{full}' was {'removed' if now is None else 'replaced'} after wrapping. {REMEDY}"
            if _state(parameter) != state:
                return f"parameter '{full}' {_difference(state, _state(parameter))} after wrapping. {REMEDY}"
        for prefix, children, before, own, num_own in self.modules:
            if children != before:
                names = [n for n in {**before, **children} if children.get(n) is not before.get(n)]
                return f"submodule '{prefix + '.' if prefix else ''}{names[0]}' was changed after wrapping. {REMEDY}"
            if len(own) != num_own:
                return f"module '{prefix}' has got another number of parameters after wrapping. {REMEDY}"
        return None


def _state(parameter: nn.Parameter) -> tuple[bool, torch.dtype, torch.device, torch.Size]:
    return (parameter.requires_grad, parameter.dtype, parameter.device, parameter.shape)


def _difference(before: tuple[Any, ...], now: tuple[Any, ...]) -> str:
    if before[0] != now[0]:
        return "was unfrozen" if now[0] else "was frozen"
    for what, old, new in zip(("dtype", "device", "shape"), before[1:], now[1:], strict=True):
        if old != new:
            return f"was changed from {what} {old} to {new}"
    raise AssertionError("nothing differs")
