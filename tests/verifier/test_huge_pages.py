"""The fork server's memory in huge pages: the memory requested, and that only the pages change."""

from __future__ import annotations

import subprocess
import sys

from verifier.forkserver.huge_pages import HUGE_PAGE, _whole_pages

MAPS = """\
55d0c0000000-55d0c0800000 rw-p 00000000 00:00 0                          [heap]
7f0000100000-7f0000700000 rw-p 00000000 00:00 0
7f0000700000-7f0000800000 rw-p 00000000 00:00 0
7f0000800000-7f0001000000 r--p 00000000 00:00 0
7f0001000000-7f0002000000 rw-p 00000000 fe:00 4242                       /usr/lib/a library of ours.so
7f0002000000-7f0003000000 rw-s 00000000 00:01 77                         /dev/zero (deleted)
7ffc00000000-7ffc00400000 rw-p 00000000 00:00 0                          [stack]
"""


def test_whole_pages_of_our_own_memory():
    in_the_heap = [0x55D0C0000000 + number * HUGE_PAGE for number in range(4)]
    assert list(_whole_pages(MAPS)) == [*in_the_heap, 0x7F0000200000, 0x7F0000400000]


def test_what_is_in_them_stays_and_a_child_writes_to_its_own():
    code = """
import os
from verifier.forkserver.huge_pages import collapse
numbers = bytearray(os.urandom(16 * 2**20))
before = bytes(numbers)
num_bytes = collapse()
assert numbers == before and num_bytes % 2**21 == 0, num_bytes
if not (pid := os.fork()):
    numbers[::4096] = bytes(len(numbers) // 4096)
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0 and numbers == before
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_where_the_system_has_none(monkeypatch):
    monkeypatch.setattr("verifier.forkserver.huge_pages.ctypes.CDLL", lambda name: object())
    from verifier.forkserver.huge_pages import collapse

    assert collapse() == 0
