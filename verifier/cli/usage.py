"""How a command ends that cannot do its work: one sentence on stderr, and an exit code that says whose mistake it was.

Special here: it is a context manager around the work, so that no command has error handling of its own.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from typing import NoReturn

import typer
from pydantic import ValidationError
from rich.console import Console

from verifier.errors import UnknownName, UsageError
from verifier.request import sentence

USAGE = 2
OUR_ERROR = 3
INTERRUPTED = 130  # what shells report for Ctrl-C; 1 would say that the strategy failed
FULL = ". Free some, or choose another disk: --out FOLDER for recordings and report, TMPDIR for what goes again."

errors = Console(stderr=True, highlight=False, soft_wrap=True)


@contextlib.contextmanager
def usage_errors() -> Iterator[None]:
    """End with one sentence: exit code 2 for the user's mistakes, 3 for ours, 130 for Ctrl-C."""
    from verifier.launcher import LaunchError

    try:
        yield
    except (UsageError, UnknownName) as error:
        refuse(str(error))
    except ValidationError as error:
        refuse(sentence(error))
    except KeyboardInterrupt:
        errors.print("lockstep: stopped; ranks are ended, nothing was kept that was not complete")
        raise typer.Exit(INTERRUPTED) from None
    except LaunchError as error:
        errors.print(f"lockstep: {error}", markup=False)
        raise typer.Exit(OUR_ERROR) from None
    except BrokenPipeError:  # the reader has closed the pipe: click ends quietly
        raise
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        remedy = FULL if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        errors.print(f"lockstep: {error.strerror or error}{where}{remedy}", markup=False)
        raise typer.Exit(OUR_ERROR) from None


def refuse(message: str) -> NoReturn:
    errors.print(f"lockstep: {message}", markup=False)
    raise typer.Exit(USAGE)
