"""Traces arrive where OpenTelemetry's own variables say, of requests and of runs; or are not made at all."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from service.settings import Settings
from service.telemetry import spans
from tests.service.test_webhooks import Receiver
from verifier.errors import UsageError


def test_requests_and_runs_are_traced(start: Callable[..., Any]) -> None:
    receiver = Receiver()
    try:
        endpoint = receiver.url.removesuffix("/hook")
        more = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_BSP_SCHEDULE_DELAY": "100"}
        service = start("--port", "0", LOCKSTEP_OTEL="true", **more).ready()
        run_id = service.submit()
        service.wait(run_id)

        def sent() -> bytes:
            return b"".join(body for _, body in receiver.got)

        service.until(lambda: b"lockstep.run" in sent() and b"POST /runs" in sent(), "both spans")
        assert run_id.encode() in sent()
        assert service.end() == 0
    finally:
        receiver.close()


def test_not_installed(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    settings.otel = True
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(UsageError, match=r"lockstep-ddp\[otel\]"):
        spans(settings)


def test_off_by_default(settings: Settings) -> None:
    with spans(settings)("lockstep.run", {}) as span:
        assert span is None
