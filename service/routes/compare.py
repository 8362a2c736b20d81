"""``/compare?run=…&run=…``: reports of finished runs side by side."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel, ConfigDict, Field

from service.access import needs
from service.context import ContextOf
from service.problems import GUARDED, declare
from service.routes.reports import stored_report
from service.runs import RUN_ID
from verifier.report.across import Comparison, compare
from verifier.report.model import Report

router = APIRouter(tags=["reports"], dependencies=[Depends(needs("read"))])


class CompareQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    run: list[Annotated[str, Field(pattern=f"^{RUN_ID.pattern}$")]] = Field(
        min_length=2, max_length=20, description="ids of finished runs, in the order in which they are to be shown"
    )


@router.get("/compare", responses=declare(404, 409, 410, 422, *GUARDED))
def compare_runs(query: Annotated[CompareQuery, Query()], context: ContextOf) -> Comparison:
    """The checks that changed from one run to another, other differences, and timings side by side."""
    reports = [Report.model_validate_json(stored_report(run_id, context)) for run_id in query.run]
    return compare(reports, query.run)
