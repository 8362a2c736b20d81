"""Writes wherever it may, until nothing more fits, and counts."""

import os


def wrap(model):
    found = {}
    for folder in ("/tmp", "/dev/shm"):
        written = 0
        try:
            for number in range(400):
                with open(f"{folder}/{os.getpid()}.{number}", "wb", buffering=0) as file:
                    for _ in range(16):
                        written += file.write(b"x" * 2**20)
        except OSError as error:
            found[folder] = [written // 2**20, error.strerror]
    raise RuntimeError(f"found: {found!r}")
