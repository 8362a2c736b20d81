"""The entry point of the command ``lockstep``: start loading torch, then read the arguments.

Special here: the fork server needs two seconds to import torch, and the command a quarter of a second to import its
own libraries and read its flags. The server is started first and gains that quarter. If the request is then refused,
the server ends with this process.
"""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING

from verifier.launchers.local import LocalLauncher

if TYPE_CHECKING:
    from verifier.devices import Device


def _stop(number: int, frame: object) -> None:
    sys.exit(128 + number)


def main() -> None:
    words = sys.argv[1:]
    wants_ranks = words[:1] == ["verify"] and len(words) > 1 and not {"-h", "--help"} & set(words)
    elsewhere = "--launcher" in " ".join(words) and not any(word.endswith(("auto", "local")) for word in words)
    device: Device = "cuda" if {"cuda", "--device=cuda"} & set(words) else "cpu"
    early = LocalLauncher(device=device) if wants_ranks and not elsewhere else None
    if words[:1] not in (["serve"], ["worker"]):  # these stop in their own way
        for number in (signal.SIGTERM, signal.SIGHUP):  # so that temporary folders are removed
            if signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores it on purpose
                signal.signal(number, _stop)
    try:
        from verifier.cli import main as cli

        cli.main(early)
    except KeyboardInterrupt:  # while modules are imported; nothing has begun
        sys.exit(128 + signal.SIGINT)
    finally:
        if early is not None:
            early.close()


if __name__ == "__main__":
    main()
