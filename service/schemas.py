"""HTTP bodies. ``RunSubmission`` has the fields of the verifier's ``Request`` that a client may set, plus the queue's.

Special here: it allows no strategy from a file of this machine and no ``trust``, since only the operator may grant
both. All other fields are those of ``Request``, with the same names and defaults (a test compares them).
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from service.queue import MAX_PRIORITY
from service.runs import RUN_ID
from verifier.report.model import Verdict
from verifier.request import Profile, RemoteStrategyRef, Request

State = Literal["queued", "running", "finished", "cancelled", "errored"]
_Name = Annotated[str, StringConstraints(max_length=200)]


class RunSubmission(BaseModel):
    """A verification to carry out."""

    model_config = ConfigDict(extra="forbid")

    strategy: RemoteStrategyRef
    world_size: int = Field(4, description="number of ranks")
    profile: Profile = "standard"
    workloads: tuple[_Name, ...] | None = Field(None, max_length=100, description="null: the profile's own")
    checks: tuple[_Name, ...] | None = Field(None, max_length=200, description="only these codes; null: all")
    backend: Literal["auto", "gloo", "nccl", "cpu:gloo,cuda:nccl"] = "auto"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    launcher: _Name = "auto"
    driver: _Name | None = Field(None, description="driver style; null: found by looking")
    fault: _Name | None = Field(None, description="a fault to plant in the strategy, to see it caught")
    seed: int = Field(0, ge=0, lt=2**32)
    delay_ms: float = Field(0.0, ge=0, le=1000, description="collectives start and finish late by up to this, seeded")
    timeout_s: float = Field(600.0, gt=0, le=86_400, description="seconds for the whole verification")
    priority: int = Field(0, ge=-MAX_PRIORITY, le=MAX_PRIORITY, description="larger goes first")
    labels: dict[Annotated[str, StringConstraints(min_length=1, max_length=100)], _Name] = Field(
        default_factory=dict, max_length=50, description="names of your own, kept with the run"
    )
    webhook: Annotated[str, StringConstraints(min_length=1, max_length=2000)] | None = Field(
        None, description="address to tell when the run has ended, on a host that the operator allows"
    )

    @model_validator(mode="before")
    @classmethod
    def _storable(cls, body: Any) -> Any:
        """Refuse values that JSON allows but a database, file or answer cannot hold."""
        if isinstance(body, bytes | str):
            raise ValueError("the body was not sent as JSON: add the header 'content-type: application/json'")
        try:
            text = json.dumps(body, ensure_ascii=False, allow_nan=False)
            text.encode()
        except (ValueError, TypeError, RecursionError):
            raise ValueError(
                "the body holds NaN, an infinity, half a surrogate pair, or is nested too deeply; remove it"
            ) from None
        if "\\u0000" in text.replace("\\\\", ""):
            raise ValueError("the body holds a NUL character; remove it")
        return body

    def to_request(self, *, trust: bool) -> Request:
        asked = self.model_dump(exclude={"priority", "labels", "webhook"})
        return Request.model_validate({**asked, "trust": trust and self.strategy.kind == "source"})


class RunSummary(BaseModel):
    """A run in the list."""

    model_config = ConfigDict(from_attributes=True)

    id: str
    state: State
    verdict: Verdict | None = Field(description="of a finished run; a wrong strategy is a finished run: fail")
    summary: str | None = Field(description="the report in one sentence")
    strategy: str = Field(examples=["bucketed", "pkg.mod:wrap"])
    world_size: int
    labels: dict[str, str]
    priority: int
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class Run(RunSummary):
    """A run."""

    request: dict[str, Any] = Field(description="what is verified, all defaults filled in")
    error: str | None = Field(description="of an errored run: what went wrong on our side")
    attempt: int = Field(description="how many times its execution was begun")
    executor_id: str | None = Field(description="the worker that executes, or executed, it")


class Event(BaseModel):
    """An event of a run."""

    model_config = ConfigDict(from_attributes=True)

    kind: Literal["state", "progress"]
    text: str = Field(description="the new state, or how far the execution has come", examples=["running"])
    at: datetime


class RunPage(BaseModel):
    runs: list[RunSummary]
    next_cursor: str | None = Field(description="pass it as `cursor` for the next page; null: this is the last")


class RunQuery(BaseModel):
    """How to list runs."""

    model_config = ConfigDict(extra="forbid")

    limit: int = Field(50, ge=1, le=200)
    cursor: str | None = Field(None, pattern=f"^{RUN_ID.pattern}$", description="`next_cursor` of the page before")
    state: State | None = None
    verdict: Verdict | None = None
    strategy: Annotated[str, StringConstraints(min_length=1, max_length=300, pattern=r"^[^\x00]+$")] | None = None
    label: list[Annotated[str, StringConstraints(pattern=r"^[^=\x00\"\\]{1,100}=[^\x00]{0,200}$")]] = Field(
        default_factory=list, max_length=10, description="NAME=VALUE; repeated: all of them", examples=[["branch=main"]]
    )

    def labels(self) -> dict[str, str]:
        return dict(text.split("=", 1) for text in self.label)


class ArtifactEntry(BaseModel):
    """A file of a run."""

    model_config = ConfigDict(from_attributes=True)

    path: str = Field(examples=["scenarios/plain-exact/rank0/journal.jsonl"])
    num_bytes: int


class ArtifactList(BaseModel):
    artifacts: list[ArtifactEntry]
    recordings: bool = Field(description="false: recordings were deleted, as old as they were")


class AuditEntry(BaseModel):
    """A change that a caller requested."""

    model_config = ConfigDict(from_attributes=True)

    id: int
    at: datetime
    key_id: str = Field(description="whose key; none where none is asked for")
    name: str
    action: str = Field(examples=["run.submitted", "run.cancelled", "run.deleted", "key.added", "key.revoked"])
    target: str = Field(description="the run's or the key's id")
    address: str | None


class AuditPage(BaseModel):
    entries: list[AuditEntry]
    next_cursor: int | None = Field(description="pass it as `cursor` for the next page; null: this is the last")


class StrategyEntry(BaseModel):
    name: str
    summary: str


class CheckEntry(BaseModel):
    code: str = Field(examples=["LS201"])
    name: str = Field(examples=["gradient_equivalence"])
    summary: str


class Health(BaseModel):
    status: Literal["ok"] = "ok"


class Readiness(BaseModel):
    status: Literal["ready"] = "ready"
    workers: int = Field(description="workers alive; with none, runs are accepted and wait")
