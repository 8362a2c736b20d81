"""The pytest plugin: a fixture ``lockstep`` that verifies a strategy inside a test suite.

    def test_mine(lockstep):
        lockstep.verify(my_wrap, world_size=2).assert_pass()

Special here: one fork server per test process serves all tests that use the fixture, so each test pays for its ranks
but not for importing torch.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from verifier.launcher import Launcher
    from verifier.report.model import Report


class Lockstep:
    """What the fixture returns: ``verify`` with a warm launcher; recordings go to the test's own folder.

    Recordings can be large, and pytest keeps those of three runs. Those of a verification that passed are removed when
    the test ends, unless ``out`` was given.
    """

    def __init__(self, launcher: Launcher, folder: Path) -> None:
        self.launcher, self.folder, self._count = launcher, folder, 0
        self._passed: list[Path] = []

    def verify(self, strategy: Any, *, out: Path | None = None, **settings: Any) -> Report:
        """As ``verifier.verify``; the profile is ``quick`` unless given."""
        from verifier import engine
        from verifier.naming import parse_strategy
        from verifier.request import Request

        self._count += 1
        settings.setdefault("profile", "quick")
        request = Request.of(parse_strategy(strategy, settings.pop("options", {})), settings)
        own = self.folder / f"lockstep-{self._count}"
        report = engine.run(request, out or own, launcher=self.launcher)
        if out is None and report.verdict == "pass":
            self._passed.append(own)
        return report

    def clear(self) -> None:
        """Remove the recordings of verifications that passed."""
        for folder in self._passed:
            shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def lockstep_launcher() -> Iterator[Launcher]:
    """The fork server that this test process's verifications share."""
    from verifier.engine import start_launcher

    with start_launcher() as launcher:
        yield launcher


@pytest.fixture
def lockstep(lockstep_launcher: Launcher, tmp_path: Path) -> Iterator[Lockstep]:
    """Verify strategies from a test: ``lockstep.verify(my_wrap, world_size=2).assert_pass()``."""
    mine = Lockstep(lockstep_launcher, tmp_path)
    yield mine
    mine.clear()
