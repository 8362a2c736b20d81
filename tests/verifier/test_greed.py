"""Strategies that use up memory, disk or processes, or print without end: ended in time, with the reason reported.

The limits are small, on a launcher of their own.
"""

from __future__ import annotations

import pytest

from tests.verifier.conftest import ranks
from verifier import engine
from verifier.forkserver.limits import GIB, Limits, free_memory
from verifier.forkserver.output import Output
from verifier.launchers.local import LocalLauncher
from verifier.naming import parse_strategy
from verifier.request import Request

LIMITS = Limits(memory_gib=0.5, disk_gib=0.2, num_processes=30, stall_s=20)


@pytest.fixture(scope="module")
def narrow():
    with LocalLauncher(LIMITS) as launcher:
        yield launcher


@pytest.fixture
def verify(narrow, tmp_path):
    def run(path, **settings):
        settings = {"world_size": 2, "profile": "quick", "timeout_s": 40} | settings
        return engine.run(Request(strategy=parse_strategy(path, {}), **settings), tmp_path / "out", launcher=narrow)

    return run


AT_ONCE = "if rank == 1: self.hoard = torch.ones(2**28)"
IN_PIECES = "self.hoard = [torch.ones(2**20) for _ in range(500 * rank)]"
IN_CHILDREN = """
if rank == 1:
    for _ in range(3):
        if os.fork() == 0:
            hoard = torch.ones(2**26)
            time.sleep(60)
    time.sleep(60)
"""


@pytest.mark.parametrize("act", [AT_ONCE, IN_PIECES, IN_CHILDREN.strip()], ids=["at once", "in pieces", "in children"])
def test_memory(verify, misbehaving, act):
    report = verify(misbehaving(act))
    assert report.verdict == "unknown"
    told = next(problem for problem in report.problems if "GiB of memory" in problem)
    assert "rank 1" in told
    assert "used more than" in told


ONE_FILE = """
if rank == 1:
    with open("{folder}/big", "wb") as file:
        while True:
            file.write(bytes(2**22))
"""
MANY_FILES = """
number = 0
while rank == 1:
    number += 1
    with open(f"{folder}/big{number}", "wb") as file:
        file.write(bytes(2**22))
"""


@pytest.mark.parametrize("act", [ONE_FILE, MANY_FILES], ids=["one file", "many files"])
def test_disk(verify, misbehaving, tmp_path, act):
    report = verify(misbehaving(act.replace("{folder}", str(tmp_path)).strip()))
    assert report.verdict == "unknown"
    assert any("GiB" in problem and "wrote" in problem for problem in report.problems), report.problems
    assert sum(path.stat().st_size for path in tmp_path.glob("big*")) < 3 * GIB


def test_temporary_files_go_with_the_ranks(verify, misbehaving, tmp_path):
    act = f"import tempfile; open({str(tmp_path / 'where')!r}, 'w').write(tempfile.mkdtemp())"
    verify(misbehaving(act)).assert_pass()
    where = (tmp_path / "where").read_text()
    assert "lockstep-ranks-" in where
    assert not (tmp_path / where).exists()


def test_processes_without_end(verify, misbehaving):
    act = "if rank == 1:\n    while os.fork(): pass\n    time.sleep(60)"
    report = verify(misbehaving(act))
    assert report.verdict == "unknown"
    assert any("started more than 30 processes" in problem for problem in report.problems), report.problems


def test_printing_without_end(verify, misbehaving, tmp_path):
    report = verify(misbehaving("for _ in range(200): print('x' * 10**6)\nprint('the end')"))
    report.assert_pass()
    output = tmp_path / "out/scenarios/plain/subject/rank1/output.txt"
    assert output.stat().st_size < 2 * 2**20
    assert "bytes left out" in output.read_text()
    plain = [scenario.name for scenario in report.scenarios].index("plain")  # the first scenario in its processes
    assert ranks(report, plain)[1].output.endswith("the end\n")


def test_output_keeps_both_ends(tmp_path):
    import os

    read, write = os.pipe()
    output = Output(read, tmp_path / "o.txt", keep=2**17)
    for number in range(100):
        os.write(write, f"{number:09d}\n".encode() * 5000)
        output.read()
    os.close(write)
    output.close()
    text = (tmp_path / "o.txt").read_text()
    assert text.startswith("000000000\n")
    assert text.endswith("000000099\n")
    assert len(text) < 2**17 + 100
    assert f"{100 * 50_000 - 2**17} bytes left out" in text


def test_one_that_computes_is_not_hung(verify, misbehaving, tmp_path):
    """It computes for five seconds without a collective; a rank that sleeps would count as hung after three."""
    act = f"""
if rank == 1 and not os.path.exists({str(tmp_path / "done")!r}):
    open({str(tmp_path / "done")!r}, "w")
    end = time.monotonic() + 5
    while time.monotonic() < end: pass
"""
    verify(misbehaving(act.strip()), timeout_s=12).assert_pass()


def test_one_that_starts_a_compiler_is_not_hung(misbehaving, tmp_path):
    """Half a minute of a child's work, scaled down: eight seconds, where four without any work count as a hang."""
    work = "import time\\nwhile time.process_time() < 8: pass"
    act = f"import subprocess; subprocess.run([sys.executable, '-c', '{work}'])"
    done = tmp_path / "done"
    once = f"if rank == 1 and not os.path.exists({str(done)!r}):\n    open({str(done)!r}, 'w')\n    {act}"
    request = Request(strategy=parse_strategy(misbehaving(once), {}), world_size=2, profile="quick")
    with LocalLauncher(LIMITS._replace(stall_s=4)) as launcher:
        report = engine.run(request, tmp_path / "out", launcher=launcher)
    report.assert_pass()


def test_a_compiler_may_take_longer_than_one_that_computes_itself(misbehaving, tmp_path):
    """A program that is not Python runs six seconds; two seconds of a rank's own computing would count as a hang."""
    act = "import subprocess; subprocess.run(['timeout', '6', 'sh', '-c', 'while :; do :; done'])"
    done = tmp_path / "done"
    once = f"if rank == 1 and not os.path.exists({str(done)!r}):\n    open({str(done)!r}, 'w')\n    {act}"
    request = Request(strategy=parse_strategy(misbehaving(once), {}), world_size=2, profile="quick")
    with LocalLauncher(LIMITS._replace(stall_s=4, busy_s=2)) as launcher:
        report = engine.run(request, tmp_path / "out", launcher=launcher)
    report.assert_pass()


@pytest.mark.parametrize("act", ["while True: pass", "import re; re.match(r'(a+)+$', 'a' * 60 + 'b')"])
def test_one_that_computes_for_ever_is_hung(misbehaving, tmp_path, act):
    request = Request(strategy=parse_strategy(misbehaving(f"if rank == 1:\n    {act}"), {}), world_size=2)
    with LocalLauncher(LIMITS._replace(stall_s=4, busy_s=4)) as launcher:
        report = engine.run(request, tmp_path / "out", launcher=launcher)
    assert report.verdict == "fail"
    assert {rank.status for rank in ranks(report).values()} == {"hung"}
    assert "sync_gradients" in ranks(report)[1].stack


def test_defaults_follow_the_machine(tmp_path, monkeypatch):
    limits = Limits().here(tmp_path)
    assert 0 < limits.memory_gib < free_memory() / GIB
    assert limits.disk_gib > 0
    monkeypatch.setenv("LOCKSTEP_MEMORY_GIB", "1.5")
    assert Limits.from_environment().here(tmp_path).memory_gib == 1.5
