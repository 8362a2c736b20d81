"""The flags that ``lockstep verify`` and ``lockstep submit`` have in common, each written down once.

Special here: flags are types (``Annotated``), so two commands cannot differ in a name, a help text or a rule.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from verifier.errors import UsageError

Format = Literal["text", "json", "junit", "markdown", "html"]

WorldSize = Annotated[int, typer.Option("--world-size", "-n", help="number of ranks")]
ProfileOption = Annotated[
    Literal["quick", "standard", "thorough"], typer.Option("--profile", help="how many situations it is tried in")
]
Checks = Annotated[list[str] | None, typer.Option("--check", help="only this check; may be repeated")]
Workloads = Annotated[list[str] | None, typer.Option("--workload", help="only this workload; may be repeated")]
Backend = Annotated[
    Literal["auto", "gloo", "nccl", "cpu:gloo,cuda:nccl"],
    typer.Option("--backend", help="auto: gloo on the CPU, NCCL on GPUs; the last has both, for tensors of either"),
]
Device = Annotated[
    Literal["auto", "cpu", "cuda"],
    typer.Option("--device", help="auto: the CPU; cuda: GPUs, which more ranks than there are share"),
]
LauncherName = Annotated[str, typer.Option("--launcher", help="how ranks are run: see 'lockstep list launchers'")]
DriverName = Annotated[
    str | None,
    typer.Option("--driver", help="how it is driven; found by looking unless named: see 'lockstep list drivers'"),
]
Options = Annotated[list[str] | None, typer.Option("--option", help="K=V, passed to wrap(); may be repeated")]
FaultName = Annotated[str | None, typer.Option("--fault", help="plant this mistake, to see it caught")]
Seed = Annotated[int, typer.Option("--seed", help="of weights, data and delays")]
Delay = Annotated[
    float,
    typer.Option("--delay", help="milliseconds by which collectives start and finish late, legally; drawn by seed"),
]
Timeout = Annotated[float, typer.Option("--timeout", help="seconds for everything")]
FormatOption = Annotated[Format, typer.Option("--format", help="of the result")]
Output = Annotated[Path | None, typer.Option("--output", help="write the result there instead of stdout")]


def check_output(output: Path | None) -> None:
    """Refuse a file that cannot be written before any work is done.

    Raises:
        UsageError: its folder does not exist, or it is a folder itself.
    """
    if output is not None and not output.parent.is_dir():
        raise UsageError(f"there is no folder '{output.parent}' to write '{output.name}' in.")
    if output is not None and output.is_dir():
        raise UsageError(f"'{output}' is a folder. Give the name of a file to write.")
