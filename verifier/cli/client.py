"""The commands for a service elsewhere: ``lockstep submit``, ``lockstep watch``, ``lockstep runs …``.

Special here: a verdict from a service is shown as a local one is, in the same words, formats and exit codes. A
strategy's file is sent as source, with the files named by ``--include``, and nothing else of this machine. The API key
comes from the environment only, because others can read a command line.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from verifier import catalogue
from verifier.cli import options as opt
from verifier.cli.usage import INTERRUPTED, OUR_ERROR, errors, refuse, usage_errors
from verifier.errors import UsageError
from verifier.naming import parse_options

if TYPE_CHECKING:
    from verifier.client import Server

EXIT_CANCELLED = 3
ServerOption = Annotated[str, typer.Option("--server", "-s", envvar="LOCKSTEP_SERVER", help="address of the service")]
RunId = Annotated[str, typer.Argument(metavar="ID", help="the run")]
_HERE = "http://127.0.0.1:8000"


def submit(
    strategy: Annotated[
        str,
        typer.Argument(
            help="a name that the service knows, path/to/file.py:wrap (is sent), or package.module:attribute"
        ),
    ],
    world_size: opt.WorldSize = 4,
    profile: opt.ProfileOption = "standard",
    check: opt.Checks = None,
    workload: opt.Workloads = None,
    backend: opt.Backend = "auto",
    device: opt.Device = "auto",
    launcher: opt.LauncherName = "auto",
    driver: opt.DriverName = None,
    option: opt.Options = None,
    fault: opt.FaultName = None,
    seed: opt.Seed = 0,
    delay: opt.Delay = 0.0,
    timeout: opt.Timeout = 600.0,
    include: Annotated[
        list[Path] | None, typer.Option(help="a file that is sent along, under its relative path; may be repeated")
    ] = None,
    label: Annotated[list[str] | None, typer.Option(help="NAME=VALUE, kept with the run; may be repeated")] = None,
    priority: Annotated[int, typer.Option(help="larger goes first")] = 0,
    webhook: Annotated[str | None, typer.Option(help="address that the service tells when the run has ended")] = None,
    idempotency_key: Annotated[
        str | None, typer.Option(help="a name for this submission: sent again, it is the same run")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="watch it to its end, as 'lockstep watch' does")] = False,
    server: ServerOption = _HERE,
    format: opt.FormatOption = "text",
    output: opt.Output = None,
) -> None:
    """Have a service verify a strategy. Prints the run's id; with --wait the report, and exits as 'verify' does."""
    with usage_errors():
        opt.check_output(output)
        body = {
            "strategy": _strategy(strategy, parse_options(option or []), include or []),
            "world_size": world_size,
            "profile": profile,
            "checks": [catalogue.check_code(word) for word in check] if check else None,
            "workloads": workload or None,
            "backend": backend,
            "device": device,
            "launcher": launcher,
            "driver": driver,
            "fault": fault,
            "seed": seed,
            "delay_ms": delay,
            "timeout_s": timeout,
            "priority": priority,
            "labels": _labels(label or []),
            "webhook": webhook,
        }
        with _server(server) as service:
            run_id = service.submit(body, idempotency_key)["id"]
            if not wait:
                typer.echo(run_id)
                errors.print(f"queued; see it end: lockstep watch {run_id}{_elsewhere(server)}", markup=False)
                return
            errors.print(f"queued as {run_id} at {service.url}", markup=False)
            _watch(service, run_id, format, output)


def watch(
    run_id: RunId, server: ServerOption = _HERE, format: opt.FormatOption = "text", output: opt.Output = None
) -> None:
    """Follow a run to its end; then print its report, and exit as 'verify' does. Ctrl-C leaves the run alone."""
    with usage_errors():
        opt.check_output(output)
        with _server(server) as service:
            _watch(service, run_id, format, output)


runs = typer.Typer(no_args_is_help=True, help="Runs of a service: list, show, cancel, delete, compare.")


@runs.command("list")
def list_runs(
    state: Annotated[str | None, typer.Option(help="queued, running, finished, cancelled or errored")] = None,
    verdict: Annotated[str | None, typer.Option(help="pass, fail or unknown")] = None,
    strategy: Annotated[str | None, typer.Option(help="only of this strategy")] = None,
    label: Annotated[list[str] | None, typer.Option(help="NAME=VALUE; repeated: all of them")] = None,
    limit: Annotated[int, typer.Option(help="how many", min=1, max=200)] = 20,
    server: ServerOption = _HERE,
) -> None:
    """Runs, newest first."""
    query = {"state": state, "verdict": verdict, "strategy": strategy, "label": label, "limit": limit}
    with usage_errors(), _server(server) as service:
        page = service.runs(**{name: value for name, value in query.items() if value})
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("id", "state", "verdict", "strategy", "ranks", "created"):
        table.add_column(heading, no_wrap=heading != "strategy")
    for run in page["runs"]:
        created = run["created_at"][:16].replace("T", " ")
        table.add_row(run["id"], run["state"], run["verdict"] or "", run["strategy"], str(run["world_size"]), created)
    _show(table)


