"""docs/torch-ddp-tests.md is true: torch's own DDP tests give results with ours that are no worse than it says.

Special here: all of them take minutes, so a fixed part of them runs here, at least one for each topic. The whole table
is made by ``python -m tests.torch_suite --write docs/torch-ddp-tests.md``. That the table lists exactly the tests of
the installed torch is checked in full.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch

from tests.conftest import ROOT
from tests.torch_suite import document
from tests.torch_suite.selection import ADAPTATIONS, selected_tests, source_path

DOCUMENT = ROOT / "docs" / "torch-ddp-tests.md"
VERSION, WORLD_SIZE = document.read_settings(DOCUMENT)
PART = [
    "test_DistributedDataParallelCPU",
    "test_DistributedDataParallelCPU_grad_is_view",
    "test_DistributedDataParallel_with_amp_and_grad_is_view",
    "test_accumulate_gradients_no_sync",
    "test_accumulate_gradients_no_sync_grad_is_view",
    "test_ddp_broadcast_buffer",
    "test_ddp_comm_hook_logging",
    "test_ddp_compile_static_graph",
    "test_ddp_create_graph",
    "test_ddp_forward_backward_hook",
    "test_ddp_grad_div_uneven_inputs",
    "test_ddp_inference",
    "test_ddp_join_model_equivalence",
    "test_ddp_join_respects_forward_sync_buffers_false",
    "test_ddp_model_diff_num_params_across_ranks",
    "test_ddp_namedtuple",
    "test_ddp_remove_autograd_hooks",
    "test_ddp_shared_grad_acc_unused_params",
    "test_ddp_uneven_input_exception",
    "test_ddp_uneven_inputs_stop_iteration_sync_bn",
    "test_ddp_unused_params_rebuild_buckets_exception",
    "test_ddp_zero_output_features",
    "test_different_graph_across_ranks",
    "test_grads_same_across_ranks_with_no_sync",
    "test_output_unused_in_loss_dict_module",
    "test_post_localSGD_optimizer_step_reload",
    "test_static_graph_multi_forward",
]

pytestmark = pytest.mark.skipif(
    torch.__version__.split("+")[0] != VERSION,
    reason=f"docs/torch-ddp-tests.md is about torch {VERSION}, and this is {torch.__version__}",
)


@pytest.mark.slow
def test_no_outcome_is_worse_than_documented(tmp_path):
    verdicts = tmp_path / "verdicts.json"
    words = ["--no-control", "--trace", "--world-size", str(WORLD_SIZE), "--json", str(verdicts), *PART]
    command = [sys.executable, "-m", "tests.torch_suite", *words]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stderr
    documented = document.read(DOCUMENT)
    worse = {
        verdict["test"]: f"{verdict['ours']}, documented as {documented[verdict['test']]}"
        for verdict in json.loads(verdicts.read_text())
        if document.is_worse(verdict["ours"], documented[verdict["test"]])
    }
    assert not worse, f"{worse}\n{run.stdout}"


def test_the_table_has_exactly_the_tests_of_this_torch():
    assert list(document.read(DOCUMENT)) == list(selected_tests())


def test_the_counts_are_those_of_the_table():
    outcomes, text = list(document.read(DOCUMENT).values()), DOCUMENT.read_text()
    assert set(outcomes) <= set(document.OUTCOMES)
    for outcome in document.OUTCOMES:
        assert f"| {outcome} | " in text
        assert f"| {outcomes.count(outcome)} |\n" in text


def test_what_is_changed_in_torchs_tests_is_still_there():
    source = source_path().read_text()
    for adaptation in ADAPTATIONS:
        assert source.count(adaptation.old) == 1, adaptation.old
        assert set(adaptation.tests) <= set(selected_tests())


@pytest.mark.parametrize(
    ("now", "documented", "worse"),
    [
        ("passed", "passed", False),
        ("failed", "passed", True),
        ("not applicable", "passed", True),
        ("failed", "not applicable", True),
        ("passed", "failed", False),
        ("not applicable", "failed", False),
    ],
)
def test_worse(now, documented, worse):
    assert document.is_worse(now, documented) is worse
