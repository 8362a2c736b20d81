"""Strategies that change what the verifier depends on: signals, descriptors, modules, the process group, recordings.

Harmless changes are ignored; harmful ones are reported, and never give a pass.
"""

from __future__ import annotations

import pytest

from tests.verifier.conftest import ranks

HARMLESS = {
    "working folder": "os.chdir('/')",
    "environment": "os.environ.clear()",
    "module path": "sys.path.clear()",
    "default dtype": "torch.set_default_dtype(torch.float64)",
    "threads of torch": "torch.set_num_threads(2)",
    "deterministic algorithms": "torch.use_deterministic_algorithms(True)",
    "stdout": "sys.stdout = sys.stderr = None",
    "closed stdout": "os.closerange(1, 3)",
    "a thread left running": "import threading; threading.Thread(target=time.sleep, args=(98765,)).start()",
    "signals": "[signal.signal(n, signal.SIG_IGN) for n in (signal.SIGTERM, signal.SIGUSR2, signal.SIGALRM)]",
    "children": "signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
    "masked signals": "signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.valid_signals()))",
    "json": "import json; json.dumps = json.loads = None",
    "os": "os.write = os.getpid = os.fstat = None; os._exit = lambda status: None",
    "comparison": "torch.equal = torch.allclose = lambda *a, **k: True",
}


@pytest.mark.parametrize("act", HARMLESS.values(), ids=HARMLESS)
def test_what_harms_nobody_is_let_be(lockstep, misbehaving, act):
    lockstep.verify(misbehaving(act), world_size=2).assert_pass()


def test_the_same_on_import(lockstep, misbehaving):
    text = "import os, torch\ntorch.set_default_dtype(torch.float64)\ntorch.set_num_threads(2)\nos.chdir('/')\n"
    text += "from ddp_core.strategies.naive import wrap\n"
    lockstep.verify(misbehaving("", text), world_size=2).assert_pass()


HARMFUL = {
    "process group destroyed": ("dist.destroy_process_group()", "process group has not been initialized"),
    "process group made": ("dist.init_process_group('gloo')", "initialize the default process group twice"),
    "detach": ("torch.Tensor.detach = lambda *a: 1 / 0", "ZeroDivisionError"),
    "time": ("time.monotonic = time.perf_counter = lambda: 'late'", "TypeError"),
    "interrupt": ("raise KeyboardInterrupt", "KeyboardInterrupt"),
    "alarm": ("signal.setitimer(signal.ITIMER_REAL, 0.001); time.sleep(9)", "killed by SIGALRM"),
    "descriptors": ("os.closerange(3, 4000)", ""),
}


@pytest.mark.parametrize(("act", "told"), HARMFUL.values(), ids=HARMFUL)
def test_what_harms_is_told(lockstep, misbehaving, act, told):
    report = lockstep.verify(misbehaving(act), world_size=2)
    assert report.verdict == "unknown"
    assert any(told in (rank.detail or "") for rank in ranks(report).values()), report.problems
    assert not any("verifier/" in (rank.detail or "") + (rank.output or "") for rank in ranks(report).values())


SILENT = {
    "ignores the signal": "signal.signal(signal.SIGUSR2, signal.SIG_IGN); time.sleep(1e6)",
    "stops itself": "os.kill(os.getpid(), signal.SIGSTOP)",
    "stops the server": "os.kill(os.getppid(), signal.SIGSTOP); time.sleep(1e6)",
}


@pytest.mark.parametrize("act", SILENT.values(), ids=SILENT)
def test_a_hang_that_does_not_want_to_be_found(lockstep, misbehaving, act):
    report = lockstep.verify(misbehaving(f"if rank == 1: {act}"), world_size=2, timeout_s=8)
    assert report.verdict == "fail"
    assert ranks(report)[1].status == "hung"
    assert ranks(report)[1].stack


OTHERS = """
import glob
for path in glob.glob("{folder}/*/scenarios/*/subject/rank1/journal.jsonl"):
    if rank == 0:
        with open(path, "a") as file:
            file.write('{"kind": "loss", "step": 0, "value": 1.0}\\n')
"""
PRETENDS = """
import glob
for path in glob.glob("{folder}/*/scenarios/*/subject/rank1/journal.jsonl"):
    if rank == 1:
        with open(path, "a") as file:
            file.write('{"kind": "outcome", "status": "completed", "detail": null, "at": 1.0}\\n')
        os._exit(0)
"""
REMOVES = """
import glob, shutil
if rank == 1:
    for path in glob.glob("{folder}/*/scenarios"):
        shutil.rmtree(path)
"""


@pytest.mark.parametrize("act", [OTHERS, PRETENDS, REMOVES], ids=["writes", "pretends", "removes"])
def test_a_recording_that_somebody_else_wrote_proves_nothing(lockstep, misbehaving, tmp_path, act):
    act = act.replace("{folder}", str(tmp_path)).strip()
    report = lockstep.verify(misbehaving(act), world_size=2)
    assert report.verdict != "pass"
    if "rmtree" not in act:
        assert any("something other than the verifier" in (r.detail or "") for s in report.scenarios for r in s.ranks)


@pytest.mark.parametrize("name", ["json.py", "types.py", "torch.py", "verifier.py", "ddp_core.py"])
def test_a_file_may_be_called_as_a_module_is(lockstep, misbehaving, name):
    text = "import json, torch, verifier\nfrom ddp_core.strategies.naive import wrap\n"
    lockstep.verify(misbehaving("", text, name), world_size=2).assert_pass()


ODD = {
    "class": ("from torch.nn.parallel import DistributedDataParallel as wrap", None),
    "partial": ("import functools\nfrom ddp_core.strategies import flat\nwrap = functools.partial(flat.wrap)", None),
    "async": ("async def wrap(model): return model", "returned a coroutine object"),
    "generator": ("def wrap(model): yield model", "returned a generator object"),
    "None": ("def wrap(model): pass", "returned a NoneType object"),
    "number": ("wrap = 5", "'int' object is not callable"),
    "attribute error": ("import os\nwrap = os.no_such_thing", "no attribute 'no_such_thing'"),
    "contract of a wrong type": ("CONTRACT = {'average': 'sum'}\ndef wrap(model): return model", "ddp_core.Contract"),
    "contract of nothing": ("CONTRACT = {}\ndef wrap(model): return model", "ddp_core.Contract"),
    "contract that raises": ("def contract(): return 1 / 0\ndef wrap(model): return model", "ZeroDivisionError"),
    "exit on import": ("import sys\nsys.exit(3)\ndef wrap(model): return model", "SystemExit: 3"),
    "not Python": ("def wrap(model:", "SyntaxError"),
}


@pytest.mark.parametrize(("text", "told"), ODD.values(), ids=ODD)
def test_what_wrap_may_be(lockstep, misbehaving, text, told):
    report = lockstep.verify(misbehaving("", text + "\n"), world_size=2)
    if told is None:
        report.assert_pass()
        return
    assert report.verdict == "unknown"
    assert told in ranks(report)[0].detail
    assert "verifier/" not in ranks(report)[0].detail
