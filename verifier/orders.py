"""Whether a strategy's text makes orders that differ by interpreter. Read from the text alone, as ``defined`` does.

Special here: the answer only decides whether ``standard``, too, tries ranks once as separate interpreters, which costs
seconds. A set of strings has another order in each interpreter, a set of tensors an order by addresses; forks of one
process agree on the first and mostly on the second.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from verifier.request import StrategyRef
from verifier.texts import texts

MAKERS = {"set", "frozenset", "hash"}  # called, or passed on
OF_SETS = (ast.Sub, ast.BitAnd, ast.BitOr, ast.BitXor)


def may_be_drawn(ref: StrategyRef) -> bool:
    """Return whether the text of ``ref`` has a set, hash or address that could make an order; False without a text."""
    return any(_shows_one(text) for text in texts(ref))


def _shows_one(text: bytes) -> bool:
    nodes = [*_walk(text)]
    kept = [node.targets for node in nodes if isinstance(node, ast.Assign) and _is_keys(node.value)]
    views = {name for targets in kept for target in targets if (name := _name(target))}
    return any(_draws(node, views) for node in nodes)


def _walk(text: bytes) -> Iterator[ast.AST]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return
    yield from ast.walk(tree)


def _draws(node: ast.AST, views: set[str]) -> bool:
    """Return whether ``node`` may make an order. ``views``: names that dictionaries' keys or items are kept under."""
    if isinstance(node, ast.Set):  # of constants it is a lookup table, such as a contract's ``disclaims``
        return not all(isinstance(element, ast.Constant) for element in node.elts)
    if isinstance(node, ast.SetComp):
        return True
    if isinstance(node, ast.BinOp) and isinstance(node.op, OF_SETS):
        return any(_is_keys(part) or _name(part) in views for part in (node.left, node.right))
    if isinstance(node, ast.Call):  # sorted(parameters, key=id) passes id on; id(parameter) is only a name
        handed = [*node.args, *(keyword.value for keyword in node.keywords)]
        names = {value.id for value in (node.func, *handed) if isinstance(value, ast.Name)}
        by_address = any(isinstance(value, ast.Name) and value.id == "id" for value in handed)
        return by_address or bool(names & MAKERS)
    return False


def _name(node: ast.AST) -> str | None:
    """The name of a variable, or of an attribute of whatever object; None for anything else."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else None


def _is_keys(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("keys", "items")
