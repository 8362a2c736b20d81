"""``/audit``: which caller requested which change, newest first. Only for admin keys: it names people and addresses."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel, ConfigDict, Field

from service import audit
from service.access import needs
from service.context import ContextOf
from service.problems import GUARDED, declare
from service.schemas import AuditEntry, AuditPage

router = APIRouter(tags=["operations"], dependencies=[Depends(needs("admin"))])


class AuditQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    limit: int = Field(50, ge=1, le=200)
    cursor: int | None = Field(None, ge=0, le=2**53, description="`next_cursor` of the page before")


@router.get("/audit", responses=declare(422, *GUARDED))
def list_audit(query: Annotated[AuditQuery, Query()], context: ContextOf) -> AuditPage:
    """Changes that callers requested, newest first."""
    rows = audit.page(context.engine, query.limit + 1, query.cursor)
    page = [AuditEntry.model_validate(row) for row in rows[: query.limit]]
    return AuditPage(entries=page, next_cursor=page[-1].id if len(rows) > query.limit else None)
