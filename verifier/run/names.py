"""The bare model's parameter names, even where wrapping has put modules between those of the model.

Special here: torch's ``checkpoint_wrapper`` and its like are put *into* a model. Its parameters then have longer names,
though they are the same tensors and are saved under the old names. A parameter is therefore found by identity, and one
that was also exchanged (``fully_shard`` over a checkpointed layer) by its name without the inserted parts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from torch import nn

from verifier.lines import OF_THE_WRAPPER, UNTIED

if TYPE_CHECKING:
    from ddp_core.driver import Driver
    from verifier.journal import Journal

BETWEEN = ("_checkpoint_wrapped_module.", "_fsdp_wrapped_module.", "_orig_mod.")
PARAMETRIZED = re.compile(r"\bparametrizations\.(\w+)\.original$")  # torch.nn.utils.parametrize


def _of_the_wrapper(driver: Driver, named: list[tuple[str, nn.Parameter]]) -> Iterator[str]:
    """Yield the names of trained parameters that the wrapper has beside the model's, in memory of their own."""
    if driver.wrapped is driver.model or not isinstance(driver.wrapped, nn.Module):
        return
    models = {id(parameter) for _, parameter in named}
    memory = {_memory(parameter) for _, parameter in named}
    for name, parameter in driver.wrapped.named_parameters():
        apart = id(parameter) not in models and _memory(parameter) not in memory
        if parameter.requires_grad and apart:
            yield name


def _memory(parameter: nn.Parameter) -> int:
    try:
        return parameter.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):  # a tensor subclass without memory of its own
        return 0


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

    def told(self, driver: Driver, journal: Journal) -> list[tuple[str, nn.Parameter]]:
        """Return the driver's parameters under the bare model's names; note what wrapping has done to them."""
        named = self.restored(driver.named_parameters())
        listed = {name for name, _ in named}
        of_one = {self._first_name[name]: name for name in sorted(listed) if self._first_name.get(name) in listed}
        journal.note(UNTIED, of_one)
        journal.note(OF_THE_WRAPPER, [*_of_the_wrapper(driver, named)])
        return named

    def _cut(self, name: str) -> str:
        short = PARAMETRIZED.sub(r"\1", name)
        for part in BETWEEN:
            short = short.replace(part, "")
        return short if short in self._parameters or short in self._first_name else name
