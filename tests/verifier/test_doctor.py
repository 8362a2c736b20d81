"""The doctor tests real ranks, and its answers agree with measurements of gloo."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from verifier import doctor


@pytest.fixture(scope="module")
def found():
    return doctor.examine()


@pytest.fixture
def answers(found):
    return {probe["question"]: probe["answer"] for probe in found["probes"]}


def test_what_training_relies_on_is_right(found):
    wrong = [probe for probe in found["probes"] if probe["relied_on"] and probe["answer"] != "right"]
    assert wrong == []
    assert found["sound"]
    assert sum(probe["relied_on"] for probe in found["probes"]) >= 8


def test_what_gloo_gets_wrong_without_a_word(answers):
    assert answers["all_reduce of a strided view, x[:, 0]"] == "wrong"
    assert answers["broadcast of a strided view, x[:, 0]"] == "wrong"
    assert answers["members with different dtypes are told so"] == "wrong"
    assert answers["members with different shapes of one size are told so"] == "wrong"
    assert answers["reduce: the others' tensors stay as they were"] == "wrong"
    assert answers["members with different sizes are told so"] in ("hangs", "ends the process", "wrong")
    assert answers["all_reduce PREMUL_SUM by 1/2"] == "refused"
    assert answers["all_reduce AVG"] == "right"


def test_what_is_not_right_comes_with_what_to_do(found):
    for probe in found["probes"]:
        assert probe["relied_on"] or probe["answer"] == "right" or probe["advice"], probe


def test_command(command):
    result = command("doctor", "--format", "json", "-n", "3")
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["sound"]
    assert document["world_size"] == 3
    assert {"versions", "machine", "engine", "sent_source", "devices", "backends", "probes"} <= set(document)


def shown(found):
    console = Console(file=io.StringIO(), width=200)
    console.print(doctor.renderable(found))
    return " ".join(console.file.getvalue().split())


def test_table(found):
    assert "all of what training relies on is right here" in shown(found)
    assert "make it contiguous, reduce that, copy it back" in shown(found)
    assert "cannot be relied on here" in shown({**found, "sound": False})
