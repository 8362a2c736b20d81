"""What the text of a strategy shows, read without running it.

Special here: nothing is concluded from it but which situations are worth their time in ``standard``. What another
module does is not seen, and there is no text of what is installed; ``thorough`` does not ask.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from verifier.request import FromFile, Source, StrategyRef

FLOAT16 = re.compile(rb"(?<!b)float16|fp16|\bhalf\b", re.IGNORECASE)

NORM_TYPE = re.compile(rb"\bnorm_type\b")
GROUP = re.compile(rb"\b(process_group|dp_group|pg|group)\b\s*[:=,)]")
ADDS_GROUPS = re.compile(rb"\bdef add_param_group\b")


def texts(ref: StrategyRef) -> Iterator[bytes]:
    """The files of ``ref``; of what cannot be read, nothing: the ranks will say so."""
    if isinstance(ref, Source):
        yield from (text.encode() for text in ref.files.values())
    elif isinstance(ref, FromFile):
        with suppress(OSError):
            yield Path(ref.path).read_bytes()


def says_float16(ref: StrategyRef) -> bool:
    """Is there a word for float16 in the text of ``ref``?"""
    return any(FLOAT16.search(text) for text in texts(ref))


def says_group(ref: StrategyRef) -> bool:
    """Is there, in the text of ``ref``, a name that process groups have as arguments?"""
    return any(GROUP.search(text) for text in texts(ref))


def says_norm_type(ref: StrategyRef) -> bool:
    """Is there a ``norm_type`` in the text of ``ref``?"""
    return any(NORM_TYPE.search(text) for text in texts(ref))


def defines_add_param_group(ref: StrategyRef) -> bool:
    """Does the text of ``ref`` define an ``add_param_group()``?"""
    return any(ADDS_GROUPS.search(text) for text in texts(ref))
