"""The HTTP side: ``create_app(settings)`` combines routes, error handlers and their shared context.

Special here: it neither migrates nor executes anything, so any number of API processes may run at once. FastAPI's
own documentation pages are left out because they load their scripts from elsewhere; ``/openapi.json`` is served.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.staticfiles import StaticFiles

import ddp_core
from service import problems
from service.access import asks_for_keys
from service.bell import Bell
from service.context import Context
from service.db import connect
from service.keys import Keys
from service.limits import Limits
from service.metrics import Metrics
from service.middleware import Outermost
from service.queue import Producer
from service.retention import Retention
from service.routes import artifacts, audit, catalogue, compare, events, health, lab, metrics, pages, reports, runs
from service.runs import Runs
from service.settings import Settings
from service.submission import rehearse
from service.telemetry import trace_requests

DESCRIPTION = "Do N replicas compute what one process would have computed? Submit a strategy, read the evidence."


def create_app(settings: Settings) -> FastAPI:
    engine = connect(settings.database)
    producer = Producer(engine)
    context = Context(
        settings=settings,
        engine=engine,
        runs=Runs(engine),
        producer=producer,
        keys=Keys(engine),
        limits=Limits.of(settings),
        retention=Retention(settings, engine, producer),
        metrics=Metrics(engine),
        bell=Bell(engine),
    )

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        await asyncio.to_thread(rehearse, context.runs, producer)
        yield
        context.producer.close()
        engine.dispose()

    app = FastAPI(
        title="Lockstep",
        version=ddp_core.__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.state.context, app.state.asks_for_keys = context, asks_for_keys(settings)
    app.add_middleware(Outermost, metrics=context.metrics, max_body_bytes=settings.max_body_bytes, failed=problems.ours)
    for group in (compare, runs, events, artifacts, reports, catalogue, metrics, audit, health):
        app.include_router(group.router)
    app.include_router(pages.router)
    app.include_router(lab.router)
    app.mount("/static", StaticFiles(directory=pages.STATIC), name="static")
    problems.install(app)
    trace_requests(app, settings)
    return app
