"""Kills whatever it may kill, its container's server first."""

import os
import signal


def wrap(model):
    os.kill(-1, signal.SIGKILL)
    os.kill(os.getppid(), signal.SIGKILL)
