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

EXPLAINS = "EXPLAINS"  # in a module that checks share: the code of the check whose failures it explains
# General meanings, where the source has only the explanation of one case.
MEANINGS = {
    "another_dtype": "the gradient has another dtype than its parameter, and is off by no more than that explains",
    "another_groups": "a gradient, or the step that a weight took, is another process group's and not its own",
    "clipped_before_reduction": "each rank clips its own gradient before the reduction, and not their mean after it",
    "clipped_otherwise": "gradients are clipped by another norm than that of the group's mean",
    "collective_never_issued": "a rank waits for others in a collective that they never issue",
    "divided_by_the_job": "a group's sum is divided by the number of all ranks, and not by the group's",
    "low_rank": "as a matrix the gradient has a lower rank than the right one: thin factors of it were sent",
    "norm_misstated": "clip_grad_norm_() returns another number than the norm of all gradients, though they are right",
    "not_loaded": "a fresh replica cannot load what the strategy has saved",
    "not_stepped": "a parameter's weights do not move in a step in which they should",
    "quantised": "the gradient consists of signs, or of small whole numbers times a scale, and this is not declared",
    "reduced_in_part": "a part of a gradient is one rank's own, and the rest is the right mean",
    "reduced_over_the_job": "a group's gradient, buffer or step comes from all ranks of the job",
    "reduced_too_much": "a rank reduces more numbers in one step than are trained",
    "schedule_ignored": "a learning rate, momentum or other option that the loop changes in param_groups has no effect",
    "undeclared_shards": "a rank holds a part of a parameter, and the strategy does not say that it shards",
    "unfinished_work": "a collective is never waited for, or only after its result was used",
    "update_differs": "the weights after a step are not those of the single process, though gradients were right",
    "update_scaled": "the weights moved by a multiple of what they should",
    "weights_made_alike": "each rank steps by its own gradient, and weights are averaged, or sent, after the step",
    "written_in_flight": "a tensor is written to while its collective is in flight",
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
    files = [*sorted(folder.glob("ls*.py")), *sorted(Path(__file__).parent.glob("*.py"))]
    for path in files:
        code, stated = stated_in(path)
        for name, explanation, hint in stated:
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


def stated_in(path: Path) -> tuple[str | None, list[tuple[str, str, str]]]:
    """The code of the check whose failures a file explains, and the (name, explanation, hint) of each cause in it.

    The file is a check's, or one that checks share, which states the code as ``EXPLAINS``; without it, it is None.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    constants = _assigned(tree.body)
    code = path.stem[:5].upper() if path.parent == catalogue.CHECKS.folder else _text(constants.get(EXPLAINS), {})
    return code or None, list(_stated(tree, constants))


def _stated(tree: ast.Module, constants: dict[str, ast.expr]) -> Iterator[tuple[str, str, str]]:
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
