"""One scenario in its containers: gives orders, watches all ranks together, decides when it is over, and reports how.

Special here: a container reports only on its own ranks. Whether a job hangs, is slow, or has lost a rank follows from
all of them together, by the rules of ``forkserver.watch``: a hang means that nobody writes *and* nobody computes. If a
container is gone or silent, the outside decides how its members ended. Everything that a container says about itself
is converted to its expected type and cut to length.
"""

from __future__ import annotations

import contextlib
import re
import selectors
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verifier.containers.framing import Frames, Untrue, order
from verifier.forkserver.limits import BUSY_STALL_S
from verifier.forkserver.watch import GRACE_AFTER_DEATH_S, GRACE_AFTER_END_S, SHORTEST_STALL_S
from verifier.launcher import LaunchError
from verifier.scenario import Scenario

TICK_S = 0.25
START_S = 180.0  # until a container is ready; all of them load torch at once
HAND_OVER_S = 60.0  # until all recordings have arrived
SILENT_S = 5.0  # a container silent for so long may be paused or gone; the engine knows
STARVED_S = 30.0  # a running container may wait for a processor for so long, among many others
STALL_S = 30.0
# The verifier's paths in a container and here, by which our frames are cut from stacks.
_INSTALLED = re.compile(r'File "[^"\n]*/(?:site-packages|dist-packages|lockstep)/(?=(?:verifier|ddp_core)/)')
_OURS = f'File "{Path(__file__).parents[2]}/'.replace("\\", "\\\\")
_TEXTS = {"signal": 40, "reason": 1000, "board": 2000, "stack": 40_000, "output": 8000}


