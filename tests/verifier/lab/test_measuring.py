"""Calibrate, tune and bench on real ranks: what they find is well-formed, kept and compared; no time is asserted."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from ddp_core.cost import Contention, Layer, Link
from ddp_core.measured import Curve
from verifier.errors import UnknownName, UsageError
from verifier.lab import bench, calibration, tuning
from verifier.lab.calibration import Calibration
from verifier.lab.ranks import on_ranks
from verifier.lab.workloads import WORKLOADS
from verifier.launcher import LaunchError

MB = 2**20
MADE_UP = Calibration(
    workload="mlp", strategy="bucketed", world_size=2, backend="gloo", device="cpu", num_cpus=2, torch="2",
    num_rounds=3,
    link=Link(1e-3, 1e-9), curve=Curve((1024.0, 1e8), (1e-3, 0.1)), forward_s=0.01, optimizer_s=0.002,
    layers=tuple(Layer(4 * MB, 0.01) for _ in range(10)), contention=Contention(1.5, 1.2),
)  # fmt: skip


def test_a_calibration_survives_its_file(tmp_path):
    MADE_UP.save(tmp_path / "c.json")
    assert Calibration.load(tmp_path / "c.json") == MADE_UP
    (tmp_path / "other.json").write_text("[]")
    with pytest.raises(UsageError, match="lockstep calibrate --output"):
        Calibration.load(tmp_path / "other.json")


def test_what_is_chosen_is_within_a_hundredth_of_the_best_predicted():
    chosen = tuning.choose(MADE_UP)
    assert MADE_UP.step_s(chosen) <= min(MADE_UP.step_s(cap) for cap in calibration.caps_for(MADE_UP)) * 1.01
    told = tuning.tuned(MADE_UP, chosen, {chosen: [1.0, 1.1, 1.2], 25.0 * MB: [2.0, 2.2, 2.4]})
    assert told.facts["measured_gain"] == pytest.approx(0.5)
    assert "expected to save" in told.notes[0]


def test_a_size_that_makes_the_buckets_of_the_default_is_the_default():
    one_bucket = dataclasses.replace(MADE_UP, layers=(Layer(4 * MB, 0.01),))
    assert tuning.choose(one_bucket) == tuning.DEFAULT_CAP_BYTES


def test_layers_follow_the_order_in_which_gradients_were_ready():
    layers = calibration.layers_from([[0.3, 0.3], [0.1, 0.1], [0.2, 0.2]], [30, 10, 20], 0.6)
    assert [layer.num_bytes for layer in layers] == [30, 20, 10]
    assert sum(layer.backward_s for layer in layers) == pytest.approx(0.6)
    assert layers[0].backward_s == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("text", "label", "times", "options"),
    [
        ("naive", "naive", 1, {}),
        ("naive*4", "naive*4", 4, {}),
        ("bucketed[bucket_cap_mb=1]*2", "bucketed[bucket_cap_mb=1]*2", 2, {"bucket_cap_mb": 1}),
    ],
)
def test_entrants(text, label, times, options):
    found = bench.parse_entrant(text)
    assert (found.label, found.num_micro_batches, found.strategy.options) == (label, times, options)


@pytest.mark.parametrize("text", ["naive*0", "", "naive[", "nobody", "naive[x]"])
def test_no_entrants(text):
    with pytest.raises((UsageError, UnknownName)):
        bench.parse_entrant(text)


def test_calibrate_and_tune(command, tmp_path):
    pytest.importorskip("sklearn")
    words = ("--workload", "digits", "--rounds", "2")
    done = command("calibrate", *words, "--check", "--output", "c.json", "--format", "json", timeout=300)
    assert done.returncode == 0, done.stderr
    found = Calibration.load(tmp_path / "c.json")
    assert found.num_bytes == 38_282 * 8
    assert found.link.beta_s_per_byte >= 0
    assert found.backward_s > 0
    assert found.curve.num_bytes == tuple(float(s) for s in calibration.SIZES_BYTES)
    assert len(json.loads(done.stdout)["facts"]["measured_s"]) == len(tuning.CHECKED_BYTES)
    done = command("tune", "--calibration", "c.json", "--rounds", "2", timeout=300)
    assert done.returncode == 0, done.stderr
    assert "expects buckets of" in done.stderr
    assert "expected to save" in done.stdout


def test_bench_counts_draws_keeps_and_compares(command, tmp_path):
    pytest.importorskip("matplotlib")
    words = ("bench", "naive", "naive*2", "hook", "bucketed", "torch_ddp", "--workload", "cnn", "--rounds", "2")
    done = command(*words, "--output", "r.json", "--plots", "plots", "--page", "page.html", timeout=300)
    assert done.returncode == 0, done.stderr
    results = bench.load(tmp_path / "r.json")
    rows = results["strategies"]
    assert {label: row["calls"] for label, row in rows.items()} == {
        bench.ALONE: 0, "naive": 8, "naive*2": 8, "hook": 8, "bucketed": 1, "torch_ddp": 1}  # fmt: skip
    assert all(row["num_bytes"] == 206_922 * 4 for label, row in rows.items() if label != bench.ALONE)
    for row in rows.values():
        assert sum(row[key] for key in bench.PERCENTS[:3]) == pytest.approx(100)
        assert row["memory"]["parameters"] == 206_922 * 4
    assert rows["hook"]["overlap_percent"] < 5  # blocking: nothing computes meanwhile
    drawn = {path.name for path in (tmp_path / "plots").iterdir()}
    assert drawn == {"comparison.svg", "memory.svg", "step-times.svg", "timelines.svg"}
    page = (tmp_path / "page.html").read_text()
    assert page.count("<svg") == 4
    assert "<script" not in page
    assert "within the spread" in bench.against(results, results).to_text()
    slower = json.loads((tmp_path / "r.json").read_text())
    slower["strategies"]["hook"]["plain_s"] = [s * 100 for s in slower["strategies"]["hook"]["plain_s"]]
    assert "slower" in bench.against(slower, results).to_text()


def test_results_of_something_else_are_refused_before_measuring(command, tmp_path):
    old = {"schema": 1, "workload": "mlp", "world_size": 2, "device": "cpu", "strategies": {bench.ALONE: {}}}
    (tmp_path / "old.json").write_text(json.dumps(old))
    done = command("bench", "naive", "--workload", "cnn", "--compare", "old.json", timeout=60)
    assert done.returncode == 2
    assert "of workload mlp, not cnn" in done.stderr


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (["calibrate", "--workload", "nobody"], "Valid names: cnn, digits, llama, mlp, smollm2-360m"),
        (["calibrate", "--strategy", "naive"], "Those that have: bucketed, torch_ddp"),
        (["bench", "nobody"], "There is no strategy 'nobody'"),
        (["bench", "--device", "cuda", "-n", "64"], "choose --device cpu"),
        (["tune", "--calibration", "absent.json"], "No such file"),
    ],
)
def test_mistakes_are_told(words, remedy, command):
    done = command(*words)
    assert done.returncode in (2, 3)
    assert remedy in done.stderr
    assert "Traceback" not in done.stderr


def _fail(rank_that_fails: int) -> None:
    import torch.distributed as dist

    if dist.get_rank() == rank_that_fails:
        raise ValueError("on purpose")
    time.sleep(60)


def _sleep() -> None:
    time.sleep(60)


def test_a_rank_that_fails_ends_all_and_is_named():
    with pytest.raises(LaunchError, match=r"(?s)rank 1 failed.*on purpose"):
        on_ranks(2, _fail, 1)


def test_a_deadline_holds():
    with pytest.raises(LaunchError, match="not done in 3 s"):
        on_ranks(2, _sleep, timeout_s=3)


@pytest.mark.parametrize("num_children", [1, 2, 3])  # the tracker of resources, and two ranks: it may come in between
def test_ctrl_c_leaves_no_ranks(tmp_path, num_children):
    words = [sys.executable, "-m", "verifier", "calibrate", "--workload", "mlp", "--rounds", "9999"]
    process = subprocess.Popen(
        words,
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a suite run in the background ignores it
    )
    children: list[psutil.Process] = []
    deadline = time.monotonic() + 60
    while len(children) < num_children and time.monotonic() < deadline:
        time.sleep(0.003)
        children = psutil.Process(process.pid).children(recursive=True)
    os.kill(process.pid, signal.SIGINT)
    _, told = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "stopped" in told
    assert "Traceback" not in told
    _, alive = psutil.wait_procs(children, timeout=10)
    assert not alive


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_other_ends_leave_no_ranks_and_no_folder(tmp_path, number):
    words = [sys.executable, "-m", "verifier", "bench", "naive", "--workload", "mlp", "--rounds", "9999"]
    process = subprocess.Popen(
        words,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # a suite run under nohup ignores it
    )
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("lockstep-lab-*/**/trace.json")) and time.monotonic() < deadline:
        time.sleep(0.05)
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(number)
    assert process.wait(timeout=30) == 128 + number
    assert not list(tmp_path.glob("lockstep-*")) + list(tmp_path.glob("tmp*"))
    _, alive = psutil.wait_procs(children, timeout=10)
    assert not alive


@pytest.mark.parametrize("name", sorted(WORKLOADS.keys() - {"smollm2-360m"}))
def test_workloads_have_a_loss(name):
    work = WORKLOADS[name]
    inputs, target = work.batch(1)
    loss = work.loss(work.model()(inputs), target)
    assert loss.ndim == 0
    loss.backward()


def test_smollm2_is_the_published_one():
    import torch

    with torch.device("meta"):
        model = WORKLOADS["smollm2-360m"].model()
    assert sum(p.numel() for p in model.parameters()) == 361_821_120
    assert dataclasses.is_dataclass(WORKLOADS["smollm2-360m"])
