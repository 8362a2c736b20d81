"""Implements ``lockstep serve`` and ``lockstep worker``: prepare, run until told to stop, stop cleanly.

Special here: everything that can be wrong at the start (the port, the data directory, the database) is checked
before anything runs, and raises a ``UsageError`` with one sentence. SIGINT and SIGTERM stop the service without
waiting for runs in progress; those are handed back to the queue.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
import uvicorn
from sqlalchemy.exc import DBAPIError

from service.app import create_app
from service.bell import Bell
from service.db import connect
from service.keys import Keys
from service.log import configure_logging
from service.migrate import migrate
from service.settings import Settings, load_settings
from service.worker import Worker
from verifier.errors import UsageError

_EXAMPLE = '{"strategy": {"kind": "builtin", "name": "bucketed"}, "world_size": 2, "profile": "quick"}'


def serve(
    host: str | None = None, port: int | None = None, data_dir: Path | str | None = None, worker: bool | None = None
) -> None:
    """Run the API and, unless ``worker`` is False, a worker in this process. Returns when told to stop."""
    settings = load_settings(host=host, port=port, data_dir=data_dir, worker=worker)
    configure_logging()
    listener = _listen(settings)
    # Answers and streams share this process with threads that use the database: none must delay the others.
    sys.setswitchinterval(0.0005)
    engine = prepare(settings)
    app = create_app(settings)
    config = uvicorn.Config(
        app, log_level="warning", timeout_graceful_shutdown=settings.shutdown_s, server_header=False
    )
    with _signals(lambda: None), _executing(settings, engine, settings.worker):
        print(_greeting(settings, listener), file=sys.stderr, flush=True)
        Server(config, app.state.context.bell).run(sockets=[listener])


class Server(uvicorn.Server):
    """Ends streams before it waits for open requests, because streams would not end by themselves."""

    def __init__(self, config: uvicorn.Config, bell: Bell) -> None:
        super().__init__(config)
        self._bell = bell

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._bell.close()
        await super().shutdown(sockets)


def run_worker(data_dir: Path | str | None = None, slots: int | None = None) -> None:
    """Run a worker without an API, beside any number of others. Returns when told to stop."""
    settings = load_settings(data_dir=data_dir, slots=slots)
    configure_logging()
    engine = prepare(settings)
    stop = threading.Event()
    with _signals(stop.set), _executing(settings, engine, True):
        print(f"Lockstep worker, {settings.slots} slots. Data: {settings.data_dir}", file=sys.stderr, flush=True)
        stop.wait()


def keys_of(data_dir: Path | str | None = None) -> Keys:
    """The API keys of the service with this data directory."""
    configure_logging()
    return Keys(prepare(load_settings(data_dir=data_dir)))


def prepare(settings: Settings) -> sa.Engine:
    """Prepare the data directory and the database; return its engine."""
    try:
        settings.runs_dir.mkdir(parents=True, exist_ok=True)
        probe = settings.runs_dir / f".probe.{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UsageError(
            f"The data directory '{settings.data_dir}' cannot be written to: {error.strerror}. "
            "Name another with --data or LOCKSTEP_DATA_DIR."
        ) from None
    engine = connect(settings.database)
    try:
        migrate(settings, engine)
    except DBAPIError as error:
        where = engine.url.render_as_string(hide_password=True)
        reason = str(error.orig).strip().splitlines()[0]
        raise UsageError(
            f"The database {where} cannot be used: {reason}. Correct LOCKSTEP_DATABASE_URL, or start the database."
        ) from None
    return engine


def _listen(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        listener = socket.create_server((settings.host, settings.port), family=family, backlog=2048)
    except (OSError, UnicodeError) as error:
        # A failed look-up has a negative number and its own text. To other errors' text Python adds the address.
        number = getattr(error, "errno", None) or 0
        reason = os.strerror(number) if number > 0 else getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"Port {settings.port} on '{settings.host}' cannot be opened: {reason}. "
            "Name another with --port (0: any free one) and --host."
        ) from None

    # Inherited by every connection. asyncio sets it only if the socket names its protocol. Without it an answer's body
    # would wait up to 40 ms for the other side to acknowledge its head.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def _greeting(settings: Settings, listener: socket.socket) -> str:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    url = f"http://{host}:{listener.getsockname()[1]}"
    worker = f"with a worker of {settings.slots} slots" if settings.worker else "without a worker"
    return (
        f"Lockstep serves {url} ({worker}; Ctrl-C stops it)\nData: {settings.data_dir}\n"
        f"Try: curl -s {url}/runs -H 'content-type: application/json' -d '{_EXAMPLE}'"
    )


@contextmanager
def _signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call ``stop`` on SIGINT and SIGTERM. uvicorn installs its own handlers over these, and raises the signal again
    once it has stopped. Without these handlers that would end the process before the worker hands its runs back."""
    count = 0

    def handle(_number: int, _frame: object) -> None:
        nonlocal count
        count += 1
        if count > 2:  # uvicorn repeats the first signal; a third one means: do not wait
            os._exit(130)
        stop()

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _executing(settings: Settings, engine: sa.Engine, wanted: bool) -> Iterator[None]:
    """Run a worker during the block, if ``wanted``."""
    if not wanted:
        yield
        return
    worker = Worker(settings, engine)
    worker.start()
    try:
        yield
    finally:
        worker.stop()
        engine.dispose()
        if worker.busy:
            # The engine's thread cannot be interrupted, and Python would wait for it. Its ranks end by themselves
            # when this process ends and closes their server's socket.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)


def main(arguments: Sequence[str] | None = None) -> int:
    """``python -m service.serve``: the same as ``lockstep serve``, where that command is not installed."""
    parser = argparse.ArgumentParser(prog="python -m service.serve", description=main.__doc__)
    parser.add_argument("--host")
    parser.add_argument("--port")
    parser.add_argument("--data", dest="data_dir")
    parser.add_argument("--no-worker", dest="worker", action="store_false", default=None)
    parser.add_argument("--worker-only", action="store_true", help="no API: what `lockstep worker` does")
    given = parser.parse_args(arguments)
    try:
        if given.worker_only:
            run_worker(data_dir=given.data_dir)
        else:
            serve(given.host, given.port, given.data_dir, given.worker)
    except UsageError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
