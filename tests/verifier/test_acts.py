"""``quick`` runs its scenarios in the same processes; failures found there are checked in separate processes."""

from __future__ import annotations

import json
import threading
import time

import pytest
import torch.distributed as dist

from verifier import engine, reading
from verifier.launcher import LaunchError
from verifier.naming import parse_strategy
from verifier.request import Request
from verifier.run import acts

STRATEGY = """
import builtins, os, signal, threading, time
import torch, torch.distributed as dist
from ddp_core import Contract

CONTRACT = Contract(disclaims={"unused_parameters"})
times = builtins.__dict__.setdefault("wrapped_so_far", [])

class W:
    def __init__(self, model):
        self.model, self.time = model, len(times)
        times.append(model)
        for tensor in model.state_dict().values():
            dist.broadcast(tensor, src=0)
        {in_wrap}
    def __call__(self, *inputs):
        return self.model(*inputs)
    def sync_gradients(self):
        {before}
        for p in self.model.parameters():
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()

def wrap(model):
    return W(model)
"""


@pytest.fixture
def quick(lockstep, tmp_path):
    """Verify the strategy above with additional code; return the report, and each scenario's process id of rank 0."""

    def verify(in_wrap="pass", before="pass", **settings):
        path = tmp_path / "mine.py"
        path.write_text(STRATEGY.replace("{in_wrap}", in_wrap).replace("{before}", before))
        out = tmp_path / "out"
        report = lockstep.verify(str(path), world_size=2, out=out, **settings)
        return report, pids(out)

    return verify


def pids(out):
    folders = [file.parent for file in sorted(out.glob("scenarios/*/launch.json"))]
    return {folder.name: reading.read(folder).ranks[0].notes["pid"] for folder in folders}


def test_what_is_right_runs_in_one_process_for_each_rank(lockstep, tmp_path):
    lockstep.verify("bucketed", world_size=2, out=tmp_path / "out").assert_pass()
    found = pids(tmp_path / "out")
    assert sorted(found) == ["branch_order", "different_start", "plain", "realistic", "unused"]
    assert len(set(found.values())) == 1
    for folder in (tmp_path / "out" / "scenarios").iterdir():
        launch = json.loads((folder / "launch.json").read_text())
        assert [member["exit_code"] for member in launch["members"]] == [0, 0, 0]


def test_standard_gives_each_scenario_processes_of_its_own(lockstep, tmp_path):
    asked = {"profile": "standard", "checks": ("LS102", "LS503")}
    lockstep.verify("flat", world_size=2, out=tmp_path / "out", **asked).assert_pass()
    found = pids(tmp_path / "out")
    assert len(set(found.values())) == len(found) > 1


def test_what_is_found_wrong_is_asked_again_apart(lockstep, tmp_path):
    report = lockstep.verify("bucketed", fault="sum_instead_of_mean", world_size=2, out=tmp_path / "out")
    assert report.verdict == "fail"
    found = pids(tmp_path / "out")
    assert len(set(found.values())) == len(found) == 5


def test_a_refusal_ends_the_processes_and_nothing_else(lockstep, tmp_path):
    lockstep.verify("torch_ddp", world_size=2, out=tmp_path / "out").assert_pass()
    found = pids(tmp_path / "out")
    assert found["plain"] == found["branch_order"] == found["realistic"]
    assert len({found["plain"], found["unused"], found["different_start"]}) == 3


def test_one_that_goes_wrong_only_the_second_time_in_a_process_is_right(quick):
    """It is correct for everyone who trains one model per process, so a failure would be an artefact of ``quick``."""
    report, found = quick(before="if self.time: return")
    report.assert_pass()
    assert len(set(found.values())) == len(found)


def test_one_that_is_wrong_the_first_time_only_is_seen(quick):
    report, _ = quick(before="if not self.time: return")
    assert report.verdict == "fail"


