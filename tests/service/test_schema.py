"""Every route, with what its OpenAPI schema allows and with what it does not, and no answer that it does not announce.

Special here: schemathesis makes the requests, streams included: the runs that it names are none, so nothing is waited
for. What streams say of real runs is tried in ``test_events.py``.
"""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, seed
from hypothesis import settings as hypothesis_settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from service.app import create_app
from service.settings import Settings

EXAMPLES = 60
# A strategy that there is not, or a driver, is refused with 422, and no schema can know which there are.
RULES_BEYOND_THE_SCHEMA = [positive_data_acceptance]


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("asks_for_keys", [False, True], ids=["open", "guarded"])
def test_no_finding(settings: Settings, engine_stub: None, asks_for_keys: bool, mode: GenerationMode) -> None:
    settings.host = "0.0.0.0" if asks_for_keys else "127.0.0.1"
    schema = schemathesis.openapi.from_asgi("/openapi.json", create_app(settings))
    tried = 0
    for operation in (result.ok() for result in schema.get_all_operations()):
        tried += 1
        try_out(operation, mode)
    assert tried >= 9


def try_out(operation: Any, mode: GenerationMode) -> None:
    @seed(1)
    @given(case=operation.as_strategy(generation_mode=mode))
    @hypothesis_settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    def run(case: Any) -> None:
        case.call_and_validate(excluded_checks=RULES_BEYOND_THE_SCHEMA if operation.label == "POST /runs" else [])

    try:
        run()
    except Unsatisfiable:  # nothing in such a request could be wrong: any text may be an id or a header
        assert mode is GenerationMode.NEGATIVE
        assert "requestBody" not in operation.definition.raw
        assert {parameter["in"] for parameter in operation.definition.raw.get("parameters", [])} <= {"path", "header"}
