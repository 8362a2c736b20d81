"""A run's files can be had, and nothing else can, whatever the name asked for and whatever a strategy left there."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

import pytest

from service import artifacts
from service.settings import Settings
from tests.service.test_api import NOWHERE, execute, submit

SECRET = "not for you"


@pytest.fixture
def run(client: Any, settings: Settings) -> str:
    run_id = submit(client, world_size=2).json()["id"]
    execute(settings, run_id)
    folder = settings.runs_dir / run_id
    (folder / "rank 0").mkdir()
    (folder / "rank 0" / "journal.jsonl").write_bytes(bytes(range(256)) * 1000)
    (settings.data_dir / "secret").write_text(SECRET)
    (folder / "link").symlink_to(settings.data_dir / "secret")
    (folder / "up").symlink_to(settings.data_dir, target_is_directory=True)
    os.mkfifo(folder / "pipe")
    return run_id


def test_listed_and_read(client: Any, run: str, settings: Settings) -> None:
    listed = client.get(f"/runs/{run}/artifacts").json()
    assert [entry["path"] for entry in listed["artifacts"]] == ["report.json", "rank 0/journal.jsonl"]
    assert listed["recordings"]
    for entry in listed["artifacts"]:
        answer = client.get(f"/runs/{run}/artifacts/{entry['path']}")
        assert answer.content == (settings.runs_dir / run / entry["path"]).read_bytes()
        assert int(answer.headers["content-length"]) == entry["num_bytes"]
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["content-disposition"].startswith("attachment")
        assert "sandbox" in answer.headers["content-security-policy"]


@pytest.mark.parametrize(
    "name",
    [
        "link", "up/secret", "pipe", "rank%200", "", "/", ".", "..", "../secret", "%2e%2e/secret", "..%2fsecret",
        "rank%200/../../secret", "rank%200//journal.jsonl", "%2fetc%2fpasswd", "//etc/passwd", "report.json/",
        "a%00b", "%ff", "x" * 5000, "report.json%00.txt", "..\\secret", "nothing",
    ],
)  # fmt: skip
def test_nothing_else(client: Any, run: str, name: str) -> None:
    answer = client.get(f"/runs/{run}/artifacts/{name}")
    assert answer.status_code == 404 or (name in ("", "/", ".", "..") and answer.status_code in (200, 307))
    assert SECRET not in answer.text


def test_of_a_run_that_there_is_not(client: Any, run: str) -> None:
    assert client.get(f"/runs/{NOWHERE}/artifacts").status_code == 404
    assert client.get(f"/runs/{NOWHERE}/artifacts/report.json").status_code == 404
    assert client.get("/runs/.work/artifacts").status_code == 404


def test_of_a_run_that_has_none_yet(client: Any) -> None:
    run_id = submit(client, world_size=2).json()["id"]
    assert client.get(f"/runs/{run_id}/artifacts").json() == {"artifacts": [], "recordings": True}


def test_no_descriptor_is_left_open(client: Any, run: str, settings: Settings) -> None:
    def number() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    client.get(f"/runs/{run}/artifacts/report.json")
    gc.collect()  # what earlier tests left is not closed in the middle of this one
    before = number()
    for name in ("report.json", "link", "up/secret", "pipe", "rank 0", "nothing", "rank 0/nothing"):
        client.get(f"/runs/{run}/artifacts/{name}")
    assert number() == before
    for _ in range(3):  # clients that are gone before the first byte
        found = artifacts.opened(settings.runs_dir / run, "report.json")
        assert found is not None
        artifacts.read(*found)
    del found
    assert number() == before
