"""``docs/configuration.md``: every environment variable that Lockstep reads, generated from the code that reads it.

    python -m service.configuration --write docs/configuration.md

Special here: the service's variables come from its ``Settings``, with defaults and rules. The others are listed here,
and a test searches the source for variables that are in neither.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from annotated_types import Ge, Le
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from service.settings import Settings
from verifier.containers.limits import ContainerLimits

# Variables of the launchers and the command: name, default, meaning.
OTHERS: dict[str, tuple[str, str]] = {
    "LOCKSTEP_RANK_IMAGES": ("`lockstep-rank`", "images that ranks may run in, by commas; the first is the default"),
    "LOCKSTEP_GPUS": ("", "GPUs that ranks may get, as the container engine names them, by commas; none: none"),
    "LOCKSTEP_TOPOLOGY": (
        "`auto`",
        "`ranks`: a container for each rank; `single`: one for all; `auto`: by the processors there are",
    ),
    "LOCKSTEP_MEMORY_GIB": ("3/4 of what is free", "memory of all ranks of a scenario together, on this machine"),
    "LOCKSTEP_DISK_GIB": ("1/2 of what is free", "disk space that they may write"),
    "LOCKSTEP_START_METHOD": ("`fork`; on macOS `spawn`", "how ranks are started on this machine"),
    "TMPDIR": ("`/dev/shm` with 2 GiB free; else `/tmp`", "where recordings lie that nobody keeps, of up to 8 ranks"),
    "LOCKSTEP_BUBBLEWRAP_AS_ROOT": ("", "`1`: use bubblewrap although Lockstep is root: see SECURITY.md"),
    "LOCKSTEP_SERVER": ("`http://127.0.0.1:8000`", "the service that `lockstep submit`, `watch` and `runs` speak to"),
    "LOCKSTEP_API_KEY": ("", "the key that they show it"),
}
# Set by Lockstep for its own processes, not by users.
INTERNAL = {"LOCKSTEP_PROCESS"}


def page() -> str:
    lines = [
        "# Configuration",
        "",
        "Written by `python -m service.configuration --write docs/configuration.md`.",
        "",
        "Everything is read from the environment; an empty variable counts as not set. A command's flag goes before",
        "its variable. A bad value ends the start with one sentence that names the variable, the value and the rule.",
        "",
        "## The service: `lockstep serve`, `lockstep worker`, `lockstep keys`",
        "",
        "| variable | default | what it is |",
        "|---|---|---|",
        *(_row(name, field) for name, field in Settings.model_fields.items()),
        "",
        "## Launchers and the command",
        "",
        "| variable | default | what it is |",
        "|---|---|---|",
        *(f"| `{name}` | {default} | {text} |" for name, (default, text) in OTHERS.items()),
        *(f"| `LOCKSTEP_RANK_{name.upper()}` | `{value}` | {text} |" for name, value, text in _container_limits()),
        "",
    ]
    return "\n".join(lines)


def _container_limits() -> Iterator[tuple[str, object, str]]:
    for name, default in ContainerLimits._field_defaults.items():
        yield name, default, f"of one rank's container: {name.replace('_', ' ')}"


def _row(name: str, field: FieldInfo) -> str:
    rule = ", ".join(_rules(field))
    text = f"{field.description}{f' ({rule})' if rule else ''}"
    return f"| `LOCKSTEP_{name.upper()}` | {_default(name, field)} | {text.replace('|', chr(92) + '|')} |"


def _default(name: str, field: FieldInfo) -> str:
    if name == "slots":
        return "processors usable"
    value: Any = field.default
    if value is PydanticUndefined or value in (None, ""):
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _rules(field: FieldInfo) -> Iterator[str]:
    least = next((rule.ge for rule in field.metadata if isinstance(rule, Ge)), None)
    most = next((rule.le for rule in field.metadata if isinstance(rule, Le)), None)
    if least not in (None, 0):
        yield f"at least {least}"
    if most is not None:
        yield f"at most {most}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m service.configuration", description=__doc__.splitlines()[0])
    parser.add_argument("--write", type=Path, help="write the page there instead of stdout")
    words = parser.parse_args()
    if words.write:
        words.write.write_text(page(), encoding="utf-8")
    else:
        sys.stdout.write(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
