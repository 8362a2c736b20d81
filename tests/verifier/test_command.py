"""The ``lockstep`` command: exit codes, clear refusals, formats, and no remains."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from xml.etree import ElementTree

import psutil
import pytest
import typer

from verifier import catalogue
from verifier.cli.usage import usage_errors
from verifier.errors import UsageError
from verifier.files import alone_in
from verifier.report import FORMATS
from verifier.report.model import Report


def test_pass_fail_and_the_table(command):
    good = command("verify", "bucketed", "--world-size", "4", "--profile", "quick")  # README.md shows it in standard
    assert good.returncode == 0, good.stderr
    assert "Verdict: pass" in good.stdout
    assert good.stderr == ""
    bad = command("verify", "bucketed", "-n", "3", "--profile", "quick", "--fault", "sum_instead_of_mean")
    assert bad.returncode == 1
    assert "missing_average (confidence 1)" in bad.stdout
    assert "lockstep verify bucketed --world-size 3 --profile quick --seed 0" in bad.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["bucketd"], "Did you mean 'bucketed'? Valid names: async_hook, bucketed, flat"),
        (["bucketed", "--world-size", "0"], "a world size of 0 is not possible"),
        (["bucketed", "--world-size", "65"], "from 1 to 64"),
        (["bucketed", "-n", "3", "--workload", "digits"], "do not divide by 3. Choose a world size of 1, 2, 4"),
        (["bucketed", "--fault", "skiped_bucket"], "Did you mean 'skipped_bucket'?"),
        (["flat", "--fault", "skipped_bucket"], "cannot be planted in flat"),
        (["bucketed", "--check", "LS209"], "There is no check 'LS209'. Did you mean 'LS20"),
        (["bucketed", "--workload", "digit"], "Did you mean 'digits'?"),
        (["bucketed", "--driver", "nativ"], "Did you mean 'native'?"),
        (["bucketed", "--launcher", "locl"], "Did you mean 'local'?"),
        (["bucketed", "--option", "x"], "'x' is not of the form K=V"),
        (["bucketed", "--seed", "-1"], "given: -1"),
        (["bucketed", "--timeout", "0"], "timeout_s"),
        (["bucketed", "--backend", "nccl", "--device", "cpu"], "is one of GPUs"),
        (["nothing.py:wrap"], "there is no file 'nothing.py'"),
        (["a b:wrap"], "neither path/to/file.py:wrap nor package.module:attribute"),
        (["bucketed", "--output", "no/such/folder/x"], "there is no folder 'no/such/folder'"),
        (["bucketed", "--world-size", "two"], "valid integer"),
    ],
)
def test_wrong_usage_is_refused_before_anything_runs(command, words, said):
    begun = time.monotonic()
    result = command("verify", *words)
    assert result.returncode == 2
    assert said in " ".join(result.stderr.replace("│", " ").split())
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
    assert time.monotonic() - begun < 20


def test_formats_and_files(command, tmp_path):
    result = command("verify", "naive", "-n", "2", "--profile", "quick", "--out", "run", "--format", "json")
    report = Report.model_validate_json(result.stdout)
    assert report.verdict == "pass"
    assert json.loads((tmp_path / "run" / "report.json").read_text())["verdict"] == "pass"
    for format in FORMATS:
        again = command("judge", "run", "--format", format, "--output", f"report.{format}")
        assert again.returncode == 0, again.stderr
        assert again.stdout == ""
    assert "<title>pass: naive" in (tmp_path / "report.html").read_text()
    assert ElementTree.parse(tmp_path / "report.junit").getroot()[0].get("failures") == "0"
    assert "✅" in (tmp_path / "report.markdown").read_text()


def test_judging_again_gives_the_same_verdicts(command):
    asked = ("-n", "2", "--profile", "quick", "--fault", "skipped_bucket")
    first = command("verify", "bucketed", *asked, "--out", "run", "--format", "json")
    again = command("judge", "run", "--format", "json")
    assert (first.returncode, again.returncode) == (1, 1)
    assert json.loads(first.stdout)["checks"] == json.loads(again.stdout)["checks"]


def test_a_folder_that_is_not_a_run_is_left_alone(command, tmp_path):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.txt").write_text("all of it")
    result = command("verify", "naive", "-n", "2", "--out", "precious")
    assert result.returncode == 2
    assert "not a Lockstep run" in result.stderr
    assert (tmp_path / "precious" / "thesis.txt").read_text() == "all of it"
    assert command("judge", "precious").returncode == 2


@pytest.mark.parametrize("out", ["thesis.txt", "thesis.txt/run", "/proc/run", "a" * 300])
def test_where_no_folder_can_be_is_told_before_anything_is_run(command, tmp_path, out):
    (tmp_path / "thesis.txt").write_text("all of it")
    result = command("verify", "naive", "-n", "2", "--out", out)
    assert result.returncode == 2
    assert f"'{out}' cannot be a folder of ours: " in result.stderr
    assert "Give another --out." in result.stderr
    assert (tmp_path / "thesis.txt").read_text() == "all of it"


def test_a_folder_is_written_to_by_one_run_at_a_time(command, tmp_path):
    with alone_in(tmp_path / "mine"):
        result = command("verify", "naive", "-n", "2", "--out", "mine")
    assert result.returncode == 2
    assert "'mine' is being written to by another run" in result.stderr
    assert list((tmp_path / "mine").iterdir()) == []
    with alone_in(tmp_path / "mine"), pytest.raises(UsageError), alone_in(tmp_path / "mine"):
        pass


def test_all_of_them(command, tmp_path):
    result = command("verify", "all", "-n", "2", "--profile", "quick", "--out", "runs")
    assert result.returncode == 0, result.stderr
    assert {line.split()[0] for line in result.stdout.splitlines()[1:]} == set(catalogue.STRATEGIES.names())
    index = (tmp_path / "runs" / "index.html").read_text()
    assert 'href="torch_ddp/report.html"' in index
    assert (tmp_path / "runs" / "torch_ddp" / "report.html").exists()


def test_help_teaches(command):
    text = command("--help").stdout
    assert "0 pass, 1 fail, 2 wrong usage, 3 unknown" in text
    assert "path/to/file.py:wrap" in command("verify", "--help").stdout


@pytest.mark.parametrize("what", ["strategies", "checks", "faults", "workloads", "launchers", "situations", "drivers"])
def test_list(command, what):
    result = command("list", what)
    assert result.returncode == 0
    assert all(len(line.split()) > 3 for line in result.stdout.splitlines())


def test_explain(command):
    text = command("explain", "ls201").stdout
    assert command("explain", "gradient_equivalence").stdout == text
    assert text.startswith("LS201 gradient_equivalence")
    assert all(word in text for word in ("Claim:", "Catches:", "Blind to:", "Seen in the wild:", "Remedy:"))
    assert command("explain", "skipped_bucket").returncode == 0
    assert command("explain", "LS999").returncode == 2


def _by_default():
    for number in (signal.SIGINT, signal.SIGHUP):  # a suite in the background inherits them as ignored
        signal.signal(number, signal.SIG_DFL)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_nothing_is_left_when_the_command_is_ended(tmp_path, number):
    """While a strategy sleeps, the command is ended: its fork server and ranks end, too."""
    source = (
        "import time\ndef wrap(model):\n    open('ready-%d' % __import__('os').getpid(), 'w')\n    time.sleep(1e6)\n"
    )
    (tmp_path / "sleeper.py").write_text(source)
    words = [sys.executable, "-m", "verifier", "verify", "sleeper.py", "-n", "2", "--timeout", "60"]
    process = subprocess.Popen(
        words,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        preexec_fn=_by_default,
    )
    deadline = time.monotonic() + 40
    while len(list(tmp_path.glob("ready-*"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    family = psutil.Process(process.pid).children(recursive=True)
    assert len(family) >= 3  # the server, two ranks
    process.send_signal(number)
    _, errors = process.communicate(timeout=20)
    assert b"Traceback" not in errors
    if number != signal.SIGKILL:
        assert process.returncode == 128 + number
    _, alive = psutil.wait_procs(family, timeout=10)
    assert [p for p in alive if p.status() != psutil.STATUS_ZOMBIE] == []
    assert not list(tmp_path.glob("lockstep-*")), "a temporary folder was left"


@pytest.mark.parametrize(("number", "remedy"), [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EIO, False)])
def test_a_full_disk_is_told_with_what_to_do(capsys, number, remedy):
    with pytest.raises(typer.Exit) as ended, usage_errors():
        raise OSError(number, os.strerror(number), "out/scenarios/plain")
    assert ended.value.exit_code == 3
    said = capsys.readouterr().err
    assert f"{os.strerror(number)}: out/scenarios/plain" in said
    assert ("--out FOLDER" in said and "TMPDIR" in said) is remedy
