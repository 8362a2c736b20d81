"""docs/other-tools.md names specimens as evidence: each of them must be there, and be a row of the kill matrix."""

from __future__ import annotations

import re
from pathlib import Path

from tests.kill_matrix.population import specimens

PAGE = Path(__file__).parent.parent / "docs" / "other-tools.md"


def test_every_error_in_reach_has_its_specimen():
    rows = [row.split("|") for row in PAGE.read_text(encoding="utf-8").splitlines() if re.match(r"\| [`\[]", row)]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row[3])}
    assert len(rows) == 13  # 7 of TrainCheck's, 6 of Megatron-LM's
    assert named <= {specimen.name for specimen in specimens()}