@dataclass
class Group:
    """One container and the members that run in it."""

    members: list[str]
    container: str  # its id
    socket: socket.socket
    kept: Any = None  # the SDK's owner of the socket; if it were garbage-collected, the socket would close
    frames: Frames = field(default_factory=lambda: Frames({}, 2**20))
    heard: float = field(default_factory=time.monotonic)
    ready: bool = False
    torch: str = "unknown"  # its version in the container
    store: int | None = None
    lost: str | None = None  # why nothing more comes from it
    state: dict[str, tuple[int, bool, bool]] = field(default_factory=dict)  # bytes written, running, completed
    done: dict[str, dict[str, Any]] | None = None

    def send(self, **fields: Any) -> None:
        try:
            self.socket.sendall(order(**fields))
        except OSError as error:
            self.lost = self.lost or f"it takes no orders: {error}"

    def take(self, data: bytes) -> set[str]:
        """Read ``data``; return which kinds of its processes are busy: those it "forked", those it "started"."""
        self.heard, busy = time.monotonic(), set[str]()
        try:
            for message in self.frames.feed(data):
                busy.update(message.get("busy") or ())
                self._note(message)
        except (Untrue, LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
            self.lost = str(error) if isinstance(error, Untrue) else "it sent a message that makes no sense"
        except OSError as error:
            raise LaunchError(f"a recording could not be written: {error}") from error
        return busy

    def _note(self, message: dict[str, Any]) -> None:
        if "ready" in message:
            self.ready, self.torch = True, str(message["torch"])[:40]
        self.store = message.get("store", self.store)
        if "state" in message:
            state = message["state"]
            self.state = {name: (int(state[name][0]), bool(state[name][1]), bool(state[name][2])) for name in state}
        if "done" in message:
            told = {member["name"]: member for member in message["done"]}
            self.done = {name: _of_its_kind(told[name]) for name in self.members}


def _of_its_kind(told: dict[str, Any]) -> dict[str, Any]:
    texts = {name: str(told[name])[-most:] if told[name] else None for name, most in _TEXTS.items()}
    stack = _INSTALLED.sub(_OURS, texts["stack"]) if texts["stack"] else None
    return {**texts, "stack": stack, "board": texts["board"] or "", "exit_code": int(told["exit_code"])}


class Job:
    """One scenario in groups that are ready. ``why_lost`` asks the engine about a container that fell silent."""

    def __init__(self, groups: list[Group], why_lost: Callable[[Group], dict[str, Any]]) -> None:
        self._groups, self._why_lost = groups, why_lost
        self._selector = selectors.DefaultSelector()
        for group in groups:
            self._selector.register(group.socket, selectors.EVENT_READ, group)

    def close(self) -> None:
        self._selector.close()

    def get_ready(self) -> None:
        """Wait until every container has torch loaded. Raises LaunchError."""
        deadline = time.monotonic() + START_S
        while not all(group.ready for group in self._groups):
            self._listen()
            for group in self._groups:
                if group.lost or time.monotonic() > deadline:
                    why = self._why_lost(group)["reason"] or group.lost or f"it was not ready within {START_S:.0f} s"
                    raise LaunchError(f"the container of {', '.join(group.members)} did not start: {why}")

    def run(
        self, scenario: Scenario, places: dict[str, Path], timeout_s: float, limits: dict[str, Any], port: int
    ) -> dict[str, Any]:
        """As ``Launcher.run``. The first group has rank 0 and the store by which ranks meet."""
        most = int(limits.pop("most"))
        for group in self._groups:
            mine = {name: places[name] for name in group.members}
            group.frames.expect(mine, most * len(mine) + 16 * 2**20)
            group.done, group.state, group.store, group.heard = None, {}, None, time.monotonic()
        self._open_store(port)
        for group in self._groups:
            plain = scenario.model_dump(mode="json")
            group.send(run={"scenario": plain, "members": group.members, "port": port, "limits": limits})
        why = self._watch(timeout_s)
        for group in self._groups:
            group.send(end={"why": why, "stacks": why.startswith(("hung", "stopped")), "most": most})
        self._collect()
        members = [member for group in self._groups for member in self._describe(group, why)]
        environment = {"launcher": "docker", "torch": self._groups[-1].torch}  # the reference's: no strategy lies there
        lost = any(group.done is None for group in self._groups)
        return {"members": members, "environment": environment, "lost": lost}

    def _open_store(self, port: int) -> None:
        first, deadline = self._groups[0], time.monotonic() + HAND_OVER_S
        first.send(store=port)
        while first.store is None and first.lost is None and time.monotonic() < deadline:
            self._listen()

    def _watch(self, timeout_s: float) -> str:
        """Watch the job; return why it is over: empty if it ended by itself, else starting with "hung" or "stopped"."""
        begun = moved = busy = time.monotonic()
        started_is_busy = 0.0
        seen, patience = -1, min(STALL_S, max(timeout_s / 4, SHORTEST_STALL_S))
        while True:
            at_work, now = self._listen(), time.monotonic()
            busy = now if at_work else busy
            started_is_busy = now if "started" in at_work else started_is_busy
            states = dict(self._states())
            progress = sum(bytes_ + (not running) for bytes_, running, _ in states.values())
            if progress != seen:
                seen, moved = progress, now
            if not any(running for _, running, _ in states.values()):
                return ""
            failed = [name for name, (_, running, well) in states.items() if not running and not well]
            if failed and now - moved > GRACE_AFTER_DEATH_S:
                return f"stopped: {', '.join(failed)} had died"
            if all(well for _, _, well in states.values()) and now - moved > GRACE_AFTER_END_S:
                return ""
            computes_too_long = now - moved > BUSY_STALL_S and now - started_is_busy > patience
            if computes_too_long or now - max(moved, busy) > patience:
                return f"hung: nothing happened for {now - moved:.0f} s"
            if now - begun > timeout_s:
                return f"stopped: it was still at work when its {timeout_s:.0f} s were over"

    def _states(self) -> Iterator[tuple[str, tuple[int, bool, bool]]]:
        for group in self._groups:
            for name in group.members:
                gone = (0, False, False)
                yield name, gone if group.lost else group.state.get(name, (0, True, False))

    def _listen(self) -> set[str]:
        """Read what comes within a tick; return which kinds of processes are busy, "forked" or "started"."""
        busy = set[str]()
        for key, _ in self._selector.select(TICK_S):
            group: Group = key.data
            try:
                data = group.socket.recv(1 << 18)
            except OSError:
                data = b""
            if data:
                busy |= group.take(data)
            if not data or group.lost:
                group.lost = group.lost or "it ended"
                with contextlib.suppress(KeyError):
                    self._selector.unregister(group.socket)
        return busy

    def _collect(self) -> None:
        """Wait until every container that still answers has handed over its files."""
        deadline = time.monotonic() + HAND_OVER_S
        while True:
            waiting = [group for group in self._groups if group.done is None and not group.lost]
            now = time.monotonic()
            if not waiting or now > deadline or all(self._is_silent(group, now) for group in waiting):
                break
            self._listen()
        for group in self._groups:
            group.frames.close()

    def _is_silent(self, group: Group, now: float) -> bool:
        """Return whether nothing more will come from ``group``. Short silence may be due to the machine's load."""
        silent_s = now - group.heard
        return silent_s > STARVED_S or (silent_s > SILENT_S and bool(self._why_lost(group)["reason"]))

    def _describe(self, group: Group, why: str) -> Iterator[dict[str, Any]]:
        from_outside = self._why_lost(group) if group.done is None else {}
        for name in group.members:
            nothing = dict.fromkeys(("exit_code", "signal", "reason", "stack", "output"))
            told = group.done[name] if group.done is not None else {**nothing, "board": "", **from_outside}
            _, running, _ = (0, False, False) if group.lost else group.state.get(name, (0, True, False))
            ended = (why or None) if running else None
            if group.lost and group.done is None and not told["reason"]:
                ended = f"stopped: {group.lost}"
            yield {**told, "name": name, "ended": ended, "signal": None if ended else told["signal"]}
