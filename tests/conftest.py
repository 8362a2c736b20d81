"""What every test may use. Ranks, processes and databases here are real; nothing is mocked."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture
def command(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run ``lockstep`` as a person would, in an empty folder; returns the finished process."""

    def run(*words: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "verifier", *words], cwd=tmp_path, capture_output=True, text=True, timeout=timeout
        )

    return run
