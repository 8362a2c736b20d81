"""From what a person types to a strategy reference: a name, ``file.py:attribute``, ``module:attribute``, a function.

Special here: a misspelt built-in name is distinguished from a path and a module before anything is imported.
"""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

from verifier import catalogue
from verifier.defined import require_defined
from verifier.errors import UsageError
from verifier.request import Builtin, FromFile, Imported, StrategyRef


def parse_strategy(strategy: Any, options: dict[str, Any] | None = None) -> StrategyRef:
    """The reference for ``strategy``.

    Raises:
        UsageError: it names nothing; the message lists what there is, or the forms that are understood.
    """
    options = options or {}
    if not isinstance(strategy, str):
        return _from_object(strategy, options)
    head, colon, attribute = strategy.rpartition(":")
    path, attribute = (head, attribute) if colon else (strategy, "wrap")
    if path.endswith(".py"):
        if not attribute.isidentifier():
            raise UsageError(f"'{attribute}' is not the name of a function or class. Write path/to/file.py:wrap.")
        if not Path(path).is_file():
            raise UsageError(f"there is no file '{path}'. Give the path of a Python file, then ':wrap'.")
        require_defined(Path(path), attribute)
        return FromFile(path=str(Path(path).resolve()), attribute=attribute, options=options)
    if colon:
        if not (attribute.isidentifier() and all(part.isidentifier() for part in head.split("."))):
            raise UsageError(f"'{strategy}' is neither path/to/file.py:wrap nor package.module:attribute.")
        return Imported(entrypoint=strategy, options=options)
    catalogue.STRATEGIES.require(strategy)
    return Builtin(name=strategy, options=options)


def parse_options(pairs: list[str]) -> dict[str, Any]:
    """``["bucket_cap_mb=1", "name=x"]`` as a dict; values are JSON where they can be, else text.

    Raises:
        UsageError: a pair has no ``=`` or its key is no Python name.
    """
    options = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.isidentifier():
            raise UsageError(f"'{pair}' is not of the form K=V. Write for example --option bucket_cap_mb=1.")
        try:
            options[key] = json.loads(value)
        except json.JSONDecodeError:
            options[key] = {"True": True, "False": False, "None": None}.get(value, value)
    return options


def _from_object(target: Any, options: dict[str, Any]) -> StrategyRef:
    """Reference a function or class by the file that defines it, so that ranks in other processes can find it."""
    name = getattr(target, "__qualname__", "")
    if not callable(target) or not name.isidentifier():
        raise UsageError(
            f"{target!r} cannot be found by ranks in other processes. Give a function or class defined at the top "
            "level of a module (not a lambda, not one defined inside a function)."
        )
    source = inspect.getsourcefile(target)
    if source is None:
        raise UsageError(f"the file that defines {name} is not known. Save it in a file and give 'file.py:{name}'.")
    return FromFile(path=str(Path(source).resolve()), attribute=name, options=options)


def describe(ref: StrategyRef) -> str:
    """How a person would type ``ref``."""
    if isinstance(ref, Builtin):
        return ref.name
    if isinstance(ref, FromFile):
        path = Path(ref.path)
        shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
        return f"{shown}:{ref.attribute}"
    return ref.entrypoint
