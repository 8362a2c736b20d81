"""The command ``lockstep simulate``: answers of the cost model, with a command and a plot for each question.

Special here: nothing is run, and torch is not imported. Defaults are the figures of the published documents, so a
command without flags prints theirs. ``--plot FILE`` needs matplotlib (``lockstep-ddp[bench]``); tables do not.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from verifier.cli.usage import usage_errors
from verifier.lab.delivery import check, deliver, valued
from verifier.lab.quantities import PUBLISHED_BACKWARD_MS, PUBLISHED_BUCKETS, PUBLISHED_STACK

if TYPE_CHECKING:
    from ddp_core.scaling import Network

simulate = typer.Typer(
    no_args_is_help=True,
    help="The cost model: what a step, a bucket size, a cluster or a model's state costs. Computed, nothing is run. "
    "The defaults are the published example: 76.4 M float32 parameters, alpha 1.4 ms, 0.2375 ns per byte.",
)

StackOption = Annotated[
    str, typer.Option("--layers", help="layers in millions of parameters, first first: 30,20,12x(0.9,0.6)")
]
BackwardOption = Annotated[float, typer.Option("--backward-ms", help="backward of all layers, shared out by size")]
BytesOption = Annotated[int, typer.Option("--bytes", help="of one gradient: 4 for float32, 2 for bfloat16", min=1)]
AlphaOption = Annotated[float, typer.Option("--alpha-ms", help="latency of one all-reduce", min=0)]
BetaOption = Annotated[float, typer.Option("--beta-ns", help="nanoseconds for each byte all-reduced", min=0)]
BackwardContention = Annotated[
    float, typer.Option(help="how many times longer backward takes beside communication (shared cores)", min=1)
]
CommContention = Annotated[float, typer.Option(help="and communication beside backward", min=1)]
FillOption = Annotated[
    Literal["until_full", "up_to_cap"],
    typer.Option(help="a bucket closes when it is full (torch, the document), or before it would be over (bucketed)"),
]
FormatOption = Annotated[Literal["text", "json", "markdown"], typer.Option(help="of the result")]
PlotOption = Annotated[Path | None, typer.Option(help="draw it there: .svg, .png or .pdf; needs lockstep-ddp[bench]")]
HopAlpha = Annotated[float, typer.Option(help="latency of a hop inside a node, in microseconds", min=0)]
HopGb = Annotated[float, typer.Option(help="bandwidth of a hop inside a node, in GB/s", min=1e-6)]
FarAlpha = Annotated[float, typer.Option(help="latency of a hop between nodes, in microseconds", min=0)]
FarGb = Annotated[float, typer.Option(help="bandwidth between nodes, of each rank's share, in GB/s", min=1e-6)]
NodeOption = Annotated[int, typer.Option(help="ranks in a node", min=1)]
LargestOption = Annotated[int, typer.Option(help="up to so many ranks", min=2, max=1_000_000)]

PUBLISHED_ALPHA_MS, PUBLISHED_BETA_NS = 1.4, 0.2375


@simulate.command(epilog="Example:  lockstep simulate timeline --bucket 4M --plot timeline.svg")
def timeline(
    bucket: Annotated[str, typer.Option(help="bucket size: 25MB, or 4M for millions of parameters")] = "25MB",
    layers: StackOption = PUBLISHED_STACK,
    backward_ms: BackwardOption = PUBLISHED_BACKWARD_MS,
    bytes_each: BytesOption = 4,
    alpha_ms: AlphaOption = PUBLISHED_ALPHA_MS,
    beta_ns: BetaOption = PUBLISHED_BETA_NS,
    contention_backward: BackwardContention = 1.0,
    contention_communication: CommContention = 1.0,
    fill: FillOption = "until_full",
    format: FormatOption = "text",
    plot: PlotOption = None,
) -> None:
    """One backward: when each bucket is ready, leaves and is back, what is exposed, and why the last one always is."""
    from ddp_core.cost import Contention, Link
    from verifier.lab import quantities, simulations

    with usage_errors():
        check(plot)
        answer = simulations.timeline(
            quantities.stack(layers, backward_ms, bytes_each),
            quantities.parse_size(bucket, bytes_each),
            Link(alpha_ms / 1e3, beta_ns / 1e9),
            Contention(contention_backward, contention_communication),
            fill,
        )
        deliver(answer, format, plot)


@simulate.command(
    epilog="Examples:  lockstep simulate sweep   |   lockstep simulate sweep --alpha-ms 1.4 --alpha-ms 6 "
    "--from 0.3M --to 76.4M --plot sweep.svg   |   lockstep simulate sweep --beta-ns 0.2375 --beta-ns 0.11875"
)
def sweep(
    bucket: Annotated[list[str] | None, typer.Option(help="a size to try; may be repeated")] = None,
    from_: Annotated[str | None, typer.Option("--from", help="smallest of --points sizes")] = None,
    to: Annotated[str | None, typer.Option("--to", help="largest of them")] = None,
    points: Annotated[int, typer.Option(help="how many sizes between --from and --to", min=2, max=10_000)] = 30,
    layers: StackOption = PUBLISHED_STACK,
    backward_ms: BackwardOption = PUBLISHED_BACKWARD_MS,
    bytes_each: BytesOption = 4,
    alpha_ms: Annotated[list[float] | None, typer.Option(help="latency; a curve for each that is given")] = None,
    beta_ns: Annotated[list[float] | None, typer.Option(help="nanoseconds a byte; a curve for each")] = None,
    contention_backward: BackwardContention = 1.0,
    contention_communication: CommContention = 1.0,
    fill: FillOption = "until_full",
    format: FormatOption = "text",
    plot: PlotOption = None,
) -> None:
    """Step time against bucket size: the valley, its bottom, and the default of 25 MB beside it."""
    from ddp_core.cost import Contention, Link, sizes_between
    from verifier.lab import quantities, simulations

    with usage_errors():
        check(plot)
        if from_ or to:
            low = quantities.parse_size(from_ or "0.3M", bytes_each)
            caps = valued(lambda: sizes_between(low, quantities.parse_size(to or "76.4M", bytes_each), points))
        else:
            caps = [quantities.parse_size(size, bytes_each) for size in bucket or PUBLISHED_BUCKETS]
        links = valued(
            lambda: [
                Link(alpha / 1e3, beta / 1e9)
                for alpha in alpha_ms or (PUBLISHED_ALPHA_MS,)
                for beta in beta_ns or (PUBLISHED_BETA_NS,)
            ]
        )
        contention = Contention(contention_backward, contention_communication)
        stack = quantities.stack(layers, backward_ms, bytes_each)
        deliver(simulations.sweeps(stack, links, caps, contention, fill), format, plot)


@simulate.command(epilog="Example:  lockstep simulate strategies --alpha-ms 6 --plot strategies.svg")
def strategies(
    bucket: Annotated[str, typer.Option(help="bucket size")] = "25MB",
    layers: StackOption = PUBLISHED_STACK,
    backward_ms: BackwardOption = PUBLISHED_BACKWARD_MS,
    bytes_each: BytesOption = 4,
    alpha_ms: AlphaOption = PUBLISHED_ALPHA_MS,
    beta_ns: BetaOption = PUBLISHED_BETA_NS,
    contention_backward: BackwardContention = 1.0,
    contention_communication: CommContention = 1.0,
    fill: FillOption = "until_full",
    format: FormatOption = "text",
    plot: PlotOption = None,
) -> None:
    """Naive, flat, each tensor by itself, buckets: what each way to synchronise should take."""
    from ddp_core.cost import Contention, Link
    from verifier.lab import quantities, simulations

    with usage_errors():
        check(plot)
        answer = simulations.strategies(
            quantities.stack(layers, backward_ms, bytes_each),
            quantities.parse_size(bucket, bytes_each),
            Link(alpha_ms / 1e3, beta_ns / 1e9),
            Contention(contention_backward, contention_communication),
            fill,
        )
        deliver(answer, format, plot)


@simulate.command(epilog="Example:  lockstep simulate scaling --largest 4096 --micro-batches 4 --plot scaling.svg")
def scaling(
    largest: LargestOption = 4096,
    layers: StackOption = "80x87.5",
    backward_ms: BackwardOption = 67.0,
    forward_ms: Annotated[float, typer.Option(help="forward of a micro-batch", min=0)] = 33.0,
    optimizer_ms: Annotated[float, typer.Option(help="the optimizer's step", min=0)] = 0.0,
    bytes_each: BytesOption = 2,
    bucket: Annotated[str, typer.Option(help="bucket size")] = "25MB",
    micro_batches: Annotated[int, typer.Option(help="accumulated in a step", min=1)] = 1,
    algorithm: Annotated[
        Literal["all", "ring", "tree", "hierarchical"], typer.Option(help="how ranks all-reduce")
    ] = "all",
    near_alpha_us: HopAlpha = 5.0,
    near_gb: HopGb = 150.0,
    far_alpha_us: FarAlpha = 15.0,
    far_gb: FarGb = 25.0,
    ranks_per_node: NodeOption = 8,
    format: FormatOption = "text",
    plot: PlotOption = None,
) -> None:
    """Scaling efficiency to thousands of ranks, with its assumptions. By default for the published 7 B model."""
    from ddp_core.scaling import ALGORITHMS, Job
    from verifier.lab import growth, quantities

    with usage_errors():
        check(plot)
        stack = tuple(quantities.stack(layers, backward_ms, bytes_each))
        job = Job(stack, forward_ms / 1e3, optimizer_ms / 1e3, quantities.parse_size(bucket, bytes_each))
        network = _network(near_alpha_us, near_gb, far_alpha_us, far_gb, ranks_per_node)
        chosen = ALGORITHMS if algorithm == "all" else (algorithm,)
        deliver(growth.scaling_curve(job, network, largest, chosen, micro_batches), format, plot)


@simulate.command(epilog="Example:  lockstep simulate accumulation --most 16 --forward-ms 45 --plot accumulation.svg")
def accumulation(
    most: Annotated[int, typer.Option(help="micro-batches in a step, up to", min=1, max=65536)] = 16,
    bucket: Annotated[str, typer.Option(help="bucket size")] = "25MB",
    layers: StackOption = PUBLISHED_STACK,
    backward_ms: BackwardOption = PUBLISHED_BACKWARD_MS,
    forward_ms: Annotated[float, typer.Option(help="forward of a micro-batch", min=0)] = 45.0,
    bytes_each: BytesOption = 4,
    alpha_ms: AlphaOption = PUBLISHED_ALPHA_MS,
    beta_ns: BetaOption = PUBLISHED_BETA_NS,
    samples: Annotated[int, typer.Option(help="micro-batches in all, for which calls are counted", min=1)] = 16,
    format: FormatOption = "text",
    plot: PlotOption = None,
) -> None:
    """What K micro-batches in one step save: calls divided by K, and time per micro-batch."""
    from ddp_core.cost import Link
    from ddp_core.scaling import Job
    from verifier.lab import growth, quantities

    with usage_errors():
        check(plot)
        stack = tuple(quantities.stack(layers, backward_ms, bytes_each))
        job = Job(stack, forward_ms / 1e3, cap_bytes=quantities.parse_size(bucket, bytes_each))
        deliver(growth.accumulation(job, Link(alpha_ms / 1e3, beta_ns / 1e9), most, samples), format, plot)


@simulate.command(epilog="Example:  lockstep simulate memory --parameters 70e9 --ranks 64 --gb 80 --group-size 8")
def memory(
    parameters: Annotated[float, typer.Option(help="of the model, for example 70e9", min=1)] = 70e9,
    ranks: Annotated[int, typer.Option(help="that share it", min=1)] = 64,
    gb: Annotated[float, typer.Option(help="memory of a rank, in GB of 1e9 bytes", min=1e-3)] = 80.0,
    precision: Annotated[Literal["mixed-adam", "float32-adam", "float32-sgd"], typer.Option()] = "mixed-adam",
    group_size: Annotated[int | None, typer.Option(help="ranks in one group of HSDP, for example a node's")] = 8,
    format: FormatOption = "text",
    plot: PlotOption = None,
) -> None:
    """The memory wall: state per rank, what ZeRO, FSDP and HSDP take off it, and what each sends instead."""
    from ddp_core.memory_wall import PRECISIONS
    from verifier.lab import simulations

    with usage_errors():
        check(plot)
        deliver(simulations.memory(parameters, ranks, gb * 1e9, PRECISIONS[precision], group_size), format, plot)


@simulate.command(epilog="Example:  lockstep simulate hierarchy --gigabytes 14 --plot hierarchy.svg")
def hierarchy(
    gigabytes: Annotated[float, typer.Option(help="all-reduced at once, in GB of 1e9 bytes", min=1e-9)] = 14.0,
    largest: LargestOption = 4096,
    near_alpha_us: HopAlpha = 5.0,
    near_gb: HopGb = 150.0,
    far_alpha_us: FarAlpha = 15.0,
    far_gb: FarGb = 25.0,
    ranks_per_node: NodeOption = 8,
    format: FormatOption = "text",
    plot: PlotOption = None,
) -> None:
    """One all-reduce over nodes: a flat ring, a tree, and two levels."""
    from verifier.lab import growth

    with usage_errors():
        check(plot)
        network = _network(near_alpha_us, near_gb, far_alpha_us, far_gb, ranks_per_node)
        deliver(growth.hierarchy(gigabytes * 1e9, network, largest), format, plot)


@simulate.command(epilog="Example:  lockstep simulate crossing --backward-ms 90 --exposed-ms 30 --measured-on 2")
def crossing(
    backward_ms: Annotated[float, typer.Option(help="of one rank, whatever their number", min=1e-6)] = 90.0,
    exposed_ms: Annotated[float, typer.Option(help="communication as measured", min=0)] = 30.0,
    measured_on: Annotated[int, typer.Option(help="on so many ranks", min=2)] = 2,
    largest: LargestOption = 4096,
    hop_alpha_us: HopAlpha = 20.0,
    batch_factor: Annotated[float, typer.Option(help="a batch per rank so many times as large", min=1)] = 2.0,
    format: FormatOption = "text",
    plot: PlotOption = None,
) -> None:
    """The compute-bound condition: at how many ranks communication exceeds backward, and what pushes that out."""
    from verifier.lab import growth

    with usage_errors():
        check(plot)
        answer = valued(
            lambda: growth.crossing(backward_ms, exposed_ms, measured_on, largest, hop_alpha_us, batch_factor)
        )
        deliver(answer, format, plot)


def _network(near_alpha_us: float, near_gb: float, far_alpha_us: float, far_gb: float, ranks_per_node: int) -> Network:
    from ddp_core.cost import Link
    from ddp_core.scaling import Network

    near, far = Link(near_alpha_us / 1e6, 1e-9 / near_gb), Link(far_alpha_us / 1e6, 1e-9 / far_gb)
    return Network(near, far, ranks_per_node)
