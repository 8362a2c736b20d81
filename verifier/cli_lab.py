"""The commands of the performance lab: ``lockstep simulate`` (computed), ``calibrate``, ``tune``, ``bench`` (measured).

Special here: what measures starts ranks of its own, without observer and fork server, and ends them on Ctrl-C. Figures
are of this machine as it is now: leave it alone while they are taken.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Literal

import typer

from verifier.cli_simulate import FormatOption, PlotOption, simulate
from verifier.errors import UsageError
from verifier.lab.delivery import check, deliver
from verifier.usage import errors, usage_errors

WorkloadOption = Annotated[str, typer.Option(help="mlp, cnn, digits, llama, or smollm2-360m")]
RanksOption = Annotated[int, typer.Option("--world-size", "-n", help="number of ranks", min=2, max=4096)]
StrategyOption = Annotated[str, typer.Option(help="whose buckets: bucketed or torch_ddp")]
RoundsOption = Annotated[int, typer.Option(help="rounds in which everything takes its turn", min=2, max=10_000)]
DeviceOption = Annotated[Literal["cpu", "cuda"], typer.Option(help="cpu: gloo; cuda: NCCL, one GPU a rank (untested)")]
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


def _writable(path: Path | None) -> None:
    if path is not None and not path.parent.is_dir():
        raise UsageError(f"there is no folder '{path.parent}' to write '{path.name}' in.")


@contextlib.contextmanager
def _working(what: str) -> Iterator[Callable[[str], None]]:
    """A live line on stderr where that is a terminal; yields what to call for a line that stays."""
    with errors.status(what) if errors.is_terminal else contextlib.nullcontext():
        yield lambda line: errors.print(f"lockstep: {line}", markup=False)


def register(app: typer.Typer) -> None:
    app.add_typer(simulate, name="simulate")
    app.command(epilog="Example:  lockstep calibrate --workload llama -n 2 --check --plot calibration.svg")(calibrate)
    app.command(epilog="Example:  lockstep tune --workload llama -n 2 --exhaustive")(tune)
