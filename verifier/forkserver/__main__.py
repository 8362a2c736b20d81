"""Entry point of the fork server process; see ``verifier.forkserver.server``."""

from __future__ import annotations

import socket
import sys

from verifier.forkserver.server import serve

if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
