"""The commands of the performance lab: ``lockstep simulate`` (computed), ``calibrate``, ``tune``, ``bench`` (measured).

Special here: what measures starts ranks of its own, without observer and fork server, and ends them on Ctrl-C.
"""

from __future__ import annotations

import typer

from verifier.cli_simulate import simulate


def register(app: typer.Typer) -> None:
    app.add_typer(simulate, name="simulate")
