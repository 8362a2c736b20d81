"""``/runs/{id}/events``: the events of a run, live, by Server-Sent Events.

Special here: the stream is read from the database, whichever worker writes there, and an event's id is its row's. A
disconnected client sends ``Last-Event-ID``, as browsers do by themselves, and misses nothing. The stream ends with the
run.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Annotated

from fastapi import APIRouter, Depends, Header
from fastapi.sse import EventSourceResponse, ServerSentEvent

from service import events
from service.access import needs
from service.context import ContextOf
from service.problems import GUARDED, declare, no_such_run
from service.runs import FINAL
from service.schemas import Event

router = APIRouter(prefix="/runs", tags=["runs"], dependencies=[Depends(needs("read"))])
LOOK_S = 5.0  # a stream queries the database this often even if nothing wakes it


def known(run_id: str, context: ContextOf) -> str:
    """``run_id`` if there is such a run. Checked before the stream begins, while another answer is still possible."""
    if context.runs.get(run_id) is None:
        raise no_such_run(run_id)
    return run_id


@router.get("/{run_id}/events", response_class=EventSourceResponse, responses=declare(404, 422, *GUARDED))
async def stream_events(
    run_id: Annotated[str, Depends(known)],
    context: ContextOf,
    last_event_id: Annotated[
        int, Header(ge=0, le=2**53, description="go on after this event; 0: from the beginning")
    ] = 0,
) -> AsyncIterator[ServerSentEvent]:
    """Events `state` (queued, running, finished, cancelled, errored) and `progress`, until the run has ended."""
    last = last_event_id
    with context.bell.subscribed(run_id) as rung:
        while not context.bell.closed:
            rung.clear()
            found = await asyncio.to_thread(events.after, context.engine, run_id, last)
            for row in found:
                last = row.id
                told = Event.model_validate(row).model_dump(mode="json")
                yield ServerSentEvent(data=told, event=row.kind, id=str(last))
                if row.kind == events.STATE and row.text in FINAL:
                    return
            if not found:
                run = await asyncio.to_thread(context.runs.get, run_id)
                if run is None or run.state in FINAL:  # resumed after the end, or a run older than the events table
                    return
                with suppress(TimeoutError):
                    await asyncio.wait_for(rung.wait(), LOOK_S)
