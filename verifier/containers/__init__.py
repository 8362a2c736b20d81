"""What ranks in containers need besides an engine's SDK: limits, ownership, the protocol with each container.

Special here: nothing of the host is mounted into a container, and nothing is copied out of one by name. Orders go in
by its stdin, recordings come out by its stdout, and the trusted side counts every byte (``framing``).
"""
