"""From a reference to a strategy: find its ``wrap``, and keep its mistakes apart from ours.

Special here: whatever goes wrong while the strategy's code is loaded or called raises ``StrategyError`` with a
traceback that starts in *their* file. Frames of the verifier are cut out.
"""

from __future__ import annotations

import errno
import inspect
import re
import resource
import sys
import sysconfig
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from ddp_core.arguments import takes_group
from ddp_core.driver import WRAP_OPTIMIZER, Driver
from ddp_core.drivers.distributed_optimizer import DistributedOptimizerDriver
from ddp_core.drivers.function import FunctionDriver
from ddp_core.drivers.sharded_optimizer import ShardedOptimizerDriver
from ddp_core.methods import NotDrivable, takes
from ddp_core.recognition import styles
from ddp_core.strategy import Contract
from verifier.errors import OurFault
from verifier.lines import UNDRIVABLE
from verifier.refusal import claims
from verifier.request import Builtin, StrategyRef
from verifier.run import importing
from verifier.scenario import Scenario
from verifier.verdict import DISCLAIMED, UNCLAIMED

MOST_NAMES = 20
GIVEN_A_GROUP = (FunctionDriver, DistributedOptimizerDriver, ShardedOptimizerDriver)
FEW_BUCKETS = 5  # a probe's small model spans about as many, and most of them hold several parameters
SMALLEST_BUCKET_CAP_MB = 0.0003
OF_PEERS = ("gloo/", "Connection closed by peer", "Connection reset", "Timed out waiting", "NCCL")
NOT_OFFERED = re.compile(r"\bnot (currently )?support|\bunsupported\b|\bcannot use\b", re.IGNORECASE)
CAP = re.compile(r"(max_)?bucket_((cap|size)_)?mb|cap_mb")  # an argument: how large buckets may be
NO_CAP = "it takes no cap of its buckets (bucket_cap_mb=...), or needs to be told it"
NO_GROUP = "it takes no process group, or takes a rank or a world size as well; or it is a hook"
AN_OPTIMIZER = (
    "{name} is an optimizer, and a loop needs to know what wraps the model beside it: write a class with a "
    "wrap_optimizer(cls, parameters, **options) that makes it, or a ddp_core.Driver with make_optimizer(); one that "
    "is built from (parameters, optimizer_class, ...) is a strategy as it is"
)
_OURS = ("verifier", "ddp_core/driver", "ddp_core/methods", "ddp_core/recognition", "ddp_core/arguments")
_OWN_FOLDERS = tuple(str(Path(__file__).parents[2] / part) for part in _OURS)


class StrategyError(Exception):
    """The strategy's code raised. ``detail`` is its traceback, without our frames."""

    def __init__(self, when: str, detail: str, *, kind: str = "own") -> None:
        super().__init__(f"the strategy raised {when}")
        self.when, self.detail = when, detail
        self.kind = kind  # "own": it refused, or broke; "transport": a peer was gone, or out of step; UNDRIVABLE

    @classmethod
    def of(cls, when: str, error: BaseException) -> StrategyError:
        if isinstance(error, OurFault):
            error = _theirs_behind(error)
        kind = UNDRIVABLE if isinstance(error, NotDrivable) else "transport" if _from_transport(error) else "own"
        return cls(when, f"The strategy raised {when}:\n{their_traceback(error)}{_limit_met(error)}", kind=kind)


def _theirs_behind(error: OurFault) -> BaseException:
    """Return the error behind ``error`` that a function of theirs raised which replaces one that we rely on.

    Raises ``error`` if there is none.
    """
    root: BaseException = error
    while root.__cause__ is not None:
        root = root.__cause__
    frames = traceback.extract_tb(root.__traceback__)
    elsewhere = (*_OWN_FOLDERS, *{sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}, "<frozen")
    if not frames or frames[-1].filename.startswith(elsewhere):
        raise error
    return root


def _from_transport(error: BaseException) -> bool:
    """Return whether the transport raised ``error``. Then the cause is on another rank: it left, or is at another
    collective. An operation that is not offered is no such case: "NCCL does not support all_reduce ...".
    """
    if type(error).__name__ in ("DistBackendError", "DistNetworkError"):
        return True
    text = str(error)
    return isinstance(error, RuntimeError) and not NOT_OFFERED.search(text) and any(word in text for word in OF_PEERS)


