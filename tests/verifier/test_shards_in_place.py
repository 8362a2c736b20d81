"""Parameters that become their own shards (``p.data = shard``), and whose gradients are reduced in the backward itself.

Special here: the strategy is the control ``shards_in_place``. Our tags come too late for it, which is recognised. If
shards are not declared, that is reported first, and not that replicas start unequal.
"""

from __future__ import annotations

from pathlib import Path

import pytest

CONTROL = Path(__file__).parents[1] / "controls" / "shards_in_place.py"


@pytest.mark.parametrize("situation", ["delayed", "large"])
def test_tags_that_come_too_late_are_no_error_of_the_strategys(lockstep, only, situation):
    only(situation, "plain")  # "plain", because something must be compared
    lockstep.verify(f"{CONTROL}:wrap", world_size=2, profile="standard").assert_pass()


def test_shards_that_nobody_has_declared_are_called_so(lockstep, tmp_path, only):
    only("different_start")
    text = CONTROL.read_text()
    assert "    sharded=True,\n" in text
    path = tmp_path / "mine.py"
    path.write_text(text.replace("    sharded=True,\n", ""))
    report = lockstep.verify(f"{path}:wrap", world_size=2, profile="standard")
    (start,) = [check for check in report.checks if check.code == "LS001"]
    assert start.verdict == "fail"
    assert {failure.cause for failure in start.failures} == {"undeclared_shards"}
    assert "Contract(sharded=True)" in start.failures[0].hint
    assert "and the strategy does not say that it shards" in report.summary
