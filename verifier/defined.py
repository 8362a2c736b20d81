"""Checks, from a Python file's text, that it defines a name, before a process is started for it.

Special here: a name counts as missing only where that is certain. A file that makes names in other ways (``import *``,
``globals()``, ``exec``) or does not parse is left for the ranks to import.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path

from verifier.errors import UsageError

MAKES_NAMES = {"globals", "locals", "vars", "exec", "eval", "setattr", "__dict__"}
ASKED = "__getattr__"  # called for names that a module lacks; in a class it concerns its objects only


def require_defined(path: Path, attribute: str) -> None:
    """Raise UsageError if nothing in the file at ``path`` can be called ``attribute``; it lists what there is."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, OSError, RecursionError):
        return
    names = set(_names(tree))
    asked = any(ASKED in _names(node) for node in tree.body if not isinstance(node, ast.ClassDef))
    if attribute in names or "*" in names or names & MAKES_NAMES or asked:
        return
    defined = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    callables = [name for name in defined if not name.startswith("_")] or defined
    near = get_close_matches(attribute, callables, n=1)
    there = (
        f"did you mean {near[0]}?" if near else f"it defines {', '.join(callables[:8]) or 'no function and no class'}."
    )
    raise UsageError(f"'{path.name}' defines no '{attribute}': {there} Write {path.name}:NAME.")


def _names(tree: ast.AST) -> Iterator[str]:
    """Every word in the syntax tree: the names that the text binds in any way, those it uses, and its strings."""
    for node in ast.walk(tree):
        for _, value in ast.iter_fields(node):
            yield from (word for word in (value if isinstance(value, list) else [value]) if isinstance(word, str))
