"""How much one container of ranks may use.

Special here: the limits of one rank are multiplied if several share a container. Files are written to memory (tmpfs),
so that a full disk is the container's own and ends with it.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from verifier.errors import UsageError


class ContainerLimits(NamedTuple):
    """The limits of one rank, and of the reference."""

    memory_mib: int = 2048  # including the files that it writes; there is no swap
    cpus: float = 1.0
    pids: int = 256
    scratch_mib: int = 256  # in /tmp
    recording_mib: int = 256  # that a rank may hand over for one scenario
    shared_mib: int = 64  # in /dev/shm
    output_mib: float = 1.0  # of its output that is kept

    @classmethod
    def from_environment(cls) -> ContainerLimits:
        """The defaults, changed by ``LOCKSTEP_RANK_MEMORY_MIB``, ``LOCKSTEP_RANK_CPUS`` and so on, one per field."""
        given: dict[str, Any] = {}
        for name, default in cls()._asdict().items():
            variable = f"LOCKSTEP_RANK_{name.upper()}"
            if text := os.environ.get(variable):
                given[name] = _positive(variable, text, type(default))
        return cls(**given)

    def of_several(self, number: int) -> ContainerLimits:
        """The limits for ``number`` ranks in one container, which share torch's memory by copy-on-write."""
        return self._replace(
            memory_mib=self.memory_mib + (number - 1) * (self.memory_mib // 4),
            cpus=self.cpus * number,
            pids=self.pids * number,
            recording_mib=self.recording_mib * number,
            shared_mib=self.shared_mib * number,
        )


def _positive(variable: str, text: str, kind: type) -> float:
    try:
        number: float = kind(text)
    except ValueError:
        number = 0
    if number <= 0:
        raise UsageError(f"{variable} is '{text}', and must be a number above 0. Correct it and start again.")
    return number
