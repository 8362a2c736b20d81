"""Every cause that a failure may name: the checks that name it, its meaning and its remedy; and what faults declare.

Special here: causes are read from the source files without importing them, as names and summaries are. Each cause is
stated once, in the code that finds it. Values that are filled in at run time (a rank, a parameter) appear here between
angle brackets.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from verifier import catalogue

SHARED = {
    "diagnosis": "LS201",
    "over_time": "LS201",
    "misplaced": "LS201",
    "shares": "LS201",
    "unsynchronised": "LS201",
    "equivalence": "LS201",
    "presence": "LS201",
    "narrowing": "LS201",
    "low_rank": "LS201",
    "on_a_grid": "LS201",
    "other_inputs": "LS201",
    "returned_norm": "LS201",
    "elements_left_out": "LS201",
    "in_a_group": "LS201",
    "in_part": "LS201",
    "cleared": "LS201",
    "alike_afterwards": "LS201",
    "lost_options": "LS202",
    "updates": "LS202",
    "wrong_updates": "LS202",
    "overflowed": "LS202",
    "steps_taken": "LS202",
    "alone": "LS202",
    "frozen": "LS202",
}  # shared modules, each with the check that it explains failures for
# General meanings, where the source has only the explanation of one case.
MEANINGS = {
    "buffers_diverged": "in the same step, the ranks' forwards read different buffers (running statistics, counters)",
    "collectives_differ": "the n-th collective of a group is not the same on all its members: another operation, "
    "dtype, size or root, or one of them issues no more",
    "deadlock": "ranks wait for one another in different collectives, and none will come to the other's",
    "elements_share_memory": "a collective was given a tensor that gloo would read, or write, behind its end",
    "hang": "a rank does not go on in the strategy's own code, and the others wait for it",
    "missing_gradient": "the optimizer finds no gradient where the single process has one",
    "no_initial_broadcast": "replicas that were built unequal were not made equal before the first forward",
    "no_sync_not_restored": "after an exception has left no_sync(), ranks train on their own gradients",
    "optimizer_state_diverged": "momentum, or other state of the optimizer, is not the same on all ranks, though "
    "weights still are",
    "replicas_diverged": "after the optimizer's step, one rank holds other bytes of a weight than the others",
    "unfrozen": "the optimizer finds a gradient of a parameter whose requires_grad was False, or moves it",
    "unequal_shares": "every element is a sum of the ranks' own gradients, and they do not count alike in it",
    "same_random_numbers": "ranks were seeded differently, and begin the model's first forward, or end, with the same "
    "random numbers: the strategy has seeded them, or what the run was resumed from gives one rank's to all",
    "stray_gradient": "the optimizer finds a gradient where the single process has none",
}


@dataclass
class CauseText:
    """A cause as its source states it. The same name may stand in several places, with several explanations."""

    name: str
    named_by: list[str] = field(default_factory=list)
    explanations: list[str] = field(default_factory=list)
    hints: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class FaultText:
    name: str
    trips: tuple[str, ...]
    cause: str
    applies_to: tuple[str, ...]


@cache
def causes() -> dict[str, CauseText]:
    """All causes, by name."""
    found: dict[str, CauseText] = {}
    folder = catalogue.CHECKS.folder
    files = [(path, path.stem[:5].upper()) for path in sorted(folder.glob("ls*.py"))]
    files += [(Path(__file__).parent / f"{name}.py", code) for name, code in SHARED.items()]
    for path, code in files:
        for name, explanation, hint in _stated(path):
            cause = found.setdefault(name, CauseText(name))
            explanation = MEANINGS.get(name, explanation)
            for kept, text in ((cause.named_by, code), (cause.explanations, explanation), (cause.hints, hint)):
                if text and text not in kept:
                    kept.append(text)
    return dict(sorted(found.items()))


@cache
def faults() -> dict[str, FaultText]:
    """The declaration of every fault, by name."""
    found = {}
    for name in catalogue.FAULTS.names():
        tree = ast.parse((catalogue.FAULTS.folder / f"{name}.py").read_text(encoding="utf-8"))
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "fault":
                said: dict[str, Any] = {k.arg: ast.literal_eval(k.value) for k in call.keywords if k.arg}
                found[name] = FaultText(name, tuple(sorted(said["trips"])), said["cause"], tuple(said["applies_to"]))
    return found


def _stated(path: Path) -> Iterator[tuple[str, str, str]]:
    """The (name, explanation, hint) of each cause in a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    constants = _assigned(tree.body)
    for node in ast.walk(tree):
        said = _said(node)
        for name in _names(said.get("cause")):
            yield name, _text(said.get("explanation"), constants), _text(said.get("hint"), constants)


def _said(node: ast.AST) -> dict[str, ast.expr]:
    """The expressions that ``node`` gives for "cause", "explanation" and "hint", in any of the forms checks use."""
    order = ("cause", "explanation", "hint")
    if isinstance(node, ast.Call):
        said = {k.arg: k.value for k in node.keywords if k.arg}
        if isinstance(node.func, ast.Name) and node.func.id == "Cause":
            said |= dict(zip(("cause", "confidence", "explanation", "hint"), node.args, strict=False))
        return said
    if isinstance(node, ast.FunctionDef):
        named = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
        return {argument.arg: default for argument, default in named if default is not None}
    if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple) and len(node.value.elts) == 4:
        return dict(zip(order, node.value.elts, strict=False))
    if isinstance(node, ast.If | ast.For):
        return _assigned(node.body)
    return {}


def _assigned(body: list[ast.stmt]) -> dict[str, ast.expr]:
    """The values assigned in ``body``, by the name of the variable or attribute."""
    found: dict[str, ast.expr] = {}
    for node in body:
        if isinstance(node, ast.Assign):
            target, value = node.targets[0], node.value
            pairs = [(target, value)]
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs = list(zip(target.elts, value.elts, strict=True))
            found |= {_label(t).replace(" ", "_"): v for t, v in pairs if isinstance(t, ast.Name | ast.Attribute)}
    return found


def _names(node: ast.expr | None) -> list[str]:
    if isinstance(node, ast.IfExp):
        return _names(node.body) + _names(node.orelse)
    return [node.value] if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value else []


def _text(node: ast.expr | None, constants: dict[str, ast.expr]) -> str:
    """The text of a string expression, with filled-in values between angle brackets; "" if it is no string."""
    if isinstance(node, ast.Name):
        return _text(constants[node.id], {}) if node.id in constants else ""
    if isinstance(node, ast.IfExp):
        return "; or: ".join(filter(None, (_text(node.body, constants), _text(node.orelse, constants))))
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part, constants) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return f"<{_label(node.value)}>"
    return ""


def _label(node: ast.expr) -> str:
    """A short name for a filled-in value: ``e.world_size`` is "world size", ``mine.describe()`` is "mine"."""
    if isinstance(node, ast.Call):
        inside = node.func.value if isinstance(node.func, ast.Attribute) else (node.args[0] if node.args else node.func)
        return "ranks" if isinstance(node.func, ast.Attribute) and node.func.attr == "join" else _label(inside)
    word = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else "..."
    return {"k": "micro-batches", "standard": "rank", "other": "rank"}.get(word, word.replace("_", " "))
