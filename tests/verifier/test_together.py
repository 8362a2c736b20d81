"""The verifier's own messages between ranks: one answer for all ranks, and no long wait for a silent rank.

Special here: it is tested with every kind of store that a launcher may use, the fork server's own included, because
each has its own error for a timeout.
"""

from __future__ import annotations

import selectors
import socket
import threading
from contextlib import suppress
from datetime import timedelta
from types import SimpleNamespace

import pytest
import torch.distributed as dist

from verifier.forkserver.store import SocketStore, StoreServer
from verifier.run import together

NUM_RANKS = 2


def _tcp(folder):
    """A client for each rank, as ranks have them: while one client waits, it takes no other call."""
    first = dist.TCPStore("127.0.0.1", 0, is_master=True, timeout=timedelta(seconds=30))
    others = [dist.TCPStore("127.0.0.1", first.port, timeout=timedelta(seconds=30)) for _ in range(1, NUM_RANKS)]
    return [first, *others]


STORES = {
    "tcp": _tcp,
    "file": lambda folder: [dist.FileStore(str(folder / "store"), NUM_RANKS) for _ in range(NUM_RANKS)],
    "hash": lambda folder: [dist.HashStore()] * NUM_RANKS,  # it is one process's by nature
}


@pytest.fixture(params=[*STORES, "socket"])
def stores(request, tmp_path):
    """Each rank's store, by rank."""
    if request.param == "socket":
        pairs = [socket.socketpair() for _ in range(NUM_RANKS)]
        threading.Thread(target=_serve, args=([server for server, _ in pairs],), daemon=True).start()
        kept = [SocketStore(ranks) for _, ranks in pairs]  # a PrefixStore does not keep a Python store alive
        yield [dist.PrefixStore("scenario", store) for store in kept]
        for _, ranks in pairs:
            ranks.close()
    else:
        yield [dist.PrefixStore("scenario", store) for store in STORES[request.param](tmp_path)]


def _serve(connections):
    server, selector = StoreServer(), selectors.DefaultSelector()
    for connection in connections:
        selector.register(connection, selectors.EVENT_READ)
    with suppress(ConnectionError, OSError, EOFError):
        while True:
            for ready, _ in selector.select():
                server.answer(ready.fileobj)


def asked(store, rank, own):
    subject = SimpleNamespace(store=store, rank=rank, scenario=SimpleNamespace(world_size=NUM_RANKS))
    return together.any_rank_says(subject, "something", own)


@pytest.mark.parametrize("words", [(True, False), (False, True), (True, True), (False, False)])
def test_all_come_to_one_answer(stores, words):
    found = {}
    threads = [
        threading.Thread(target=lambda rank=rank, own=own: found.update({rank: asked(stores[rank], rank, own)}))
        for rank, own in enumerate(words)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == dict.fromkeys(range(NUM_RANKS), any(words))


@pytest.mark.parametrize("own", [True, False])
def test_who_says_nothing_is_not_waited_for(stores, monkeypatch, own):
    monkeypatch.setattr(together, "PATIENCE", timedelta(seconds=0.2))
    assert asked(stores[0], 0, own) == own
    assert asked(stores[1], 1, not own) == own, "who comes too late goes by what was decided"
