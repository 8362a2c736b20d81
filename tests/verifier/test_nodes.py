"""Several nodes, simulated on one machine: strategies that take their node for the whole job are found."""

from __future__ import annotations

import pytest

from tests.conftest import ROOT
from verifier.nodes import MEANT, num_on_each, place
from verifier.request import Builtin
from verifier.scenario import Scenario


def scenario(world_size, *, several_nodes=True):
    return Scenario(
        name="nodes",
        situation="nodes",
        workload="exact",
        strategy=Builtin(name="naive"),
        world_size=world_size,
        several_nodes=several_nodes,
    )


@pytest.mark.parametrize(("world_size", "here"), [(1, 1), (2, 1), (3, 1), (4, 2), (8, 4)])
def test_nodes_are_of_one_size(world_size, here):
    assert num_on_each(scenario(world_size)) == here
    assert num_on_each(scenario(world_size, several_nodes=False)) == world_size


def test_a_place_is_said_in_torchruns_words(monkeypatch):
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    assert place(scenario(4), 3) == {
        "RANK": "3",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "1",
        "GROUP_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
    }
    monkeypatch.setenv("MASTER_PORT", "1234")  # as under torchrun
    assert place(scenario(4), 3)["MASTER_PORT"] == "1234"


def verify(lockstep, path):
    return lockstep.verify(str(ROOT / path), world_size=2, profile="standard", workloads=("exact",))


def hints(report, code):
    check = next(check for check in report.checks if check.code == code)
    return {(failure.scenario, failure.hint == MEANT) for failure in check.failures}


def test_the_remedy_says_what_one_node_hides(lockstep):
    report = verify(lockstep, "tests/specimens/mean_of_one_node.py")
    assert hints(report, "LS201") == {("nodes", True)}


def test_what_is_wrong_on_one_node_as_well_has_its_own_remedy(lockstep):
    report = verify(lockstep, "tests/specimens/rank_zero_broadcasts.py")
    found = hints(report, "LS201")
    assert found
    assert not any(meant for _, meant in found)
