"""Optional OpenTelemetry: a trace of every request, and a span of every run that a worker executes.

Special here: it is off unless ``LOCKSTEP_OTEL`` is true. Only the service's name is configured here; OpenTelemetry's
own variables (``OTEL_EXPORTER_OTLP_ENDPOINT`` and the like) say where traces go.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from fastapi import FastAPI

import ddp_core
from service.settings import Settings
from verifier.errors import UsageError

Span = Callable[[str, dict[str, Any]], AbstractContextManager[object]]
_SILENT = "healthz,readyz,metrics"


def trace_requests(app: FastAPI, settings: Settings) -> None:
    """Record a span of every request of ``app``, if OpenTelemetry is switched on.

    Raises:
        UsageError: OpenTelemetry is not installed.
    """
    if not settings.otel:
        return
    _provide()
    from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor

    FastAPIInstrumentor.instrument_app(app, excluded_urls=_SILENT)


def spans(settings: Settings) -> Span:
    """A function that opens a span with a name and attributes; it does nothing if OpenTelemetry is off."""
    if not settings.otel:
        return lambda name, attributes: nullcontext()
    _provide()
    from opentelemetry import trace

    tracer = trace.get_tracer("lockstep")
    return lambda name, attributes: tracer.start_as_current_span(name, attributes=attributes)


_provided = False


def _provide() -> None:
    """Set up the process's provider, once."""
    global _provided
    if _provided:
        return
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as error:
        raise UsageError(
            f"LOCKSTEP_OTEL is true, and '{error.name}' is not installed. Try: pip install 'lockstep-ddp[otel]'"
        ) from None
    named = Resource.create({"service.name": "lockstep", "service.version": ddp_core.__version__})
    provider = TracerProvider(resource=named)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    _provided = True
