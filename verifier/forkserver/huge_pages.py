"""Moves the fork server's memory to pages of 2 MB: a fork copies one entry per page, and an exit removes each again.

Special here: these entries took two fifths of the kernel time of scenarios; 200 MB are 50000 entries or 100. The kernel
is asked to move existing memory (``MADV_COLLAPSE``, Linux 6.1), because Python's allocator requests memory in pieces
too small for a huge page. A child that writes to such a page copies 4 KB of it, as before. Where the kernel cannot or
may not, nothing changes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

HUGE_PAGE = 2**21
_MADV_COLLAPSE = 25  # asm-generic/mman-common.h; the mmap module has no name for it
_OURS = ("", "[heap]")  # memory without a file behind it; stacks are left alone


def collapse() -> int:
    """Ask for huge pages behind all of this process's own memory; return how many bytes now lie in such.

    One page at a time, so that ending this process does not wait for all of them. Takes 3 ms a page.
    """
    madvise = getattr(ctypes.CDLL(None), "madvise", None)
    num_pages = 0
    if madvise is not None:
        with suppress(OSError):  # not Linux: nothing to read there
            for begin in _whole_pages(Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")):
                num_pages += madvise(ctypes.c_void_p(begin), ctypes.c_size_t(HUGE_PAGE), _MADV_COLLAPSE) == 0
    return num_pages * HUGE_PAGE


def _whole_pages(maps: str) -> Iterator[int]:
    """Yield where a huge page fits into private, writable memory. ``maps``: as in proc(5)."""
    for line in maps.splitlines():
        span, rights, _, _, inode, *name = line.split(maxsplit=5)
        if rights == "rw-p" and inode == "0" and "".join(name).strip() in _OURS:
            begin, end = (int(address, 16) for address in span.split("-"))
            yield from range(-(-begin // HUGE_PAGE) * HUGE_PAGE, end - HUGE_PAGE + 1, HUGE_PAGE)
