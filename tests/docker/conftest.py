"""What the tests on a real container engine share. Without one they are skipped, and say what is missing."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from verifier import engine
from verifier.containers.limits import ContainerLimits
from verifier.launcher import LaunchError
from verifier.launchers import docker as containers
from verifier.request import Request, Source
from verifier.scenario import Scenario

HERE = Path(__file__).parent
SMALL = ContainerLimits(memory_mib=1024, recording_mib=32, scratch_mib=64, pids=96)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.docker)


@pytest.fixture(scope="session")
def client() -> Any:
    """The engine, which has the image that ranks run in."""
    try:
        client = containers.connect()
    except LaunchError as error:
        pytest.skip(str(error))
    if not containers.available():
        pytest.skip(f"the engine has no image '{containers.IMAGES}'. Build it: docker compose build rank")
    yield client
    client.close()


@pytest.fixture(scope="module")
def launcher(client: Any) -> Any:
    """Two ranks in one container, the reference in another; the same ones for all tests of a file."""
    with containers.DockerLauncher("single", limits=SMALL) as launcher:
        yield launcher


def source(name: str) -> Source:
    """A strategy of ``hostile/`` as it would come over HTTP."""
    text = (HERE / "hostile" / f"{name}.py").read_text(encoding="utf-8")
    return Source(files={f"{name}.py": text}, entrypoint=f"{name}:wrap")


def scenario(name: str, *, world_size: int = 2) -> Scenario:
    """The plain situation with a strategy of ``hostile/``."""
    request = Request(strategy=source(name), world_size=world_size, profile="quick", launcher="docker")
    return next(scenario for scenario in engine.plan(request) if scenario.name == "plain")


class Ended:
    """One scenario, run: what the launcher said, and what lies in its folder."""

    def __init__(self, launcher: Any, name: str, folder: Path, *, timeout_s: float = 60, world_size: int = 2) -> None:
        self.folder = folder
        asked = scenario(name, world_size=world_size)
        asked.save(folder)
        self.members = {m["name"]: m for m in launcher.run(asked, folder, timeout_s)["members"]}

    def outcome(self, rank: int) -> dict[str, Any]:
        """The last line of a rank's journal."""
        lines = (self.folder / "subject" / f"rank{rank}" / "journal.jsonl").read_text(encoding="utf-8").splitlines()
        return dict(json.loads(lines[-1]))

    def found(self, rank: int = 0) -> Any:
        """What a strategy raised that looked for something."""
        detail = self.outcome(rank)["detail"]
        return ast.literal_eval(detail.rpartition("found: ")[2].strip())

    def reference_is_whole(self) -> bool:
        text = (self.folder / "reference" / "rank0" / "journal.jsonl").read_text(encoding="utf-8")
        return '"status": "completed"' in text.splitlines()[-1]