@dataclass(frozen=True)
class LoadedStrategy:
    wrap: Callable[..., Any]
    options: dict[str, Any]
    contract: Contract
    declared: bool = True  # False: nobody declared a contract, and this one holds what torch's DDP does
    companions: dict[str, Callable[..., Any]] = field(default_factory=dict)  # functions that the loop calls, by when
    cap_argument: str | None = None  # the optional argument by which a stranger's ``wrap`` takes a cap of its buckets

    def driven_by(self, driver: Driver) -> LoadedStrategy:
        """Return this strategy with the contract that fits ``driver``. Without a declared one, claims are reduced to
        what the driver's style can do; if ``wrap`` made an instance of a class that declares one, that is used.
        """
        held = next((claims for claims in _by_the_target(driver.wrapped) if isinstance(claims, Contract)), None)
        if held is not None and not self.declared:
            return replace(self, contract=held, declared=True).driven_by(driver)
        if self.declared and not driver.wraps_forward:  # it cannot claim what its style cannot do
            starts = self.contract.broadcasts_at_start and driver.could_broadcast
            return replace(self, contract=replace(self.contract, sync_buffers=False, broadcasts_at_start=starts))
        if self.declared:
            return self
        synced = driver.wraps_forward and not _runs_bare(driver)
        could = replace(self.contract, sync_buffers=synced, broadcasts_at_start=driver.could_broadcast)
        return replace(self, contract=could)

    def not_claimed(self, scenario: Scenario) -> str | None:
        """Return why ``scenario`` is not for this strategy: it disclaims what is needed, or does not claim it."""
        for claim in scenario.needs:
            if claim in self.contract.disclaims:
                return DISCLAIMED + claim
        if scenario.imported_first and (reason := importing.why_not_first()):
            return reason
        if scenario.small_caps and self.cap_argument is None:
            return NO_CAP
        if scenario.subgroups and self.group_argument is None:
            return NO_GROUP
        for claim in scenario.only_if_claimed:
            if not claims(self.contract_dict(), claim):
                return UNCLAIMED + claim
        return None

    def have_small_buckets(self, cap_mb: float | None) -> None:
        """Set a cap of ``cap_mb`` if ``wrap`` takes one and the request has none. None: the strategy's default."""
        if cap_mb is not None and self.cap_argument is not None:
            self.options.setdefault(self.cap_argument, cap_mb)

    @property
    def group_argument(self) -> str | None:
        """The argument by which ``wrap`` takes a process group, or the function or optimizer that is the strategy."""
        made = isinstance(self.wrap, partial) and self.wrap.func in GIVEN_A_GROUP
        return takes_group(self.wrap.args[0] if made else self.wrap)  # type: ignore[attr-defined]

    def contract_dict(self) -> dict[str, Any]:
        """Return the contract as JSON can hold it: sets as sorted lists."""
        fields = asdict(self.contract)
        return {name: sorted(value) if isinstance(value, frozenset) else value for name, value in fields.items()}


def load_strategy(
    ref: StrategyRef, folder: Path, *, bucket_cap_mb: float | None = None, style: str | None = None
) -> LoadedStrategy:
    """Import the strategy and return its ``wrap`` with the options to call it with.

    Source that was sent along is written below ``folder``, this rank's own, and kept with the recording. Built-in
    strategies that have buckets get ``bucket_cap_mb``, unless their options set it. ``style``: the driver style that
    was asked for; by it, a function may be no wrapper, whatever its name is.

    Raises StrategyError if its module cannot be imported or has no such attribute, or if the attribute is an optimizer.
    """
    sys.argv = sys.argv[:1]  # a script that parses its arguments on import would read ours
    try:
        module, attribute = importing.imported(ref, folder)
    except StrategyError:
        raise
    except BaseException as error:
        raise StrategyError.of("on import", error) from error
    try:
        target = getattr(module, attribute)
    except AttributeError as error:
        available = [n for n, value in vars(module).items() if callable(value) and not n.startswith("_")][:MOST_NAMES]
        message = (
            f"{module.__name__} has no attribute '{attribute}'; it has: {', '.join(available) or 'nothing callable'}"
        )
        raise StrategyError("on import", message) from error
    options = dict(ref.options)
    if bucket_cap_mb and isinstance(ref, Builtin) and "bucket_cap_mb" in inspect.signature(target).parameters:
        options.setdefault("bucket_cap_mb", bucket_cap_mb)
        if "first_bucket_cap_mb" in inspect.signature(target).parameters:
            options.setdefault("first_bucket_cap_mb", bucket_cap_mb / 2)
    cap_argument = None if isinstance(ref, Builtin) else _cap_argument(target)
    contract = _contract(module, target, options)
    kinds = [kind for kind in styles().values() if kind.is_no_wrapper]
    if style is None and FunctionDriver.fits(target, **options):
        style = FunctionDriver.style
    kind = next((kind for kind in kinds if kind.style == style or (style is None and kind.fits(target))), None)
    if kind is None and inspect.isclass(target) and issubclass(target, torch.optim.Optimizer):
        raise StrategyError("on import", AN_OPTIMIZER.format(name=attribute))
    if kind is not None:
        target = partial(kind, target)
    companions = _companions(module, attribute)
    return LoadedStrategy(target, options, contract or Contract(), contract is not None, companions, cap_argument)


