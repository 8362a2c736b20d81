"""Probes: ``/healthz`` for the supervisor that restarts the service, ``/readyz`` for the load balancer."""

from __future__ import annotations

from http import HTTPStatus

import sqlalchemy as sa
from fastapi import APIRouter

from service import heartbeat
from service.context import ContextOf
from service.migrate import is_current
from service.problems import Problem, declare
from service.schemas import Health, Readiness

router = APIRouter(tags=["health"])


@router.get("/healthz", responses=declare())
def healthz(context: ContextOf) -> Health:
    """The process answers and reaches its database."""
    with context.engine.connect() as connection:
        connection.execute(sa.select(1))
    return Health()


@router.get("/readyz", responses=declare())
def readyz(context: ContextOf) -> Readiness:
    """Runs can be accepted, because the database has this version's tables. Without a worker they wait in the queue."""
    if not is_current(context.engine):
        detail = "The database is not at this version. Start `lockstep serve` or `lockstep worker`, which migrate it."
        raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, "not-migrated", detail)
    return Readiness(workers=len(heartbeat.alive(context.engine)))
