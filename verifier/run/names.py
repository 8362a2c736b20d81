"""The bare model's parameter names, even where wrapping has put modules between those of the model.

Special here: torch's ``checkpoint_wrapper`` and its like are put *into* a model. Its parameters then have longer names,
though they are the same tensors and are saved under the old names. A parameter is therefore found by identity, and one
that was also exchanged (``fully_shard`` over a checkpointed layer) by its name without the inserted parts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from torch import nn

BETWEEN = ("_checkpoint_wrapped_module.", "_fsdp_wrapped_module.", "_orig_mod.")
PARAMETRIZED = re.compile(r"\bparametrizations\.(\w+)\.original$")  # torch.nn.utils.parametrize


class Names:
    """The names in ``model``, read before it is wrapped. Tied parameters have their first name."""

    def __init__(self, model: nn.Module) -> None:
        self._parameters = dict(model.named_parameters())  # kept alive, so that no other parameter gets the same id()
        self._by_identity = {id(parameter): name for name, parameter in self._parameters.items()}
        self.all = [name for name, _ in [*model.named_parameters(), *model.named_buffers()]]
        self._first_name = {  # of tied parameters, by each of their other names
            name: self._by_identity[id(parameter)]
            for name, parameter in model.named_parameters(remove_duplicate=False)
            if name not in self._parameters
        }
        self.transient = sorted({*self.all} - {*model.state_dict()})  # buffers with persistent=False

    def restored(self, named: Iterable[tuple[str, nn.Parameter]]) -> list[tuple[str, nn.Parameter]]:
        """Return ``named``, each under its name in the bare model, as far as there is one."""
        return [(self._by_identity.get(id(parameter)) or self._cut(name), parameter) for name, parameter in named]

    def untied(self, named: Iterable[tuple[str, nn.Parameter]]) -> dict[str, str]:
        """Return each name in ``named`` that was another's in the bare model, by that first name: two tensors now."""
        listed = {name for name, _ in self.restored(named)}
        return {self._first_name[name]: name for name in sorted(listed) if self._first_name.get(name) in listed}

    def _cut(self, name: str) -> str:
        short = PARAMETRIZED.sub(r"\1", name)
        for part in BETWEEN:
            short = short.replace(part, "")
        return short if short in self._parameters or short in self._first_name else name
