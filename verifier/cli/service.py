"""The commands that need the service: ``lockstep serve``, ``lockstep worker``, ``lockstep keys``.

Special here: the service's package is imported when one of them is called, so the others work without it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from verifier.cli.usage import refuse, usage_errors

DataOption = Annotated[Path | None, typer.Option(help="where runs and the database are kept [lockstep-data]")]


def serve(
    host: Annotated[str | None, typer.Option(help="address to listen on [127.0.0.1]")] = None,
    port: Annotated[int | None, typer.Option(help="port to listen on [8000]; 0: a free one", min=0, max=65535)] = None,
    data: DataOption = None,
    worker: Annotated[bool | None, typer.Option("--worker/--no-worker", help="also execute runs")] = None,
) -> None:
    """Start the API and a worker: POST /runs, GET /runs/{id}/report.

    What is not given here comes from LOCKSTEP_HOST, LOCKSTEP_PORT and LOCKSTEP_DATA_DIR.
    """
    with usage_errors():
        _service().serve(host=host, port=port, data_dir=data, worker=worker)


def worker_(
    data: DataOption = None,
    slots: Annotated[int | None, typer.Option(help="ranks that may run at once", min=1)] = None,
) -> None:
    """Start a worker alone, beside an API that runs elsewhere on the same data."""
    with usage_errors():
        _service().run_worker(data_dir=data, slots=slots)


keys = typer.Typer(no_args_is_help=True, help="API keys of a service: made, listed and revoked on its own database.")


@keys.command("add")
def add_key(
    name: Annotated[str, typer.Argument(help="whose key it is, or what for")],
    scope: Annotated[Literal["read", "submit", "admin"], typer.Option(help="what it may do")] = "submit",
    max_unfinished: Annotated[
        int | None, typer.Option(help="runs it may have waiting or running [as LOCKSTEP_MAX_UNFINISHED_PER_KEY]", min=0)
    ] = None,
    runs_per_hour: Annotated[
        int | None, typer.Option(help="runs it may submit in an hour [as LOCKSTEP_RUNS_PER_HOUR_PER_KEY]", min=0)
    ] = None,
    data: DataOption = None,
) -> None:
    """Make a key and print it: it is shown this once. For its own limits, 0 is no limit."""
    with usage_errors():
        keys = _service().keys_of(data)
        typer.echo(keys.make(name, scope, max_unfinished=max_unfinished, runs_per_hour=runs_per_hour))


@keys.command("list")
def list_keys(data: DataOption = None) -> None:
    """The keys there are, without their secrets."""
    with usage_errors():
        for key in _service().keys_of(data).all():
            state = f"revoked {key.revoked_at:%Y-%m-%d}" if key.revoked_at else "valid"
            typer.echo(f"{key.id}  {key.scope:<6}  {key.created_at:%Y-%m-%d}  {state:<18}  {key.name}")


@keys.command("revoke")
def revoke_key(identity: Annotated[str, typer.Argument(metavar="ID")], data: DataOption = None) -> None:
    """From now on this key opens nothing."""
    with usage_errors():
        _service().keys_of(data).revoke(identity)


def _service() -> Any:
    try:
        from service import serve as module
    except ModuleNotFoundError as error:
        if (error.name or "").startswith(("service", "verifier", "ddp_core")):
            raise
        refuse(f"the service needs '{error.name}', which is not installed. Try: pip install 'lockstep-ddp[service]'")
    return module


def register(app: typer.Typer) -> None:
    app.command(epilog="Example:  lockstep serve --port 8000 --data lockstep-data   and then open its address")(serve)
    app.command("worker", epilog="Example:  lockstep worker --slots 8   beside 'lockstep serve --no-worker'")(worker_)
    app.add_typer(keys, name="keys")
