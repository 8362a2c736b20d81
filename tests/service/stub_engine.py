"""A stand-in for ``verifier.engine`` with its signatures: the service's own tests need control over what a run does.

Run as a program it is the service with this engine in place of the real one:
``python stub_engine.py --port 0 --data DIR``.
What a run does is said in its strategy's options: ``seconds`` to take, ``hold`` to wait until the file
``$STUB_LOG.go`` exists, ``verdict`` to reach, ``boom`` to fail on our side. Beginnings and ends go to ``$STUB_LOG``.
"""

from __future__ import annotations

import os
import sys
import time
import types
from pathlib import Path
from typing import Any

from verifier.errors import UnknownName, UsageError
from verifier.report.model import Report


def plan(request: Any) -> list[Any]:
    if not 1 <= request.world_size <= 64:
        raise UsageError(f"world_size is {request.world_size}; it must be from 1 to 64. Choose one in between.")
    if request.strategy.kind == "builtin" and request.strategy.name not in ("bucketed", "naive"):
        raise UnknownName("strategy", request.strategy.name, ["bucketed", "naive"])
    return []


def run(request: Any, out_dir: Path, *, progress: Any = None, launcher: Any = None) -> Report:
    options = request.strategy.options
    (out_dir / "recording").mkdir()
    note("begin", out_dir.name)
    time.sleep(options.get("seconds", 0))
    while options.get("hold") and not Path(os.environ["STUB_LOG"] + ".go").exists():
        time.sleep(0.02)
        if launcher is not None and launcher.closed:
            raise RuntimeError("the launcher was closed under it")
    if options.get("boom"):
        raise RuntimeError("the engine broke")
    note("end", out_dir.name)
    verdict = options.get("verdict", "pass")
    return Report(
        verdict=verdict,
        summary=f"The stub says {verdict}.",
        strategy=request.strategy.model_dump(),
        request=request.model_dump(mode="json"),
    )


def launcher_for(request: Any) -> str:
    return "local"


class Launcher:
    """Ends the run that holds it when it is closed."""

    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


def start_launcher(name: str = "auto") -> Launcher:
    return Launcher()


def note(what: str, attempt: str) -> None:
    if path := os.environ.get("STUB_LOG"):
        handle = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
        os.write(handle, f"{what} {attempt}\n".encode())
        os.close(handle)


def module() -> types.ModuleType:
    """This, as ``verifier.engine``."""
    stub = types.ModuleType("verifier.engine")
    for function in (plan, run, launcher_for, start_launcher):
        setattr(stub, function.__name__, function)
    return stub


if __name__ == "__main__":
    import verifier

    sys.modules["verifier.engine"] = verifier.engine = module()  # type: ignore[attr-defined]
    from service import heartbeat, serve

    heartbeat.INTERVAL_S = 0.5  # the tests have no two seconds to wait
    sys.exit(serve.main(sys.argv[1:]))
