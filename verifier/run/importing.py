"""A strategy's module: from a file, a package, source that was sent along, or our own catalogue.

Special here: in one scenario a strategy is imported before there is a process group, as a script imports it at its top.
The module of that import is the one that is loaded later. If the import fails, the reason is reported.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import torch.distributed as dist

from verifier import catalogue
from verifier.request import Builtin, FromFile, Imported, Source, StrategyRef


def import_first(ref: StrategyRef, folder: Path) -> None:
    """Import the strategy before there is a process group, as a script does at its top. A module that raises then, or
    creates a group, is imported again once there is one, and the scenario is not run on it (``not_claimed``).
    """
    sys.argv = sys.argv[:1]
    try:
        with patch.object(dist, "init_process_group", _no_group):
            _imported.append(imported(ref, folder))
    except BaseException as error:  # the module may even exit the process
        _not_first.append(f"it is to be imported where there is a process group: {error}")


def _no_group(*args: Any, **options: Any) -> None:
    """Stand in for torch's ``init_process_group``: ranks would meet at a port that another run may use."""
    raise RuntimeError("it calls init_process_group()")


_imported: list[tuple[ModuleType, str]] = []  # by import_first(), for the load that follows
_not_first: list[str] = []  # why the first import failed


def why_not_first() -> str | None:
    """Return why the strategy could not be imported before there was a process group. None: it was, or nobody asked."""
    return _not_first[0] if _not_first else None


def imported(ref: StrategyRef, folder: Path) -> tuple[ModuleType, str]:
    """Return the module of ``ref``, and the name in it. Source that was sent along is written below ``folder``."""
    if _imported:
        return _imported.pop()
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
    name, _, attribute = ref.entrypoint.partition(":")
    module = importlib.import_module(name)
    if isinstance(ref, Source) and not (module.__file__ or "").startswith(str(folder)):
        raise ImportError(f"'{name}' is the name of a module that was there before: rename {name}.py")
    return module, attribute


def _import_file(path: Path) -> ModuleType:
    """Import the file at ``path`` under its own name, or another where that would replace ``torch``, ``types``, ..."""
    sys.path.insert(0, str(path.parent))  # its neighbours are importable, as when it is run as a script
    taken = path.stem in sys.modules or path.stem in sys.stdlib_module_names
    name = f"strategy_in_{path.stem}" if taken else path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
