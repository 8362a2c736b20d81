"""Takes memory until it gets no more, by many processes, so that no limit of one process ends it."""

import mmap
import os
import time


def wrap(model):
    for _ in range(20):
        if os.fork() == 0:
            kept = mmap.mmap(-1, 400 * 2**20)
            for place in range(0, len(kept), 4096):
                kept[place] = 1
            time.sleep(60)
    kept = mmap.mmap(-1, 400 * 2**20)
    for place in range(0, len(kept), 4096):
        kept[place] = 1
    time.sleep(60)
