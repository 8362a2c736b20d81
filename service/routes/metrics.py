"""``/metrics``, for Prometheus, which sends a key as a bearer token where one is required."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Header, Response
from prometheus_client.exposition import choose_encoder

from service.access import needs
from service.context import ContextOf
from service.problems import GUARDED, declare

router = APIRouter(tags=["operations"], dependencies=[Depends(needs("read"))])
_MEDIA_TYPES = ("text/plain", "application/openmetrics-text")


@router.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {"content": {media: {} for media in _MEDIA_TYPES}, "description": "Metrics."},
        **declare(422, *GUARDED),
    },
)
def get_metrics(
    context: ContextOf, accept: Annotated[str, Header(description="OpenMetrics where it is named")] = "*/*"
) -> Response:
    """Queue, runs, workers and HTTP, in Prometheus's text format."""
    encode, media_type = choose_encoder(accept)
    return Response(encode(context.metrics.registry), media_type=media_type)
