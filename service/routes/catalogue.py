"""The verifier's own catalogues: the strategies that ship, and the checks."""

from __future__ import annotations

from fastapi import APIRouter

from service.problems import declare
from service.schemas import CheckEntry, StrategyEntry
from verifier.catalogue import CHECKS, STRATEGIES, check_names

router = APIRouter(tags=["catalogue"])


@router.get("/strategies", responses=declare())
def list_strategies() -> list[StrategyEntry]:
    """The strategies that ship, for `{"kind": "builtin", "name": ...}`."""
    return [StrategyEntry(name=name, summary=STRATEGIES.summary(name)) for name in STRATEGIES.names()]


@router.get("/checks", responses=declare())
def list_checks() -> list[CheckEntry]:
    """The checks, by their stable codes."""
    return [
        CheckEntry(code=code, name=name, summary=CHECKS.summary(f"{code.lower()}_{name}"))
        for code, name in check_names().items()
    ]
