"""What a launcher is: it starts N rank processes for a scenario, and reports how each one ended.

Special here: a launcher moves no data and judges nothing. Ranks write their recordings into the scenario's folder. What
only the launcher knows (who was killed, who hung, where each one stood) goes into ``launch.json``.
"""

from __future__ import annotations

import signal
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

if TYPE_CHECKING:
    from verifier.scenario import Scenario

STACK_SIGNAL = signal.SIGUSR2  # asks a rank, wherever it runs, to write the stacks of its threads
CONTAINING = ("docker", "bubblewrap")  # the launchers that isolate ranks from this machine, the best first


def place_of(member: str) -> str:
    """The path, below a scenario's folder, of the recording of "rank 3" or "reference"."""
    return "reference/rank0" if member == "reference" else f"subject/{member.replace(' ', '')}"


class LaunchError(RuntimeError):
    """The launcher itself failed. Our fault or the machine's, never the strategy's."""


class Launcher(Protocol):
    """Runs scenarios, one at a time. May be kept and used again."""

    def run(self, scenario: Scenario, folder: Path, timeout_s: float) -> dict[str, Any]:
        """Run all ranks and the reference of ``scenario``, which is saved in ``folder``; block until all have ended.

        Returns ``{"members": [{name, ended, exit_code, signal, reason, board, stack, output}, ...]}``.

        Raises:
            LaunchError: ranks could not be started or watched.
        """

    def close(self) -> None:
        """End every process that this launcher started."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
