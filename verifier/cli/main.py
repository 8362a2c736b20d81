"""The command ``lockstep``: flags in, verdict out.

Special here: it imports no torch. The fork server does, and ``verifier.__main__`` has started it already. Results go
to stdout, progress and errors to stderr. Exit codes: 0 pass, 1 fail, 2 wrong usage, 3 unknown or our own error.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console

import ddp_core
from verifier import catalogue
from verifier.cli import client as cli_client
from verifier.cli import lab as cli_lab
from verifier.cli import options as opt
from verifier.cli import service as cli_service
from verifier.cli.delivery import EXIT_CODES, deliver
from verifier.cli.usage import errors, usage_errors

if TYPE_CHECKING:
    from verifier.launcher import Launcher

ALL = "all"

app = typer.Typer(
    name="lockstep",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Do N replicas compute what one process would have? Runs a data-parallel strategy on real ranks, records "
    "what they do, and shows with evidence whether it is right, and if not where and why.",
    epilog="Exit codes: 0 pass, 1 fail, 2 wrong usage, 3 unknown or our own error, 130 interrupted, 143 terminated.",
)


def _version(asked: bool) -> None:
    if asked:
        print(f"lockstep {ddp_core.__version__}")  # 'lockstep doctor' shows the version of torch
        raise typer.Exit


@app.callback()
def _command(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="print it")] = False,
) -> None: ...


Plural = Literal["strategies", "checks", "faults", "workloads", "launchers", "situations", "drivers", "causes"]


@app.command(
    epilog="Examples:  lockstep verify bucketed   |   lockstep verify mine.py:wrap --world-size 2   |   "
    "lockstep verify bucketed --fault skipped_bucket",
)
def verify(
    strategy: Annotated[
        str,
        typer.Argument(help="a built-in name, 'all' of them, path/to/file.py:wrap, or package.module:attribute"),
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
    out: Annotated[Path | None, typer.Option(help="keep recordings and report in this folder")] = None,
    trust: Annotated[bool, typer.Option("--trust", help="run sent source without a container")] = False,
    format: opt.FormatOption = "text",
    output: opt.Output = None,
) -> None:
    """Try a strategy on real ranks and judge it."""
    from verifier import engine
    from verifier.naming import parse_options, parse_strategy
    from verifier.request import Request

    with usage_errors():
        request = Request(
            strategy=parse_strategy("naive" if strategy == ALL else strategy, parse_options(option or [])),
            world_size=world_size,
            profile=profile,
            checks=tuple(map(catalogue.check_code, check)) if check else None,
            workloads=tuple(workload) if workload else None,
            backend=backend,
            device=device,
            launcher=launcher,
            driver=driver,
            fault=fault,
            seed=seed,
            delay_ms=delay,
            timeout_s=timeout,
            trust=trust,
        )
        with _started(request, out, output) as (folder, warm, tell):
            if strategy == ALL:
                verdict = _run_all(request, folder, warm, tell, format, output)
            else:
                report = engine.run(request, folder, launcher=warm, progress=tell)
                deliver(report, format, output)
                verdict = report.verdict
    raise typer.Exit(EXIT_CODES[verdict])


@app.command(epilog="Example:  lockstep verify mine.py:wrap --out runs   and later   lockstep judge runs")
def judge(
    run_dir: Annotated[Path, typer.Argument(help="a folder made with 'lockstep verify --out'")],
    format: opt.FormatOption = "text",
    output: opt.Output = None,
) -> None:
    """Judge a recording again, without running anything."""
    from verifier import engine

    with usage_errors():
        opt.check_output(output)
        report = engine.judge(run_dir)
        deliver(report, format, output)
    raise typer.Exit(EXIT_CODES[report.verdict])


@app.command("list", epilog="Examples:  lockstep list checks   |   lockstep list strategies")
def list_(what: Annotated[Plural, typer.Argument(help="which catalogue")]) -> None:
    """What is on offer, a line each."""
    with usage_errors():
        told = _causes() if what == "causes" else _entries(what)
        width = max(map(len, told), default=0)
        for name, summary in told.items():
            typer.echo(f"{name:<{width}}  {summary}")


def _entries(plural: str) -> dict[str, str]:
    """A line about each entry of a catalogue, by its name; a check's code is with its name."""
    entries = catalogue.BY_PLURAL[plural]
    shown = {n: f"{n[:5].upper()} {n[6:]}" if plural == "checks" else n for n in entries.names()}
    return {shown[name]: entries.summary(name) for name in shown}


def _causes() -> dict[str, str]:
    """The first meaning of each cause that a failure may name, by its name."""
    from verifier.judge.causes import causes

    return {name: cause.explanations[0] for name, cause in causes().items()}


@app.command(epilog="Examples:  lockstep explain LS201   |   lockstep explain missing_average")
def explain(
    code: Annotated[str, typer.Argument(help="a check such as LS201, or the name of a fault, a cause or a situation")],
) -> None:
    """What a check claims, what a cause means and how to mend it, what a fault or a situation is."""
    from verifier.explain import explain as text_of

    with usage_errors():
        typer.echo(text_of(code), nl=False)


@app.command(epilog="Example:  lockstep doctor -n 4")
def doctor(
    world_size: Annotated[int, typer.Option("--world-size", "-n", help="number of ranks that are asked", min=2)] = 2,
    format: Annotated[Literal["text", "json"], typer.Option(help="of the result")] = "text",
) -> None:
    """What is here, and what the backend's collectives really do. 0 if what training relies on is right."""
    from verifier import doctor as module

    with usage_errors():
        found = module.examine(world_size)
    if format == "json":
        typer.echo(json.dumps(found, indent=1))
    else:
        Console(highlight=False, width=None if sys.stdout.isatty() else 140).print(module.renderable(found))
    raise typer.Exit(0 if found["sound"] else 1)


@contextlib.contextmanager
def _started(request: Any, out: Path | None, output: Path | None) -> Iterator[tuple[Path, Any, Any]]:
    """Refuse what can be refused; then yield a folder, a launcher and a live line on stderr, all removed afterwards."""
    from verifier import engine

    engine.plan(request)
    opt.check_output(output)
    with contextlib.ExitStack() as stack:
        folder = out or Path(stack.enter_context(engine.unkept_folder(request)))
        launcher = _early if _early is not None and request.launcher in ("auto", "local") else None
        if launcher is None:
            launcher = engine.start_launcher(request.launcher)
        stack.callback(launcher.close)  # before the folder is removed: ranks write into it
        status = stack.enter_context(errors.status("starting ranks")) if errors.is_terminal else None
        yield folder, launcher, status.update if status is not None else None


def _run_all(request: Any, folder: Path, launcher: Any, tell: Any, format: opt.Format, output: Path | None) -> Any:
    from verifier import suite
    from verifier.files import write_where_asked

    reports = suite.run_all(request, folder, launcher=launcher, progress=tell)
    if format == "text" and output is None:
        Console(highlight=False, width=None if sys.stdout.isatty() else 140).print(suite.table(reports))
    elif output is not None:
        write_where_asked(output, suite.render_all(reports, format))
    else:
        sys.stdout.write(suite.render_all(reports, format))
    return suite.verdict_of(reports)


cli_lab.register(app)
cli_service.register(app)
cli_client.register(app)

_early: Launcher | None = None  # a launcher that was started before this module was imported


def main(early: Launcher | None = None) -> None:
    global _early
    _early = early
    app()
