"""One style of driving a wrapper per file, found by being there. Each file provides ``DRIVER``."""
