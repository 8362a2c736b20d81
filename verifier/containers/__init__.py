"""What is behind ranks in containers and needs no engine's SDK: limits, ownership, the talk with each container.

Special here: nothing of the host is mounted into a container, and nothing is copied out of one by name. Orders go in
by its stdin, recordings come out by its stdout, and the side that is trusted counts every byte (``framing``).
"""