def _cap_argument(target: Any) -> str | None:
    """Return the argument, in MB and with a number as its default, that says how large buckets may be."""
    try:
        parameters = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):
        return None
    return next((p.name for p in parameters if CAP.fullmatch(p.name) and type(p.default) in (int, float)), None)


def _runs_bare(driver: Driver) -> bool:
    """Return whether this is a stranger's driver that calls the bare model, and runs nothing before the forward."""
    if driver.stands_beside_model:
        return not driver.model._forward_pre_hooks
    own = type(driver)
    theirs = own.forward is not Driver.forward or own.start_step is not Driver.start_step
    hooked = bool(driver.model._forward_pre_hooks)
    return own.__module__.split(".")[0] != "ddp_core" and driver.wrapped is driver.model and not (theirs or hooked)


def small_bucket_cap_mb(model: torch.nn.Module) -> float:
    """Return the cap under which ``model`` spans several buckets, in MiB."""
    num_bytes = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    return max(num_bytes / FEW_BUCKETS / 2**20, SMALLEST_BUCKET_CAP_MB)


def _companions(module: ModuleType, attribute: str) -> dict[str, Callable[..., Any]]:
    """Return the functions that belong to ``wrap``, or to ``get_ddp_something``: ``wrap_optimizer``, or
    ``ddp_something_on_after_backward`` and its like.
    """
    build: Any = getattr(module, WRAP_OPTIMIZER, None)
    if attribute == "wrap" and (takes(build, 2, lr=0.1) or (takes(build, 1) and not takes(build, 2))):
        return {WRAP_OPTIMIZER: build}
    if not attribute.startswith("get_ddp"):
        return {}
    stem, found = attribute.removeprefix("get_"), {}
    for point in ("on_train_batch_start", "on_after_backward"):
        function = getattr(module, f"{stem}_{point}", None)
        if callable(function):
            found[point] = function
    return found


def _contract(module: ModuleType, target: Any, options: dict[str, Any]) -> Contract | None:
    """Return the declared contract: ``contract(**options)`` or ``CONTRACT`` beside ``wrap``, or a class's ``CONTRACT``.
    None: there is none.
    """
    claims = getattr(module, "contract", None)
    if (getattr(claims, "__module__", None) or "").startswith("torch."):
        claims = None  # torch has a decorator of that name, which marks what was applied to a module
    if callable(claims):
        try:
            claimed = claims(**options)
        except BaseException as error:
            raise StrategyError.of("on import", error) from error
    else:
        claimed = next(
            (c for c in (claims, *_by_the_target(target), getattr(module, "CONTRACT", None)) if c is not None),
            None,
        )
    if claimed is not None and not isinstance(claimed, Contract):
        raise StrategyError(
            "on import",
            f"the contract must be a ddp_core.Contract, for example Contract(average='sum'); got {claimed!r}",
        )
    return claimed


def _by_the_target(target: Any) -> tuple[Any, Any]:
    """Return what ``wrap`` declares itself, or the class that is in its place."""
    return getattr(target, "contract", None), getattr(target, "CONTRACT", None)


def _limit_met(error: BaseException) -> str:
    """Return a line to add where memory or disk was refused: how much there was."""
    memory, disk = (resource.getrlimit(r)[0] for r in (resource.RLIMIT_DATA, resource.RLIMIT_FSIZE))
    no_memory = isinstance(error, MemoryError) or "can't allocate memory" in str(error)
    if no_memory and memory != resource.RLIM_INFINITY:
        return f"\n{type(error).__name__}: used more than {memory / 2**30:.1f} GiB of memory, the limit of one rank"
    if getattr(error, "errno", None) == errno.EFBIG and disk != resource.RLIM_INFINITY:
        return f"\n{type(error).__name__}: wrote a file of more than {disk / 2**30:.1f} GiB, the limit of one rank"
    return ""


def their_traceback(error: BaseException) -> str:
    """Return the traceback of ``error`` without the verifier's own frames and without importlib's."""
    report = traceback.TracebackException.from_exception(error)
    current: traceback.TracebackException | None = report
    while current is not None:
        theirs = [frame for frame in current.stack if not _is_ours(frame.filename)]
        current.stack = traceback.StackSummary.from_list(theirs)
        current = current.__cause__ or current.__context__
    return "".join(report.format()).rstrip()


def _is_ours(filename: str) -> bool:
    return filename.startswith(_OWN_FOLDERS) or filename.startswith("<frozen importlib")
