"""compose.yaml and the Dockerfiles: what can be known of them without a container engine."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from service.settings import Settings

ROOT = Path(__file__).parents[2]
DOCKERFILES = sorted((ROOT / "docker").glob("*.Dockerfile"))
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
# What the compose specification knows at these places; a misspelt key is otherwise ignored or refused at `up`.
TOP_KEYS = {"name", "services", "networks", "volumes", "configs", "secrets", "include"}
SERVICE_KEYS = {
    "build", "cap_add", "cap_drop", "command", "depends_on", "deploy", "entrypoint", "env_file", "environment",
    "expose", "group_add",
    "healthcheck", "image", "init", "labels", "network_mode", "networks", "ports", "profiles", "read_only",
    "restart", "security_opt", "shm_size", "stop_grace_period", "stop_signal", "tmpfs", "user", "volumes",
}  # fmt: skip


def logical_lines(dockerfile: Path) -> list[str]:
    text = "\n".join(line for line in dockerfile.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
    return [line for line in re.sub(r"\\\n\s*", " ", text).splitlines() if line.strip()]


def instructions(dockerfile: Path, name: str) -> list[str]:
    return [line.split(maxsplit=1)[1] for line in logical_lines(dockerfile) if line.split()[0] == name]


def reaches_the_builder(path: str) -> bool:
    """Whether .dockerignore lets a path through: the last pattern that matches it, or a folder above it, decides."""
    sent = True
    for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines():
        pattern = line.strip().lstrip("!")
        if not pattern or pattern.startswith("#"):
            continue
        above = [path, *(str(parent) for parent in Path(path).parents)]
        if any(fnmatch.fnmatch(each, pattern) for each in above if each != "."):
            sent = line.startswith("!")
    return sent


def test_only_known_keys() -> None:
    assert set(COMPOSE) - {key for key in COMPOSE if key.startswith("x-")} <= TOP_KEYS
    for name, service in SERVICES.items():
        assert set(service) <= SERVICE_KEYS, name


def test_the_default_is_an_api_and_a_worker() -> None:
    assert {name for name, service in SERVICES.items() if "profiles" not in service} == {"api", "worker", "rank"}
    assert SERVICES["rank"]["restart"] == "no"
    assert SERVICES["api"]["volumes"] == ["data:/data"] == SERVICES["worker"]["volumes"][:1], "they share the database"
    assert SERVICES["api"]["image"] == SERVICES["worker"]["image"]
    published_on = "${LOCKSTEP_PUBLISHED_ON:-127.0.0.1}"
    assert all(port.startswith(f"{published_on}:") for port in SERVICES["api"]["ports"])
    assert SERVICES["api"]["environment"]["LOCKSTEP_PUBLISHED_ON"] == published_on, "what decides if keys are asked for"
    assert "ports" not in SERVICES["worker"]


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_can_be_built_and_is_watched(name: str) -> None:
    service = SERVICES[name]
    if build := service.get("build"):
        assert (ROOT / build["context"] / build["dockerfile"]).is_file()
        declared = {line.partition("=")[0] for line in instructions(ROOT / build["dockerfile"], "ARG")}
        assert set(build["args"]) <= declared
    assert service["user"].split(":")[0] not in ("0", "root")
    if name != "rank":  # that one is never up
        assert {"test", "interval", "timeout", "retries", "start_period"} <= set(service["healthcheck"])
        assert service["restart"] == "unless-stopped"


def test_every_volume_is_declared_and_the_worker_alone_has_the_engines_socket() -> None:
    socket = "${ENGINE_SOCKET:-/var/run/docker.sock}:/var/run/docker.sock"
    used = [volume for service in SERVICES.values() for volume in service.get("volumes", [])]
    assert {volume.partition(":")[0] for volume in used if volume != socket} == set(COMPOSE["volumes"])
    assert [name for name, service in SERVICES.items() if socket in service.get("volumes", [])] == ["worker"]


def test_every_setting_it_passes_exists() -> None:
    known = {f"LOCKSTEP_{name.upper()}" for name in Settings.model_fields}
    known |= {"LOCKSTEP_GPUS", "LOCKSTEP_RANK_IMAGES"}  # the launcher's own
    for name in ("api", "worker"):
        passed = {key for key in SERVICES[name]["environment"] if key.startswith("LOCKSTEP_")}
        assert passed <= known


def test_no_secret_is_written_down() -> None:
    for file in [ROOT / "compose.yaml", *(ROOT / "docker").iterdir()]:
        for line in file.read_text(encoding="utf-8").splitlines():
            if re.search(r"PASSWORD|TOKEN|SECRET", line) and not line.lstrip().startswith("#"):
                assert re.search(r"\$\{\w+:-\}", line), f"{file.name}: {line}"


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.name)
def test_every_copied_file_exists_and_reaches_the_builder(dockerfile: Path) -> None:
    copied = [shlex.split(line)[:-1] for line in instructions(dockerfile, "COPY") if "--from" not in line]
    assert copied
    for source in [source for sources in copied for source in sources]:
        assert (ROOT / source).exists(), source
        assert reaches_the_builder(source), source
    assert not reaches_the_builder(".git")
    assert not reaches_the_builder("tests/service/conftest.py")


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.name)
def test_an_image_is_lean_pinned_and_not_root(dockerfile: Path) -> None:
    lines = logical_lines(dockerfile)
    assert lines[:2] == ["ARG BASE_IMAGE=python:3.11-slim", "ARG WHEELS_IMAGE=scratch"]
    assert lines[2:4] == ["FROM ${WHEELS_IMAGE} AS wheels", "FROM ${BASE_IMAGE}"]
    assert instructions(dockerfile, "USER")[-1] == "1000:1000"
    assert [line for line in lines if line.startswith("HEALTHCHECK")]
    installs = [line for line in instructions(dockerfile, "RUN") if "pip install" in line]
    assert all("--constraint constraints.txt" in line or "--no-deps" in line for line in installs)
    # What changes most often comes last, or every change of the source would install torch again.
    order = [
        next(i for i, line in enumerate(lines) if part in line)
        for part in ("constraints.txt", "--requirement", "COPY verifier", "--no-deps")
    ]
    assert order == sorted(order)
    for line in instructions(dockerfile, "CMD"):
        assert json.loads(line)


def test_torch_is_in_the_image_for_ranks_alone_and_comes_first() -> None:
    ranks, service = DOCKERFILES
    installs = [line for line in instructions(ranks, "RUN") if "pip install" in line]
    assert re.search(r" torch +&&", installs[0])
    assert "--without-torch" in service.read_text()


def test_the_requirements_an_image_installs_are_the_projects(tmp_path: Path) -> None:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    program = [sys.executable, str(ROOT / "docker" / "requirements.py")]

    def printed(*words: str) -> str:
        return subprocess.run([*program, *words], cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    assert re.search("^torch", printed(), re.MULTILINE)
    assert re.search("^dbos", printed("service"), re.MULTILINE)
    without = printed("--without-torch", "service", "docker")
    assert re.search("^docker", without, re.MULTILINE)
    assert not re.search("^torch", without, re.MULTILINE)


def compose_command() -> list[str]:
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]):
            found = subprocess.run([*command, "version"], capture_output=True, text=True)
            if found.returncode == 0:
                return command
    pytest.skip("neither the compose plugin of docker nor docker-compose is installed")


@pytest.mark.parametrize("more", [{}, {"LOCKSTEP_GPUS": "0,1", "TORCH_INDEX_URL": ""}], ids=["cpu", "gpu"])
def test_compose_itself_accepts_the_file(more: dict[str, str]) -> None:
    command = [*compose_command(), "-f", "compose.yaml"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("LOCKSTEP", "POSTGRES"))}
    environment |= more
    checked = subprocess.run([*command, "config", "-q"], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
