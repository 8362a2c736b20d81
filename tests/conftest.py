"""Fixtures for every test. Ranks, processes and databases here are real; nothing is mocked."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).parent.parent

# Ranks use the same cores, so the time to draw or run an example means nothing.
settings.register_profile("shared cores", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared cores")


@pytest.fixture
def command(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run ``lockstep`` as a person would, in an empty folder; return the finished process."""

    def run(*words: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "verifier", *words], cwd=tmp_path, capture_output=True, text=True, timeout=timeout
        )

    return run
