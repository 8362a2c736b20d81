"""Styles of driving a wrapper, one per file. A file is found by being here, and provides ``DRIVER``."""
