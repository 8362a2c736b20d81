"""Makes a scenario that a container can carry out: a strategy in a file of this machine is sent as source.

Special here: small Python files beside it are sent along, because it may import them.
"""

from __future__ import annotations

from pathlib import Path

from verifier.errors import UsageError
from verifier.request import FromFile, Source
from verifier.scenario import Scenario

MOST_FILES, MOST_BYTES = 50, 2**20


def carried(scenario: Scenario) -> Scenario:
    ref = scenario.strategy
    if not isinstance(ref, FromFile):
        return scenario
    path = Path(ref.path)
    if not path.stem.isidentifier():
        raise UsageError(f"'{path.name}' cannot be imported in a container: name it as a Python module.")
    files = {path.name: path.read_text(encoding="utf-8")}
    left = MOST_BYTES - len(files[path.name])
    for neighbour in sorted(path.parent.glob("*.py")):
        size = neighbour.stat().st_size
        if len(files) < MOST_FILES and size <= left and neighbour.stem.isidentifier() and neighbour.name not in files:
            files[neighbour.name] = neighbour.read_text(encoding="utf-8", errors="replace")
            left -= size
    source = Source(files=files, entrypoint=f"{path.stem}:{ref.attribute}", options=ref.options)
    return scenario.model_copy(update={"strategy": source})
