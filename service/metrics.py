"""Metrics for Prometheus: the state of the queue and the runs, read from the database at each scrape; HTTP, counted.

Special here: nothing of the first kind is counted in memory, so every API process reports the same, and a restart
changes nothing. Waits and durations are quantiles over the runs that ended in the last hour.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from service import heartbeat
from service.db import DeliveryRow, ExecutorRow, RunRow, UtcDateTime

LAST_HOUR = timedelta(hours=1)
STATES = ("queued", "running", "finished", "cancelled", "errored")
VERDICTS = ("pass", "fail", "unknown")
QUANTILES = {"0.5": 49, "0.9": 89, "0.99": 98}
_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)


class Metrics:
    """The metrics of one API process. ``registry`` holds all that an answer reports."""

    def __init__(self, engine: sa.Engine) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(FromDatabase(engine))
        labels = ("method", "route", "status")
        self.requests = Counter("lockstep_http_requests", "Requests answered", labels, registry=self.registry)
        self.seconds = Histogram(
            "lockstep_http_request_seconds",
            "From a request to the beginning of its answer",
            ("method", "route"),
            buckets=_BUCKETS_S,
            registry=self.registry,
        )

    def saw(self, method: str, route: str, status: int, seconds: float) -> None:
        self.requests.labels(method, route, str(status)).inc()
        self.seconds.labels(method, route).observe(seconds)


class FromDatabase(Collector):
    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    def describe(self) -> list[Metric]:
        return []  # registering it must not query the database

    def collect(self) -> Iterator[Metric]:
        now = datetime.now(UTC)
        with self._engine.connect() as connection:
            yield from _counts(connection)
            yield _oldest(connection, now)
            yield from _times(connection, now)
            yield from _slots(connection, heartbeat.alive(self._engine))
            due = sa.select(sa.func.count()).where(DeliveryRow.due_at.is_not(None))
            waiting = connection.scalar(due) or 0
        yield GaugeMetricFamily("lockstep_webhooks_waiting", "Messages that have not arrived yet", waiting)


def _counts(connection: sa.Connection) -> Iterator[Metric]:
    counted = sa.select(RunRow.state, RunRow.verdict, sa.func.count()).group_by(RunRow.state, RunRow.verdict)
    found = connection.execute(counted).all()
    told = "Runs that are kept, by state; queued: the queue's depth"
    states = GaugeMetricFamily("lockstep_runs", told, labels=["state"])
    for state in STATES:
        states.add_metric([state], sum(number for its, _, number in found if its == state))
    yield states
    told = "Finished runs that are kept, by verdict"
    verdicts = GaugeMetricFamily("lockstep_runs_finished", told, labels=["verdict"])
    for verdict in VERDICTS:
        verdicts.add_metric([verdict], sum(number for _, its, number in found if its == verdict))
    yield verdicts


def _oldest(connection: sa.Connection, now: datetime) -> Metric:
    oldest = connection.scalar(
        sa.select(sa.func.min(RunRow.created_at, type_=UtcDateTime)).where(RunRow.state == "queued")
    )
    waiting = (now - oldest).total_seconds() if oldest is not None else 0.0
    return GaugeMetricFamily("lockstep_queue_oldest_seconds", "How long the oldest queued run has waited", waiting)


def _times(connection: sa.Connection, now: datetime) -> Iterator[Metric]:
    ended = sa.select(RunRow.created_at, RunRow.started_at, RunRow.finished_at).where(
        RunRow.finished_at > now - LAST_HOUR, RunRow.started_at.is_not(None)
    )
    rows = connection.execute(ended).all()
    yield _quantiles(
        "lockstep_run_wait_seconds",
        "From submission to the beginning of the last attempt",
        [(row.started_at - row.created_at).total_seconds() for row in rows],
    )
    yield _quantiles(
        "lockstep_run_duration_seconds",
        "From the beginning of the last attempt to its end",
        [(row.finished_at - row.started_at).total_seconds() for row in rows],
    )


def _quantiles(name: str, help_text: str, values: list[float]) -> Metric:
    family = GaugeMetricFamily(name, f"{help_text}; runs that ended in the last hour", labels=["quantile"])
    if values:
        cuts = statistics.quantiles(values, n=100, method="inclusive") if len(values) > 1 else values * 99
        for quantile, place in QUANTILES.items():
            family.add_metric([quantile], cuts[place])
    return family


def _slots(connection: sa.Connection, alive: set[str]) -> Iterator[Metric]:
    slots = sum(connection.scalars(sa.select(ExecutorRow.slots).where(ExecutorRow.id.in_(alive))))
    ranks = connection.scalar(sa.select(sa.func.sum(RunRow.world_size)).where(RunRow.state == "running"))
    yield GaugeMetricFamily("lockstep_workers", "Workers alive", len(alive))
    yield GaugeMetricFamily("lockstep_slots", "Ranks that the workers alive may run at once", slots)
    yield GaugeMetricFamily("lockstep_ranks_running", "Ranks of the runs that are running", ranks or 0)
