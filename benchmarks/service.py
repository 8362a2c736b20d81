"""Measures the service under load, on loopback: clients submit and watch while a worker executes real verifications.

    python -m benchmarks.service [--clients 50] [--seconds 120] [--database-url postgresql://...]

Special here: API, worker, the worker's ranks and the clients are processes of their own on one machine, so they compete
for its cores. Each client submits a run, follows its events for some seconds, cancels it, and begins again. It
measures: how long ``POST /runs`` takes for the client; how long a run waits when the queue is empty; how long a list of
1,000 queued runs takes; how much processor time an idle worker uses.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil

RUN = {"strategy": {"kind": "builtin", "name": "bucketed"}, "world_size": 2, "profile": "quick"}
FINAL = ("finished", "cancelled", "errored")


@contextmanager
def process(data: Path, *words: str, **environment: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """Run ``python -m service.serve`` with ``words`` during the block."""
    log = data / f"log.{time.monotonic_ns()}"
    settings = {"LOCKSTEP_DATA_DIR": str(data), **environment}
    with log.open("wb") as output:
        started = subprocess.Popen(
            [sys.executable, "-m", "service.serve", *words],
            env={**os.environ, **settings},
            stdout=output,
            stderr=output,
        )
    try:
        yield started, log
    finally:
        started.terminate()
        started.wait(30)


def address(log: Path) -> str:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = [word for word in log.read_text().split() if word.startswith("http://")]
        if found:
            return found[0]
        time.sleep(0.05)
    raise SystemExit(f"the service did not start:\n{log.read_text()}")


async def client(url: str, end: float, draw: random.Random, posts_s: list[float], seen: Counter[str]) -> None:
    # There is no TLS here, and loading certificates fifty times would distort the measurement.
    async with httpx.AsyncClient(base_url=url, timeout=30, verify=False) as http:
        await asyncio.sleep(draw.uniform(0, 5))
        while time.monotonic() < end:
            begun = time.perf_counter()
            answer = await http.post("/runs", json=RUN)
            posts_s.append(time.perf_counter() - begun)
            seen[f"POST {answer.status_code}"] += 1
            if answer.status_code != 202:
                await asyncio.sleep(1)
                continue
            run_id = answer.json()["id"]
            try:
                async with asyncio.timeout(draw.uniform(3, 6)):
                    await follow(http, run_id, seen)
            except TimeoutError:
                seen["streams left"] += 1
            answer = await http.post(f"/runs/{run_id}/cancel")
            seen[f"cancel {answer.status_code}"] += 1


async def follow(http: httpx.AsyncClient, run_id: str, seen: Counter[str]) -> None:
    async with http.stream("GET", f"/runs/{run_id}/events") as stream:
        async for line in stream.aiter_lines():
            seen["events"] += line.startswith("data:")
    seen["streams to their end"] += 1


async def load(url: str, num_clients: int, seconds: float) -> tuple[list[float], Counter[str]]:
    posts_s: list[float] = []
    seen: Counter[str] = Counter()
    end = time.monotonic() + seconds
    draws = (random.Random(number) for number in range(num_clients))
    await asyncio.gather(*(client(url, end, draw, posts_s, seen) for draw in draws))
    return posts_s, seen


def start_latency_s(http: httpx.Client) -> float:
    """Seconds from the submission of a run until it starts, by the run's own times."""
    run = http.post("/runs", json=RUN).json()
    while (run := http.get(f"/runs/{run['id']}").json())["state"] not in FINAL:
        time.sleep(0.05)
    return _seconds(run["started_at"]) - _seconds(run["created_at"])


def _seconds(text: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(text).timestamp()


def idle_share(worker: subprocess.Popen[bytes], seconds: float = 20.0) -> float:
    """The share of one core that an idle worker uses, with the processes that it keeps warm."""
    family = [psutil.Process(worker.pid), *psutil.Process(worker.pid).children(recursive=True)]

    def used() -> float:
        return sum(sum(each.cpu_times()[:2]) for each in family)

    before = used()
    time.sleep(seconds)
    return (used() - before) / seconds


def milliseconds(values_s: list[float]) -> str:
    cuts = statistics.quantiles(values_s, n=100, method="inclusive")
    return f"median {cuts[49] * 1000:.1f}, p90 {cuts[89] * 1000:.1f}, p99 {cuts[98] * 1000:.1f} ms ({len(values_s)})"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--database-url", default="")
    chosen = parser.parse_args()
    with ExitStack() as stack:
        data = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        more: dict[str, Any] = {"LOCKSTEP_DATABASE_URL": chosen.database_url}
        _, log = stack.enter_context(process(data, "--port", "0", "--no-worker", **more))
        url = address(log)
        with httpx.Client(base_url=url, timeout=30) as http:
            worker, _ = stack.enter_context(process(data, "--worker-only", **more))
            waits_s = [start_latency_s(http) for _ in range(12)][2:]
            print(f"queue start latency, worker idle: {milliseconds(waits_s)}", flush=True)
            time.sleep(5)
            print(f"idle worker: {100 * idle_share(worker):.1f} % of a core", flush=True)
            posts_s, seen = asyncio.run(load(url, chosen.clients, chosen.seconds))
            print(f"POST /runs, {chosen.clients} clients for {chosen.seconds:.0f} s: {milliseconds(posts_s)}")
            print("  " + ", ".join(f"{number} {what}" for what, number in sorted(seen.items())), flush=True)
            worker.terminate()
            worker.wait(30)
            for _ in range(1000):
                http.post("/runs", json=RUN).raise_for_status()
            lists_s = []
            for _ in range(20):
                begun = time.perf_counter()
                page = http.get("/runs", params={"state": "queued", "limit": 200}).json()
                lists_s.append(time.perf_counter() - begun)
                assert len(page["runs"]) == 200
            print(f"200 of 1,000 queued runs listed: {milliseconds(lists_s)}")
            begun, cursor, listed = time.perf_counter(), None, 0
            while True:
                page = http.get(
                    "/runs", params={"state": "queued", "limit": 200, **({"cursor": cursor} if cursor else {})}
                ).json()
                listed, cursor = listed + len(page["runs"]), page["next_cursor"]
                if cursor is None:
                    break
            print(f"all {listed}, in pages of 200: {(time.perf_counter() - begun) * 1000:.0f} ms")


if __name__ == "__main__":
    main()
