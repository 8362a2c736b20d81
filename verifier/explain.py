"""Pages about a name: a check, a fault, a cause or a situation. ``lockstep explain`` prints them.

Special here: the texts are the docstrings and messages of the files themselves. ``python -m verifier.explain --write
docs/checks.md`` writes the same texts as documentation (``verifier.pages``), and a test compares the two.
"""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

from verifier import catalogue
from verifier.errors import UnknownName
from verifier.judge import causes

WIDTH = 110
LISTED_BY = "All names: lockstep list checks (or causes, faults, situations)"


def explain(name: str) -> str:
    """All pages about ``name``, as plain text. A fault and its cause may share a name.

    Raises:
        UnknownName: no check, fault, cause or situation has that name.
    """
    pages = [page for page in (_check(name), _fault(name), _cause(name), _situation(name)) if page is not None]
    if not pages:
        every = [*catalogue.check_names(), *catalogue.FAULTS.names(), *causes.causes(), *catalogue.SITUATIONS.names()]
        raise UnknownName("check, fault, cause or situation", name, set(every), listed_by=LISTED_BY)
    return "\n".join(pages)


def _check(code: str) -> str | None:
    from verifier.pages import read_by, split, tripped_by

    names = catalogue.check_names()
    code = catalogue.check_code(code)
    if code not in names:
        return None
    title = f"{code} {names[code]}"
    text = catalogue.CHECKS.docstring(f"{code.lower()}_{names[code]}")
    causes_named = [cause.name for cause in causes.causes().values() if code in cause.named_by]
    words, situations = split(read_by(code))
    return f"{title}\n\n{text}\n\n" + _facts(
        ("Causes", causes_named),
        ("Situations that it reads", [words + ", ".join(situations)]),
        ("Faults that trip it", tripped_by(code)),
    )


def _fault(name: str) -> str | None:
    if name not in catalogue.FAULTS.names():
        return None
    fault = causes.faults()[name]
    return f"fault {name}\n\n{catalogue.FAULTS.docstring(name)}\n\n" + _facts(
        ("Trips", fault.trips), ("Cause", [fault.cause]), ("Can be planted in", fault.applies_to)
    )


def _cause(name: str) -> str | None:
    cause = causes.causes().get(name)
    if cause is None:
        return None
    parts = [f"cause {name}"]
    parts += [_paragraph("Means: ", text) for text in cause.explanations]
    parts += [_paragraph("Mend it: ", text) for text in cause.hints]
    planted = [fault.name for fault in causes.faults().values() if fault.cause == name]
    return "\n\n".join(parts) + "\n\n" + _facts(("Named by", cause.named_by), ("Planted by fault", planted))


def _situation(name: str) -> str | None:
    if name not in catalogue.SITUATIONS.names():
        return None
    from verifier.pages import readers, situation

    found = situation(name)
    return f"situation {name}\n\n{catalogue.SITUATIONS.docstring(name)}\n\n" + _facts(
        ("Profile", [found.since or f"none: chosen with --workload {found.workload}"]),
        ("In standard where the text shows", [found.standard_where] if found.standard_where else ()),
        ("Workload", [found.workload]),
        ("A strategy that does not claim one of these may refuse it", found.fields.get("needs", ())),
        ("Read by", readers(name)),
    )


def _paragraph(word: str, text: str) -> str:
    return textwrap.fill(word + text, WIDTH)


def _facts(*facts: tuple[str, list[str] | tuple[str, ...]]) -> str:
    return "".join(_paragraph(f"{word}: ", ", ".join(values)) + "\n" for word, values in facts if values)


def main(words: list[str]) -> int:
    """Write the page that PATH names (``--write PATH``), or print the pages about a name; return the exit code."""
    from verifier.pages import PAGES

    if len(words) == 2 and words[0] == "--write" and Path(words[1]).name in PAGES:
        path = Path(words[1])
        path.write_text(PAGES[path.name](), encoding="utf-8")
        return 0
    if len(words) == 1 and not words[0].startswith("-"):
        sys.stdout.write(explain(words[0]))
        return 0
    sys.stderr.write(f"usage: python -m verifier.explain NAME | --write docs/{{{','.join(PAGES)}}}\n")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
