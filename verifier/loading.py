"""From a reference to a strategy: find its ``wrap``, and keep its own mistakes apart from ours.

Special here: whatever goes wrong while the strategy's code is loaded or called raises ``StrategyError`` with a
traceback that starts in *their* file. Frames of the verifier are cut out.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from ddp_core.strategy import Contract
from verifier import catalogue
from verifier.errors import OurFault
from verifier.request import Builtin, FromFile, Imported, Source, StrategyRef

SMALL_BUCKET_CAP_MB = 0.0003  # about 300 bytes: the probes' small models then span several buckets
_OWN_FOLDERS = tuple(str(Path(__file__).parent.parent / part) for part in ("verifier", "ddp_core/driver"))


class StrategyError(Exception):
    """The strategy's code raised. ``detail`` is its traceback, without our frames."""

    def __init__(self, when: str, detail: str) -> None:
        super().__init__(f"the strategy raised {when}")
        self.when, self.detail = when, detail

    @classmethod
    def of(cls, when: str, error: BaseException) -> StrategyError:
        if isinstance(error, OurFault):
            raise error
        return cls(when, f"The strategy raised {when}:\n{their_traceback(error)}")


@dataclass(frozen=True)
class LoadedStrategy:
    wrap: Callable[..., Any]
    options: dict[str, Any]
    contract: Contract

    def contract_dict(self) -> dict[str, Any]:
        return {**asdict(self.contract), "supports": sorted(self.contract.supports)}


def load_strategy(ref: StrategyRef, folder: Path, *, small_buckets: bool = False) -> LoadedStrategy:
    """Import the strategy and return its ``wrap`` with the options to call it with.

    Source that was sent along is written below ``folder``, this rank's own, and kept with the recording.

    Raises StrategyError if its module cannot be imported or has no such attribute.
    """
    try:
        module, attribute = _import(ref, folder)
        target = getattr(module, attribute)
    except AttributeError as error:
        available = [n for n in vars(module) if callable(getattr(module, n)) and not n.startswith("_")]
        message = (
            f"{module.__name__} has no attribute '{attribute}'; it has: {', '.join(available) or 'nothing callable'}"
        )
        raise StrategyError("on import", message) from error
    except BaseException as error:
        raise StrategyError.of("on import", error) from error
    options = dict(ref.options)
    if small_buckets and isinstance(ref, Builtin) and "bucket_cap_mb" in inspect.signature(target).parameters:
        options.setdefault("bucket_cap_mb", SMALL_BUCKET_CAP_MB)
        if "first_bucket_cap_mb" in inspect.signature(target).parameters:
            options.setdefault("first_bucket_cap_mb", SMALL_BUCKET_CAP_MB / 2)
    return LoadedStrategy(target, options, _contract(module, target, options))


def _contract(module: ModuleType, target: Any, options: dict[str, Any]) -> Contract:
    """What the strategy claims: ``contract(**options)`` or ``CONTRACT`` beside ``wrap``, else torch DDP's claims."""
    claims = getattr(module, "contract", None)
    if callable(claims):
        claimed = claims(**options)
    else:
        claimed = getattr(target, "contract", None) or getattr(module, "CONTRACT", None) or Contract()
    if not isinstance(claimed, Contract):
        raise StrategyError(
            "on import",
            f"the contract must be a ddp_core.Contract, for example Contract(average='sum'); got {claimed!r}",
        )
    return claimed


def _import(ref: StrategyRef, folder: Path) -> tuple[ModuleType, str]:
    if isinstance(ref, Builtin):
        return catalogue.STRATEGIES.load(ref.name), "wrap"
    if isinstance(ref, FromFile):
        return _import_file(Path(ref.path)), ref.attribute
    if isinstance(ref, Source):
        for name, text in ref.files.items():
            path = folder / "source" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        sys.path.insert(0, str(folder / "source"))
    assert isinstance(ref, Imported | Source)
    module, _, attribute = ref.entrypoint.partition(":")
    return importlib.import_module(module), attribute


def _import_file(path: Path) -> ModuleType:
    sys.path.insert(0, str(path.parent))  # its neighbours are importable, as when it is run as a script
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def their_traceback(error: BaseException) -> str:
    """The traceback of ``error`` without the verifier's own frames and without importlib's."""
    report = traceback.TracebackException.from_exception(error)
    current: traceback.TracebackException | None = report
    while current is not None:
        theirs = [frame for frame in current.stack if not _is_ours(frame.filename)]
        current.stack = traceback.StackSummary.from_list(theirs or list(current.stack)[-1:])
        current = current.__cause__ or current.__context__
    return "".join(report.format()).rstrip()


def _is_ours(filename: str) -> bool:
    return filename.startswith(_OWN_FOLDERS) or filename.startswith("<frozen importlib")
