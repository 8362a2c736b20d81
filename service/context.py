"""The objects that all routes share, made once by ``create_app`` and passed to each by ``ContextOf``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import sqlalchemy as sa
from fastapi import Depends, Request

from service.bell import Bell
from service.keys import Keys
from service.limits import Limits
from service.metrics import Metrics
from service.queue import Producer
from service.retention import Retention
from service.runs import Runs
from service.settings import Settings


@dataclass(frozen=True)
class Context:
    settings: Settings
    engine: sa.Engine
    runs: Runs
    producer: Producer
    keys: Keys
    limits: Limits
    retention: Retention
    metrics: Metrics
    bell: Bell


async def _context(request: Request) -> Context:  # async: FastAPI would run a plain function in a thread
    context: Context = request.app.state.context
    return context


ContextOf = Annotated[Context, Depends(_context)]
