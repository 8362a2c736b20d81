"""A failure that also occurs without a restart is not attributed to it; one that only a restart causes is."""

from __future__ import annotations

import pytest

from tests.conftest import ROOT


@pytest.mark.parametrize(("specimen", "failed"), [("top_k", "LS201"), ("states_in_a_row", "LS504")])
def test_a_restart_is_blamed_for_what_it_does_alone(lockstep, specimen, failed):
    path = ROOT / "tests" / "specimens" / f"{specimen}.py"
    report = lockstep.verify(str(path), world_size=2, workloads=("routed",), seed=840)
    found = {check.code: check for check in report.checks}
    assert found[failed].verdict == "fail"
    if failed != "LS504":
        assert found["LS504"].verdict == "unknown"
        assert "unused_adamw, the same training without a restart, is wrong as well" in found["LS504"].why
