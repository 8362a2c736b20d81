"""A damaged file, or a timeout, gives a sentence that names it and never a traceback."""

from __future__ import annotations

import os
import shutil
import stat
import threading

import pytest

from verifier.files import write_atomically, write_where_asked
from verifier.pytest_plugin import Lockstep


@pytest.fixture(scope="module")
def whole(lockstep_launcher, tmp_path_factory):
    out = tmp_path_factory.mktemp("whole")
    Lockstep(lockstep_launcher, out).verify("flat", world_size=2, workloads=["digits"], out=out / "run").assert_pass()
    return out / "run"


@pytest.fixture
def run(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "run")


def damage(path, old, new):
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new, 1))


@pytest.mark.parametrize(
    ("old", "new"), [(b'"value"', b'"valve"'), (b'"kind"', b'"mind"'), (b'"shape": [', b'"shape": {[')]
)
def test_a_line_of_the_journal(run, command, old, new):
    damage(next(run.glob("scenarios/*/subject/rank1/journal.jsonl")), old, new)
    ended = command("judge", str(run))
    assert ended.returncode == 3, ended.stdout + ended.stderr
    assert "This rank's recording was written to, or cut" in ended.stdout
    assert "Traceback" not in ended.stdout + ended.stderr


@pytest.mark.parametrize("kept", [0.3, 0.97])
def test_a_journal_that_was_cut(run, command, kept):
    journal = next(run.glob("scenarios/*/subject/rank0/journal.jsonl"))
    journal.write_bytes(journal.read_bytes()[: int(journal.stat().st_size * kept)])
    ended = command("judge", str(run))
    assert ended.returncode == 3, ended.stdout + ended.stderr
    assert "without a last word in its recording: it left by itself" in " ".join(ended.stdout.split())


@pytest.mark.parametrize("name", ["request.json", "scenario.json", "launch.json"])
@pytest.mark.parametrize("text", ["nonsense", '{"members": 5, "name": 3, "world_size": "no"}', ""])
def test_documents(run, command, name, text):
    (path,) = run.glob(f"**/{name}")
    path.write_text(text)
    ended = command("judge", str(run))
    assert ended.returncode == 2, ended.stdout + ended.stderr
    assert f"'{path}' is not what was written there" in "".join(ended.stderr.split("\n"))
    assert "Traceback" not in ended.stdout + ended.stderr


def test_time_that_ran_out_is_named(command):
    ended = command("verify", "flat", "-n", "2", "--timeout", "0.001")
    assert ended.returncode == 3, ended.stdout + ended.stderr
    assert "the 0.001 seconds of --timeout were over; not run: " in " ".join(ended.stdout.split())
    assert "--timeout 0.001" in ended.stdout.partition("Repeat it:")[2]


def test_a_file_keeps_its_link_and_follows_the_umask(tmp_path):
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "report.html", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    before = os.umask(0o022)
    try:
        write_where_asked(link, "new")
    finally:
        os.umask(before)
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o644
    assert [file.name for file in target.parent.iterdir()] == ["report.html"]


def test_a_pipe_is_written_to_and_stays_one(tmp_path):
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    write_where_asked(pipe, "told")
    reader.join(10)
    assert read == ["told"]
    assert pipe.is_fifo()


def test_a_link_or_pipe_that_a_strategy_left_is_replaced(tmp_path):
    mine, link, pipe = tmp_path / "mine", tmp_path / "report.json", tmp_path / "launch.json"
    mine.write_text("kept")
    link.symlink_to(mine)
    os.mkfifo(pipe)
    for path in (link, pipe):
        write_atomically(path, "new")
        assert path.is_file()
        assert not path.is_symlink()
        assert path.read_text() == "new"
    assert mine.read_text() == "kept"
