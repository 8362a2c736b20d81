"""``/runs/{id}/artifacts``: the list of a run's files, and each file unchanged.

Special here: a file is only ever offered for saving, as bytes without a type, in a sandbox: a strategy's output must
not become a page of this service.
"""

from __future__ import annotations

from http import HTTPStatus
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Depends
from fastapi.responses import StreamingResponse

from service import artifacts
from service.access import needs
from service.context import Context, ContextOf
from service.db import RunRow
from service.problems import GUARDED, Problem, declare, no_such_run
from service.schemas import ArtifactEntry, ArtifactList

router = APIRouter(prefix="/runs", tags=["artifacts"], dependencies=[Depends(needs("read"))])
_BYTES = "application/octet-stream"


def _known(run_id: str, context: ContextOf) -> RunRow:
    row = context.runs.get(run_id)
    if row is None:
        raise no_such_run(run_id)
    return row


RunOf = Annotated[RunRow, Depends(_known)]


def _folder(context: Context, run: RunRow) -> Path:
    return context.settings.runs_dir / run.id


@router.get("/{run_id}/artifacts", responses=declare(404, 422, *GUARDED))
def list_artifacts(run: RunOf, context: ContextOf) -> ArtifactList:
    """The files of a run that has ended: its report, and its recordings while they are kept. At most 10,000."""
    found = [ArtifactEntry.model_validate(entry) for entry in artifacts.listed(_folder(context, run))]
    return ArtifactList(artifacts=found, recordings=run.recordings)


@router.get(
    "/{run_id}/artifacts/{path:path}",
    response_class=StreamingResponse,
    responses={200: {"content": {_BYTES: {}}, "description": "The file."}, **declare(404, 422, *GUARDED)},
)
def get_artifact(run: RunOf, path: str, context: ContextOf) -> StreamingResponse:
    """One of the listed files."""
    found = artifacts.opened(_folder(context, run), path)
    if found is None:
        shown = path if len(path) <= 100 else path[:100] + "..."
        detail = f"Run {run.id} has no file '{shown}'. GET /runs/{run.id}/artifacts lists those it has."
        raise Problem(HTTPStatus.NOT_FOUND, "no-such-artifact", detail)
    file, num_bytes = found
    headers = {
        "Content-Length": str(num_bytes),
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(path.rpartition('/')[2], safe='')}",
        "Content-Security-Policy": "default-src 'none'; sandbox",
    }
    return StreamingResponse(artifacts.read(file, num_bytes), media_type=_BYTES, headers=headers)
