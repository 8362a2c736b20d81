"""Entry point of the fork server process; see ``verifier.forkserver.server``."""

from __future__ import annotations

import os
import socket
import sys

from verifier.forkserver.server import serve

if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
    os._exit(0)  # tearing down an interpreter that has torch loaded takes a quarter of a second, for nothing
