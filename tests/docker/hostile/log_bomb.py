"""Prints half a gigabyte, then goes on as if nothing had been."""

import os

from ddp_core.strategies.naive import CONTRACT as CONTRACT
from ddp_core.strategies.naive import wrap as honest


def wrap(model):
    for _ in range(8192):
        os.write(1, b"x" * 65535 + b"\n")
    return honest(model)
