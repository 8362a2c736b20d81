"""The fork server's imports before it forks ranks: torch's modules that a strategy names, and no other package's."""

from __future__ import annotations

import sys

import pytest

from verifier.forkserver import warmup
from verifier.naming import parse_strategy

TEXT = """
import accelerate, beside
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
def wrap(model):
    return model
"""


@pytest.fixture
def imports(monkeypatch):
    names = []
    monkeypatch.setattr(warmup.importlib, "import_module", names.append)
    monkeypatch.setattr(warmup, "_asked", {})
    return names


def test_what_a_strategy_imports_of_torch_is_imported_once_for_all_its_ranks(imports, tmp_path):
    (tmp_path / "beside.py").write_text("import torch.distributed.checkpoint")
    path = tmp_path / "mine.py"
    path.write_text(TEXT)
    for _ in range(2):
        warmup.import_what_of_torch(parse_strategy(str(path)))
    assert imports == [
        "torch.distributed.checkpoint",
        "torch.distributed.optim",
        "torch.distributed.optim.ZeroRedundancyOptimizer",
    ]


def test_one_of_ours_is_imported_itself(imports):
    warmup.import_what_of_torch(parse_strategy("zero1"))
    assert imports == ["ddp_core.strategies.zero1"]


def test_what_cannot_be_imported_is_left_to_the_ranks(tmp_path, monkeypatch):
    monkeypatch.setattr(warmup, "_asked", {})
    path = tmp_path / "mine.py"
    path.write_text("from torch.distributed.optim.no_such_thing import wrap")
    warmup.import_what_of_torch(parse_strategy(str(path)))
    assert "torch.distributed.optim.no_such_thing" not in sys.modules
