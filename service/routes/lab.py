"""``/pages/lab``: the cost model as a page: timeline, bucket sweep, strategies compared, scaling curve.

Special here: the form is sent by GET, so an answer has an address that can be kept and sent. Drawings are separate
images, because a page's policy forbids inline styles, and matplotlib's SVG is full of them.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, get_args
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from service import lab
from service.lab import LabQuery
from service.problems import Problem
from service.routes.pages import Reader, page
from verifier.errors import UsageError
from verifier.lab import plots
from verifier.lab.finding import shown

router = APIRouter(include_in_schema=False)
_DRAWING = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}


@router.get("/pages/lab")
def show_lab(request: Request, query: Annotated[LabQuery, Query()], caller: Reader) -> Response:
    problem, answers = None, []
    try:
        answers = [(chart, lab.answer(chart, query)) for chart in get_args(lab.Chart)]
    except UsageError as error:
        problem = str(error)
    return page(
        request,
        "lab",
        status=HTTPStatus.UNPROCESSABLE_ENTITY if problem else HTTPStatus.OK,
        problem=problem,
        answers=answers,
        given=query.model_dump(),
        titles={name: field.title for name, field in LabQuery.model_fields.items()},
        drawn=plots.drawable(),
        missing=plots.MISSING,
        words=urlencode(query.model_dump(exclude_defaults=True)),
        shown=shown,
    )


@router.get("/pages/lab/{chart}.svg")
def draw(chart: lab.Chart, query: Annotated[LabQuery, Query()], caller: Reader) -> Response:
    try:
        svg = lab.drawing(chart, query)
    except UsageError as error:
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, "no-such-job", str(error)) from None
    return Response(svg, media_type="image/svg+xml", headers=_DRAWING)
