"""A process that has torch imported and warmed up, and forks ranks from itself on demand.

``python -m verifier.forkserver FD`` serves jobs over the socket FD until it closes. Importing torch takes seconds; a
fork takes a millisecond and shares torch's memory by copy-on-write.
"""
