"""The commands of the performance lab: ``lockstep simulate`` (computed), ``calibrate``, ``tune``, ``bench`` (measured).

Special here: commands that measure start their own ranks, without observer and fork server, and end them on Ctrl-C.
Figures describe this machine as it is now: run nothing else while they are taken.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Literal

import typer

from verifier.cli.simulate import FormatOption, PlotOption, simulate
from verifier.cli.usage import errors, usage_errors
from verifier.errors import UsageError
from verifier.lab import plots
from verifier.lab.delivery import check, deliver
from verifier.lab.finding import Finding

WorkloadOption = Annotated[str, typer.Option(help="mlp, cnn, digits, llama, or smollm2-360m")]
RanksOption = Annotated[int, typer.Option("--world-size", "-n", help="number of ranks", min=2, max=4096)]
StrategyOption = Annotated[str, typer.Option(help="whose buckets: bucketed or torch_ddp")]
RoundsOption = Annotated[int, typer.Option(help="rounds in which everything takes its turn", min=2, max=10_000)]
DeviceOption = Annotated[Literal["cpu", "cuda"], typer.Option(help="cpu: gloo; cuda: NCCL")]
TimeoutOption = Annotated[float, typer.Option(help="seconds for the ranks", min=1)]


def calibrate(
    workload: WorkloadOption = "mlp",
    world_size: RanksOption = 2,
    strategy: StrategyOption = "bucketed",
    rounds: RoundsOption = 12,
    check_: Annotated[
        bool, typer.Option("--check", help="also measure steps of every bucket size, and compare with the prediction")
    ] = False,
    output: Annotated[Path | None, typer.Option(help="write the calibration there, as JSON")] = None,
    device: DeviceOption = "cpu",
    timeout: TimeoutOption = 600.0,
    format: FormatOption = "text",
    plot: PlotOption = None,
) -> None:
    """Measure alpha and beta (1 KB to 64 MB), backward layer by layer and contention; predict step times from them."""
    with usage_errors():
        check(plot)
        _writable(output)
        from verifier.lab import calibration, tuning

        with _working(f"calibrating {workload} on {world_size} ranks"):
            found, measured = tuning.calibrate(
                workload, world_size, strategy=strategy, num_rounds=rounds, device=device, timeout_s=timeout,
                check_bytes=tuning.CHECKED_BYTES if check_ else (),
            )  # fmt: skip
        if output is not None:
            found.save(output)
        deliver(calibration.report(found, measured or None), format, plot)


def tune(
    workload: WorkloadOption = "mlp",
    world_size: RanksOption = 2,
    strategy: StrategyOption = "bucketed",
    rounds: RoundsOption = 12,
    calibration: Annotated[Path | None, typer.Option(help="use this one, of 'lockstep calibrate --output'")] = None,
    exhaustive: Annotated[bool, typer.Option("--exhaustive", help="measure every size, to see how good it is")] = False,
    device: DeviceOption = "cpu",
    timeout: TimeoutOption = 600.0,
    format: FormatOption = "text",
    plot: PlotOption = None,
) -> None:
    """Pick the bucket size: say what it should gain over the default of 25 MB, then measure what it does gain.

    With --calibration, workload, ranks and strategy are those of the file.
    """
    with usage_errors():
        check(plot)
        from verifier.lab import tuning
        from verifier.lab.calibration import Calibration

        with _working("tuning") as say:
            if calibration is not None:
                found = Calibration.load(calibration)
            else:
                found, _ = tuning.calibrate(
                    workload, world_size, strategy=strategy, num_rounds=rounds, device=device, timeout_s=timeout
                )
            say(tuning.expectation(found))
            answer = tuning.tune(found, exhaustive=exhaustive, num_rounds=rounds, timeout_s=timeout)
        deliver(answer, format, plot)


def bench(
    strategy: Annotated[
        list[str] | None,
        typer.Argument(help="names, file.py:wrap, NAME[K=V,...] with options, NAME*K for K micro-batches a step"),
    ] = None,
    workload: WorkloadOption = "mlp",
    world_size: RanksOption = 2,
    rounds: RoundsOption = 12,
    output: Annotated[Path | None, typer.Option(help="keep the results there, as JSON")] = None,
    compare: Annotated[Path | None, typer.Option(help="set them beside results that were kept")] = None,
    plots_: Annotated[Path | None, typer.Option("--plots", help="a folder for the plots, one SVG each")] = None,
    page: Annotated[Path | None, typer.Option(help="everything as one HTML page")] = None,
    device: DeviceOption = "cpu",
    timeout: TimeoutOption = 600.0,
    format: FormatOption = "text",
) -> None:
    """Strategies side by side: compute, idle, overlap and overhead in percent, calls, times, memory by kind.

    Percentages are read from torch.profiler's trace, calls from the observer, times from steps without either.
    """
    with usage_errors():
        for path in (output, page):
            _writable(path)
        if page or plots_:
            plots.require((plots_ or Path()).parent / "plot.svg")
        from verifier.lab import bench as module

        earlier = module.load(compare) if compare is not None else None
        entrants = [module.parse_entrant(text) for text in strategy or module.DEFAULT]
        if earlier is not None:
            module.require_comparable(
                earlier, workload=workload, world_size=world_size, device=device, labels=[e.label for e in entrants]
            )
        with _working(f"{len(entrants)} strategies on {world_size} ranks"):
            found = module.run(entrants, workload, world_size, num_rounds=rounds, device=device, timeout_s=timeout)
        if output is not None:
            output.write_text(json.dumps(found) + "\n")
        answers = {"comparison": module.comparison(found), "memory": module.memory(found)}
        if earlier is not None:
            answers["against"] = module.against(found, earlier)
        for answer in answers.values():
            deliver(answer, format, None)
        if plots_ is not None or page is not None:
            drawn = {**answers, "step-times": module.step_times(found), "timelines": module.timelines(found)}
            _draw(drawn, plots_, page)


def _draw(answers: dict[str, Finding], folder: Path | None, page: Path | None) -> None:
    from verifier.lab.page import render

    if folder is not None:
        folder.mkdir(exist_ok=True)
        for name, answer in answers.items():
            if answer.chart is not None:
                plots.save(answer, folder / f"{name}.svg")
    if page is not None:
        page.write_text(render("Strategies side by side", list(answers.values())))


def _writable(path: Path | None) -> None:
    if path is not None and not path.parent.is_dir():
        raise UsageError(f"there is no folder '{path.parent}' to write '{path.name}' in.")


@contextlib.contextmanager
def _working(what: str) -> Iterator[Callable[[str], None]]:
    """Show a live line on stderr if that is a terminal; yield a function that prints a permanent line."""
    with errors.status(what) if errors.is_terminal else contextlib.nullcontext():
        yield lambda line: errors.print(f"lockstep: {line}", markup=False)


def register(app: typer.Typer) -> None:
    app.add_typer(simulate, name="simulate")
    app.command(epilog="Example:  lockstep calibrate --workload llama -n 2 --check --plot calibration.svg")(calibrate)
    app.command(epilog="Example:  lockstep bench naive bucketed torch_ddp --workload llama --plots plots")(bench)
    app.command(epilog="Example:  lockstep tune --workload llama -n 2 --exhaustive")(tune)
