"""Which of torch's tests are about DDP, and the module that holds them, made to run on the CPU.

Special here: both are read off the source's syntax tree. A test is selected if it, or a helper that it calls, uses
``DistributedDataParallel``: no list of names to keep up to date. Decorators that skip a test where there are too few
GPUs are taken off, and a few lines are changed (``ADAPTATIONS``), each for a reason that the document prints.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import sys
import types
import unittest
from pathlib import Path
from typing import NamedTuple

WRAPPER = "DistributedDataParallel"
KEPT_DECORATORS = ("with_dist_debug_levels",)


class Adaptation(NamedTuple):
    """One change to torch's source. ``old`` has to occur exactly once."""

    tests: tuple[str, ...]
    why: str
    old: str
    new: str


ADAPTATIONS = (
    Adaptation(
        ("test_ddp_uneven_inputs",),
        "images of 24 x 24 instead of 1000 x 1000: gigabytes of activations are for GPUs",
        "            dim = 1000\n            batch = 1\n            # Create a variety of models",
        "            dim = 24\n            batch = 1\n            # Create a variety of models",
    ),
    Adaptation(
        ("test_ddp_uneven_inputs",),
        "without its models that have a communication hook",
        "            models_to_test.extend(models_with_hook)\n",
        "            pass\n",
    ),
    Adaptation(
        ("test_ddp_uneven_inputs",),
        "without the look at DDP's logging data",
        "                ddp_logging_data = net._get_ddp_logging_data()\n"
        '                self.assertTrue(ddp_logging_data.get("join_uneven_inputs"))\n',
        "                pass\n                pass\n",
    ),
    Adaptation(
        ("test_ddp_uneven_inputs",),
        "without the look at `_authoritative_rank`",
        "                self.assertTrue(net._authoritative_rank)\n",
        "                net_authoritative_rank = dist.get_world_size() - 1\n",
    ),
    Adaptation(
        ("test_ddp_uneven_inputs",),
        "without the look at `_authoritative_rank`",
        "                    [net._authoritative_rank], device=self.rank\n",
        "                    [net_authoritative_rank], device=self.rank\n",
    ),
    Adaptation(
        ("test_ddp_profiling_autograd_profiler", "test_ddp_profiling_torch_profiler"),
        "without the look for the reducer's own event `search_unused_parameters`",
        '            events = get_profiling_event("search_unused_parameters", prof)\n'
        "            self.assertEqual(len(events), 1)\n",
        "            pass\n            pass\n",
    ),
    Adaptation(
        ("test_ddp_uneven_inputs_stop_iteration_sync_bn",),
        "without its model with SyncBatchNorm, which runs on GPUs only",
        "            for model in [model_bn, comm_model]:\n",
        "            for model in [comm_model]:\n",
    ),
    Adaptation(
        ("test_different_graph_across_ranks",),
        "without the looks at DDP's logging data",
        "            self.assertFalse(\n"
        '                base_model._get_ddp_logging_data().get("has_rebuilt_buckets", 0)\n'
        "            )\n",
        "            pass\n            pass\n            pass\n",
    ),
    Adaptation(
        ("test_different_graph_across_ranks",),
        "without the looks at DDP's logging data",
        "            self.assertTrue(\n"
        '                static_model._get_ddp_logging_data().get("has_rebuilt_buckets", 0)\n'
        "            )\n",
        "            pass\n            pass\n            pass\n",
    ),
)


def adaptations_of(test: str) -> list[str]:
    return list(dict.fromkeys(a.why for a in ADAPTATIONS if test in a.tests))


def source_path() -> Path:
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "testing" / "_internal" / "distributed" / "distributed_test.py"


def _methods(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    outer = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "DistributedTest")
    inner = next(n for n in outer.body if isinstance(n, ast.ClassDef) and n.name == "_DistTestBase")
    return {n.name: n for n in inner.body if isinstance(n, ast.FunctionDef)}


def _names_used(function: ast.FunctionDef) -> set[str]:
    nodes = list(ast.walk(function))
    plain = {node.id for node in nodes if isinstance(node, ast.Name)}
    return plain | {node.attr for node in nodes if isinstance(node, ast.Attribute)}


def selected_tests() -> dict[str, str]:
    """The tests that use DDP, in the order of the file, with what each one asks for: GPUs, or a skip by torch."""
    methods = _methods(ast.parse(source_path().read_text()))
    uses = {name: _names_used(function) for name, function in methods.items()}
    about = {name for name, used in uses.items() if WRAPPER in used}
    while more := {name for name, used in uses.items() if name not in about and used & about}:
        about |= more
    return {name: _asks_for(methods[name]) for name in methods if name in about and name.startswith("test_")}


def _asks_for(function: ast.FunctionDef) -> str:
    decorators = [ast.unparse(decorator) for decorator in function.decorator_list]
    skipped = any(d.startswith(("unittest.skip", "skip_but_pass_in_sandcastle(")) or "if(True" in d for d in decorators)
    gpus = any(d.startswith(("skip_if_lt_x_gpu", "skip_if_no_gpu")) for d in decorators)
    return "skipped by torch" if skipped else "GPUs" if gpus else "CPU"


class _WithoutSkips(ast.NodeTransformer):
    """Takes the decorators that skip tests off the selected ones."""

    def __init__(self, tests: set[str]) -> None:
        self.tests = tests

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if node.name in self.tests:
            node.decorator_list = [d for d in node.decorator_list if ast.unparse(d).startswith(KEPT_DECORATORS)]
            return node
        return self.generic_visit(node)


def load(world_size: int, temporary: Path) -> types.ModuleType:
    """torch's module, adapted. It reads its settings from the environment when it is imported."""
    os.environ.update(BACKEND="gloo", WORLD_SIZE=str(world_size), TEMP_DIR=str(temporary), MASTER_ADDR="127.0.0.1")
    if importlib.util.find_spec("expecttest") is None:  # imported for inline expectations, which DDP's tests do not use
        stand_in = types.ModuleType("expecttest")
        stand_in.TestCase = unittest.TestCase  # type: ignore[attr-defined]
        sys.modules["expecttest"] = stand_in
    source = source_path().read_text()
    for adaptation in ADAPTATIONS:
        if (times := source.count(adaptation.old)) != 1:
            raise ValueError(f"torch's tests have changed: {adaptation.old!r} occurs {times} times, expected once")
        source = source.replace(adaptation.old, adaptation.new)
    tree = _WithoutSkips(set(selected_tests())).visit(ast.parse(source))
    module = types.ModuleType("torch.testing._internal.distributed.distributed_test")
    sys.modules[module.__name__] = module  # its dataclasses and pickled classes look it up
    module.__file__ = str(source_path())
    exec(compile(tree, "distributed_test.py", "exec", dont_inherit=True), module.__dict__)
    return module
