"""What a check claims, in full: the docstring of its file, laid out. The same text is the documentation's page."""

from __future__ import annotations

from verifier import catalogue
from verifier.errors import UnknownName


def explain(code: str) -> str:
    """The explanation of a check (``LS201``) or a fault (``skipped_bucket``), as plain text.

    Raises:
        UnknownName: there is neither a check nor a fault of that name.
    """
    names = catalogue.check_names()
    wanted = code.upper()
    if wanted in names:
        stem = f"{wanted.lower()}_{names[wanted]}"
        return f"{wanted} {names[wanted]}\n\n{catalogue.CHECKS.docstring(stem)}\n"
    if code in catalogue.FAULTS.names():
        return f"fault {code}\n\n{catalogue.FAULTS.docstring(code)}\n"
    raise UnknownName("check or fault", code, [*names, *catalogue.FAULTS.names()])
