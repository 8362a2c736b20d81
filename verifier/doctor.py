"""``lockstep doctor``: what is installed here, and what the backend's collectives really do, asked of real ranks.

Special here: the exit code says whether what *training relies on* is right. What else is wrong without an error on some
backends (reductions of strided views, mismatched dtypes) is shown with what a strategy does about it.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

import ddp_core
from verifier.engine import contained_by
from verifier.launcher import LaunchError

TIMEOUT_S = 300
COLOURS = {"right": "green", "refused": "yellow", "wrong": "bold red"}
OPTIONAL = {"sklearn": "workload digits", "mpi4py": "ranks over MPI", "transformers": "the published job"}


def examine(world_size: int = 2) -> dict[str, Any]:
    """All findings of the doctor, as plain data. Starts ranks; takes a few seconds.

    Raises LaunchError if no ranks can be started.
    """
    words = [sys.executable, "-m", "verifier.probes", str(world_size)]
    interface = "lo0" if sys.platform == "darwin" else "lo"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": interface}
    try:
        asked = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise LaunchError(f"the probes were not done in {TIMEOUT_S} s") from error
    if asked.returncode:
        raise LaunchError(f"the probes could not be run:\n{asked.stderr.strip()}")
    found = json.loads(asked.stdout)
    return {
        "sound": all(probe["answer"] == "right" for probe in found["probes"] if probe["relied_on"]),
        "world_size": world_size,
        "versions": versions(),
        "machine": machine(),
        "engine": engine(),
        "sent_source": contained_by(),
        **found,
    }


def versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "lockstep-ddp": ddp_core.__version__}
    for name in ("torch", "numpy"):
        found[name] = importlib.metadata.version(name)
    for name, purpose in OPTIONAL.items():
        if importlib.util.find_spec(name) is None:
            found[name] = f"not installed ({purpose})"
        else:
            found[name] = importlib.metadata.version("scikit-learn" if name == "sklearn" else name)
    return found


def machine() -> dict[str, Any]:
    from verifier.forkserver.limits import GIB, free_memory

    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cpus": os.cpu_count(),
        "free_memory_gib": round(free_memory() / GIB, 1) if free_memory() != float("inf") else None,
    }


def engine() -> str | None:
    """The container engine that answers here, with its version; None if none does."""
    for name in ("docker", "podman"):
        if shutil.which(name) is None:
            continue
        words = [name, "version", "--format", "{{.Server.Version}}"]
        try:
            asked = subprocess.run(words, capture_output=True, text=True, timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if asked.returncode == 0 and asked.stdout.strip():
            return f"{name} {asked.stdout.strip()}"
    return None


def renderable(found: dict[str, Any]) -> RenderableType:
    """The findings as tables for a terminal."""
    facts = Table(box=None, show_header=False, pad_edge=False, padding=(0, 3, 0, 0))
    for name, value in {**found["versions"], **found["machine"]}.items():
        facts.add_row(name.replace("_", " "), str(value))
    facts.add_row("devices", ", ".join(found["devices"]) or "no GPU: ranks run on the CPU")
    facts.add_row("backends of torch", ", ".join(found["backends"]))
    facts.add_row("container engine", found["engine"] or "none")
    facts.add_row("sent source", f"by {found['sent_source']}" if found["sent_source"] else "with --trust only")
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for heading in (f"gloo on {found['world_size']} ranks", "relied on", "answer", "where it is not right"):
        table.add_column(heading, overflow="fold")
    for probe in found["probes"]:
        relied = "yes" if probe["relied_on"] else ""
        remedy = "" if probe["answer"] == "right" else "; ".join(filter(None, (probe["detail"], probe["advice"])))
        answer = Text(probe["answer"], COLOURS.get(probe["answer"], "bold red"))
        table.add_row(probe["question"], relied, answer, Text(remedy))
    word = "all of what training relies on is right here" if found["sound"] else "training cannot be relied on here"
    return Group(facts, "", table, "", Text(word, "green" if found["sound"] else "bold red"))
