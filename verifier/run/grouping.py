"""What an optimizer is made from: parameters, or groups of them with their own options.

Special here: the groups are those of most scripts, weights with decay and biases without, which also have their own
learning rate and, under SGD, their own momentum (many an AdamW has the same betas for all). The last layer is a third
group: code that takes two groups for all there are gives one of them the options of another. It stands between the
others, and often has a single parameter, of which some owners of shards have none: groups by place are then others. A
strategy that shards or flattens parameters may lose track of the groups. A decay of 0 is passed explicitly: AdamW's
default in torch differs from that elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from torch import nn
from torch.optim import Optimizer

from ddp_core.driver import Driver
from ddp_core.methods import takes
from verifier.journal import Journal
from verifier.run.update_rule import makes_its_own
from verifier.scenario import DECAY, LAST_LAYERS, SGD_MOMENTUM, SLOWER, Scenario

OWN = "the optimizer is one of the strategy's own making, without groups: it was not asked for any"
Named = tuple[str, nn.Parameter]
BEYOND = frozenset({"betas", "eps"})  # options that a strategy's own optimizer may not take


def grouped(scenario: Scenario, named: Sequence[tuple[str, nn.Parameter]]) -> list[Any]:
    """Return the parameters or, where the scenario says so, three groups: the last layer learns more slowly, and
    biases, which do not decay, as well. With ``alike``, two groups with equal options hold one half each.
    """
    if not scenario.groups:
        return [parameter for _, parameter in named]
    if scenario.alike:  # each group names its rate, as in most scripts that schedule each
        halves = named[: len(named) // 2], named[len(named) // 2 :]
        return [{"params": [parameter for _, parameter in half], "lr": scenario.lr} for half in halves]
    shorter = {"momentum": SGD_MOMENTUM / 4} if scenario.optimizer == "sgd" else {}
    biases = [parameter for name, parameter in named if name.endswith("bias")]
    last = [parameter for name, parameter in named if name.startswith(LAST_LAYERS) and not name.endswith("bias")]
    apart_from = {id(parameter) for parameter in (*biases, *last)}
    return [
        {"params": [parameter for _, parameter in named if id(parameter) not in apart_from], "weight_decay": DECAY},
        *([{"params": last, "lr": scenario.lr * SLOWER, "weight_decay": DECAY}] if last else []),
        {"params": biases, "lr": scenario.lr * SLOWER, "weight_decay": 0.0, **shorter},
    ]


def optimizer_of(
    driver: Driver, scenario: Scenario, named: Sequence[tuple[str, nn.Parameter]], cls: type[Optimizer], options: Any
) -> Optimizer:
    """Return the optimizer that ``driver`` makes for ``named``, and set ``driver.optimizer_made``: the driver may clip,
    or run the backward.

    Where the scenario says so, parameters come as from ``model.parameters()``, an iterator that can be read only once.
    A strategy that refuses an iterator with a TypeError gets a list; so does a stranger's ``Driver``, as is documented.
    """
    first, joining = apart(scenario, named)
    optimizer = _made(driver, scenario, grouped(scenario, first), cls, options)
    if joining and adds_groups(optimizer):
        optimizer.add_param_group({"params": [parameter for _, parameter in joining]})
    return optimizer


def _made(driver: Driver, scenario: Scenario, asked: list[Any], cls: type[Optimizer], options: Any) -> Optimizer:
    if scenario.parameters_once and not makes_its_own(driver):
        with suppress(TypeError):
            driver.optimizer_made = driver.make_optimizer(cls, iter(asked), **options)  # type: ignore[arg-type]
            return driver.optimizer_made
    driver.optimizer_made = driver.make_optimizer(cls, asked, **options)
    return driver.optimizer_made


def apart(scenario: Scenario, named: Sequence[Named]) -> tuple[Sequence[Named], Sequence[Named]]:
    """Return what an optimizer is made with, and what joins it later: nothing, unless the scenario says so."""
    middle = len(named) // 2 if scenario.joins else len(named)
    return named[:middle], named[middle:]


def adds_groups(optimizer: Any) -> bool:
    """Return whether ``optimizer`` defines, and so claims, its own ``add_param_group()``. One that is inherited, or
    passed on to an inner optimizer, knows of no shards or hooks (as Horovod's), and nobody has claimed that it does.
    """
    own = getattr(type(optimizer), "add_param_group", Optimizer.add_param_group)
    return own is not Optimizer.add_param_group


def optimizer_with_less(
    driver: Driver,
    scenario: Scenario,
    named: Sequence[tuple[str, nn.Parameter]],
    cls: type[Optimizer],
    options: dict[str, Any],
    journal: Journal,
) -> Optimizer:
    """Return ``optimizer_of()``; one that refuses ``BEYOND`` with a TypeError is made without them, which is noted."""
    try:
        return optimizer_of(driver, scenario, named, cls, options)
    except TypeError as error:
        if BEYOND.isdisjoint(options):
            raise
        beyond = ", ".join(sorted(BEYOND & set(options)))
        fewer = {name: value for name, value in options.items() if name not in BEYOND}
        optimizer = optimizer_of(driver, scenario, named, cls, fewer)
        journal.note("not_claimed", f"the optimizer does not take {beyond}: {error}")
        return optimizer


def was_asked(optimizer: Any, cls: Any, named: Sequence[tuple[str, nn.Parameter]]) -> bool:
    """Return whether ``optimizer`` is what the loop asked for: of class ``cls``, and over parameters of the model.

    If so, groups that it does not have were lost. Over other tensors (flat shards), groups may have no place.
    """
    if type(optimizer) is not cls:  # before anything is read from it: a stranger's optimizer may have no groups
        return False
    asked = {id(parameter) for _, parameter in named}
    return all(id(parameter) in asked for group in optimizer.param_groups for parameter in group["params"])


def tell(journal: Journal, scenario: Scenario, driver: Driver, optimizer: Any, *, own: bool) -> None:
    """Note that the strategy's ``own`` optimizer was not asked for groups because it has none to show, that no group
    can join it, or that it cannot be asked for gradients of zeros where these differ from None.
    """
    if scenario.groups and own and len(getattr(optimizer, "param_groups", ())) < 2:
        journal.note("not_claimed", OWN)
    if scenario.joins and not adds_groups(optimizer):
        journal.note("not_claimed", "the optimizer has no add_param_group() of its own")
    if scenario.zeros_matter and not _leaves_zeros(driver, optimizer):
        journal.note("not_claimed", "zero_grad() takes no set_to_none, or is the driver's own")


def _leaves_zeros(driver: Driver, optimizer: Any) -> bool:
    """Return whether gradients of zeros can be had. A stranger's ``Driver`` that clears by itself may not leave any."""
    ours = type(driver).zero_grad.__module__.split(".")[0] == "ddp_core"
    return ours and all(takes(zero, 0, set_to_none=False) for zero in driver.zero_grads(optimizer))