@runs.command("show")
def show_run(run_id: RunId, server: ServerOption = _HERE) -> None:
    """One run, as JSON."""
    with usage_errors(), _server(server) as service:
        typer.echo(json.dumps(service.run(run_id), indent=1))


@runs.command("report")
def show_report(
    run_id: RunId, server: ServerOption = _HERE, format: opt.FormatOption = "text", output: opt.Output = None
) -> None:
    """The report of a finished run; exits as 'verify' does."""
    from verifier.cli.delivery import EXIT_CODES, deliver

    with usage_errors():
        opt.check_output(output)
        with _server(server) as service:
            report = service.report(run_id)
        deliver(report, format, output)
    raise typer.Exit(EXIT_CODES[report.verdict])


@runs.command("cancel")
def cancel_run(run_id: RunId, server: ServerOption = _HERE) -> None:
    """Take a run out of the queue, or end it where it runs."""
    with usage_errors(), _server(server) as service:
        typer.echo(f"{run_id} is {service.cancel(run_id)['state']}")


@runs.command("delete")
def delete_run(run_id: RunId, server: ServerOption = _HERE) -> None:
    """Delete a run that has ended, its report and recordings, for good."""
    with usage_errors(), _server(server) as service:
        service.delete(run_id)
        typer.echo(f"{run_id} is deleted")


@runs.command("compare")
def compare_runs(
    run_ids: Annotated[list[str], typer.Argument(metavar="ID ID...", help="finished runs")],
    server: ServerOption = _HERE,
) -> None:
    """Which check changed from one run to another, what else is different, and timings side by side."""
    from verifier.report.across import Comparison, as_table

    with usage_errors(), _server(server) as service:
        comparison = Comparison.model_validate(service.compare(run_ids))
    short = comparison.model_copy(update={"names": [name[-8:] for name in comparison.names]})
    _show(as_table(short))


def _watch(service: Server, run_id: str, format: opt.Format, output: Path | None) -> None:
    from verifier.cli.delivery import EXIT_CODES, deliver

    status = errors.status(f"{run_id}: queued") if errors.is_terminal else None
    if status is not None:
        status.start()
    try:
        for event in service.events(run_id):
            if status is not None:
                status.update(f"{run_id}: {event['text']}")
            elif event["kind"] == "state":
                errors.print(f"{run_id}: {event['text']}", markup=False)
    except KeyboardInterrupt:  # the run itself is elsewhere
        errors.print(f"lockstep: {run_id} goes on; see it end: lockstep watch {run_id}", markup=False)
        raise typer.Exit(INTERRUPTED) from None
    finally:
        if status is not None:
            status.stop()
    run = service.run(run_id)
    if run["state"] == "finished":
        report = service.report(run_id)
        deliver(report, format, output)
        raise typer.Exit(EXIT_CODES[report.verdict])
    errors.print(f"lockstep: {run_id} is {run['state']}. {run['error'] or ''}", markup=False)
    raise typer.Exit(OUR_ERROR if run["state"] == "errored" else EXIT_CANCELLED)


def _strategy(text: str, options: dict[str, Any], include: list[Path]) -> dict[str, Any]:
    """The reference to send for ``text``. The service decides whether it has a strategy of that name."""
    head, colon, attribute = text.rpartition(":")
    path, attribute = (Path(head), attribute) if colon else (Path(text), "wrap")
    if path.suffix != ".py":
        if include:
            raise UsageError(f"--include goes with a strategy's own file, and '{text}' is a name.")
        return {"kind": "import", "entrypoint": text, "options": options} if colon else {
            "kind": "builtin", "name": text, "options": options
        }  # fmt: skip
    files = {path.name: _read(path)}
    for other in include:
        if other.is_absolute() or ".." in other.parts:
            raise UsageError(
                f"--include is '{other}'; it must be below the folder in which you are: it keeps its path."
            )
        files[other.as_posix()] = _read(other)
    return {"kind": "source", "files": files, "entrypoint": f"{path.stem}:{attribute}", "options": options}


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(f"there is no file '{path}'. Give the path of a Python file, then ':wrap'.") from None
    except UnicodeDecodeError:
        raise UsageError(f"'{path}' is not UTF-8 text; only such files are sent.") from None


def _labels(pairs: list[str]) -> dict[str, str]:
    labels = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise UsageError(f"--label is '{pair}', which is not of the form NAME=VALUE. Write --label branch=main.")
        labels[name] = value
    return labels


def _server(url: str) -> Server:
    try:
        from verifier.client import Server
    except ModuleNotFoundError as error:
        refuse(f"this needs '{error.name}', which is not installed. Try: pip install 'lockstep-ddp[client]'")
    return Server(url, os.environ.get("LOCKSTEP_API_KEY"))


def _elsewhere(server: str) -> str:
    return "" if server == _HERE else f" --server {server}"


def _show(table: Table) -> None:
    Console(highlight=False, width=None if Console().is_terminal else 160).print(table)


def register(app: typer.Typer) -> None:
    app.command(epilog="Example:  lockstep submit mine.py:wrap --wait --server http://127.0.0.1:8000")(submit)
    app.command(epilog="Example:  lockstep watch 0a1b2c3d   with the ID that 'lockstep submit' printed")(watch)
    app.add_typer(runs, name="runs")
