"""The kill matrix: every fault, specimen and control against every check. ``python -m tests.kill_matrix --help``."""
