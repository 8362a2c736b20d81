"""The fixture ``lockstep``, as somebody's test suite has it."""

from __future__ import annotations


def test_what_passed_leaves_nothing_behind(lockstep, tmp_path):
    lockstep.verify("naive", world_size=2).assert_pass()
    lockstep.verify("naive", world_size=2, out=tmp_path / "asked_for").assert_pass()
    assert lockstep.verify("naive", world_size=2, fault="sum_instead_of_mean").verdict == "fail"
    assert len(list(tmp_path.iterdir())) == 3
    lockstep.clear()
    assert {folder.name for folder in tmp_path.iterdir()} == {"asked_for", "lockstep-3"}
