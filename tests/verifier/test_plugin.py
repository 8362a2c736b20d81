"""The fixture ``lockstep``, as in a user's test suite."""

from __future__ import annotations

import re

import pytest

from verifier.errors import UsageError


def test_what_passed_leaves_nothing_behind(lockstep, tmp_path):
    lockstep.verify("naive", world_size=2).assert_pass()
    lockstep.verify("naive", world_size=2, out=tmp_path / "asked_for").assert_pass()
    assert lockstep.verify("naive", world_size=2, fault="sum_instead_of_mean").verdict == "fail"
    assert len(list(tmp_path.iterdir())) == 3
    lockstep.clear()
    assert {folder.name for folder in tmp_path.iterdir()} == {"asked_for", "lockstep-3"}


@pytest.mark.parametrize(
    ("settings", "said"),
    [({"worldsize": 2}, "There is no setting 'worldsize'. Did you mean 'world_size'?"), ({"seed": -1}, "seed: ")],
)
def test_a_setting_that_is_none_is_a_sentence(lockstep, settings, said):
    with pytest.raises(UsageError, match=re.escape(said)):
        lockstep.verify("flat", **settings)