@pytest.mark.parametrize(
    "trace",
    [
        "os.environ['LEFT'] = str(len(times))",
        "torch.set_default_dtype(torch.float64)",
        "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
        "torch.nn.modules.module.register_module_forward_hook(lambda *a: None)",
        "signal.signal(signal.SIGTERM, lambda *a: None)",
        "os.chdir('/')",
    ],
)
def test_what_it_leaves_behind_in_a_process_ends_that_process(quick, trace):
    _, found = quick(in_wrap=trace)
    del found["unused"]  # the strategy disclaims it, so nothing is wrapped there
    assert len(set(found.values())) == len(found) == 4


def test_a_hang_in_a_later_scenario_is_told_as_its_own(quick):
    begun = time.monotonic()
    report, found = quick(before="if self.time == 2: time.sleep(1e6)", timeout_s=60)
    assert report.verdict == "pass", report.summary  # in separate processes it never trains a third model
    assert time.monotonic() - begun < 40
    assert len(found) == 5


def test_one_that_leaves_in_a_later_scenario_is_named_there(quick):
    act = "if len(list(self.model.parameters())) > 12 and dist.get_rank() == 1: os._exit(3)"
    report, _ = quick(before=act)
    assert report.verdict == "unknown"
    details = {s.name: [rank.detail or "" for rank in s.ranks] for s in report.scenarios}
    assert any("3" in detail for detail in details["realistic"])
    assert not any(details["plain"])


def test_what_only_sharing_found_is_no_evidence(lockstep, tmp_path):
    """A failure found only in shared processes does not count, even where the second run gives no result."""

    class Apart:
        run_together = lockstep.launcher.run_together

        def run(self, *asked):
            raise LaunchError("no more processes")

    path, out = tmp_path / "mine.py", tmp_path / "out"
    path.write_text(STRATEGY.replace("{in_wrap}", "pass").replace("{before}", "if self.time: return"))
    request = Request(strategy=parse_strategy(str(path), {}), world_size=2, profile="quick")
    with pytest.raises(LaunchError, match="no more processes"):
        engine.run(request, out, launcher=Apart())
    assert not (out / "report.json").exists()
    assert engine.judge(out).verdict == "unknown"
    assert list(pids(out)) == ["plain"]


def test_one_that_ends_the_server_later_is_told(quick):
    report, _ = quick(before="if len(list(self.model.parameters())) > 12: os.kill(os.getppid(), signal.SIGKILL)")
    assert report.verdict == "unknown"
    assert any("realistic" in problem and "watches over the ranks" in problem for problem in report.problems)


def test_what_is_printed_is_told_once(quick):
    report, _ = quick(in_wrap="print('wrapped number', self.time)")
    report.assert_pass()
    told = {scenario.name: scenario.ranks[0].output or "" for scenario in report.scenarios}
    assert "wrapped number 0" in told["plain"]
    assert "wrapped number 2" in told["plain"]
    assert not told["realistic"]


def test_a_launcher_that_was_closed_starts_nothing(tmp_path):
    launcher = engine.start_launcher()
    launcher.close()
    request = Request(strategy=parse_strategy("naive", {}), world_size=2, profile="quick")
    with pytest.raises(LaunchError, match="closed"):
        engine.run(request, tmp_path / "out", launcher=launcher)
    assert launcher._server.poll() is not None


def test_who_raises_stays_until_all_have_raised():
    """Otherwise a peer that still connects a group would fail in that, before it can raise its own refusal."""
    store = dist.HashStore()
    ranks = [threading.Thread(target=acts.stay_until_all_have_raised, args=(store, 3)) for _ in range(3)]
    for rank in ranks[:2]:
        rank.start()
    time.sleep(0.1)
    assert all(rank.is_alive() for rank in ranks[:2])
    ranks[2].start()
    for rank in ranks:
        rank.join()
    assert store.check(["lockstep/all_raised"])


def test_nobody_waits_for_ever_for_others_to_raise():
    """Not even where another thread, waiting for a peer that has ended, blocks the store."""
    let_go, asked = threading.Event(), threading.Event()

    class Held:
        def add(self, key, amount):
            asked.set()
            let_go.wait()

    acts.stay_until_all_have_raised(Held(), 2)
    assert asked.is_set()
    assert not let_go.is_set()
    let_go.set()
