"""The rendezvous: a key-value store that ranks reach over socket pairs made before they were forked.

Special here: no file is polled (FileStore wakes every 10 ms) and no name is looked up (TCPStore now and then stalls for
seconds on a reverse look-up). Requests and answers are length-prefixed pickles between processes of one tree, never
read from anyone else.
"""

from __future__ import annotations

import pickle
import socket
import struct
import threading
from collections import defaultdict
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch.distributed as dist

_LENGTH = struct.Struct("!I")
_LONGEST = 64 * 2**20  # no honest value is longer: a header that says more is not ours


def send(connection: socket.socket, message: Any) -> None:
    data = pickle.dumps(message)
    connection.sendall(_LENGTH.pack(len(data)) + data)


def receive(connection: socket.socket) -> Any:
    """Return the next message. Raises ConnectionError when the other side is gone."""
    (size,) = _LENGTH.unpack(_read(connection, _LENGTH.size))
    if size > _LONGEST:
        raise ConnectionError(f"a message of {size} bytes is none of ours")
    return pickle.loads(_read(connection, size))


def _read(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionError("the other side of the store is gone")
        data += part
    return bytes(data)


class SocketStore(dist.Store):
    """The rank's side. Blocks in ``get`` and ``wait`` until another rank has set the key."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__()
        self._connection = connection
        self._lock = threading.Lock()
        self._count = 0
        self._timeout = timedelta(seconds=300)

    def _ask(self, *request: Any, timeout_s: float | None = None) -> Any:
        with self._lock:
            self._count += 1
            self._connection.settimeout(timeout_s)
            send(self._connection, (self._count, *request))
            while True:
                number, answer = receive(self._connection)
                if number == self._count:  # not the late answer to a request that timed out
                    return answer

    def set(self, key: str, value: bytes | str) -> None:
        self._ask("set", key, _bytes(value))

    def get(self, key: str) -> bytes:
        answer: bytes = self._ask("get", key, timeout_s=self._timeout.total_seconds())
        return answer

    def add(self, key: str, amount: int) -> int:
        return int(self._ask("add", key, amount))

    def compare_set(self, key: str, expected: Any, desired: Any) -> bytes:
        answer: bytes = self._ask("compare_set", key, _bytes(expected), _bytes(desired))
        return answer

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        for key in keys:
            self._ask("get", key, timeout_s=(timeout or self._timeout).total_seconds())

    def check(self, keys: list[str]) -> bool:
        return bool(self._ask("check", list(keys)))

    def delete_key(self, key: str) -> bool:
        return bool(self._ask("delete_key", key))

    def num_keys(self) -> int:
        return int(self._ask("num_keys"))

    deleteKey, getNumKeys = delete_key, num_keys  # the names that torch's own C++ calls

    def has_extended_api(self) -> bool:
        return False

    def set_timeout(self, timeout: timedelta) -> None:
        self._timeout = timeout

    @property
    def timeout(self) -> timedelta:
        return self._timeout

    def clone(self) -> SocketStore:
        return self


def _bytes(value: bytes | str) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


class StoreServer:
    """The server's side: answers one rank's request at a time; a ``get`` of a missing key is answered later."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._blocked: defaultdict[str, list[tuple[socket.socket, int]]] = defaultdict(list)

    def answer(self, connection: socket.socket) -> None:
        """Read one request from ``connection`` and answer it.

        Raises ConnectionError if the rank is gone, and any other error if the request is malformed.
        """
        number, name, *arguments = receive(connection)
        if name == "get" and arguments[0] not in self._values:
            self._blocked[arguments[0]].append((connection, number))
            return
        handler: Callable[..., Any] = getattr(self, "_" + name)
        send(connection, (number, handler(*arguments)))

    def _get(self, key: str) -> bytes:
        return self._values[key]

    def _set(self, key: str, value: bytes) -> None:
        self._values[key] = value
        for connection, number in self._blocked.pop(key, []):
            try:
                send(connection, (number, value))
            except OSError:  # that rank died while it waited; the watch will report that
                continue

    def _add(self, key: str, amount: int) -> int:
        total = int(self._values.get(key, b"0")) + amount
        self._set(key, str(total).encode())
        return total

    def _compare_set(self, key: str, expected: bytes, desired: bytes) -> bytes:
        current = self._values.get(key)
        if current == expected or (current is None and not expected):
            self._set(key, desired)
            return desired
        return current if current is not None else expected

    def _check(self, keys: list[str]) -> bool:
        return all(key in self._values for key in keys)

    def _delete_key(self, key: str) -> bool:
        return self._values.pop(key, None) is not None

    def _num_keys(self) -> int:
        return len(self._values)
