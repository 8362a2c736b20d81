"""The client of a Lockstep service, used by ``lockstep submit``, ``watch`` and ``runs``.

Special here: every error on the way is a ``UsageError`` with one sentence, the service's own where it gave one. A
stream that breaks off is resumed where it was (``Last-Event-ID``). A submission is named (``Idempotency-Key``), so
repeating it after a lost connection does not run it twice.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

import httpx
import httpx_sse

from verifier.errors import UsageError
from verifier.report.model import Report

DEFAULT_SERVER = "http://127.0.0.1:8000"
FINAL = ("finished", "cancelled", "errored")
TIMEOUT_S = 30.0
ATTEMPTS = 5
LONGEST_WAIT_S = 30.0
_RETRIED = (httpx.ConnectError, httpx.ReadError, httpx.RemoteProtocolError, httpx.TimeoutException)


class Server:
    """One service. Use it as a context manager."""

    def __init__(self, url: str, key: str | None = None, transport: httpx.BaseTransport | None = None) -> None:
        if not url.startswith(("http://", "https://")):
            raise UsageError(f"the server is '{url}'; it must be an address such as {DEFAULT_SERVER}.")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self.url = url.rstrip("/")
        self._http = httpx.Client(base_url=self.url, headers=headers, timeout=TIMEOUT_S, transport=transport)

    def submit(self, body: dict[str, Any], idempotency_key: str | None = None) -> dict[str, Any]:
        """Queue a run and return it."""
        named = {"Idempotency-Key": idempotency_key or str(uuid.uuid4())}
        run: dict[str, Any] = self._ask("POST", "/runs", json=body, headers=named).json()
        return run

    def run(self, run_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self._ask("GET", f"/runs/{run_id}").json()
        return found

    def runs(self, **query: Any) -> dict[str, Any]:
        """A page of runs, newest first: ``runs`` and ``next_cursor``."""
        page: dict[str, Any] = self._ask("GET", "/runs", params=query).json()
        return page

    def cancel(self, run_id: str) -> dict[str, Any]:
        run: dict[str, Any] = self._ask("POST", f"/runs/{run_id}/cancel").json()
        return run

    def delete(self, run_id: str) -> None:
        self._ask("DELETE", f"/runs/{run_id}")

    def report(self, run_id: str) -> Report:
        return Report.model_validate_json(self._ask("GET", f"/runs/{run_id}/report", params={"format": "json"}).text)

    def compare(self, run_ids: list[str]) -> dict[str, Any]:
        found: dict[str, Any] = self._ask("GET", "/compare", params={"run": run_ids}).json()
        return found

    def events(self, run_id: str) -> Iterator[dict[str, Any]]:
        """The events of the run, from its beginning to its end, whatever happens to the connection."""
        last, failures = "0", 0
        while True:
            try:
                with httpx_sse.connect_sse(
                    self._http, "GET", f"/runs/{run_id}/events", headers={"Last-Event-ID": last}, timeout=TIMEOUT_S * 2
                ) as source:
                    if source.response.is_error:
                        source.response.read()
                        raise self._refused(source.response)
                    for event in source.iter_sse():
                        last, failures = event.id, 0
                        yield event.json()
            except _RETRIED as error:
                failures += 1
                self._wait(failures, error)
                continue
            if self.run(run_id)["state"] in FINAL:
                return
            failures += 1  # the service was stopped, say, and ended the stream
            self._wait(failures, httpx.ReadError("the stream ended before the run did"))

    def _ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        """Send a request, and repeat it if the connection fails or the service asks for it later.

        Raises:
            UsageError: the service cannot be reached, or refused.
        """
        failures = 0
        while True:
            try:
                answer = self._http.request(method, path, **more)
            except _RETRIED as error:
                failures += 1
                self._wait(failures, error)
                continue
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                raise UsageError(f"{self.url} cannot be asked: {error}") from None
            if not answer.is_error:
                return answer
            failures += 1
            wait_s = _retry_after(answer)
            if answer.status_code not in (429, 503) or wait_s > LONGEST_WAIT_S or failures >= ATTEMPTS:
                raise self._refused(answer)
            time.sleep(wait_s)

    def _wait(self, failures: int, error: Exception) -> None:
        if failures >= ATTEMPTS:
            raise UsageError(
                f"{self.url} does not answer ({error}). Is it 'lockstep serve' there? --server or LOCKSTEP_SERVER "
                "names another."
            ) from None
        time.sleep(0.2 * 2**failures)

    def _refused(self, answer: httpx.Response) -> UsageError:
        try:
            said = answer.json()["detail"]
        except (ValueError, KeyError, TypeError):
            said = f"it answered {answer.status_code}, and not as a Lockstep service does"
        advice = " Set LOCKSTEP_API_KEY." if answer.status_code == 401 else ""
        return UsageError(f"{self.url}: {said}{advice}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()


def _retry_after(answer: httpx.Response) -> float:
    try:
        return max(0.0, float(answer.headers.get("retry-after", "1")))
    except ValueError:  # a date, which our service never sends
        return 1.0
