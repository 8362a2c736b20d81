"""Ranks as containers that reach nothing: no network, no file of the host, no other run.

Special here: the ranks of a run share the network namespace of one idle container without any network, so they meet on
its loopback and nowhere else. The reference has a container that no strategy's code enters. Containers are kept for all
scenarios of a launcher, because loading torch takes the time; each scenario's processes are new. Containers live as
long as the stream to their owner; those that remain are removed by ``reap``. Only images named in
``LOCKSTEP_RANK_IMAGES`` are run, and none is ever fetched.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

try:
    import docker
except ImportError:  # ``connect`` reports it
    docker = None
from verifier.containers import gpus, owners
from verifier.containers.job import Group, Job
from verifier.containers.limits import ContainerLimits
from verifier.containers.packing import carried
from verifier.errors import UsageError
from verifier.launcher import LaunchError, place_of

if TYPE_CHECKING:
    from verifier.scenario import Scenario

RUN, OWNER, UNTIL = "lockstep.run", "lockstep.owner", "lockstep.until"
IMAGES = "lockstep-rank"
LONGEST_S = 2 * 86_400  # a container whose owner cannot be looked up is removed after this
PORT = 29_500
Topology = Literal["auto", "ranks", "single"]


def connect() -> Any:
    """A client of the engine that the environment names. Raises LaunchError if there is none or it does not answer."""
    if not hasattr(docker, "from_env"):  # a folder named docker is importable, too
        raise LaunchError("the engine's Python SDK is not installed. Install it: pip install 'lockstep-ddp[docker]'.")
    try:
        client = docker.from_env(timeout=60)
        client.ping()
    except Exception as error:
        raise LaunchError(
            f"no container engine answers ({error}). Start one, or set DOCKER_HOST; or choose --launcher local. "
            "Where permission is denied, this user must be in the group of the engine's socket (compose: ENGINE_GID)."
        ) from error
    return client


def available() -> bool:
    """Return whether an engine answers that has an image to run ranks in."""
    try:
        client = connect()
    except LaunchError:
        return False
    with contextlib.closing(client):
        try:
            client.images.get(_image(None))
        except (UsageError, docker.errors.DockerException):
            return False
    return True


class DockerLauncher:
    """One run's containers. ``topology``: a container for each rank (``ranks``), or a ``single`` one for all of them.

    ``auto`` is ``ranks`` if there are more processors than ranks, because every container loads torch for itself.
    """

    def __init__(
        self, topology: Topology = "auto", *, image: str | None = None, limits: ContainerLimits | None = None
    ) -> None:
        self._topology = os.environ.get("LOCKSTEP_TOPOLOGY") or topology
        self._image = _image(image)
        self._limits = limits or ContainerLimits.from_environment()
        self._client = connect()
        self.run_id = uuid.uuid4().hex
        self._num_cpus = int(self._client.info()["NCPU"])
        self._labels = {RUN: self.run_id, OWNER: _me(self._client), UNTIL: str(int(time.time() + LONGEST_S))}
        self._groups: list[Group] = []
        self._made_for: tuple[Any, ...] = ()
        self._port = PORT
        self._hold: Any = None
        self._gpus = gpus.Slots()
        reap(self._client)

    def run(self, scenario: Scenario, folder: Path, timeout_s: float) -> dict[str, Any]:
        """As ``Launcher.run``."""
        self._start(scenario)
        self._port += 1  # the last scenario's port may not be free yet
        names = [name for group in self._groups for name in group.members]
        places = {name: folder / place_of(name) for name in names}
        inside = {
            "memory_gib": self._limits.memory_mib / 1024,
            "disk_gib": self._limits.recording_mib / 1024,  # of one file; the size of the tmpfs limits all of them
            "output_mib": self._limits.output_mib,
            "most": self._limits.recording_mib * 2**20,
        }
        with contextlib.closing(Job(self._groups, self._why_lost)) as job:
            answer = job.run(carried(scenario), places, timeout_s, inside, self._port)
        if answer["lost"]:
            self._remove()
        return answer

    def _start(self, scenario: Scenario) -> None:
        """Make containers ready for ``scenario``; those of the last scenario are kept if they fit."""
        wanted = (scenario.world_size, scenario.device)
        if self._groups and wanted == self._made_for:
            return
        self._remove()
        ranks = [f"rank {rank}" for rank in range(scenario.world_size)]
        single = self._topology == "single" or (self._topology == "auto" and len(ranks) >= self._num_cpus)
        devices: list[str] = self._gpus.take(1 if single else len(ranks)) if scenario.device == "cuda" else []
        try:
            network = "none" if single else f"container:{self._pause()}"
            plans = [(members, network) for members in ([ranks] if single else [[rank] for rank in ranks])]
            with ThreadPoolExecutor(8) as threads:
                wait = [threads.submit(self._open, members, net, number, devices)
                        for number, (members, net) in enumerate([*plans, (["reference"], "none")])]  # fmt: skip
            self._groups = [future.result() for future in wait]
            with contextlib.closing(Job(self._groups, self._why_lost)) as job:
                job.get_ready()
        except docker.errors.ImageNotFound as error:
            raise LaunchError(f"there is no image '{self._image}'. Build it: docker compose build rank.") from error
        except (docker.errors.DockerException, OSError) as error:
            self._remove()
            raise LaunchError(f"the container engine could not start the ranks: {error}") from error
        except LaunchError:
            self._remove()
            raise
        self._made_for = wanted

    def _pause(self) -> str:
        """Start the idle container whose loopback the ranks share. It ends with its owner, as all containers do."""
        made = self._create(["cat"], "pause", "none", ContainerLimits(memory_mib=32, cpus=0.1, pids=8, scratch_mib=1))
        self._hold = made.attach_socket(params={"stdin": 1, "stream": 1})  # when this is closed, the container ends
        made.start()
        return str(made.id)

    def _open(self, members: list[str], network: str, number: int, devices: list[str]) -> Group:
        """Start a container for ``members``; return it with the stream to it."""
        limits = self._limits.of_several(len(members))
        asked = gpus.request(self._client, [devices[number % len(devices)]] if devices else [])
        command = ["python", "-m", "verifier.contained"]
        made = self._create(command, members[0], network, limits, asked)
        stream = made.attach_socket(params={"stdin": 1, "stdout": 1, "stream": 1})
        made.start()
        raw: socket.socket = getattr(stream, "_sock", stream)
        raw.settimeout(30.0)
        return Group(members, made.id, raw, stream)

    def _create(
        self, command: list[str], what: str, network: str, limits: ContainerLimits, devices: list[Any] | None = None
    ) -> Any:
        memory = f"{limits.memory_mib}m"
        tmpfs = {
            "/tmp": f"size={limits.scratch_mib}m,mode=1777",
            "/records": f"size={limits.recording_mib}m,uid=1000,gid=1000,mode=0700",
        }
        return self._client.containers.create(
            self._image,
            command,
            name=f"lockstep-{self.run_id[:12]}-{what.replace(' ', '-')}-{uuid.uuid4().hex[:4]}",
            labels=self._labels,
            entrypoint=[],
            user="1000:1000",
            network_mode=network,
            stdin_open=True,
            init=False,  # our process is the first itself, so that nothing in the container can end or stop it
            read_only=True,
            tmpfs=tmpfs,
            shm_size=f"{limits.shared_mib}m",
            cap_drop=["ALL"],
            security_opt=["no-new-privileges:true"],
            pids_limit=limits.pids,
            mem_limit=memory,
            memswap_limit=memory,
            mem_swappiness=0,
            nano_cpus=int(min(limits.cpus, self._num_cpus) * 1e9),
            oom_score_adj=500,
            ulimits=[docker.types.Ulimit(name="core", soft=0, hard=0)],
            log_config=docker.types.LogConfig(type="none"),  # output goes only to us
            device_requests=devices or None,
        )

    def _why_lost(self, group: Group) -> dict[str, Any]:
        """What the engine knows about a container that ended or fell silent."""
        try:
            state = self._client.api.inspect_container(group.container)["State"]
        except docker.errors.NotFound:
            return {"reason": "its container was removed"}
        except (docker.errors.DockerException, OSError) as error:
            return {"reason": f"its container cannot be looked at: {error}"}
        if state.get("OOMKilled"):
            return {"reason": f"its container used more than {self._limits.memory_mib} MiB of memory, and was ended"}
        if state.get("Paused"):
            return {"reason": "its container is paused"}
        if state.get("Running"):
            return {"reason": group.lost and f"its container was ended: {group.lost}"}
        return {"exit_code": state.get("ExitCode"), "reason": "its container ended, or was killed"}

    def _remove(self) -> None:
        for group in self._groups:
            group.socket.close()
        self._groups, self._made_for, self._hold = [], (), None
        self._gpus.give_back()
        _remove_all(self._client, {"label": f"{RUN}={self.run_id}"})

    def close(self) -> None:
        with contextlib.suppress(docker.errors.DockerException, OSError):
            self._remove()
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def reap(client: Any = None) -> list[str]:
    """Remove containers whose owners are dead; return their names. Other processes may do so at the same time."""
    with contextlib.ExitStack() as stack:
        if client is None:
            client = stack.enter_context(contextlib.closing(connect()))
        containers = client.api.containers(all=True, filters={"label": RUN})
        dead = [entry for entry in containers if not _has_owner(client, entry["Labels"])]
        for entry in dead:
            _remove_one(client, entry["Id"])
        return [entry["Names"][0].lstrip("/") for entry in dead]


def _has_owner(client: Any, labels: dict[str, str]) -> bool:
    owner = labels.get(OWNER, "")
    kind, _, name = owner.partition(" ")
    if kind == "container":
        return name == _life_of(client, name.partition("/")[0])
    alive = owners.is_alive(owner)
    return alive if alive is not None else time.time() < float(labels.get(UNTIL, 0))


def _me(client: Any) -> str:
    """This process's name as an owner: its container's, if the engine knows one, else its own."""
    if Path("/.dockerenv").exists() and (life := _life_of(client, socket.gethostname())):
        return f"container {life}"
    return owners.this_process()


def _life_of(client: Any, container: str) -> str | None:
    """An identity of one life of a container, from a start to its end; None if it does not run."""
    try:
        found = client.api.inspect_container(container)
    except docker.errors.DockerException:
        return None
    return f"{found['Id']}/{found['State']['StartedAt']}" if found["State"]["Running"] else None


def _remove_all(client: Any, filters: dict[str, str]) -> None:
    found = client.api.containers(all=True, filters=filters)
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda entry: _remove_one(client, entry["Id"]), found))


def _remove_one(client: Any, container: str) -> None:
    with contextlib.suppress(docker.errors.DockerException):
        client.api.unpause(container)  # not every engine can end a paused one
    with contextlib.suppress(docker.errors.NotFound, docker.errors.APIError):
        client.api.remove_container(container, force=True, v=True)


def _image(name: str | None) -> str:
    """``name``, or the first allowed image. Raises UsageError if ``name`` is not allowed."""
    allowed = (os.environ.get("LOCKSTEP_RANK_IMAGES") or IMAGES).split(",")
    chosen = name or allowed[0]
    if chosen not in allowed:
        raise UsageError(
            f"the image '{chosen}' is not allowed to run ranks; allowed are: {', '.join(allowed)}. "
            "Add it to LOCKSTEP_RANK_IMAGES if you trust whoever made it."
        )
    return chosen


LAUNCHER = DockerLauncher
