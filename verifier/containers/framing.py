"""The protocol with one container: orders in, one JSON line each; lines and files out.

Special here: the container is not trusted, because whatever runs in it may write to this stream. The length of a line
and the total size are limited, and a file must have a name from ``FILES`` below a member that was asked for. A
container that breaks one of these rules is cut off (``Untrue``). No path and no link of the container's is ever
followed on this side.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

# The files of a member, in this order: recording (two), how far it came, its stack, its output, why it ended.
FILES = ("journal.jsonl", "blobs.bin", "board", "stack.txt", "output.txt", "reason.txt")
LONGEST_LINE = 8 * 2**20
_HEADER = struct.Struct(">BxxxL")  # the engine's header of each piece of a container's output
_STDOUT = 1


class Untrue(Exception):
    """The container sent something that the verifier's own code in it would not send."""


class Frames:
    """Parses the stream, given in pieces, into the container's lines, and writes files where ``places`` says.

    ``places`` maps a member's name to its folder. ``framed``: the stream is an engine's, with a header before each
    piece; else it is the container's own.
    """

    def __init__(self, places: dict[str, Path], most: int, *, framed: bool = True) -> None:
        self.places, self._most, self._framed = places, most, framed
        self._raw, self._text = bytearray(), bytearray()
        self._file: BinaryIO | None = None
        self._left = 0
        self._taken = 0

    def expect(self, places: dict[str, Path], most: int) -> None:
        """Begin the next scenario: what follows belongs to it."""
        self.places, self._most, self._taken = places, most, 0

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        if not self._framed:
            yield from self._lines(bytearray(data))
            return
        self._raw += data
        while len(self._raw) >= _HEADER.size:
            stream, size = _HEADER.unpack_from(self._raw)
            if len(self._raw) < _HEADER.size + size:
                return
            piece = self._raw[_HEADER.size : _HEADER.size + size]
            del self._raw[: _HEADER.size + size]
            if stream == _STDOUT:
                yield from self._lines(piece)

    def _lines(self, piece: bytearray) -> Iterator[dict[str, Any]]:
        self._taken += len(piece)
        if self._taken > self._most:
            raise Untrue(f"it sent more than {self._most // 2**20} MiB")
        self._text += piece
        while self._text:
            if self._file is not None:
                self._fill(self._file)
                continue
            line, newline, rest = self._text.partition(b"\n")
            if not newline:
                if len(self._text) > LONGEST_LINE:
                    raise Untrue("it sent a line without an end")
                return
            self._text = rest
            message = _parse(line)
            if "file" in message:
                self._open(message)
            else:
                yield message

    def _open(self, message: dict[str, Any]) -> None:
        member, name, size = message.get("member"), message["file"], message.get("size")
        if member not in self.places or name not in FILES or not isinstance(size, int) or size < 0:
            raise Untrue("it sent a file that nobody asked for")
        folder = self.places[member]
        folder.mkdir(parents=True, exist_ok=True)
        self._file, self._left = (folder / name).open("wb"), size
        self._fill(self._file)

    def _fill(self, file: BinaryIO) -> None:
        part = self._text[: self._left]
        del self._text[: len(part)]
        file.write(part)
        self._left -= len(part)
        if self._left == 0:
            file.close()
            self._file = None

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _parse(line: bytes | bytearray) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict):
        raise Untrue("it sent a line that is no message")
    return message


def order(**fields: Any) -> bytes:
    return json.dumps(fields).encode() + b"\n"
