"""Findings as one self-contained page: tables, notes, charts as inline SVG; no script, no request leaves it.

Special here: the template engine escapes everything but the SVG, which matplotlib has drawn and escaped.
"""

from __future__ import annotations

from collections.abc import Sequence

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from verifier.lab import plots
from verifier.lab.finding import Finding, shown

TEMPLATE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>{{ title }} (Lockstep)</title>
<style>
 body { font: 15px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 2rem auto; padding: 0 1rem; color: #1c2430; }
 table { border-collapse: collapse; } th, td { padding: .3rem .6rem; border-bottom: 1px solid #dfe4ea; }
 th, td { text-align: right; font-variant-numeric: tabular-nums; }
 th:first-child, td:first-child { text-align: left; } svg { max-width: 100%; height: auto; }
</style></head><body>
<h1>{{ title }}</h1>
{% for finding, chart in parts %}
<h2>{{ finding.title }}</h2>
{% if finding.rows %}<table><tr>{% for column in finding.columns %}<th>{{ column }}</th>{% endfor %}</tr>
{% for row in finding.rows %}<tr>{% for cell in row %}<td>{{ shown(cell) }}</td>{% endfor %}</tr>
{% endfor %}</table>{% endif %}
{{ chart }}
{% if finding.notes %}<ul>{% for note in finding.notes %}<li>{{ note }}</li>{% endfor %}</ul>{% endif %}
{% endfor %}
</body></html>
"""


def render(title: str, findings: Sequence[Finding]) -> str:
    """Render ``findings`` as one page. Raises UsageError if a finding has a chart and matplotlib is missing."""
    template = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True).from_string(TEMPLATE)
    parts = [(f, Markup(plots.svg(f)) if f.chart is not None else "") for f in findings]
    return template.render(title=title, parts=parts, shown=shown)
