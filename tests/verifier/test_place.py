"""The folder of recordings that are not kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from verifier import engine, files
from verifier.request import Builtin, Request


@pytest.fixture
def memory(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "IN_MEMORY", str(tmp_path))
    monkeypatch.delenv("TMPDIR", raising=False)
    return tmp_path


def test_in_memory_where_there_is_room(memory, monkeypatch):
    assert files.place_in_memory() == str(memory)
    monkeypatch.setattr(files, "ROOM_BYTES", 2**60)
    assert files.place_in_memory() is None
    monkeypatch.setattr(files, "IN_MEMORY", str(memory / "nowhere"))
    assert files.place_in_memory() is None


def test_where_somebody_says(memory, monkeypatch):
    monkeypatch.setenv("TMPDIR", "/elsewhere")
    assert files.place_in_memory() is None


@pytest.mark.parametrize(
    ("settings", "is_there"), [({}, True), ({"profile": "thorough"}, False), ({"world_size": 9}, False)]
)
def test_what_is_little_is_there(memory, settings, is_there):
    with engine.unkept_folder(Request(strategy=Builtin(name="naive"), **settings)) as folder:
        assert (Path(folder).parent == memory) is is_there
