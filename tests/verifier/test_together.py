"""What ranks tell one another beside the strategy: one answer for all, and no long wait for who says nothing."""

from __future__ import annotations

import threading
from datetime import timedelta
from types import SimpleNamespace

import pytest
import torch.distributed as dist

from verifier.run import together

STORES = {
    "tcp": lambda folder: dist.TCPStore("127.0.0.1", 0, is_master=True, timeout=timedelta(seconds=30)),
    "file": lambda folder: dist.FileStore(str(folder / "store"), 2),
    "hash": lambda folder: dist.HashStore(),
}


@pytest.fixture(params=STORES)
def store(request, tmp_path):
    return dist.PrefixStore("scenario", STORES[request.param](tmp_path))


def asked(store, rank, own, world_size=2):
    subject = SimpleNamespace(store=store, rank=rank, scenario=SimpleNamespace(world_size=world_size))
    return together.any_rank_says(subject, "something", own)


@pytest.mark.parametrize("words", [(True, False), (False, True), (True, True), (False, False)])
def test_all_come_to_one_answer(store, words):
    found = {}
    threads = [
        threading.Thread(target=lambda rank=rank, own=own: found.update({rank: asked(store, rank, own)}))
        for rank, own in enumerate(words)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == dict.fromkeys(range(2), any(words))


@pytest.mark.parametrize("own", [True, False])
def test_who_says_nothing_is_not_waited_for(store, monkeypatch, own):
    monkeypatch.setattr(together, "PATIENCE", timedelta(seconds=0.2))
    assert asked(store, 0, own) == own
    assert asked(store, 1, not own) == own, "who comes too late goes by what was decided"
