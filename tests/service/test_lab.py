"""The lab's page: the published figures, an address for every answer, and nothing drawn of what is no job."""

from __future__ import annotations

import html
import re
from typing import Any, get_args

import pytest

from service import lab
from service.lab import LabQuery


def test_the_page_says_what_the_command_says(client: Any) -> None:
    text = html.unescape(client.get("/pages/lab").text)
    assert "step 121.6 ms; backward 91.7 ms; exposed 29.9 ms; without overlap 234.3 ms" in text
    assert "Scaling to 4,096 ranks" in text
    assert text.count("assumed: ") >= 5
    assert "Performance lab" in client.get("/").text


def test_every_chart_is_drawn_for_the_same_question(client: Any) -> None:
    pytest.importorskip("matplotlib")
    text = html.unescape(client.get("/pages/lab", params={"alpha_ms": 6, "largest": 64}).text)
    drawings = re.findall(r'<img class="chart" src="([^"]+)"', text)
    assert len(drawings) == len(get_args(lab.Chart))
    for address in drawings:
        drawn = client.get(address)
        assert drawn.headers["content-type"] == "image/svg+xml"
        assert "default-src 'none'" in drawn.headers["content-security-policy"]
        assert drawn.text.startswith("<svg")
        assert "alpha_ms=6" in address


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ({"layers": "a lot"}, "is no layer"),
        ({"bucket": "<b>"}, "&#39;&lt;b&gt;&#39; is no bucket size. Write 25MB"),
        ({"layers": "99999x1"}, "a page takes 2,000 at most"),
    ],
)
def test_what_is_no_job_is_told_and_not_drawn(client: Any, words: dict[str, str], remedy: str) -> None:
    refused = client.get("/pages/lab", params=words)
    assert refused.status_code == 422
    assert remedy in refused.text
    assert 'name="layers"' in refused.text, "the form stays, with what was typed"
    drawn = client.get("/pages/lab/sweep.svg", params=words)
    assert drawn.status_code == 422
    assert drawn.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("words", [{"alpha_ms": -1}, {"largest": 10**9}, {"nothing": 1}, {"backward_ms": "nan"}])
def test_figures_outside_their_bounds_are_refused(client: Any, words: dict[str, Any]) -> None:
    assert client.get("/pages/lab", params=words).status_code == 422


def test_a_drawing_is_made_once(client: Any) -> None:
    pytest.importorskip("matplotlib")
    lab.drawing.cache_clear()
    query = LabQuery(alpha_ms=2.5)
    assert lab.drawing("timeline", query) is lab.drawing("timeline", query)
    assert lab.drawing.cache_info().misses == 1
